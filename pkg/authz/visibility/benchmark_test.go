package visibility_test

import (
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// manyNamespaces returns the RBAC of a hub with ten RoleBindings in each namespace. Each
// caller is bound in 50 namespaces.
func manyNamespaces(namespaces int) []runtime.Object {
	var rules []rbacv1.PolicyRule
	for i := range 40 {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{fmt.Sprintf("group-%d.example.com", i)}, Resources: []string{"as", "bs", "cs"}, Verbs: []string{"get", "list", "watch"},
		})
	}
	objects := []runtime.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: rules}}
	step := namespaces / 50
	for i := range namespaces {
		namespace := fmt.Sprintf("namespace-%d", i)
		for j := range 10 {
			name := fmt.Sprintf("other-%d-%d", i, j)
			if j < 8 && i%step == 0 {
				name = fmt.Sprintf("user-%d", j)
			}
			objects = append(objects, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			})
		}
	}
	return objects
}

// BenchmarkColdScope measures the first Scope of a caller. Each call uses another identity with
// different extra fields.
func BenchmarkColdScope(b *testing.B) {
	for _, namespaces := range []int{500, 2000} {
		h := newHub(manyNamespaces(namespaces))
		h.start(b, visibility.Config{Mode: visibility.RBAC, CacheSize: 128})
		n := 0
		cold := func(i int) *user.DefaultInfo {
			return &user.DefaultInfo{Name: fmt.Sprintf("user-%d", i), Extra: map[string][]string{"n": {fmt.Sprint(n, i)}}}
		}
		b.Run(fmt.Sprintf("%d namespaces", namespaces), func(b *testing.B) {
			for b.Loop() {
				n++
				h.scope(b, cold(0))
			}
		})
		b.Run(fmt.Sprintf("%d namespaces, 8 at once", namespaces), func(b *testing.B) {
			for b.Loop() {
				n++
				var callers sync.WaitGroup
				for i := range 8 {
					callers.Go(func() { h.scope(b, cold(i)) })
				}
				callers.Wait()
			}
		})
	}
}

// BenchmarkHotScope measures the cached Scope of a caller.
func BenchmarkHotScope(b *testing.B) {
	h := newHub(manyNamespaces(500))
	h.start(b, visibility.Config{Mode: visibility.RBAC})
	caller := &user.DefaultInfo{Name: "user-0", Groups: []string{"a", "b", user.AllAuthenticated}}
	b.ReportAllocs()
	for b.Loop() {
		h.scope(b, caller)
	}
}

func BenchmarkDecide(b *testing.B) {
	objects := manyNamespaces(500)
	scope, err := visibility.Static(objects, &user.DefaultInfo{Name: "user-0"})
	if err != nil {
		b.Fatal(err)
	}
	classes := []visibility.Class{
		hub("group-7.example.com", "bs", "namespace-0"), hub("group-7.example.com", "bs", "namespace-1"), hub("", "pods", "namespace-10"), hub("", "nodes", ""),
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, class := range classes {
			scope.Decide(class)
		}
	}
}
