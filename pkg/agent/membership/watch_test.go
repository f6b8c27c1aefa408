package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// secrets returns a list with one Secret that has not changed for long.
func secrets(version string) *corev1.SecretList {
	return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []corev1.Secret{*secret("0")}}
}

func secret(version string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hub", ResourceVersion: version}}
}

// follow returns the reports of a followed Secret with the time of each report. Each read returns
// the next result; the Secret does not exist if it is NotFound. After the last result, ctx ends. The test uses the clock of synctest.
func follow(t *testing.T, reads []error, events ...watch.Event) []string {
	t.Helper()
	var seen []string
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		calls := 0
		f := &followed[*corev1.Secret]{
			name: "hub",
			list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if calls++; calls > len(reads) {
					cancel()
					return nil, ctx.Err()
				}
				if apierrors.IsNotFound(reads[calls-1]) {
					return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
				}
				return secrets("1"), reads[calls-1]
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
			switch {
			case s.absent:
				text = "absent"
			case s.err == nil:
				text = fmt.Sprintf("version %s, deleted %t", s.object.ResourceVersion, s.deleted)
			}
			// The jitter of a pause is at most half of it.
			seen = append(seen, fmt.Sprintf("%s after %s", text, time.Since(began).Truncate(soonPause)))
		})
	})
	return seen
}

func TestFollow(t *testing.T) {
	denied := apierrors.NewForbidden(corev1.Resource("secrets"), "hub", nil)
	gone := apierrors.NewNotFound(corev1.Resource("secrets"), "hub")
	slow := apierrors.NewTooManyRequests("busy", 30)
	for name, test := range map[string]struct {
		reads  []error
		events []watch.Event
		want   []string
	}{
		"changes": {
			reads:  []error{nil},
			events: []watch.Event{{Type: watch.Modified, Object: secret("2")}, {Type: watch.Deleted, Object: secret("3")}},
			want:   []string{"version 0, deleted false after 0s", "version 2, deleted false after 0s", "version 3, deleted true after 0s"},
		},
		"nothing follows a deletion": {
			reads:  []error{nil},
			events: []watch.Event{{Type: watch.Deleted, Object: secret("2")}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 0, deleted false after 0s", "version 2, deleted true after 0s"},
		},
		"an error event ends the watch": {
			reads:  []error{nil},
			events: []watch.Event{{Type: watch.Error, Object: &metav1.Status{Code: http.StatusInternalServerError}}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 0, deleted false after 0s"},
		},
		"an unexpected object ends the watch": {
			reads:  []error{nil},
			events: []watch.Event{{Type: watch.Modified, Object: runtime.Object(&corev1.ConfigMap{})}, {Type: watch.Modified, Object: secret("3")}},
			want:   []string{"version 0, deleted false after 0s"},
		},
		"a bookmark is ignored": {
			reads:  []error{nil},
			events: []watch.Event{{Type: watch.Bookmark, Object: secret("2")}},
			want:   []string{"version 0, deleted false after 0s"},
		},
		"errors are reported": {
			reads: []error{denied, errors.New("no route")},
			want:  []string{"error " + denied.Error() + " after 0s", "error no route after 200ms"},
		},
		"an object that does not exist is watched": {
			reads:  []error{gone},
			events: []watch.Event{{Type: watch.Added, Object: secret("2")}},
			want:   []string{"absent after 0s", "version 2, deleted false after 0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, follow(t, test.reads, test.events...)); diff != "" {
				t.Errorf("follow() (-want +got):\n%s", diff)
			}
		})
	}
	if got := follow(t, []error{slow, denied}); len(got) != 2 || got[1] != "error "+denied.Error()+" after 30s" {
		t.Errorf("follow() = %q, want the second request after the 30 seconds of the server's Retry-After", got)
	}
}

// TestPoll checks that an object that may not be watched is read at least every few seconds.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reads := 0
		last, longest := time.Now(), time.Duration(0)
		err := poll(ctx, func(context.Context) (bool, error) {
			reads++
			longest, last = max(longest, time.Since(last)), time.Now()
			return false, nil
		})
		if most := pollPause * 3 / 2; !errors.Is(err, context.DeadlineExceeded) || longest > most || reads > 20 {
			t.Errorf("poll() = %v after %d reads in a minute and pauses of up to %s, want at most 20 and %s", err, reads, longest, most)
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
		f := &followed[*corev1.Secret]{name: "hub", list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if reads++; time.Now().Before(over) {
				return nil, errors.New("no answer")
			}
			return secrets("1"), nil
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

// TestFollowBehindABalancer checks that the agent sees changes soon although something between it and the hub cuts each
// watch after some seconds, and that it sends few requests to a hub that ends each watch at once.
func TestFollowBehindABalancer(t *testing.T) {
	for _, test := range []struct {
		cut   time.Duration
		pause time.Duration
		reads int
	}{
		{cut: 10 * time.Second, pause: soonPause * 3 / 2, reads: 360},
		{cut: 0, pause: followPause * 3 / 2, reads: 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			reads, ended, longest := 0, time.Now(), time.Duration(0)
			f := &followed[*corev1.Secret]{name: "hub", list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				reads++
				longest = max(longest, time.Since(ended))
				return secrets("1"), nil
			}, watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				watcher := watch.NewFake()
				time.AfterFunc(test.cut, watcher.Stop)
				ended = time.Now().Add(test.cut)
				return watcher, nil
			}}
			f.follow(ctx, func(sight[*corev1.Secret]) {})
			if longest > test.pause || reads > test.reads {
				t.Errorf("watches that end after %s: pauses of up to %s and %d requests in an hour, want %s and %d at most", test.cut, longest, reads, test.pause, test.reads)
			}
		})
	}
}

// TestFollowAgain checks that a signal immediately ends a watch and a pause.
func TestFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		again := make(chan struct{}, 1)
		reads := 0
		f := &followed[*corev1.Secret]{
			name: "hub", again: again,
			list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				reads++
				return secrets("1"), nil
			},
			watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.follow(ctx, func(sight[*corev1.Secret]) {})
		}()
		synctest.Wait()
		if reads != 1 {
			t.Errorf("requests before the signal = %d, want 1", reads)
		}
		again <- struct{}{}
		synctest.Wait()
		again <- struct{}{}
		synctest.Wait()
		if reads != 2 {
			t.Errorf("requests after signals during the watch and the pause = %d, want 2", reads)
		}
		cancel()
		<-done
	})
}
