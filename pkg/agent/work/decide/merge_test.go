package decide

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return result
}

func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	result := object(t, text)
	if err := normalize(result); err != nil {
		t.Fatal(err)
	}
	return result
}

func TestEnforce(t *testing.T) {
	for name, test := range map[string]struct {
		live, want, result string
		// same is true if no write is necessary.
		same bool
	}{
		"equal": {
			live: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u}, data: {k: v}}`,
			want: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}`,
			same: true,
		},
		"changed and added by other writers": {
			live:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: drift, other: x}}`,
			want:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v, l: w}}`,
			result: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v, l: w, other: x}}`,
		},
		"rules replace an aggregation": {
			live:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: [{}]}, rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}]}`,
			want:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}`,
			result: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}`,
		},
		"metadata": {
			live:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [f], labels: {a: x, b: w}, annotations: {c: z}}}`,
			want:   `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [g], labels: {a: v}, annotations: {d: w}}}`,
			result: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [f], labels: {a: v, b: w}, annotations: {c: z, d: w}}}`,
		},
		"status is ignored": {
			live: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, status: {a: b}}`,
			want: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, status: {a: c}}`,
			same: true,
		},
		"null fields are ignored": {
			live: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {a: b}}`,
			want: `{apiVersion: example.com/v1, kind: X, metadata: {name: a, creationTimestamp: null}, spec: {a: b, c: null}}`,
			same: true,
		},
		"defaults inside items": {
			live: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: [{name: a, x: 1, def: 2}, {x: 3, def: 4}]}}`,
			want: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: [{name: a, x: 1}, {x: 3}]}}`,
			same: true,
		},
		"other list items are removed": {
			live:   `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: [{name: a, def: 2}, {name: b, def: 2}, {name: c}]}}`,
			want:   `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: [{name: b, x: 1}, {name: a}]}}`,
			result: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: [{name: b, x: 1, def: 2}, {name: a, def: 2}]}}`,
		},
		"two ports with one number": {
			live:   `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{name: t, port: 53, protocol: TCP, nodePort: 1}, {name: u, port: 53, protocol: UDP, nodePort: 2}]}}`,
			want:   `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{name: u, port: 53, protocol: UDP}, {name: t, port: 54}]}}`,
			result: `{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{name: u, port: 53, protocol: UDP, nodePort: 2}, {name: t, port: 54, protocol: TCP, nodePort: 1}]}}`,
		},
		"quantities": {
			live: `{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {cpu: "1", memory: 1Gi}}}`,
			want: `{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {cpu: 1000m, memory: 1024Mi}}}`,
			same: true,
		},
		"unknown field of a known kind": {
			live: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}`,
			want: `{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, automount: true}`,
			same: true,
		},
		"empty list": {
			live: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {}}`,
			want: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {l: []}}`,
			same: true,
		},
		"numbers": {
			live: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {num: 1}}`,
			want: `{apiVersion: example.com/v1, kind: X, metadata: {name: a}, spec: {num: 1.0}}`,
			same: true,
		},
		"stringData": {
			live: `{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {p: eA==}, type: Opaque}`,
			want: `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {p: x}}`,
			same: true,
		},
		"fields of rules are exact": {
			live:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods], verbs: [get], resourceNames: [x]}]}`,
			want:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			result: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
		},
		"rules are missing": {
			live:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			want:   `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: []}`,
			result: `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: []}`,
		},
		"rules of an aggregated role are computed": {
			live: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{verbs: [get]}]}`,
			want: `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: []}`,
			same: true,
		},
		"subjects with default group": {
			live: `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}, {kind: ServiceAccount, name: s, namespace: n}]}`,
			want: `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}, {apiGroup: "", kind: ServiceAccount, name: s, namespace: n}]}`,
			same: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, want := object(t, test.live), manifest(t, test.want)
			before := live.DeepCopy()
			got := Enforce(live, want)
			if diff := cmp.Diff(before.Object, live.Object); diff != "" {
				t.Errorf("Enforce() changed the live object (-want +got):\n%s", diff)
			}
			if same := SameObject(live, got); same != test.same {
				t.Errorf("SameObject(live, result) = %t, want %t", same, test.same)
			}
			if test.result != "" {
				if diff := cmp.Diff(object(t, test.result).Object, got.Object); diff != "" {
					t.Errorf("Enforce() (-want +got):\n%s", diff)
				}
			}
			// A second Enforce must not change the result.
			if again := Enforce(got, want); !SameObject(got, again) {
				t.Errorf("second Enforce() (-want +got):\n%s", cmp.Diff(got.Object, again.Object))
			}
		})
	}
}

