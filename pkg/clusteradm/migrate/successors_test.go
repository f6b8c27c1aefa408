package migrate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

const (
	inCluster1 = "cluster1"
	uidBefore  = types.UID("aaaaa-in-the-server")
	uidAfter   = types.UID("bbbbb-in-the-definition")
)

var manifestWorks = workv1.SchemeGroupVersion.WithResource("manifestworks")

// manifestWork returns a ManifestWork that delivers content, with annotations as any tenant may write them.
func manifestWork(name, content string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	work := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{"kind": content}}}},
	}}
	work.SetGroupVersionKind(workv1.SchemeGroupVersion.WithKind("ManifestWork"))
	work.SetNamespace(inCluster1)
	work.SetName(name)
	work.SetUID(types.UID("uid-of-" + name))
	if change != nil {
		change(work)
	}
	return work
}

func applied(work *unstructured.Unstructured) {
	_ = unstructured.SetNestedSlice(work.Object, []any{map[string]any{"type": workv1.WorkApplied, "status": "True"}}, "status", "conditions")
}

func ownedBy(uid types.UID) func(*unstructured.Unstructured) {
	return func(work *unstructured.Unstructured) {
		work.SetOwnerReferences([]metav1.OwnerReference{successor{Permission: "grants", UID: uid}.owner()})
	}
}

func annotated(name, value string) func(*unstructured.Unstructured) {
	return func(work *unstructured.Unstructured) {
		applied(work)
		work.SetAnnotations(map[string]string{"migration.open-cluster-management.io/" + name: value})
	}
}

// newSuccessorMigration returns a migration of a hub with ManifestWorks, and its output.
func newSuccessorMigration(works ...*unstructured.Unstructured) *migration {
	var objects []runtime.Object
	for _, work := range works {
		objects = append(objects, work)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{manifestWorks: "ManifestWorkList"}, objects...)
	return &migration{
		Environment: cli.Environment{IOStreams: genericiooptions.IOStreams{Out: &bytes.Buffer{}}}, Clients: &cli.Clients{Kube: fake.NewClientset(), Dynamic: client}, patience: 10 * time.Millisecond,
	}
}

func (m *migration) works(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	list, err := m.Dynamic.Resource(manifestWorks).Namespace(inCluster1).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetName()] = &list.Items[i]
	}
	return out
}

// TestFinishSuccessorsBelievesNoTenant checks that only what a migration has recorded is replaced, whatever tenants write
// into ManifestWorks, and that the others are kept and named.
func TestFinishSuccessorsBelievesNoTenant(t *testing.T) {
	recorded := successor{Namespace: inCluster1, Permission: "grants", UID: uidAfter, Former: "grants-aaaaa"}
	both := func(former, next func(*unstructured.Unstructured)) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{manifestWork("grants-aaaaa", "Role", former), manifestWork("grants-bbbbb", "Role", next)}
	}
	owned := ownedBy(uidAfter)
	for name, test := range map[string]struct {
		works []*unstructured.Unstructured
		// kept are the ManifestWorks that must stay, and why is the reason.
		kept []string
		why  string
	}{
		"applied":           {both(owned, applied), []string{"grants-bbbbb"}, ""},
		"released before":   {both(owned, applied)[1:], []string{"grants-bbbbb"}, ""},
		"adopted before":    {[]*unstructured.Unstructured{manifestWork("grants-bbbbb", "Role", owned)}, []string{"grants-bbbbb"}, ""},
		"deleted meanwhile": {nil, nil, ""},
		"not applied":       {both(owned, nil), []string{"grants-aaaaa", "grants-bbbbb"}, "has not applied it yet"},
		"not created":       {both(owned, nil)[:1], []string{"grants-aaaaa"}, "does not exist"},
		"other content": {
			[]*unstructured.Unstructured{manifestWork("grants-aaaaa", "Role", owned), manifestWork("grants-bbbbb", "Other", applied)},
			[]string{"grants-aaaaa", "grants-bbbbb"}, "another content",
		},
		"another owner of the former":    {both(ownedBy("other"), applied), []string{"grants-aaaaa", "grants-bbbbb"}, "does not own it"},
		"no owner of the former":         {both(nil, applied), []string{"grants-aaaaa", "grants-bbbbb"}, "does not own it"},
		"another owner of the successor": {[]*unstructured.Unstructured{manifestWork("grants-bbbbb", "Role", ownedBy("other"))}, []string{"grants-bbbbb"}, "another owner"},
	} {
		t.Run(name, func(t *testing.T) {
			// What a tenant can write about ManifestWorks of others.
			hostile := map[string]*unstructured.Unstructured{}
			for annotation, values := range map[string][]string{
				"successor": {"nothing", "victim", "grants-bbbbb", "", strings.Repeat("x", 1<<10), "../x"},
				"owner":     {"x", "{}", "null", `{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}`, "[" + strings.Repeat("[", 1<<10)},
			} {
				for i, value := range values {
					name := fmt.Sprintf("hostile-%s-%d", annotation, i)
					hostile[name] = manifestWork(name, "ConfigMap", annotated(annotation, value))
				}
			}
			hostile["victim"] = manifestWork("victim", "Secret", applied)
			hostile["grants-ccccc"] = manifestWork("grants-ccccc", "Role", func(work *unstructured.Unstructured) { owned(work); annotated("successor", "grants-bbbbb")(work) })
			m := newSuccessorMigration(append(slices.Collect(maps.Values(hostile)), test.works...)...)
			if err := m.recordSuccessors(t.Context(), []successor{recorded}); err != nil {
				t.Fatal(err)
			}
			// An interrupted command is run again.
			for range 3 {
				m.left = nil
				if err := m.finishSuccessors(t.Context()); err != nil {
					t.Fatalf("finishSuccessors() = %v, want no error", err)
				}
			}
			works := m.works(t)
			for name, before := range hostile {
				if after := works[name]; after == nil || !handover.Equal(before.Object, after.Object) {
					t.Errorf("ManifestWork %s = %v, want it as it was", name, after)
				}
				delete(works, name)
			}
			if names := slices.Sorted(maps.Keys(works)); !slices.Equal(names, test.kept) {
				t.Errorf("ManifestWorks of the ClusterPermission = %q, want %q", names, test.kept)
			}
			left, err := m.successors(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if test.why == "" {
				if len(m.left) > 0 || len(left) > 0 {
					t.Errorf("findings = %v, record = %v, want none", m.left, left)
				}
				if next := works["grants-bbbbb"]; next != nil && (len(next.GetOwnerReferences()) != 1 || next.GetOwnerReferences()[0].UID != uidAfter) {
					t.Errorf("owners of the successor = %v, want the ClusterPermission", next.GetOwnerReferences())
				}
				return
			}
			if len(m.left) != 1 || m.left[0].State != cli.StateBad || !strings.Contains(m.left[0].Subject, "grants-aaaaa in cluster1") || !strings.Contains(m.left[0].Cause, test.why) || len(left) != 1 {
				t.Errorf("findings = %+v, record = %v, want one that contains %q", m.left, left, test.why)
			}
		})
	}
}

