package watch

import (
	"fmt"
	"strings"
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
	if places := len(r.sent.places); places != 1 || len(r.sent.known) != 0 {
		t.Errorf("places = %d, of which %d are known, want 1 and 0", places, len(r.sent.known))
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

// TestReplaysAreCounted checks the memory of a replay, and that it is returned.
func TestReplaysAreCounted(t *testing.T) {
	r := recording(1 << 40)
	r.replay = replay{running: true, touched: map[string]*search.Change{}}
	touch := func(uid, namespace string) {
		t.Helper()
		if err := r.touch(uid, withoutProperties(&search.Change{UID: uid, Cluster: "east", After: pod("a", namespace)})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		touch(fmt.Sprint(i), longNamespace(i))
	}
	if held := r.sent.share.held; held < 10*60<<10 {
		t.Errorf("held bytes of 10 namespaces of 60 KiB = %d, want at least %d", held, 10*60<<10)
	}
	for i := range 8 {
		touch(fmt.Sprint(i), "shop")
	}
	for _, uid := range []string{"8", "9"} {
		if err := r.touch(uid, nil); err != nil {
			t.Fatal(err)
		}
	}
	if held := r.sent.share.held; held > 60<<10 {
		t.Errorf("held bytes without long namespaces = %d, want less than one of them", held)
	}
	if err := r.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := 8*bytesOf("0", "a") + (&place{cluster: "east", kind: "Pod", namespace: "shop"}).bytes()
	if held := r.sent.share.held; held != want {
		t.Errorf("held bytes after the replay = %d, want the %d of 8 items", held, want)
	}
	if strings.Count(fmt.Sprint(r.sent.places), "shop") != 1 {
		t.Errorf("places = %v, want that of shop", r.sent.places)
	}
}
