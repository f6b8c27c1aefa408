package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/test/await"
)

func kubectlGet(t *testing.T, p *place) {
	name := strings.TrimSpace(p.runWith(t, p.object(t), "create", "--filename=-", "--output=jsonpath={.metadata.name}"))
	want := p.Singular + "." + p.version.Group + "/" + name
	if got := strings.TrimSpace(p.run(t, "get", p.arg(), name, "--output=name")); got != want {
		t.Errorf("kubectl get --output=name = %q, want %q", got, want)
	}
	wantContains(t, p.run(t, "get", p.arg(), name, "--output=yaml"),
		"apiVersion: "+p.version.String(), "kind: "+p.Kind, "  name: "+name, "  uid: ", "  generation: 1")

	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(p.run(t, "get", p.arg(), name, "--output=json"))); err != nil {
		t.Fatal(err)
	}
	if object.GroupVersionKind() != p.gvk() || object.GetName() != name {
		t.Errorf("kubectl get --output=json = %s %s, want %s %s", object.GroupVersionKind(), object.GetName(), p.gvk(), name)
	}
	for _, shortName := range p.ShortNames {
		// The argument includes the group, because the hub may serve another kind with this short name.
		wantContains(t, p.run(t, "get", shortName+"."+p.version.Group, name), name)
	}
	wantContains(t, p.run(t, "get", p.Singular+"."+p.version.Group, name), name)
	wantContains(t, p.refused(t, nil, "get", p.arg(), "absent"), fmt.Sprintf(`%s.%s "absent" not found`, p.Name, p.version.Group))

	wantHeadings(t, p, p.run(t, "get", p.arg(), name), false)
	wantHeadings(t, p, p.run(t, "get", p.arg(), name, "--output=wide"), true)
	all := p.run(t, "get", p.arg(), "--all-namespaces", "--selector="+p.selector())
	wantContains(t, all, name, p.namespace)
}

var columnGap = regexp.MustCompile(`\s{2,}`)

// wantHeadings checks the headings of a table with one row that kubectl printed.
func wantHeadings(t *testing.T, p *place, table string, wide bool) {
	t.Helper()
	var want []string
	for _, column := range p.TableColumns() {
		if column.Priority == 0 || wide {
			want = append(want, strings.ToUpper(column.Name))
		}
	}
	if want[0] != "NAME" || !slices.Contains(want, "AGE") {
		t.Fatalf("columns = %v, want NAME first, and AGE", want)
	}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if got := columnGap.Split(strings.TrimSpace(lines[0]), -1); !slices.Equal(got, want) {
		t.Errorf("columns of kubectl get = %q, want %q", got, want)
	}
	if len(lines) != 2 || strings.Contains(table, "<unknown>") {
		t.Errorf("kubectl get = %d lines, want headings and one row without <unknown>:\n%s", len(lines), table)
	}
}

// TestTable checks the parts of a table that kubectl does not print.
func TestTable(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		for range 3 {
			p.create(t)
		}
		content, err := p.hub.kube.Discovery().RESTClient().Get().AbsPath(p.path(p.namespace)).
			Param("labelSelector", p.selector()).Param("limit", "2").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := json.Unmarshal(content, &table); err != nil {
			t.Fatal(err)
		}
		if len(table.Rows) != 2 || table.Continue == "" || table.ResourceVersion == "" {
			t.Errorf("table has %d rows, continue %q, resourceVersion %q, want 2 rows and both values", len(table.Rows), table.Continue, table.ResourceVersion)
		}
		for _, row := range table.Rows {
			if len(row.Cells) != len(table.ColumnDefinitions) || len(row.Object.Raw) == 0 {
				t.Errorf("row has cells %v and object %q, want %d cells and an object", row.Cells, row.Object.Raw, len(table.ColumnDefinitions))
			}
		}
		for _, column := range table.ColumnDefinitions {
			if column.Description == "" {
				t.Errorf("column %s has no description", column.Name)
			}
		}
	})
}

func kubectlWatch(t *testing.T, p *place) {
	ctx, cancel := context.WithCancel(t.Context())
	watched := &output{}
	cmd := p.hub.command(ctx, "", p.inPlace([]string{"get", p.arg(), "--watch", "--output-watch-events", "--selector=" + p.selector()})...)
	cmd.Stdout, cmd.Stderr = watched, watched
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed, so it always fails
	})
	name := p.create(t).GetName()
	seen := func(event string) {
		t.Helper()
		line := regexp.MustCompile(`(?m)^` + event + `\s.*\b` + name + `\b`)
		await.Eventually(t, "kubectl printed event "+event, func(context.Context) error {
			if !line.MatchString(watched.String()) {
				return fmt.Errorf("kubectl printed:\n%s", watched)
			}
			return nil
		})
	}
	seen("ADDED")
	p.merge(t, name, labelled("watched", "yes"))
	seen("MODIFIED")
	if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen("DELETED")
}

func kubectlListsInChunks(t *testing.T, p *place) {
	var want []string
	for range 5 {
		want = append(want, p.create(t).GetName())
	}
	slices.Sort(want)
	stdout, stderr, err := p.kubectl(t, nil, "get", p.arg(), "--selector="+p.selector(), "--chunk-size=2", "--output=name", "-v=6")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var got []string
	for _, line := range strings.Fields(stdout) {
		got = append(got, line[strings.LastIndex(line, "/")+1:])
	}
	if !slices.Equal(got, want) {
		t.Errorf("kubectl get --chunk-size=2 = %v, want %v", got, want)
	}
	wantContains(t, stderr, "limit=2", "continue=")
}

func TestSelectors(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		one, other := p.create(t), p.create(t)
		p.merge(t, one.GetName(), labelled("tier", "one"))
		selected := func(labels string, fields ...string) []string {
			t.Helper()
			args := []string{"get", p.arg(), "--output=jsonpath={.items[*].metadata.name}", "--selector=" + p.selector() + labels}
			for _, field := range fields {
				args = append(args, "--field-selector="+field)
			}
			return strings.Fields(p.run(t, args...))
		}
		if got := selected(",tier=one"); !slices.Equal(got, []string{one.GetName()}) {
			t.Errorf("objects with tier=one = %v, want %s only", got, one.GetName())
		}
		if got := selected(",tier!=one"); !slices.Equal(got, []string{other.GetName()}) {
			t.Errorf("objects with tier!=one = %v, want %s only", got, other.GetName())
		}
		if got := selected("", "metadata.name="+one.GetName()); !slices.Equal(got, []string{one.GetName()}) {
			t.Errorf("objects with metadata.name=%s = %v, want %[1]s only", one.GetName(), got)
		}
		for _, field := range p.SelectableFields() {
			value, _, err := unstructured.NestedFieldNoCopy(one.Object, strings.Split(field, ".")...)
			if err != nil || value == nil {
				value = ""
			}
			if got := selected("", fmt.Sprintf("%s=%v", field, value)); !slices.Contains(got, one.GetName()) {
				t.Errorf("objects with %s=%v = %v, want %s included", field, value, got, one.GetName())
			}
			if got := selected("", fmt.Sprintf("%s!=%v", field, value)); slices.Contains(got, one.GetName()) {
				t.Errorf("objects with %s!=%v = %v, want %s excluded", field, value, got, one.GetName())
			}
		}
		stderr := p.refused(t, nil, "get", p.arg(), "--field-selector=spec.absent=1")
		wantContains(t, stderr, "Error from server (BadRequest)", `"spec.absent"`, p.Name)
	})
}
