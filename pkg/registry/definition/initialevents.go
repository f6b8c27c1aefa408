package definition

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"
)

// watchStore watches the store. If a watch of a namespace begins with the existing objects, the watch cache would read the
// objects of all namespaces to find them, for each agent of the fleet. A list reads those of the namespace only.
func (r *REST) watchStore(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil || request.NamespaceValue(ctx) == "" || !beginsWithObjects(options) {
		return r.Store.Watch(ctx, options)
	}
	read := options.DeepCopy()
	read.SendInitialEvents, read.AllowWatchBookmarks = nil, false
	// As in Kubernetes, a watch ignores them.
	read.Limit, read.Continue = 0, ""
	if read.ResourceVersion == "" {
		read.ResourceVersionMatch = ""
	}
	list, err := r.List(ctx, read)
	if err != nil {
		return nil, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	follow := options.DeepCopy()
	follow.ResourceVersion, follow.ResourceVersionMatch, follow.SendInitialEvents = accessor.GetResourceVersion(), "", nil
	inner, err := r.Store.Watch(ctx, follow)
	if err != nil {
		return nil, err
	}
	initial := make([]watch.Event, 0, len(objects)+1)
	for _, object := range objects {
		initial = append(initial, watch.Event{Type: watch.Added, Object: object})
	}
	if ptr.Deref(options.SendInitialEvents, false) && options.AllowWatchBookmarks {
		end, err := r.endOfObjects(follow.ResourceVersion)
		if err != nil {
			inner.Stop()
			return nil, err
		}
		initial = append(initial, watch.Event{Type: watch.Bookmark, Object: end})
	}
	return precede(initial, inner), nil
}

// beginsWithObjects reports whether a watch begins with the existing objects.
func beginsWithObjects(options *metainternalversion.ListOptions) bool {
	if options.SendInitialEvents != nil {
		return *options.SendInitialEvents
	}
	return options.ResourceVersion == "" || options.ResourceVersion == "0"
}

// endOfObjects returns the bookmark after the existing objects.
func (r *REST) endOfObjects(resourceVersion string) (runtime.Object, error) {
	end := r.New()
	accessor, err := meta.Accessor(end)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(resourceVersion)
	accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return end, nil
}

// precede returns a watch that sends events before those of inner. It ends with inner or by Stop.
func precede(events []watch.Event, inner watch.Interface) watch.Interface {
	out := make(chan watch.Event)
	w := watch.NewProxyWatcher(out)
	send := func(event watch.Event) bool {
		select {
		case out <- event:
			return true
		case <-w.StopChan():
			return false
		}
	}
	go func() {
		defer close(out)
		defer inner.Stop()
		for i := range events {
			if !send(events[i]) {
				return
			}
			events[i] = watch.Event{} // the watch lives longer than its initial objects
		}
		for {
			select {
			case event, open := <-inner.ResultChan():
				if !open || !send(event) {
					return
				}
			case <-w.StopChan():
				return
			}
		}
	}()
	return w
}
