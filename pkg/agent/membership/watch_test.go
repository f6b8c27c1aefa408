package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func secret(version string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hub", ResourceVersion: version}}
}

// follow returns the reports of a followed Secret with the time of each report. Each get returns
// the next result. After the last result, ctx ends. The test uses the clock of synctest.
func follow(t *testing.T, gets []error, events ...watch.Event) []string {
	t.Helper()
	var seen []string
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		calls := 0
		f := &followed[*corev1.Secret]{
			name: "hub",
			get: func(context.Context) (*corev1.Secret, error) {
				if calls++; calls > len(gets) {
					cancel()
					return nil, ctx.Err()
				}
				return secret("1"), gets[calls-1]
			},
			watch: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.ResourceVersion != "1" || options.FieldSelector != "metadata.name=hub" {
					t.Errorf("watch options = %+v, want version 1 and the name of the Secret", options)
				}
				watcher := watch.NewFakeWithChanSize(len(events), false)
				for _, event := range events {
					watcher.Action(event.Type, event.Object)
				}
				watcher.Stop()
				return watcher, nil
			},
		}
		f.follow(ctx, func(s sight[*corev1.Secret]) {
			text := fmt.Sprintf("error %v", s.err)
			if s.err == nil {
				text = fmt.Sprintf("version %s, deleted %t", s.object.ResourceVersion, s.deleted)
			}
			// The jitter of a pause is at most half of it.
			seen = append(seen, fmt.Sprintf("%s after %s", text, time.Since(began).Truncate(soonPause)))
		})
	})
	return seen
}

func TestFollow(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("secrets"), "hub")
	slow := apierrors.NewTooManyRequests("busy", 30)
	for name, test := range map[string]struct {
		gets   []error
		events []watch.Event
		want   []string
	}{
		"changes": {
			gets:   []error{nil},
			events: []watch.Event{{Type: watch.Modified, Object: secret("2")}, {Type: watch.Deleted, Object: secret("3")}},
			want:   []string{"version 1, deleted false after 0s", "version 2, deleted false after 0s", "version 3, deleted true after 0s"},
		},
		"nothing follows a deletion": {
			gets:   []error{nil},
			events: []watch.Event{{Type: watch.Deleted, Object: secret("2")}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 1, deleted false after 0s", "version 2, deleted true after 0s"},
		},
		"an error event ends the watch": {
			gets:   []error{nil},
			events: []watch.Event{{Type: watch.Error, Object: &metav1.Status{Code: http.StatusInternalServerError}}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 1, deleted false after 0s"},
		},
		"an unexpected object ends the watch": {
			gets:   []error{nil},
			events: []watch.Event{{Type: watch.Modified, Object: runtime.Object(&corev1.ConfigMap{})}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 1, deleted false after 0s"},
		},
		"a bookmark is ignored": {
			gets:   []error{nil},
			events: []watch.Event{{Type: watch.Bookmark, Object: secret("2")}},
			want:   []string{"version 1, deleted false after 0s"},
		},
		"errors are reported": {
			gets: []error{gone, errors.New("no route")},
			want: []string{"error " + gone.Error() + " after 0s", "error no route after 200ms"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, follow(t, test.gets, test.events...)); diff != "" {
				t.Errorf("follow() (-want +got):\n%s", diff)
			}
		})
	}
	if got := follow(t, []error{slow, gone}); len(got) != 2 || got[1] != "error "+gone.Error()+" after 30s" {
		t.Errorf("follow() = %q, want the second request after the 30 seconds of the server's Retry-After", got)
	}
}

// TestFollowByName checks that an object that may not be watched is read at least every few seconds.
func TestFollowByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reads := 0
		f := &followed[*corev1.Secret]{name: "hub", get: func(context.Context) (*corev1.Secret, error) {
			reads++
			return secret(strconv.Itoa(reads)), nil
		}}
		last, longest := time.Now(), time.Duration(0)
		f.follow(ctx, func(seen sight[*corev1.Secret]) {
			longest, last = max(longest, time.Since(last)), time.Now()
			if seen.err != nil || seen.object.ResourceVersion != strconv.Itoa(reads) {
				t.Errorf("sight after read %d = %+v, want version %d", reads, seen, reads)
			}
		})
		if most := pollPause * 3 / 2; longest > most || reads > 20 {
			t.Errorf("follow() made %d reads in a minute and paused for up to %s, want at most 20 and %s", reads, longest, most)
		}
	})
}

// TestFollowAfterOutage checks that the agent sees an object at most half a minute after an outage of the hub, and sends few requests
// meanwhile.
func TestFollowAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		over, reads := time.Now().Add(time.Hour), 0
		f := &followed[*corev1.Secret]{name: "hub", get: func(context.Context) (*corev1.Secret, error) {
			if reads++; time.Now().Before(over) {
				return nil, errors.New("no answer")
			}
			return secret("1"), nil
		}, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }}
		f.follow(ctx, func(seen sight[*corev1.Secret]) {
			if seen.err == nil {
				cancel()
			}
		})
		if after := time.Since(over); after > 30*time.Second || reads > 200 {
			t.Errorf("follow() saw the object %s after the outage with %d requests, want 30s and 200 at most", after, reads)
		}
	})
}

// TestFollowAfterRestart checks that the watch continues although the server does not know the version of the object.
func TestFollowAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var versions, seen []string
		f := &followed[*corev1.Secret]{
			name: "hub",
			get:  func(context.Context) (*corev1.Secret, error) { return secret("1"), nil },
			watch: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				versions = append(versions, options.ResourceVersion)
				watcher := watch.NewFakeWithChanSize(3, false)
				if options.ResourceVersion != "" {
					watcher.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
				} else {
					watcher.Add(secret("1"))
					watcher.Modify(secret("9"))
					watcher.Delete(secret("10"))
				}
				return watcher, nil
			},
		}
		f.follow(ctx, func(s sight[*corev1.Secret]) {
			if seen = append(seen, s.object.ResourceVersion); s.deleted {
				cancel()
			}
		})
		if diff := cmp.Diff([]string{"1", ""}, versions); diff != "" {
			t.Errorf("versions of the watches (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"1", "9", "10"}, seen); diff != "" {
			t.Errorf("versions seen (-want +got):\n%s", diff)
		}
	})
}

// TestFollowAgain checks that a signal immediately ends a watch and a pause.
func TestFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		again := make(chan struct{}, 1)
		gets := 0
		f := &followed[*corev1.Secret]{
			name: "hub", again: again,
			get: func(context.Context) (*corev1.Secret, error) {
				gets++
				return secret("1"), nil
			},
			watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.follow(ctx, func(sight[*corev1.Secret]) {})
		}()
		synctest.Wait()
		if gets != 1 {
			t.Errorf("requests before the signal = %d, want 1", gets)
		}
		again <- struct{}{}
		synctest.Wait()
		again <- struct{}{}
		synctest.Wait()
		if gets != 2 {
			t.Errorf("requests after signals during the watch and the pause = %d, want 2", gets)
		}
		cancel()
		<-done
	})
}
