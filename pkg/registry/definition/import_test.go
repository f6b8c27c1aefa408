package definition_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/await"
)

func TestImport(t *testing.T) {
	row := newRow()
	var store *definition.REST
	row.Stores = map[string]func(*definition.REST){resource: func(s *definition.REST) { store = s }}
	f := serve(t, row)
	created := metav1.NewTime(time.Unix(1_700_000_000, 0))
	imported := func(uid string) *addon.ManagedClusterAddOn {
		return &addon.ManagedClusterAddOn{
			ObjectMeta: metav1.ObjectMeta{
				Name: "a", Namespace: namespace, UID: "uid-" + "1", Generation: 7, CreationTimestamp: created, ResourceVersion: "12345",
				Finalizers: []string{"example.com/cleanup"}, DeletionTimestamp: &created,
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "someone", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1"}},
			},
			Status: addonv1alpha1.ManagedClusterAddOnStatus{Namespace: uid},
		}
	}
	if _, err := store.Import(t.Context(), imported("dry"), definition.ImportOptions{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after a dry run = %v, want NotFound", err)
	}
	for _, status := range []string{"first", "second"} {
		if _, err := store.Import(t.Context(), imported(status), definition.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		got := f.get(t, "a")
		if got.UID != "uid-1" || got.Generation != 7 || !got.CreationTimestamp.Equal(&created) || !got.DeletionTimestamp.Equal(&created) ||
			len(got.Finalizers) != 1 || len(got.ManagedFields) != 1 || got.Status.Namespace != status {
			t.Errorf("imported object = %+v, want the UID, times, generation, finalizers, managed fields and status of the import", got)
		}
	}
	other := imported("third")
	other.UID = "uid-2"
	if _, err := store.Import(t.Context(), other, definition.ImportOptions{Adopt: true}); !apierrors.IsConflict(err) || f.get(t, "a").Status.Namespace != "second" {
		t.Errorf("Import() of another UID with Adopt = %v, want a conflict and no change", err)
	}
	if _, err := store.Import(t.Context(), imported("fourth"), definition.ImportOptions{Adopt: true}); err != nil || f.get(t, "a").Status.Namespace != "fourth" {
		t.Errorf("Import() of the same UID with Adopt = %v, want the import", err)
	}
	without := imported("")
	without.UID = ""
	if _, err := store.Import(t.Context(), without, definition.ImportOptions{}); causes(err) != "metadata.uid" {
		t.Errorf("Import() without UID = %v, want an error of metadata.uid", err)
	}
	if n, err := store.Discard(t.Context(), true); n != 1 || err != nil {
		t.Errorf("Discard() as a dry run = %d, %v, want 1 and no error", n, err)
	}
	f.get(t, "a")
	if n, err := store.Discard(t.Context(), false); n != 1 || err != nil {
		t.Errorf("Discard() = %d, %v, want 1 and no error", n, err)
	}
	if _, err := f.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after Discard() of an object with a finalizer = %v, want NotFound", err)
	}
}

// A client that has seen other data must list again: its watch would otherwise be silent.
func TestWatchOfOtherData(t *testing.T) {
	row := newRow()
	row.Watches = &definition.Watches{}
	f := serve(t, row)
	stored := f.create(t, newAddOn("a", ""))
	list, err := f.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	expired := func(what, version string) {
		t.Helper()
		w, err := f.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err == nil {
			w.Stop()
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("Watch() from %s = %v, want 410", what, err)
		}
	}
	expired("the future", strconv.FormatUint(current+1000, 10))

	open, err := f.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Stop()
	f.create(t, newAddOn("b", ""))
	if event := next(t, open); event.Type != watch.Added {
		t.Errorf("event of a new object = %s, want ADDED", event.Type)
	}
	row.Watches.Hold(true)
	select {
	case event, running := <-open.ResultChan():
		if running {
			t.Errorf("event during a migration = %v, want the end of the watch", event)
		}
	case <-time.After(await.Patience):
		t.Error("a watch continues during a migration, want its end")
	}
	expired("a version of this server during a migration", list.ResourceVersion)
	row.Watches.Hold(false)
	f.create(t, newAddOn("c", ""))
	expired("a version before the migration", stored.ResourceVersion)
	list, err = f.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatalf("Watch() from the version of a list after the migration = %v, want no error", err)
	}
	again.Stop()
}

// TestHoldEndsUnreadWatches checks that a watch whose client does not read ends without the events that do not wait in its buffer.
func TestHoldEndsUnreadWatches(t *testing.T) {
	const objects, most = 180, 120
	row := newRow()
	row.Watches = &definition.Watches{}
	var store *definition.REST
	row.Stores = map[string]func(*definition.REST){resource: func(s *definition.REST) { store = s }}
	f := serve(t, row)
	for i := range objects {
		f.create(t, newAddOn("a"+strconv.Itoa(i), ""))
	}
	w, err := store.Watch(store.Context(t.Context(), "watch", metav1.NamespaceAll), &metainternalversion.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	awaitGoroutine := func(running bool) {
		t.Helper()
		await.Eventually(t, fmt.Sprintf("the goroutine of the watch runs: %t", running), func(context.Context) error {
			var all bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
				return err
			}
			if strings.Contains(all.String(), "(*cacheWatcher).process") != running {
				return fmt.Errorf("it runs: %t", !running)
			}
			return nil
		})
	}
	awaitGoroutine(true)
	row.Watches.Hold(true)
	awaitGoroutine(false)
	received := 0
	for range w.ResultChan() {
		received++
	}
	if received > most {
		t.Errorf("events after Hold() = %d, want at most the %d that may wait", received, most)
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		return event
	case <-time.After(await.Patience):
		t.Fatal("the watch has no event")
		return watch.Event{}
	}
}
