package decide

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

func TestJudge(t *testing.T) {
	const (
		role      = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole`
		binding   = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding`
		get       = `rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]`
		all       = `rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}]`
		ours      = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: ours, uid: ours}`
		theirs    = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: theirs, uid: theirs}`
		keepers   = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: keepers, uid: keepers}`
		lenders   = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: lenders, uid: lenders}`
		borrowers = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: borrowers, uid: borrowers}`
		absent    = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: absent, uid: absent}`
		adopted   = `annotations: {work.open-cluster-management.io/adopted: "true"}`
	)
	record := func(guarded bool, entries ...workv1.AppliedManifestResourceMeta) *workv1.AppliedManifestWork {
		record := &workv1.AppliedManifestWork{Status: workv1.AppliedManifestWorkStatus{AppliedResources: entries}}
		if guarded {
			record.Annotations = map[string]string{GuardedAnnotation: "true"}
		}
		return record
	}
	listed := workv1.AppliedManifestResourceMeta{Name: "a", UID: "u"}
	records := map[string]*workv1.AppliedManifestWork{
		"theirs": record(true, listed), "keepers": record(false, listed), "lenders": record(false, workv1.AppliedManifestResourceMeta{Name: "b"}),
		"borrowers": record(true, workv1.AppliedManifestResourceMeta{Name: "a"}),
	}
	for name, test := range map[string]struct {
		live, want string
		recorded   types.UID
		// refused is true if the object must not be changed. borrowed is true if the ManifestWork
		// did not create it.
		refused, borrowed bool
	}{
		"created": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u",
		},
		"created before a crash": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
		},
		"created, owner reference removed": {
			live: `{` + role + `, metadata: {name: a, uid: u}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u",
		},
		"replaced": {
			live: `{` + role + `, metadata: {name: a, uid: other}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"without owner, equal": {
			live: `{` + role + `, metadata: {name: a, uid: u, labels: {a: b}}, ` + get + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			borrowed: true,
		},
		"without owner, emptied": {
			live: `{` + role + `, metadata: {name: a, uid: u}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, rules: []}`,
			refused: true, borrowed: true,
		},
		"without owner, empty": {
			live: `{` + role + `, metadata: {name: a, uid: u}}`, want: `{` + role + `, metadata: {name: a}, rules: []}`,
			borrowed: true,
		},
		"aggregated, still empty": {
			live: `{` + role + `, metadata: {name: a, uid: u}, aggregationRule: {clusterRoleSelectors: [{}]}}`, want: `{` + role + `, metadata: {name: a}, rules: []}`,
			refused: true, borrowed: true,
		},
		"rules that the manifest does not mention": {
			live: `{` + role + `, metadata: {name: a, uid: u}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}}`,
			refused: true, borrowed: true,
		},
		"subjects that the manifest does not mention": {
			live: `{` + binding + `, metadata: {name: a, uid: u}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}]}`,
			want: `{` + binding + `, metadata: {name: a}, roleRef: {kind: ClusterRole, name: r}}`, refused: true, borrowed: true,
		},
		"binding, equal": {
			live: `{` + binding + `, metadata: {name: a, uid: u}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: u}]}`,
			want: `{` + binding + `, metadata: {name: a}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: u}]}`, borrowed: true,
		},
		"inherited from an unguarded ManifestWork that adopted it": {
			live: `{` + role + `, metadata: {name: a, uid: u, ` + adopted + `, ownerReferences: [` + ours + `]}, ` + all + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`, refused: true, borrowed: true,
		},
		"created, annotated by its subject": {
			live: `{` + role + `, metadata: {name: a, uid: u, ` + adopted + `, ownerReferences: [` + ours + `]}, ` + get + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`, recorded: "u",
		},
		"created, annotated and released by its subject": {
			live: `{` + role + `, metadata: {name: a, uid: u, ` + adopted + `}, ` + get + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`, recorded: "u",
		},
		"created, given by its subject to AppliedManifestWorks that do not list it": {
			live: `{` + role + `, metadata: {name: a, uid: u, ` + adopted + `, ownerReferences: [` + lenders + `, ` + absent + `, ` + ours + `]}, ` + get + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`, recorded: "u",
		},
		"replaced, annotated": {
			live: `{` + role + `, metadata: {name: a, uid: other, ` + adopted + `}, ` + get + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`, recorded: "u", borrowed: true,
		},
		"of another ManifestWork": {
			live:     `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + theirs + `, ` + ours + `]}, ` + all + `}`,
			want:     `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"taken over by an unguarded ManifestWork": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `, ` + keepers + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"shared with another ManifestWork": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `, ` + theirs + `]}, ` + all + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
		},
		"shared with an earlier owner that did not create it": {
			live:     `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + borrowers + `, ` + ours + `]}, ` + all + `}`,
			want:     `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u",
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, want := object(t, test.live), manifest(t, test.want)
			it := &Item{Object: want, GVK: want.GroupVersionKind(), Name: want.GetName()}
			guard := &Guard{Owner: metav1.OwnerReference{UID: "ours"}, Record: func(owner metav1.OwnerReference) *workv1.AppliedManifestWork { return records[owner.Name] }}
			if borrowed, err := guard.Judge(it, test.recorded, live); (err != nil) != test.refused || borrowed != test.borrowed {
				t.Errorf("Judge() = %t, %v, want %t and an error = %t", borrowed, err, test.borrowed, test.refused)
			}
			guard = nil
			if borrowed, err := guard.Judge(it, test.recorded, live); err != nil || borrowed {
				t.Errorf("Judge() without guard = %t, %v, want false, nil", borrowed, err)
			}
		})
	}
}

// TestGuardEnforces checks that an object of a guarded ManifestWork grants exactly what its manifest grants, without regard to
// its managed fields.
func TestGuardEnforces(t *testing.T) {
	const (
		role    = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}`
		binding = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}`
		rules   = `rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]`
		select1 = `aggregationRule: {clusterRoleSelectors: [{}]}`
	)
	for name, test := range map[string]struct{ live, manifest, want string }{
		"no rules":           {`{` + role + `, ` + rules + `}`, `{` + role + `}`, `{` + role + `}`},
		"no aggregation":     {`{` + role + `, ` + select1 + `, ` + rules + `}`, `{` + role + `}`, `{` + role + `}`},
		"aggregated rules":   {`{` + role + `, ` + select1 + `, ` + rules + `}`, `{` + role + `, ` + select1 + `}`, `{` + role + `, ` + select1 + `, ` + rules + `}`},
		"no subjects":        {`{` + binding + `, subjects: [{kind: User, name: u}]}`, `{` + binding + `}`, `{` + binding + `}`},
		"not an RBAC object": {`{apiVersion: v1, kind: X, metadata: {name: a}, rules: [a]}`, `{apiVersion: v1, kind: X, metadata: {name: a}}`, `{apiVersion: v1, kind: X, metadata: {name: a}, rules: [a]}`},
	} {
		live, want := object(t, test.live), object(t, test.want)
		if got := (&Guard{}).Enforce(live, manifest(t, test.manifest)); !SameObject(want, got) {
			t.Errorf("%s: Enforce() = %v, want %v", name, got.Object, want.Object)
		}
		var none *Guard
		if got := none.Enforce(live, manifest(t, test.manifest)); !SameObject(live, got) {
			t.Errorf("%s: Enforce() without guard = %v, want %v", name, got.Object, live.Object)
		}
	}
}

func TestDelivers(t *testing.T) {
	controller := true
	for name, test := range map[string]struct {
		owner metav1.OwnerReference
		want  bool
	}{
		"ClusterPermission":                {metav1.OwnerReference{APIVersion: "rbac.open-cluster-management.io/v1alpha1", Kind: "ClusterPermission", Controller: &controller}, true},
		"ClusterPermission of a later API": {metav1.OwnerReference{APIVersion: "rbac.open-cluster-management.io/v1", Kind: "ClusterPermission", Controller: &controller}, true},
		"not the controller":               {metav1.OwnerReference{APIVersion: "rbac.open-cluster-management.io/v1alpha1", Kind: "ClusterPermission"}, false},
		"of another group":                 {metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "ClusterPermission", Controller: &controller}, false},
		"of another kind":                  {metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1alpha1", Kind: "ManifestWorkReplicaSet", Controller: &controller}, false},
	} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{test.owner}}}
		if got := Delivers(work); got != test.want {
			t.Errorf("%s: Delivers() = %t, want %t", name, got, test.want)
		}
	}
	orphaned := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{rbacv1alpha1.DeliveredAnnotation: "cp"}}}
	if !Delivers(orphaned) {
		t.Error("Delivers() of a ManifestWork whose ClusterPermission was deleted = false, want true")
	}
}

// TestGrantsNoMoreIsBounded checks that a comparison of too many rules is rejected without starting
// it. The product of four lists of 65,536 entries is 2^64, which overflows to 0 in 64-bit integers.
func TestGrantsNoMoreIsBounded(t *testing.T) {
	entries := make([]any, 1<<16)
	for i := range entries {
		entries[i] = "x"
	}
	role := func(list []any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
			"rules": []any{map[string]any{"apiGroups": list, "resources": list, "resourceNames": list, "verbs": list}},
		}}
	}
	result := make(chan bool, 1)
	go func() { result <- grantsNoMore(role(entries), role([]any{"x"})) }()
	if await.Done(t, "grantsNoMore(huge role, small role) returns", result) {
		t.Error("grantsNoMore(huge role, small role) = true, want false")
	}
}
