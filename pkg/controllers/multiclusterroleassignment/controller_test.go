package multiclusterroleassignment

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	assignmentlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1beta1"
)

// TestRetries checks that each failed cluster is tried again although nothing sends an event: after 30 seconds if
// permissions, quotas or policies refuse it, and earlier if its namespace may appear at any time. The attempt after the
// cause has disappeared writes the ClusterPermission, and is the last one.
func TestRetries(t *testing.T) {
	for name, test := range map[string]struct {
		author  string // who may grant nothing until the second attempt; if empty, authors may grant everything
		refusal error  // of the write, until the second attempt
		fails   bool   // the attempt fails, so the loop retries it with an exponential backoff
		within  time.Duration
		reason  string
	}{
		"the author has no permission": {author: "bob", within: 30 * time.Second, reason: reasonForbidden},
		"too many clusters to check":   {author: "busy", within: 30 * time.Second, reason: reasonForbidden},
		"no decision about the author": {author: "nobody", fails: true},
		"a quota":                      {refusal: apierrors.NewForbidden(rbacv1alpha1.Resource("clusterpermissions"), "p", errors.New("quota")), within: 30 * time.Second, reason: "Refused"},
		"an admission policy":          {refusal: apierrors.NewInvalid(rbacv1alpha1.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind(), "p", nil), within: 30 * time.Second, reason: "Refused"},
		"the namespace is missing":     {refusal: apierrors.NewNotFound(rbacv1alpha1.Resource("namespaces"), "c1"), within: 3 * time.Second, reason: "NamespaceMissing"},
		"another one has the name":     {refusal: apierrors.NewAlreadyExists(rbacv1alpha1.Resource("clusterpermissions"), "p"), within: 3 * time.Second, reason: "NameTaken"},
		"the storage is down":          {refusal: errors.New("etcd is down"), fails: true, reason: "WriteFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			a := roles([]string{test.author}, []string{"north"}, "view")
			var may Pass
			if test.author != "" {
				may = grants{}
			}
			client := fake.NewSimpleClientset(a)
			assignments := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			c := &Controller{
				planner: planner(t, members{"north": {"c1"}}), newPass: func(*rbacv1beta1.MulticlusterRoleAssignment) Pass { return may },
				assignments: client.RbacV1beta1(), permissions: client.RbacV1alpha1(),
				lister: assignmentlisters.NewMulticlusterRoleAssignmentLister(assignments),
			}
			refused := test.refusal
			client.PrependReactor("create", "clusterpermissions", func(clienttesting.Action) (bool, runtime.Object, error) {
				return refused != nil, nil, refused
			})
			// attempt reconciles the stored object, and returns the reason of the cluster in the status.
			attempt := func() (again time.Duration, reason string, err error) {
				t.Helper()
				stored, err := client.RbacV1beta1().MulticlusterRoleAssignments("team").Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := assignments.Add(stored); err != nil {
					t.Fatal(err)
				}
				again, err = c.reconcile(t.Context(), cache.NewObjectName("team", "a"))
				if stored, getErr := client.RbacV1beta1().MulticlusterRoleAssignments("team").Get(t.Context(), "a", metav1.GetOptions{}); getErr != nil {
					t.Fatal(getErr)
				} else if stored.Status.Clusters != nil && len(stored.Status.Clusters.Failing) > 0 {
					reason = stored.Status.Clusters.Failing[0].Reason
				}
				return again, reason, err
			}

			again, reason, err := attempt()
			if (err != nil) != test.fails || again != test.within || reason != test.reason {
				t.Errorf("first attempt = next after %s, reason %q, error %v, want %s, %q, an error = %t", again, reason, err, test.within, test.reason, test.fails)
			}
			may, refused = nil, nil
			again, reason, err = attempt()
			written, listErr := client.RbacV1alpha1().ClusterPermissions("c1").List(t.Context(), metav1.ListOptions{})
			if err != nil || listErr != nil || len(written.Items) != 1 || again != 0 || reason != reasonPending {
				t.Errorf("next attempt = next after %s, reason %q, error %v, %d ClusterPermissions, want 0s, %q and one", again, reason, err, len(written.Items), reasonPending)
			}
		})
	}
}

// grouped returns a number as the documentation spells it.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestDocumentedLimits checks that the limits are those of docs/role-assignments.md. Tests of the limits use the constants.
func TestDocumentedLimits(t *testing.T) {
	page, err := os.ReadFile("../../../docs/role-assignments.md")
	if err != nil {
		t.Fatal(err)
	}
	for text, limit := range map[string]int{
		"| role assignments of an object | %s |":                                                                    rbacv1beta1.MaxRoleAssignments,
		"| target namespaces of all role assignments | %s |":                                                        rbacv1beta1.MaxTargetNamespaces,
		"| Placements, sets and requirements of label selectors of all role assignments | %s |":                     rbacv1beta1.MaxReferences,
		"| selected clusters | %s |":                                                                                rbacv1beta1.MaxClusters,
		"| grants on all clusters | %s |":                                                                           rbacv1beta1.MaxGrants,
		"| clusters on which authors are checked one by one, in one request or one attempt of the controller | %s.": authz.MaxReviews,
		"lists the first %s that have not applied":                                                                  rbacv1beta1.MaxFailingClusters,
	} {
		if want := fmt.Sprintf(text, grouped(limit)); !strings.Contains(string(page), want) {
			t.Errorf("docs/role-assignments.md does not contain %q", want)
		}
	}
}
