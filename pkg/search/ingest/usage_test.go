package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestClusterResources checks that a cluster at its limit cannot add resources, but can change and
// delete them, and that other clusters are not affected.
func TestClusterResources(t *testing.T) {
	s := serve(t, Config{ClusterResources: 3})
	expectTotal := func(what string, a answer, want int) {
		t.Helper()
		if got, _ := a.totals(t); got != want {
			t.Errorf("%s: total = %d, want %d", what, got, want)
		}
	}
	expectTotal("full report", s.post(t, "c1", full("c1", "a", "b", "c")), 3)
	expectTotal("another resource", s.post(t, "c1", `{"addResources":[`+pod("c1", "d")+`]}`), resync)
	refused := s.post(t, "c1", full("c1", "a", "b", "c", "d"))
	if refused.code != http.StatusRequestEntityTooLarge {
		t.Fatalf("response to a full report of 4 = %d, want 413", refused.code)
	}
	for _, part := range []string{`cluster "c1"`, "4 resources", "3 resources (--search-cluster-max-resources)"} {
		if message := refused.status(t).Message; !strings.Contains(message, part) {
			t.Errorf("message = %q, want it to contain %q", message, part)
		}
	}
	expectTotal("deletion", s.post(t, "c1", `{"deleteResources":[{"uid":"c1/a"}]}`), 2)
	expectTotal("another resource in its place", s.post(t, "c1", `{"addResources":[`+pod("c1", "d")+`]}`), 3)
	expectTotal("another cluster", s.post(t, "c2", full("c2", "a", "b", "c")), 3)

	// If the limit was lowered, a cluster may still shrink.
	s.handler.usage.resources = 1
	expectTotal("smaller full report", s.post(t, "c1", full("c1", "b", "c")), 2)
	if grown := s.post(t, "c1", full("c1", "b", "c", "d")); grown.code != http.StatusRequestEntityTooLarge {
		t.Errorf("response to a larger full report = %d, want 413", grown.code)
	}
}

// TestClusterBytes checks that changes add up until a full report shows the actual size.
func TestClusterBytes(t *testing.T) {
	s := serve(t, Config{ClusterBytes: 20_000})
	large := func(version int) string {
		return fmt.Sprintf(`{"kind":"Pod","uid":"c1/a","resourceString":"pods","properties":{"kind":"Pod","name":"a","version":"%d","text":%q}}`, version, strings.Repeat("x", 5000))
	}
	asked := 0
	for i := range 20 {
		if total, _ := s.post(t, "c1", `{"updateResources":[`+large(i)+`]}`).totals(t); total == resync {
			asked++
			if total, _ := s.post(t, "c1", `{"clearAll":true,"addResources":[`+large(i)+`]}`).totals(t); total != 1 {
				t.Fatalf("full report: total = %d, want 1", total)
			}
		}
	}
	if asked < 2 || asked > 10 {
		t.Errorf("full reports = %d, want 2 to 10: one after a few changes", asked)
	}
	pods := make([]string, 0, 5)
	for i := range 5 {
		pods = append(pods, strings.ReplaceAll(large(i), "c1/a", fmt.Sprint("c1/", i)))
	}
	if a := s.post(t, "c1", `{"clearAll":true,"addResources":[`+strings.Join(pods, ",")+`]}`); a.code != http.StatusRequestEntityTooLarge ||
		!strings.Contains(a.body, "--search-cluster-max-bytes") {
		t.Errorf("response to a full report = %d %s, want 413 with the name of the flag", a.code, a.body)
	}
}
