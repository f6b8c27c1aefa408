package clusterpermission

import (
	"encoding/json"

	rbacv1 "k8s.io/api/rbac/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// The types below are those of RBAC without what only a server sets, and with
// sorted keys: a storage that decodes and encodes a work leaves the bytes of its
// manifests as they are, so that a stored work and a rendered one compare at once.

type manifest struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	RoleRef    *rbacv1.RoleRef `json:"roleRef,omitempty"`
	// Rules or subjects come last; they are the content of an object.
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

func newRules(given []rbacv1.PolicyRule) *content {
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
	return newContent("rules", rules)
}

// newSubject completes a subject as the managed cluster's API server would, or
// else the delivered object would look changed there.
func newSubject(s rbacv1.Subject) subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return subject{APIGroup: s.APIGroup, Kind: s.Kind, Name: s.Name, Namespace: s.Namespace}
}

func newSubjects(subjects []subject) *content {
	return newContent("subjects", subjects)
}

// encode writes a value that is made of strings, which always succeeds.
func encode(value any) []byte {
	raw, err := json.Marshal(value)
	utilruntime.Must(err)
	return raw
}
