// Package visibilitytest makes Scopes for tests of what reads within one.
package visibilitytest

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// Scope is what a user may find on a hub with the given policy: documents of YAML
// with Roles, ClusterRoles, RoleBindings and ClusterRoleBindings. A Role or a
// RoleBinding needs a namespace. The test fails at once if the policy is not valid.
func Scope(t testing.TB, policyYAML string, identity user.Info) visibility.Scope {
	t.Helper()
	scope, err := visibility.Static(Parse(t, policyYAML), identity)
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

// Everything is the Scope of a privileged caller: everything of the hub, and
// everything but Secrets of every managed cluster.
func Everything() visibility.Scope {
	scope, err := visibility.Static(nil, &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	if err != nil {
		// Without objects there is none to be refused.
		panic(err)
	}
	return scope
}

// Parse reads the objects of a policy.
func Parse(t testing.TB, policyYAML string) []runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(policyYAML)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("reading the policy: %v", err)
		}
		if strings.TrimSpace(string(document)) == "" {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("reading the policy: %v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
}
