package watch

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// longNamespace returns a namespace that takes 60 KiB.
func longNamespace(i int) string { return fmt.Sprintf("%061440d", i) }

// recording returns the state of a watch with a limit in bytes.
func recording(limit int64) *run {
	r := watchOf(query.Query{})
	r.sent.share = share{memory: NewMemory(limit, "search-watch-memory-bytes"), user: &user.DefaultInfo{Name: "jane"}}
	return r
}

func pod(name, namespace string) query.Properties {
	return query.Properties{textProperty(query.Kind, "Pod"), textProperty(query.Name, name), textProperty(query.Namespace, namespace)}
}

// TestPlacesAreReleased checks that a watch of resources in ever new namespaces does not grow.
func TestPlacesAreReleased(t *testing.T) {
	r := recording(1 << 20)
	for i := range 1000 {
		for _, name := range []string{"a", "b"} {
			if err := r.sent.add(fmt.Sprint(i, name), "east", false, 1, 0, pod(name, longNamespace(i))); err != nil {
				t.Fatalf("error of namespace %d = %v, want nil", i, err)
			}
		}
		r.sent.remove(fmt.Sprint(i, "a"))
		item := r.sent.item(fmt.Sprint(i, "b"), 1)
		if got := search.Text(item.Object.(query.Properties), query.Namespace); got != longNamespace(i) {
			t.Fatalf("namespace of an item = %.10q…, want that of its report", got)
		}
		r.sent.remove(fmt.Sprint(i, "b"))
	}
	if places := len(r.sent.known); places != 0 {
		t.Errorf("places without items = %d, want 0", places)
	}
	if held := r.sent.share.held; held != 0 {
		t.Errorf("held bytes after all items were removed = %d, want 0", held)
	}
}

// TestPlacesAreCounted checks that long namespaces count towards the memory of the watch.
func TestPlacesAreCounted(t *testing.T) {
	r := recording(1 << 20)
	for i := range 100 {
		err := r.sent.add(fmt.Sprint(i), "east", false, 1, 0, pod("a", longNamespace(i)))
		if apierrors.IsTooManyRequests(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("error of 100 namespaces of 60 KiB with a limit of 1 MiB = nil, want status 429")
}
