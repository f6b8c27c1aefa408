package validation

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/fieldtest"
)

func assignment(change func(*v1beta1.MulticlusterRoleAssignmentSpec)) *rbac.MulticlusterRoleAssignment {
	a := &rbac.MulticlusterRoleAssignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "readers"},
		Spec: v1beta1.MulticlusterRoleAssignmentSpec{
			Subject: v1beta1.Subject{Kind: "User", Name: "ann"},
			RoleAssignments: []v1beta1.RoleAssignment{{
				Name: "view", ClusterRole: "system:view", TargetNamespaces: []string{"default"},
				ClusterSelection: v1beta1.ClusterSelection{Type: v1beta1.SelectPlacements, Placements: []v1beta1.PlacementRef{{Namespace: "team", Name: "all"}}},
			}},
		},
	}
	if change != nil {
		change(&a.Spec)
	}
	return a
}

func TestMulticlusterRoleAssignment(t *testing.T) {
	const first = "spec.roleAssignments[0]"
	selection := func(change func(*v1beta1.ClusterSelection)) func(*v1beta1.MulticlusterRoleAssignmentSpec) {
		return func(s *v1beta1.MulticlusterRoleAssignmentSpec) { change(&s.RoleAssignments[0].ClusterSelection) }
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.MulticlusterRoleAssignmentSpec)
		want   []string
	}{
		"valid": {},
		"service account": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			s.Subject = v1beta1.Subject{Kind: "ServiceAccount", Name: "bot", Namespace: ptr.To("default"), APIGroup: ptr.To("")}
		}, nil},
		"group": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			s.Subject = v1beta1.Subject{Kind: "Group", Name: "on-call", APIGroup: ptr.To("rbac.authorization.k8s.io")}
		}, nil},
		"subject without fields":        {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject = v1beta1.Subject{} }, []string{"spec.subject.kind: Required value"}},
		"unknown kind":                  {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject.Kind = "ManagedServiceAccount" }, []string{"spec.subject.kind: Unsupported value"}},
		"user without name":             {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject.Name = "" }, []string{"spec.subject.name: Required value"}},
		"user with namespace":           {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject.Namespace = ptr.To("") }, []string{"spec.subject.namespace: Forbidden"}},
		"user of another group":         {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject.APIGroup = ptr.To("apps") }, []string{"spec.subject.apiGroup: Unsupported value"}},
		"service account without space": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.Subject.Kind = "ServiceAccount" }, []string{"spec.subject.namespace: Required value"}},
		"no role assignments":           {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.RoleAssignments = nil }, []string{"spec.roleAssignments: Required value"}},
		"role assignments of the same name": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			s.RoleAssignments = append(s.RoleAssignments, s.RoleAssignments[0])
		}, []string{"spec.roleAssignments[1].name: Duplicate value"}},
		"long name":    {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.RoleAssignments[0].Name = strings.Repeat("n", 254) }, []string{first + ".name: Too long"}},
		"no role":      {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.RoleAssignments[0].ClusterRole = "" }, []string{first + ".clusterRole: Required value"}},
		"invalid role": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) { s.RoleAssignments[0].ClusterRole = "a/b" }, []string{first + ".clusterRole: Invalid value"}},
		"invalid namespaces": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			s.RoleAssignments[0].TargetNamespaces = []string{"default", "", "Default", "default"}
		}, []string{first + ".targetNamespaces[1]: Required value", first + ".targetNamespaces[2]: Invalid value", first + ".targetNamespaces[3]: Duplicate value"}},
		"no type":       {selection(func(s *v1beta1.ClusterSelection) { s.Type = "" }), []string{first + ".clusterSelection.type: Required value"}},
		"unknown type":  {selection(func(s *v1beta1.ClusterSelection) { s.Type = "clusterNames" }), []string{first + ".clusterSelection.type: Unsupported value"}},
		"no placements": {selection(func(s *v1beta1.ClusterSelection) { s.Placements = nil }), []string{first + ".clusterSelection.placements: Required value"}},
		"placement without fields": {selection(func(s *v1beta1.ClusterSelection) { s.Placements[0] = v1beta1.PlacementRef{} }),
			[]string{first + ".clusterSelection.placements[0].name: Required value", first + ".clusterSelection.placements[0].namespace: Required value"}},
		"two selections": {selection(func(s *v1beta1.ClusterSelection) { s.ClusterSets = []string{"a"} }), []string{first + ".clusterSelection.clusterSets: Forbidden"}},
		"invalid set": {selection(func(s *v1beta1.ClusterSelection) {
			*s = v1beta1.ClusterSelection{Type: v1beta1.SelectClusterSets, ClusterSets: []string{"a", "B"}}
		}), []string{first + ".clusterSelection.clusterSets[1]: Invalid value"}},
		"all clusters": {selection(func(s *v1beta1.ClusterSelection) {
			*s = v1beta1.ClusterSelection{Type: v1beta1.SelectLabels, LabelSelector: &metav1.LabelSelector{}}
		}), nil},
		"invalid labels": {selection(func(s *v1beta1.ClusterSelection) {
			*s = v1beta1.ClusterSelection{Type: v1beta1.SelectLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "/"}}}
		}), []string{first + ".clusterSelection.labelSelector.matchLabels: Invalid value"}},
		"too many role assignments": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			s.RoleAssignments = make([]v1beta1.RoleAssignment, v1beta1.MaxRoleAssignments+1)
		}, []string{"spec.roleAssignments: Too many"}},
		"too many namespaces": {func(s *v1beta1.MulticlusterRoleAssignmentSpec) {
			for i := range v1beta1.MaxTargetNamespaces {
				s.RoleAssignments[0].TargetNamespaces = append(s.RoleAssignments[0].TargetNamespaces, fmt.Sprintf("n%d", i))
			}
		}, []string{"spec.roleAssignments: Forbidden"}},
		"too many placements": {selection(func(s *v1beta1.ClusterSelection) {
			s.Placements = make([]v1beta1.PlacementRef, v1beta1.MaxReferences+1)
		}), []string{"spec.roleAssignments: Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			fieldtest.Check(t, MulticlusterRoleAssignment.New(assignment(test.change)), test.want...)
			// An update may keep an invalid part, and may not add one.
			old := assignment(nil)
			fieldtest.Check(t, MulticlusterRoleAssignment.Update(assignment(test.change), old), test.want...)
			changed := assignment(test.change)
			changed.Spec.Subject.Name += "x"
			same := MulticlusterRoleAssignment.Update(changed, assignment(test.change))
			for _, e := range same {
				if !strings.HasPrefix(e.Field, "spec.subject") {
					t.Errorf("error of an update that does not change the part = %v, want none", e)
				}
			}
		})
	}
}