func TestOwners(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{}}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}
	ours := metav1.OwnerReference{APIVersion: recordAPIVersion, Kind: recordKind, Name: "r", UID: "r"}
	live.SetOwnerReferences([]metav1.OwnerReference{other})
	SetOwners(live, ours)
	SetOwners(live, ours)
	if !HasOwner(live, ours) || len(live.GetOwnerReferences()) != 2 {
		t.Error("SetOwners() did not add the owner exactly once")
	}
	if owners := RecordOwners(live); len(owners) != 1 || owners[0].UID != "r" {
		t.Errorf("RecordOwners() = %v, want r", owners)
	}
	if !RemoveOwner(live, ours) || RemoveOwner(live, ours) || HasOwner(live, ours) || !HasOwner(live, other) {
		t.Error("RemoveOwner() did not remove exactly the given owner")
	}
}

// TestListComparisonIsBounded checks that a list in another order on the cluster costs a bounded
// number of comparisons, and that the result is still the list of the manifest.
func TestListComparisonIsBounded(t *testing.T) {
	reversed := func(n int, item func(int) any) (live, want []any) {
		live, want = make([]any, n), make([]any, n)
		for i := range n {
			live[i], want[n-1-i] = item(i), item(i)
		}
		return live, want
	}
	for name, item := range map[string]func(int) any{
		"numbers":  func(i int) any { return int64(i) },
		"objects":  func(i int) any { return map[string]any{"a": int64(i)} },
		"named":    func(i int) any { return map[string]any{"name": strconv.Itoa(i), "a": map[string]any{"b": int64(i)}} },
		"one name": func(i int) any { return map[string]any{"name": "n", "a": int64(i)} },
		"lists":    func(i int) any { return []any{int64(i), []any{int64(i)}} },
	} {
		live, want := reversed(10_000, item)
		left := maxCompared
		if got := enforceList(live, want, &left); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: enforceList() did not return the wanted list", name)
		}
		// The limit is exceeded by at most one value per level.
		if compared := maxCompared - left; compared > maxCompared+len(want) {
			t.Errorf("%s: enforceList() compared %d values, want at most %d", name, compared, maxCompared)
		}
	}
}

func TestThousandsOfOwnersAreMergedAtOnce(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	owners := make([]metav1.OwnerReference, 10_000)
	for i := range owners {
		owners[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "A", Name: "a", UID: types.UID(strconv.Itoa(i))}
	}
	SetOwners(object, owners[:5_000]...)
	owners[0].Name = "b"
	SetOwners(object, append(owners, owners[1])...)
	if got := object.GetOwnerReferences(); !reflect.DeepEqual(got, owners) {
		t.Errorf("SetOwners() set %d owners, want %d in the given order", len(got), len(owners))
	}
}

// TestQuantitiesAreNotCompared uses a quantity that the parser of quantities does not finish to
// parse.
func TestQuantitiesAreNotCompared(t *testing.T) {
	live := object(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {limits: {cpu: "1"}}}]}}`)
	want := object(t, `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, resources: {limits: {cpu: "1e-2147483647"}}}]}}`)
	if SameObject(live, Enforce(live, want)) {
		t.Error("SameObject() = true, want false")
	}
}
