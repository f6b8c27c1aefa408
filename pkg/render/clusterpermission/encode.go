package clusterpermission

import (
	"encoding/json"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The types below are those of RBAC without what only a server sets, and with
// sorted keys: a storage that decodes and encodes a work leaves the bytes of its
// manifests as they are, so that a stored work and a rendered one compare at once.

type manifest struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	RoleRef    *rbacv1.RoleRef `json:"roleRef,omitempty"`
	Rules      []rule          `json:"rules,omitzero"`
	Subjects   []subject       `json:"subjects,omitempty"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type rule struct {
	APIGroups       []string `json:"apiGroups,omitempty"`
	NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	ResourceNames   []string `json:"resourceNames,omitempty"`
	Resources       []string `json:"resources,omitempty"`
	Verbs           []string `json:"verbs"`
}

type subject struct {
	APIGroup  string `json:"apiGroup,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// newRules never gives nil: an empty list has to be written as one, or else the
// managed cluster's API server would change it.
func newRules(given []rbacv1.PolicyRule) []rule {
	rules := make([]rule, len(given))
	for i, r := range given {
		rules[i] = rule{
			APIGroups:       r.APIGroups,
			NonResourceURLs: r.NonResourceURLs,
			ResourceNames:   r.ResourceNames,
			Resources:       r.Resources,
			Verbs:           r.Verbs,
		}
	}
	return rules
}

func (r rule) equal(other rule) bool {
	return equality.Semantic.DeepEqual(r, other)
}

// newSubject completes a subject as the managed cluster's API server would, or
// else the delivered object would look changed there.
func newSubject(s rbacv1.Subject) subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return subject{APIGroup: s.APIGroup, Kind: s.Kind, Name: s.Name, Namespace: s.Namespace}
}

func encode(obj *object) ([]byte, error) {
	return json.Marshal(manifest{
		APIVersion: rbacv1.SchemeGroupVersion.String(),
		Kind:       obj.kind,
		Metadata:   metadata{Name: obj.name, Namespace: obj.namespace},
		RoleRef:    obj.roleRef,
		Rules:      obj.rules,
		Subjects:   obj.subjects,
	})
}
