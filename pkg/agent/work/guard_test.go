package work

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func TestJudge(t *testing.T) {
	const (
		role    = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole`
		binding = `apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding`
		get     = `rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]`
		all     = `rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}]`
		ours    = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: ours, uid: ours}`
		theirs  = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: theirs, uid: theirs}`
		keepers = `{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: keepers, uid: keepers}`
		adopted = `annotations: {work.open-cluster-management.io/adopted: "true"}`
	)
	for name, test := range map[string]struct {
		live, want string
		recorded   types.UID
		// refused is whether the object is left alone, borrowed whether it is not
		// this work's to change.
		refused, borrowed bool
	}{
		"made": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u",
		},
		"made before a crash": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
		},
		"made, owner reference removed": {
			live: `{` + role + `, metadata: {name: a, uid: u}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u",
		},
		"replaced": {
			live: `{` + role + `, metadata: {name: a, uid: other}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"nobody's, equal": {
			live: `{` + role + `, metadata: {name: a, uid: u, labels: {a: b}}, ` + get + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			borrowed: true,
		},
		"nobody's, emptied": {
			live: `{` + role + `, metadata: {name: a, uid: u}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, rules: []}`,
			refused: true, borrowed: true,
		},
		"nobody's, empty": {
			live: `{` + role + `, metadata: {name: a, uid: u}}`, want: `{` + role + `, metadata: {name: a}, rules: []}`,
			borrowed: true,
		},
		"aggregated, empty as yet": {
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
		"adopted before works were guarded": {
			live:     `{` + role + `, metadata: {name: a, uid: u, ` + adopted + `, ownerReferences: [` + ours + `]}, ` + all + `}`,
			want:     `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"another work's": {
			live:     `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + theirs + `, ` + ours + `]}, ` + all + `}`,
			want:     `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"taken over by a work that may": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `, ` + keepers + `]}, ` + all + `}`, want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
			recorded: "u", refused: true, borrowed: true,
		},
		"shared with another work": {
			live: `{` + role + `, metadata: {name: a, uid: u, ownerReferences: [` + ours + `, ` + theirs + `]}, ` + all + `}`,
			want: `{` + role + `, metadata: {name: a}, ` + get + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			live, want := object(t, test.live), manifest(t, test.want)
			it := &item{object: want, gvk: want.GroupVersionKind(), name: want.GetName()}
			a := &applier{owner: metav1.OwnerReference{UID: "ours"}, guarded: true, unguarded: func(owner metav1.OwnerReference) bool { return owner.Name == "keepers" }}
			subject := &task{item: it, recordedUID: test.recorded, state: &itemState{}}
			if err := a.judge(subject, live); (err != nil) != test.refused || subject.state.borrowed != test.borrowed {
				t.Errorf("got %v, borrowed %t", err, subject.state.borrowed)
			}
			a.guarded = false
			subject.state.borrowed = false
			if err := a.judge(subject, live); err != nil || subject.state.borrowed {
				t.Errorf("a work that is not guarded: %v, borrowed %t", err, subject.state.borrowed)
			}
		})
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
		"something else":                   {metav1.OwnerReference{APIVersion: "work.open-cluster-management.io/v1alpha1", Kind: "ManifestWorkReplicaSet", Controller: &controller}, false},
	} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{test.owner}}}
		if got := delivers(work); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	orphaned := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{rbacv1alpha1.DeliveredAnnotation: "cp"}}}
	if !delivers(orphaned) {
		t.Error("a work whose ClusterPermission was deleted without it is taken for another one")
	}
}
