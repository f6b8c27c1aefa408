package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func managed(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func content(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetAPIVersion("v1")
	return object
}

// authorsOf returns the authors of entries if a ManifestWork writes with the given manager and operation.
func authorsOf(entries []metav1.ManagedFieldsEntry, manager string, operation metav1.ManagedFieldsOperationType) []Author {
	authors := make([]Author, len(entries))
	for i, entry := range entries {
		switch {
		case !strings.HasPrefix(entry.Manager, "work-agent"):
		case entry.Manager == manager && entry.Operation == operation:
			authors[i] = Current
		default:
			authors[i] = Former
		}
	}
	return authors
}

func TestDropOwned(t *testing.T) {
	for name, test := range map[string]struct {
		live, manifest string
		// mine and theirs are the fields of this ManifestWork and of another writer.
		mine, theirs string
		want         string
	}{
		"a key": {
			live: `{"data":{"keep":"1","old":"1"}}`, manifest: `{"data":{"keep":"1"}}`,
			mine: `{"f:data":{".":{},"f:keep":{},"f:old":{}}}`, want: `{"data":{"keep":"1"}}`,
		},
		"a key that another writer owns, too": {
			live: `{"data":{"keep":"1","old":"1"}}`, manifest: `{"data":{"keep":"1"}}`,
			mine: `{"f:data":{".":{},"f:keep":{},"f:old":{}}}`, theirs: `{"f:data":{"f:old":{}}}`, want: `{"data":{"keep":"1","old":"1"}}`,
		},
		"a key of another writer": {
			live: `{"data":{"theirs":"1","old":"1"}}`, manifest: `{}`,
			mine: `{"f:data":{".":{},"f:old":{}}}`, theirs: `{"f:data":{"f:theirs":{}}}`, want: `{"data":{"theirs":"1"}}`,
		},
		"a key without a manager": {
			live: `{"data":{"keep":"1","none":"1"}}`, manifest: `{"data":{"keep":"1"}}`,
			mine: `{"f:data":{".":{},"f:keep":{}}}`, want: `{"data":{"keep":"1","none":"1"}}`,
		},
		"a map with a key without a manager": {
			live: `{"metadata":{"labels":{"kubernetes.io/metadata.name":"n","pod-security.kubernetes.io/enforce":"restricted"}}}`, manifest: `{"metadata":{}}`,
			mine: `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`,
			want: `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`,
		},
		"a list item with a field without a manager": {
			live:     `{"spec":{"ports":[{"port":80,"none":1},{"port":81,"none":1}],"hosts":[{"name":"a","none":1}]}}`,
			manifest: `{"spec":{"hosts":[{"name":"a"}]}}`,
			mine:     `{"f:spec":{"f:ports":{".":{},"k:{\"port\":80}":{".":{},"f:port":{}}},"f:hosts":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}`,
			want:     `{"spec":{"ports":[{"port":81,"none":1}],"hosts":[{"name":"a","none":1}]}}`,
		},
		"the last key": {
			live: `{"data":{"old":"1"},"kind":"X"}`, manifest: `{}`,
			mine: `{"f:data":{".":{},"f:old":{}}}`, want: `{"kind":"X"}`,
		},
		"a map as a whole": {
			live: `{"spec":{"selector":{"app":"a"},"size":1}}`, manifest: `{"spec":{"size":1}}`,
			mine: `{"f:spec":{"f:selector":{},"f:size":{}}}`, want: `{"spec":{"size":1}}`,
		},
		"a list as a whole": {
			live: `{"spec":{"args":["a","b"],"size":1}}`, manifest: `{"spec":{"size":1}}`,
			mine: `{"f:spec":{"f:args":{}}}`, want: `{"spec":{"size":1}}`,
		},
		"a field of a list item": {
			live:     `{"spec":{"ports":[{"port":80,"protocol":"TCP","name":"a"},{"port":81,"protocol":"TCP","name":"b"}]}}`,
			manifest: `{"spec":{"ports":[{"port":80},{"port":81,"name":"b"}]}}`,
			mine:     `{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}},"k:{\"port\":81,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:name":{}}}}}`,
			want:     `{"spec":{"ports":[{"port":80,"protocol":"TCP"},{"port":81,"protocol":"TCP","name":"b"}]}}`,
		},
		"a list with an item of another writer": {
			live:     `{"spec":{"env":[{"name":"a","value":"1"},{"name":"b","value":"1"},{"name":"c","value":"1","more":"1"}]}}`,
			manifest: `{"spec":{}}`,
			mine:     `{"f:spec":{"f:env":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:value":{}}}}}`,
			theirs:   `{"f:spec":{"f:env":{"k:{\"name\":\"b\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:more":{}}}}}`,
			want:     `{"spec":{"env":[{"name":"b","value":"1"},{"name":"c","more":"1"}]}}`,
		},
		"a set": {
			live:     `{"metadata":{"finalizers":["a/x","b/x"]}}`,
			manifest: `{}`,
			mine:     `{"f:metadata":{"f:finalizers":{".":{},"v:\"a/x\"":{}}}}`, theirs: `{"f:metadata":{"f:finalizers":{"v:\"b/x\"":{}}}}`,
			want: `{"metadata":{"finalizers":["b/x"]}}`,
		},
		"a map that becomes empty": {
			live: `{"spec":{"limits":{"cpu":1},"size":1}}`, manifest: `{"spec":{"size":1}}`,
			mine: `{"f:spec":{"f:limits":{".":{},"f:cpu":{}},"f:size":{}}}`, want: `{"spec":{"size":1}}`,
		},
		"a map with a key of another writer": {
			live: `{"spec":{"limits":{"cpu":1,"memory":2}}}`, manifest: `{"spec":{}}`,
			mine: `{"f:spec":{"f:limits":{".":{},"f:cpu":{}}}}`, theirs: `{"f:spec":{"f:limits":{"f:memory":{}}}}`, want: `{"spec":{"limits":{"memory":2}}}`,
		},
		"an empty map": {
			live: `{"spec":{"emptyDir":{},"configMap":{"name":"x"}}}`, manifest: `{"spec":{"configMap":{"name":"x"}}}`,
			mine: `{"f:spec":{"f:emptyDir":{},"f:configMap":{"f:name":{}}}}`, want: `{"spec":{"configMap":{"name":"x"}}}`,
		},
		"a label": {
			live: `{"metadata":{"labels":{"a":"x","b":"x","c":"x"}}}`, manifest: `{"metadata":{"labels":{"b":"x"}}}`,
			mine: `{"f:metadata":{"f:labels":{".":{},"f:a":{},"f:b":{}}}}`, want: `{"metadata":{"labels":{"b":"x","c":"x"}}}`,
		},
		"owner references": {
			live:     `{"metadata":{"name":"n","labels":{"a":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"b","uid":"u"}]}}`,
			manifest: `{"metadata":{"name":"n"}}`,
			mine:     `{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}}}`,
			want:     `{"metadata":{"name":"n","ownerReferences":[{"apiVersion":"v1","kind":"A","name":"b","uid":"u"}]}}`,
		},
		"the mark of adoption": {
			live:     `{"metadata":{"annotations":{"work.open-cluster-management.io/adopted":"true","old":"1"}}}`,
			manifest: `{}`,
			mine:     `{"f:metadata":{"f:annotations":{".":{},"f:old":{},"f:work.open-cluster-management.io/adopted":{}}}}`,
			want:     `{"metadata":{"annotations":{"work.open-cluster-management.io/adopted":"true"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, manifest := content(t, test.live), content(t, test.manifest)
			entries := []metav1.ManagedFieldsEntry{managed("work-agent", metav1.ManagedFieldsOperationApply, test.mine)}
			if test.theirs != "" {
				entries = append(entries, managed("other", metav1.ManagedFieldsOperationApply, test.theirs))
			}
			unmanaged := live.DeepCopy()
			live.SetManagedFields(entries)
			for _, as := range []struct {
				operation metav1.ManagedFieldsOperationType
				stale     bool
				want      string
			}{
				{metav1.ManagedFieldsOperationUpdate, false, test.want},
				{metav1.ManagedFieldsOperationApply, true, test.want},
				{metav1.ManagedFieldsOperationApply, false, test.live},
			} {
				result := unmanaged.DeepCopy()
				if err := DropOwned(result, live, manifest, authorsOf(entries, "work-agent", as.operation), as.stale); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(content(t, as.want).Object, result.Object); diff != "" {
					t.Errorf("DropOwned() by a ManifestWork that writes with %s now, stale = %t (-want +got):\n%s", as.operation, as.stale, diff)
				}
			}
		})
	}
}

func TestTakeOver(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{
		managed("work-agent", metav1.ManagedFieldsOperationApply, `{"f:data":{"f:a":{}}}`),
		managed("work-agent", metav1.ManagedFieldsOperationUpdate, `{"f:data":{"f:b":{}}}`),
		managed("work-agent-blue", metav1.ManagedFieldsOperationApply, `{"f:data":{"f:c":{}}}`),
		managed("other", metav1.ManagedFieldsOperationApply, `{"f:data":{"f:d":{}}}`),
	}
	for manager, operation := range map[string]metav1.ManagedFieldsOperationType{
		"work-agent": metav1.ManagedFieldsOperationApply, "work-agent-0123456789": metav1.ManagedFieldsOperationUpdate, "work-agent-green": metav1.ManagedFieldsOperationApply,
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetManagedFields(entries)
		if err := TakeOver(object, authorsOf(entries, manager, operation), manager, operation); err != nil {
			t.Fatal(err)
		}
		want := []metav1.ManagedFieldsEntry{entries[3], managed(manager, operation, `{"f:data":{"f:a":{},"f:b":{},"f:c":{}}}`)}
		if diff := cmp.Diff(want, object.GetManagedFields()); diff != "" {
			t.Errorf("TakeOver(%s, %s) (-want +got):\n%s", manager, operation, diff)
		}
	}
}

// TestManagersAreRecorded checks that the record names the managers under which an object was applied before its
// strategy changed, until it has no manifest, and that the size of the annotation is bounded.
func TestManagersAreRecorded(t *testing.T) {
	record := &workv1.AppliedManifestWork{}
	items := func(names int, strategy workv1.UpdateStrategyType, manager string) []*Item {
		var items []*Item
		for i := range names {
			it := &Item{Name: fmt.Sprint(i), Object: content(t, `{}`)}
			it.Config.Strategy = workv1.UpdateStrategy{Type: strategy, ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: manager}}
			items = append(items, it)
		}
		return items
	}
	step := func(items []*Item, want ...string) {
		t.Helper()
		if err := RecordManagers(record, items); err != nil {
			t.Fatal(err)
		}
		managers := ManagersOf(record)
		var got []string
		for manager := range managers {
			if managers.Wrote(ObjectID{Name: "0"}, manager) {
				got = append(got, manager)
			}
			if managers.Wrote(ObjectID{Name: "other"}, manager) {
				t.Errorf("Wrote(other, %s) = true, want false", manager)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("managers = %q, want %q", got, want)
		}
	}
	step(items(1, workv1.UpdateStrategyTypeUpdate, ""))
	step(items(1, workv1.UpdateStrategyTypeServerSideApply, ""), "work-agent")
	step(items(1500, workv1.UpdateStrategyTypeServerSideApply, "work-agent-blue"), "work-agent", "work-agent-blue")
	step(items(1, workv1.UpdateStrategyTypeReadOnly, ""), "work-agent", "work-agent-blue")
	step([]*Item{{Name: "0"}}, "work-agent", "work-agent-blue") // its kind is not served now
	step(nil)
	if len(record.Annotations) > 0 {
		t.Errorf("annotations without objects = %v, want none", record.Annotations)
	}
	step(items(1500, workv1.UpdateStrategyTypeServerSideApply, strings.Repeat("x", maxManagers)))
	for _, broken := range []string{"null", "{", "1"} {
		record.Annotations = map[string]string{managersAnnotation: broken}
		step(items(1, workv1.UpdateStrategyTypeServerSideApply, ""), "work-agent")
	}
}
