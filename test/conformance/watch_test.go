package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/await"
)

func (p *place) watch(t *testing.T, options metav1.ListOptions) watch.Interface {
	t.Helper()
	watcher, err := p.client.Watch(t.Context(), options)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	t.Cleanup(watcher.Stop)
	return watcher
}

// next returns the next event of a watch, and fails the test if there is none before the deadline.
func next(t *testing.T, watcher watch.Interface) (watch.EventType, *unstructured.Unstructured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	select {
	case event, open := <-watcher.ResultChan():
		if !open {
			t.Fatal("the watch ended, want an event")
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("watch event = %v, want an object", apierrors.FromObject(event.Object))
		}
		return event.Type, object
	case <-ctx.Done():
		t.Fatalf("the watch returned no event within %s", await.Patience)
	}
	return "", nil
}

func TestWatch(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		list, err := p.client.List(t.Context(), p.listOptions())
		if err != nil {
			t.Fatal(err)
		}
		created := p.create(t)
		options := p.listOptions()
		options.ResourceVersion = list.GetResourceVersion()
		watcher := p.watch(t, options)
		event, object := next(t, watcher)
		if event != watch.Added || object.GetUID() != created.GetUID() || object.GroupVersionKind() != p.gvk() {
			t.Fatalf("first event = %s of %s %s, want ADDED of the new object %s", event, object.GroupVersionKind(), object.GetName(), created.GetName())
		}
		// If an object no longer matches the selector, the watch returns a DELETED event.
		p.merge(t, created.GetName(), labelled(placeLabel, p.label+"-left"))
		for {
			if event, object = next(t, watcher); event == watch.Deleted {
				break
			}
			if event != watch.Modified {
				t.Fatalf("event = %s, want MODIFIED or DELETED", event)
			}
		}
		if object.GetUID() != created.GetUID() {
			t.Errorf("object of the DELETED event = %s, want %s", object.GetName(), created.GetName())
		}
	})
}

// TestWatchBookmarks checks that a watch receives bookmarks. The server sends one shortly before
// the timeout of a watch.
func TestWatchBookmarks(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		created := p.create(t)
		options := p.listOptions()
		options.ResourceVersion = "0"
		options.AllowWatchBookmarks = true
		options.TimeoutSeconds = ptr.To[int64](5)
		watcher := p.watch(t, options)
		// A watch from resource version 0 may start before the object was created, so the test skips
		// bookmarks before the object's event.
		for seen := false; ; {
			event, object := next(t, watcher)
			if event != watch.Bookmark || !seen {
				seen = seen || object.GetUID() == created.GetUID()
				continue
			}
			if object.GroupVersionKind() != p.gvk() || object.GetName() != "" {
				t.Errorf("bookmark of %s %q, want %s without a name", object.GroupVersionKind(), object.GetName(), p.gvk())
			}
			order, err := compareVersions(object.GetResourceVersion(), created.GetResourceVersion())
			if err != nil || order < 0 {
				t.Errorf("resourceVersion of the bookmark = %s, want at least %s, that of the object (%v)", object.GetResourceVersion(), created.GetResourceVersion(), err)
			}
			return
		}
	})
}

// TestWatchList checks the streaming list that informers of client-go use.
func TestWatchList(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		var want []string
		for range 3 {
			want = append(want, p.create(t).GetName())
		}
		slices.Sort(want)
		options := p.listOptions()
		options.SendInitialEvents = ptr.To(true)
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		options.AllowWatchBookmarks = true
		watcher := p.watch(t, options)
		seen := map[string]bool{}
		for {
			event, object := next(t, watcher)
			if event == watch.Bookmark {
				if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
					t.Errorf("annotations of the first bookmark = %v, want %s", object.GetAnnotations(), metav1.InitialEventsAnnotationKey)
				}
				break
			}
			seen[object.GetName()] = true
		}
		for _, name := range want {
			if !seen[name] {
				t.Errorf("initial events do not contain %s", name)
			}
		}
		later := p.create(t)
		for {
			event, object := next(t, watcher)
			if event == watch.Added && object.GetUID() == later.GetUID() {
				return
			}
		}
	})
}

func TestInformer(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		first := p.create(t)
		informer := dynamicinformer.NewFilteredDynamicInformer(p.hub.dynamic, p.gvr(), p.namespace, 0, cache.Indexers{},
			func(options *metav1.ListOptions) { options.LabelSelector = p.selector() }).Informer()
		go informer.RunWithContext(t.Context())
		has := func(object *unstructured.Unstructured, want bool) {
			t.Helper()
			await.Eventually(t, fmt.Sprintf("the informer contains %s: %t", object.GetName(), want), func(context.Context) error {
				if !informer.HasSynced() {
					return errors.New("the informer has not synced")
				}
				key := cache.MetaObjectToName(object).String()
				if _, got, err := informer.GetStore().GetByKey(key); err != nil || got != want {
					return fmt.Errorf("contains %s = %t, want %t (%v)", key, got, want, err)
				}
				return nil
			})
		}
		has(first, true)
		second := p.create(t)
		has(second, true)
		if err := p.client.Delete(t.Context(), first.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		has(first, false)
	})
}
