package search

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestSearchWithClusteradm(t *testing.T) {
	t.Parallel()
	s := shared(t).smallFleet(t)
	cluster := s.seen.name
	works := func(t *testing.T, args ...string) string {
		t.Helper()
		out, complaints, code := s.viewer.Clusteradm(t, args...)
		if code != 0 {
			t.Fatalf("clusteradm %v: exit code %d:\n%s%s", args, code, out, complaints)
		}
		return out
	}
	t.Run("table", func(t *testing.T) {
		var got []string
		for line := range strings.Lines(works(t, "search", "kind:Pod", "restarts>8", "--order-by", "restarts desc")) {
			fields := strings.Fields(line)
			got = append(got, strings.Join(slices.Delete(fields, 5, 6), " ")) // without AGE
		}
		want := []string{"CLUSTER KIND NAMESPACE NAME STATUS RESTARTS", cluster + " Pod payments web-1-b CrashLoopBackOff 10", cluster + " Pod default job-x Completed 9"}
		if !slices.Equal(got, want) {
			t.Errorf("clusteradm search =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	t.Run("table with related resources", func(t *testing.T) {
		out := works(t, "search", "kind:ReplicaSet", "--related")
		for _, want := range []string{"web-1-a", "web-1-b", "Deployment"} {
			if !strings.Contains(out, want) {
				t.Errorf("clusteradm search --related does not contain %q:\n%s", want, out)
			}
		}
	})
	t.Run("names", func(t *testing.T) {
		got := works(t, "search", "kind:Node,Deployment", "-o", "name", "--order-by=kind")
		if want := cluster + "/payments/deployment/web\n" + cluster + "/node/node-1\n"; got != want {
			t.Errorf("clusteradm search -o name =\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("json", func(t *testing.T) {
		var got searchv1alpha1.SearchStatus
		if err := json.Unmarshal([]byte(works(t, "search", "kind:Pod", "-o", "json", "--limit=1")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Count != 4 || len(got.Items) != 1 || got.Continue == "" {
			t.Errorf("clusteradm search -o json = %+v, want count 4, one item and a continue token", got)
		}
	})
	t.Run("count", func(t *testing.T) {
		if got := works(t, "search", "kind:Pod", "--count"); got != "4\n" {
			t.Errorf("clusteradm search --count = %q, want 4", got)
		}
	})
	t.Run("a keyword with a space", func(t *testing.T) {
		if got := works(t, "search", "rolling update", "-o", "name"); got != cluster+"/payments/deployment/web\n" {
			t.Errorf("clusteradm search with a keyword = %q, want the Deployment web", got)
		}
	})
	t.Run("warnings", func(t *testing.T) {
		out, complaints, code := s.viewer.Clusteradm(t, "search", "kind:Pod", "stauts:Running")
		if code != 0 || out != "" || !strings.Contains(complaints, `did you mean "status"?`) || !strings.Contains(complaints, "No resources found") {
			t.Errorf("search for an unknown property: exit code = %d, want 0 and a suggestion:\n%s%s", code, out, complaints)
		}
	})
	t.Run("an invalid query", func(t *testing.T) {
		out, complaints, code := s.viewer.Clusteradm(t, "search", "kind==Pod")
		if code == 0 || out != "" || !strings.HasPrefix(complaints, "Error: ") || !strings.Contains(complaints, "position 4") || !strings.Contains(complaints, "use kind=Pod instead") {
			t.Errorf("search with an invalid query: exit code = %d, want an error with the position and the correction:\n%s%s", code, out, complaints)
		}
	})
	t.Run("no query, or an unknown output", func(t *testing.T) {
		for _, args := range [][]string{{"search"}, {"search", "kind:Pod", "-o", "xml"}} {
			if out, _, code := s.viewer.Clusteradm(t, args...); code == 0 {
				t.Errorf("clusteradm %v: exit code = 0, want an error:\n%s", args, out)
			}
		}
	})
	t.Run("without permission to search", func(t *testing.T) {
		_, complaints, code := newCaller(t, s.Hub, framework.Unique("stranger")).Clusteradm(t, "search", "kind:Pod")
		if code == 0 || !strings.Contains(complaints, "forbidden") {
			t.Errorf("search without permission: exit code = %d, want an error that contains forbidden: %s", code, complaints)
		}
	})
	for what, test := range map[string]struct {
		args []string
		want []string
	}{
		"properties":                {[]string{"rest"}, []string{"restarts:"}},
		"values":                    {[]string{"kind:"}, []string{"kind:Cluster", "kind:ConfigMap", "kind:Deployment", "kind:Node", "kind:Pod", "kind:ReplicaSet"}},
		"values with a prefix":      {[]string{"kind:p"}, []string{"kind:Pod"}},
		"values with other terms":   {[]string{"namespace:payments", "kind:"}, []string{"kind:Deployment", "kind:Pod", "kind:ReplicaSet"}},
		"the last of several":       {[]string{"kind:Node,Re"}, []string{"kind:Node,ReplicaSet"}},
		"values after an operator":  {[]string{"status!=C"}, []string{"status!=Completed", "status!=CrashLoopBackOff"}},
		"values that need quotes":   {[]string{"note:"}, []string{`note:"it's \"100%_done\"*\\"`}},
		"labels":                    {[]string{"label:tier"}, []string{"label:tier=front"}},
		"no values for a bad query": {[]string{"kind==Pod", "status:"}, nil},
	} {
		t.Run("complete "+what, func(t *testing.T) {
			out, complaints, code := s.viewer.Clusteradm(t, append([]string{"__complete", "search"}, test.args...)...)
			if code != 0 {
				t.Fatalf("exit code = %d, want 0: %s", code, complaints)
			}
			var got []string
			for line := range strings.Lines(out) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("completion = %q, want %q", got, test.want)
			}
		})
	}
}
