package view

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// oneObject is a Lister with one object, which all callers see.
type oneObject struct {
	changes rbac.Interests
	version atomic.Int64
	passes  atomic.Int64
}

func (l *oneObject) change() {
	l.version.Add(1)
	l.changes.TouchAll()
}

func (l *oneObject) Permit(context.Context, user.Info) (func() ([]Object, error), error) {
	return func() ([]Object, error) {
		l.passes.Add(1)
		version := strconv.FormatInt(l.version.Load(), 10)
		return []Object{&clusterviewv1alpha1.UserPermission{ObjectMeta: metav1.ObjectMeta{Name: "one", ResourceVersion: version}}}, nil
	}, nil
}

func (l *oneObject) Get(context.Context, user.Info, string) (Object, error) {
	return nil, apierrors.NewNotFound(clusterviewv1alpha1.Resource("userpermissions"), "one")
}

func (l *oneObject) Show(object Object) Object     { return object }
func (l *oneObject) Remember(object Object) Object { return object }

func (l *oneObject) Subscribe(user.Info) (permissions, objects <-chan struct{}, stop func()) {
	interest, objects := l.changes.Subscribe(nil)
	return nil, objects, func() { l.changes.Remove(interest) }
}

func newTestREST(l *oneObject) *REST {
	return NewREST(Options{
		Lister: l, Period: time.Second,
		Base: definition.Base{Object: &clusterviewv1alpha1.UserPermission{}, Objects: &clusterviewv1alpha1.UserPermissionList{}},
	})
}

func asAlice(t *testing.T) context.Context {
	return request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
}

// TestPassesAreBounded checks that many changes cost one pass in each period, and that the last change is not missed.
func TestPassesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &oneObject{}
		w, err := newTestREST(l).Watch(asAlice(t), &metainternalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var last watch.Event
		done := make(chan struct{})
		go func() {
			defer close(done)
			for last = range w.ResultChan() {
			}
		}()
		const seconds, changes = 5, 500
		ticker := time.NewTicker(seconds * time.Second / changes)
		defer ticker.Stop()
		for range changes {
			l.change()
			<-ticker.C
		}
		// After the pause of one period, the last change is sent.
		<-time.After(2 * time.Second)
		w.Stop()
		<-done
		// One at the start, one in each period, and one for the changes of the last period.
		if passes := l.passes.Load(); passes < seconds || passes > seconds+2 {
			t.Errorf("passes = %d for %d changes in %d periods, want about one in each", passes, changes, seconds)
		}
		if object, ok := last.Object.(Object); !ok || object.GetResourceVersion() != strconv.Itoa(changes) {
			t.Errorf("last event = %v, want the version %d", last, changes)
		}
		if !l.changes.Empty() {
			t.Error("the subscription continues after the end of the watch")
		}
	})
}

func TestWatchesAreBounded(t *testing.T) {
	r := newTestREST(&oneObject{})
	var open []watch.Interface
	defer func() {
		for _, w := range open {
			w.Stop()
		}
	}()
	for range maxWatches {
		w, err := r.Watch(asAlice(t), &metainternalversion.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, w)
	}
	if _, err := r.Watch(asAlice(t), &metainternalversion.ListOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("watch after %d others: error = %v, want 429", maxWatches, err)
	}
	open[0].Stop()
	open[0].Stop()
	w, err := r.Watch(asAlice(t), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatalf("watch after the end of another: error = %v, want none", err)
	}
	open = slices.Concat(open[1:], []watch.Interface{w})
	if _, err := r.Watch(asAlice(t), &metainternalversion.ListOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("watch after %d others: error = %v, want 429", maxWatches, err)
	}
}
