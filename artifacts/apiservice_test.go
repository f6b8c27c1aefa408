package artifacts

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// The server may write its certificate authorities into its own APIServices and no others.
func TestServerMayPatchItsAPIServices(t *testing.T) {
	var want []string
	for _, pattern := range []string{"apiservice/*.yaml", "apiservice/optional/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("Glob(%s) = %q, %v, want files", pattern, files, err)
		}
		for _, file := range files {
			var service metav1.PartialObjectMetadata
			decode(t, file, &service, func() {
				if service.Kind != "APIService" {
					return
				}
				want = append(want, service.Name)
				const annotation, secret = "open-cluster-management.io/inject-ca-from-secret", "open-cluster-management-hub/hub-apiserver-serving"
				if got := service.Annotations[annotation]; got != secret {
					t.Errorf("%s: annotation %s = %q, want %q", file, annotation, got, secret)
				}
			})
		}
	}
	var got []string
	var role rbacv1.ClusterRole
	decode(t, "rbac/hub-apiserver.yaml", &role, func() {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "apiservices") && slices.Contains(rule.Verbs, "patch") {
				got = append(got, rule.ResourceNames...)
			}
		}
		role = rbacv1.ClusterRole{}
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("APIServices that the server may patch = %q, want %q", got, want)
	}
}

// decode decodes each document of a file into an object, and calls visit.
func decode(t *testing.T, path string, into any, visit func()) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for decoder.Decode(into) == nil {
		visit()
	}
}
