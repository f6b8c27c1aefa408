package clusterpermission

import (
	"encoding/json"

	rbacv1 "k8s.io/api/rbac/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// The types below are the RBAC types without server-side fields and with sorted keys. The
// storage preserves the bytes of manifests, so that a stored ManifestWork and a rendered
// one can be compared byte by byte.

type manifest struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	RoleRef    *rbacv1.RoleRef `json:"roleRef,omitempty"`
	// The rules or subjects follow; see content.
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

func newRules(policyRules []rbacv1.PolicyRule) *content {
	rules := make([]rule, len(policyRules))
	for i, r := range policyRules {
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

// newSubject sets the default API group. Otherwise the object would differ from the
// manifest on the managed cluster.
func newSubject(s rbacv1.Subject) subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return subject{APIGroup: s.APIGroup, Kind: s.Kind, Name: s.Name, Namespace: s.Namespace}
}

func newSubjects(subjects []subject) *content {
	return newContent("subjects", subjects)
}

// encode encodes a value that consists of strings, which cannot fail.
func encode(value any) []byte {
	raw, err := json.Marshal(value)
	utilruntime.Must(err)
	return raw
}
