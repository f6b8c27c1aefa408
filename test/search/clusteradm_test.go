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
			t.Fatalf("clusteradm %v exits with %d:\n%s%s", args, code, out, complaints)
		}
		return out
	}
	t.Run("table", func(t *testing.T) {
		var got []string
		for line := range strings.Lines(works(t, "search", "kind:Pod", "restarts>8", "--order-by", "restarts desc")) {
			fields := strings.Fields(line)
			got = append(got, strings.Join(fields[:len(fields)-1], " "))
		}
		want := []string{"CLUSTER KIND NAMESPACE NAME STATUS", cluster + " Pod payments web-1-b CrashLoopBackOff", cluster + " Pod default job-x Completed"}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s", strings.Join(got, "\n"))
		}
	})
	t.Run("table with what is related", func(t *testing.T) {
		out := works(t, "search", "kind:ReplicaSet", "--related")
		for _, want := range []string{"web-1-a", "web-1-b", "Deployment"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s is not in\n%s", want, out)
			}
		}
	})
	t.Run("names", func(t *testing.T) {
		got := works(t, "search", "kind:Node,Deployment", "-o", "name", "--order-by=kind")
		if want := cluster + "/payments/deployment/web\n" + cluster + "/node/node-1\n"; got != want {
			t.Errorf("got\n%s", got)
		}
	})
	t.Run("json", func(t *testing.T) {
		var got searchv1alpha1.SearchStatus
		if err := json.Unmarshal([]byte(works(t, "search", "kind:Pod", "-o", "json", "--limit=1")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Count != 4 || len(got.Items) != 1 || got.Continue == "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("count", func(t *testing.T) {
		if got := works(t, "search", "kind:Pod", "--count"); got != "4\n" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a keyword with a space", func(t *testing.T) {
		if got := works(t, "search", "rolling update", "-o", "name"); got != cluster+"/payments/deployment/web\n" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("warnings", func(t *testing.T) {
		out, complaints, code := s.viewer.Clusteradm(t, "search", "kind:Pod", "stauts:Running")
		if code != 0 || out != "" || !strings.Contains(complaints, `did you mean "status"?`) || !strings.Contains(complaints, "No resources found") {
			t.Errorf("exit code %d:\n%s%s", code, out, complaints)
		}
	})
	t.Run("a bad query", func(t *testing.T) {
		out, complaints, code := s.viewer.Clusteradm(t, "search", "kind==Pod")
		if code == 0 || out != "" || !strings.HasPrefix(complaints, "Error: ") || !strings.Contains(complaints, "position 4") || !strings.Contains(complaints, "use kind=Pod instead") {
			t.Errorf("exit code %d:\n%s%s", code, out, complaints)
		}
	})
	t.Run("no query, and no such output", func(t *testing.T) {
		for _, args := range [][]string{{"search"}, {"search", "kind:Pod", "-o", "xml"}} {
			if out, _, code := s.viewer.Clusteradm(t, args...); code == 0 {
				t.Errorf("%v exits with 0:\n%s", args, out)
			}
		}
	})
	t.Run("who may not search", func(t *testing.T) {
		_, complaints, code := newCaller(t, s.Hub, framework.Unique("stranger")).Clusteradm(t, "search", "kind:Pod")
		if code == 0 || !strings.Contains(complaints, "forbidden") {
			t.Errorf("exit code %d: %s", code, complaints)
		}
	})
	for what, test := range map[string]struct {
		args []string
		want []string
	}{
		"properties":                {[]string{"rest"}, []string{"restarts:"}},
		"values":                    {[]string{"kind:"}, []string{"kind:ConfigMap", "kind:Deployment", "kind:Node", "kind:Pod", "kind:ReplicaSet"}},
		"values that begin so":      {[]string{"kind:p"}, []string{"kind:Pod"}},
		"values under the rest":     {[]string{"namespace:payments", "kind:"}, []string{"kind:Deployment", "kind:Pod", "kind:ReplicaSet"}},
		"the next of several":       {[]string{"kind:Node,Re"}, []string{"kind:Node,ReplicaSet"}},
		"values after an operator":  {[]string{"status!=C"}, []string{"status!=Completed", "status!=CrashLoopBackOff"}},
		"values that need quotes":   {[]string{"note:"}, []string{`note:"it's \"100%_done\"*\\"`}},
		"labels":                    {[]string{"label:tier"}, []string{"label:tier=front"}},
		"nothing after a bad query": {[]string{"kind==Pod", "status:"}, nil},
	} {
		t.Run("complete "+what, func(t *testing.T) {
			out, complaints, code := s.viewer.Clusteradm(t, append([]string{"__complete", "search"}, test.args...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, complaints)
			}
			var got []string
			for line := range strings.Lines(out) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, ":") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, not %q", got, test.want)
			}
		})
	}
}