// TestAddSuccessorsBelievesNoTenant checks that a successor is added only to the ManifestWork of a ClusterPermission.
func TestAddSuccessorsBelievesNoTenant(t *testing.T) {
	permission := &unstructured.Unstructured{Object: map[string]any{"kind": "ClusterPermission"}}
	permission.SetNamespace(inCluster1)
	permission.SetName("grants")
	owned := ownedBy(uidAfter)
	for name, test := range map[string]struct {
		works []*unstructured.Unstructured
		added bool
		state string
	}{
		"its ManifestWork":     {[]*unstructured.Unstructured{manifestWork("grants-aaaaa", "Role", owned)}, true, ""},
		"also one of a tenant": {[]*unstructured.Unstructured{manifestWork("grants-aaaaa", "Role", owned), manifestWork("evil", "ClusterRole", owned)}, true, ""},
		"only one of a tenant": {[]*unstructured.Unstructured{manifestWork("evil", "ClusterRole", owned)}, false, ""},
		"one without an owner": {[]*unstructured.Unstructured{manifestWork("grants-aaaaa", "ClusterRole", nil)}, false, cli.StateWarning},
		"the name is taken":    {[]*unstructured.Unstructured{manifestWork("grants-aaaaa", "Role", owned), manifestWork("grants-bbbbb", "ClusterRole", nil)}, false, cli.StateBad},
	} {
		wanted := map[string]*unstructured.Unstructured{}
		for _, work := range test.works {
			wanted[inCluster1+"/"+work.GetName()] = work
		}
		before := len(wanted)
		c := &copying{
			migration: newSuccessorMigration(), uids: map[types.UID]types.UID{uidBefore: uidAfter},
			permissions: map[types.UID]*unstructured.Unstructured{uidBefore: permission},
		}
		for range 2 { // as in a command that is run again
			delete(wanted, inCluster1+"/grants-bbbbb")
			for _, work := range test.works {
				wanted[inCluster1+"/"+work.GetName()] = work
			}
			c.findings = nil
			if err := c.addSuccessors(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
		}
		recorded, err := c.successors(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(wanted) - before; (got == 1) != test.added || len(recorded) != got {
			t.Errorf("%s: added %d, recorded %v, want added: %t", name, got, recorded, test.added)
		}
		if test.added {
			if next := wanted[inCluster1+"/grants-bbbbb"]; next == nil || !sameManifests(next, test.works[0]) || len(next.GetOwnerReferences())+len(next.GetAnnotations()) > 0 {
				t.Errorf("%s: successor = %v, want the content of %s without an owner", name, next, test.works[0].GetName())
			}
		}
		if test.state == "" && len(c.findings) > 0 || test.state != "" && (len(c.findings) != 1 || c.findings[0].State != test.state) {
			t.Errorf("%s: findings = %v, want state %q", name, c.findings, test.state)
		}
	}
}

// TestSuccessorRecord checks that the record keeps all successors, of a hub of any size, and gets shorter.
func TestSuccessorRecord(t *testing.T) {
	m := newSuccessorMigration()
	for _, count := range []int{2*successorsInRecord + 1, successorsInRecord, 1, 0} {
		var want []successor
		for i := range count {
			want = append(want, successor{Namespace: inCluster1, Permission: fmt.Sprint("p", i), UID: "uid", Former: "f"})
		}
		if err := m.recordSuccessors(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if got, err := m.successors(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("successors() = %d, %v, want the %d that were recorded", len(got), err, count)
		}
	}
}
