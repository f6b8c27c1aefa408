package search

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// printed returns the output of kubectl for a caller.
func (c *caller) printed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return out
}

// rows returns the lines of a table with single spaces between cells. A header stays first; other lines are sorted.
func rows(table string) []string {
	var out []string
	for line := range strings.Lines(table) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	if len(out) > 0 && strings.ToUpper(out[0]) == out[0] {
		slices.Sort(out[1:])
	} else {
		slices.Sort(out)
	}
	return out
}

func TestSearchWithKubectl(t *testing.T) {
	t.Parallel()
	s := shared(t).smallFleet(t)
	cluster, years := s.seen.name, duration.HumanDuration(time.Since(time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)))
	const header = "CLUSTER KIND NAMESPACE NAME STATUS AGE"
	for what, test := range map[string]struct {
		args []string
		want []string
	}{
		"get fr -A with fields and labels": {
			[]string{"get", "fr", "-A", "--field-selector", "kind=Pod,status=Running", "-l", "app=web"},
			[]string{"NAMESPACE " + header, cluster + " " + cluster + " Pod payments web-1-a Running 60m"},
		},
		"get fr of a cluster": {
			[]string{"get", "fr", "-n", cluster, "--field-selector", "kind=Pod", "-l", "app in (web, job),!tier"},
			[]string{header, cluster + " Pod default job-x Completed " + years, cluster + " Pod payments web-1-b CrashLoopBackOff " + years},
		},
		"get fr of a kind without status": {
			[]string{"get", "fleetresources", "-n", cluster, "--field-selector", "kind=Deployment"},
			[]string{header, cluster + " Deployment payments web " + years},
		},
		"get fr by name": {
			[]string{"get", "fr", "-n", cluster, "node.node-1"},
			[]string{header, cluster + " Node node-1 Ready " + years},
		},
		"get fr in chunks": {
			[]string{"get", "fr", "-n", cluster, "--chunk-size=1", "--field-selector", "kind=Pod,namespace=default", "--no-headers"},
			[]string{cluster + " Pod default bare " + years, cluster + " Pod default job-x Completed " + years},
		},
		"get fr wide": {
			[]string{"get", "fr", "-n", cluster, "-o", "wide", "--field-selector", "kind=Deployment"},
			[]string{header + " API GROUP UID", cluster + " Deployment payments web " + years + " apps deployment.payments.web"},
		},
		"get fr -o name": {
			[]string{"get", "fr", "-n", cluster, "-o", "name", "--field-selector", "kind=Node"},
			[]string{"fleetresource.search.open-cluster-management.io/node.node-1"},
		},
		"get fr without permission": {
			[]string{"get", "fr", "-n", s.hidden.name},
			[]string{"No resources found in " + s.hidden.name + " namespace."},
		},
	} {
		t.Run(what, func(t *testing.T) {
			got := rows(s.viewer.printed(t, "", test.args...))
			// The age may increase while the test runs.
			for i := range got {
				got[i] = strings.Replace(got[i], "Running 61m", "Running 60m", 1)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("kubectl %s =\n%s\nwant\n%s", strings.Join(test.args, " "), strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
	t.Run("get fr -o yaml", func(t *testing.T) {
		var got searchv1alpha1.FleetResource
		if err := yaml.Unmarshal([]byte(s.viewer.printed(t, "", "get", "fr", "-n", cluster, "pod.payments.web-1-a", "-o", "yaml")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != "FleetResource" || got.Resource.Kind != "Pod" || got.Resource.Name != "web-1-a" || got.Labels["tier"] != "front" || !json.Valid(got.Properties.Raw) {
			t.Errorf("FleetResource = %+v, want Pod web-1-a with label tier and valid properties", got)
		}
	})
	t.Run("get inventories", func(t *testing.T) {
		got := rows(s.viewer.printed(t, "", "get", "inventories", "-n", cluster))
		if len(got) != 2 || got[0] != "NAME STATE RESOURCES RELATIONS LAST REPORT" || !strings.HasPrefix(got[1], cluster+" Reporting 8 5 ") {
			t.Errorf("kubectl get inventories = %s, want one row: %s Reporting, 8 resources, 5 relations", strings.Join(got, "\n"), cluster)
		}
	})
	t.Run("explain", func(t *testing.T) {
		got := s.viewer.printed(t, "", "explain", "fleetresource.resource")
		for _, want := range []string{"GROUP:      search.open-cluster-management.io", "KIND:       FleetResource", "resource identifies the resource.", "apiGroup	<string>", "empty for the core group", "-required-"} {
			if !strings.Contains(got, want) {
				t.Errorf("kubectl explain fleetresource.resource does not contain %q:\n%s", want, got)
			}
		}
		if got := s.viewer.printed(t, "", "explain", "search.spec.query"); !strings.Contains(got, "text form of a search") {
			t.Errorf("kubectl explain search.spec.query does not contain the description:\n%s", got)
		}
	})
	t.Run("api-resources", func(t *testing.T) {
		got := rows(s.viewer.printed(t, "", "api-resources", "--api-group=search.open-cluster-management.io", "-o", "wide", "--no-headers"))
		slices.Sort(got)
		version := " search.open-cluster-management.io/v1alpha1 "
		want := []string{
			"console" + version + "false Console get",
			"fleetresources fr" + version + "true FleetResource get,list,watch", "inventories" + version + "true Inventory get,list",
			"searchcompletions" + version + "false SearchCompletion create", "searches" + version + "false Search create", "searchschemas" + version + "false SearchSchema create",
		}
		if !slices.Equal(got, want) {
			t.Errorf("kubectl api-resources =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	// To validate a resource that does not support PATCH, kubectl lists CustomResourceDefinitions, which requires
	// permission. So these tests disable the validation of kubectl.
	t.Run("create a search", func(t *testing.T) {
		var got searchv1alpha1.Search
		out := s.viewer.printed(t, `apiVersion: search.open-cluster-management.io/v1alpha1
kind: Search
spec:
  query: kind:Deployment namespace:payments
  output: Related
  relatedLimit: 0
`, "create", "--validate=ignore", "-f", "-", "-o", "yaml")
		if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		related := got.Status.Related
		if got.Kind != "Search" || got.Status.Count != 1 || len(got.Status.Items) != 1 || len(related) != 1 || related[0].Kind != "ReplicaSet" || related[0].Count != 1 || len(related[0].Items) != 0 {
			t.Errorf("kubectl create =\n%s\nwant one Deployment with one related ReplicaSet", out)
		}
	})
	t.Run("create an invalid search", func(t *testing.T) {
		manifest := "apiVersion: search.open-cluster-management.io/v1alpha1\nkind: Search\nspec:\n  query: kind==Pod\n"
		if out, err := s.viewer.Kubectl(t, manifest, "create", "--validate=ignore", "-f", "-"); err == nil || !strings.Contains(out, "spec.query") || !strings.Contains(out, "use kind=Pod instead") {
			t.Errorf("kubectl create with an invalid query: error = %v, output =\n%s\nwant an error that names spec.query and the correction", err, out)
		}
		manifest = "apiVersion: search.open-cluster-management.io/v1alpha1\nkind: Search\nspec:\n  querry: kind:Pod\n"
		if out, err := s.Kubectl(t, manifest, "create", "-f", "-"); err == nil || !strings.Contains(out, "unknown field") || !strings.Contains(out, "querry") {
			t.Errorf("kubectl create with an unknown field: error = %v, output =\n%s\nwant an error that names querry", err, out)
		}
	})
	t.Run("get fr --as", func(t *testing.T) {
		out, err := s.Kubectl(t, "", "get", "fr", "-A", "--as", s.viewer.Name, "--field-selector", "kind=Node", "--no-headers")
		if got := rows(out); err != nil || len(got) != 1 || !strings.Contains(got[0], cluster) {
			t.Errorf("kubectl get fr --as %s: error = %v, output =\n%s\nwant one Node of %s", s.viewer.Name, err, out, cluster)
		}
	})
	t.Run("get fr -w", s.kubectlWatches)
}

func (s *smallFleet) kubectlWatches(t *testing.T) {
	path := framework.Must(localhub.Binary(localhub.BinDir(), "kubectl"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	command := exec.CommandContext(ctx, path, "--kubeconfig="+s.viewer.Kubeconfig, "get", "fr", "-n", s.seen.name, "-w", "--output-watch-events", "--no-headers", "--field-selector", "kind=Widget")
	out := framework.Must(command.StdoutPipe())(t)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		// The process is killed, so an error is expected.
		_ = command.Wait()
	}()
	lines := bufio.NewScanner(out)
	want := func(event string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("kubectl ended before %s: %v", event, lines.Err())
		}
		if got := strings.Join(strings.Fields(lines.Text()), " "); !strings.HasPrefix(got, event+" "+s.seen.name+" Widget shop ") {
			t.Fatalf("kubectl printed %q, want %s of a Widget", got, event)
		}
	}
	// kubectl prints ADDED for the first resource, whether it is reported before or after the watch starts.
	first := s.seen.resource("Widget", "shop", "first", with{"status": "New"})
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{first}})
	want("ADDED")
	first.Properties["status"] = []byte(`"Old"`)
	s.seen.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{first}})
	want("MODIFIED")
	s.seen.changes(t, inventory.Sync{DeleteResources: []inventory.Deleted{{UID: first.UID}}})
	want("DELETED")
}
