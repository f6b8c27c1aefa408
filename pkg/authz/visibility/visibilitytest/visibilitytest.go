// Package visibilitytest creates Scopes for tests of other packages.
package visibilitytest

import (
	"bufio"
	"errors"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// tester is the part of testing.TB that the functions of this package need.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Scope returns the Scope of a user on a hub with the given policy: YAML documents with
// Roles, ClusterRoles, RoleBindings and ClusterRoleBindings. Roles and RoleBindings need a
// namespace. The test fails at once if the policy is invalid.
func Scope(t tester, policyYAML string, identity user.Info) visibility.Scope {
	t.Helper()
	scope, err := visibility.Static(Parse(t, policyYAML), identity)
	if err != nil {
		t.Fatal(err)
	}
	return scope
}

// Parse returns the objects of a policy.
func Parse(t tester, policyYAML string) []runtime.Object {
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
