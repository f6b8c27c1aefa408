package multiclusterroleassignment_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	controller "open-cluster-management.io/hub-apiserver/pkg/controllers/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

const (
	checksPerCaller = 4
	hostileRequests = 50
)

// sets are the numbers of clusters of each ManagedClusterSet.
type sets map[string]int

func (s sets) Members(set string) (names []string, found bool, err error) {
	for i := range s[set] {
		names = append(names, fmt.Sprintf("%s-%04d", set, i))
	}
	return names, len(names) > 0, nil
}

func (s sets) SetsOf(cluster *clusterv1.ManagedCluster) ([]string, error) {
	set, _, _ := strings.Cut(cluster.Name, "-")
	return []string{set}, nil
}

// hub allows ann and every get. It allows single and hostile to bind the ClusterPermissions of single clusters. It
// decides about hostile only after release is closed.
type hub struct {
	reviews atomic.Int32
	release chan struct{}
}

func (h *hub) decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h.reviews.Add(1)
	name := a.GetUser().GetName()
	if name == "hostile" && a.GetNamespace() != "" {
		<-h.release
	}
	single := a.GetNamespace() != "" && (name == "single" || name == "hostile")
	if a.GetVerb() == "get" || name == "ann" || single {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func serve(t *testing.T, of sets) (registrytest.Server, *hub) {
	t.Helper()
	h := &hub{release: make(chan struct{})}
	clusters := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for set := range of {
		names, _, _ := of.Members(set)
		for _, name := range names {
			if err := clusters.Add(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	permissions := externalversions.NewSharedInformerFactory(fake.NewClientset(), 0).Rbac().V1alpha1().ClusterPermissions()
	if err := controller.IndexPermissions(permissions); err != nil {
		t.Fatal(err)
	}
	row := multiclusterroleassignment.Definition(multiclusterroleassignment.Options{
		Planner: &controller.Planner{
			Sets: of, Clusters: clusterlisters.NewManagedClusterLister(clusters), Placements: &controller.Placements{}, Permissions: permissions.Informer().GetIndexer(),
		},
		Checker: &roleassignment.Checker{
			Authorizer: authorizer.AuthorizerFunc(h.decide), Reviews: callers.NewReviews(),
			Delivered: func(context.Context, string) ([]workv1.Manifest, error) { return nil, nil },
		},
		Checks:     callers.NewBound("checks of role assignments", "", checksPerCaller, 1),
		RoleExists: func(context.Context, string) (bool, error) { return true, nil },
		Refuse:     true,
	})
	return registrytest.StartDatabase(t).Serve(t, nil, row), h
}

// write creates a MulticlusterRoleAssignment for a set, without retries.
func write(ctx context.Context, caller versioned.Interface, set string, dryRun ...string) (*rbacv1beta1.MulticlusterRoleAssignment, error) {
	out := &rbacv1beta1.MulticlusterRoleAssignment{}
	err := caller.RbacV1beta1().RESTClient().Post().Namespace("team").Resource("multiclusterroleassignments").MaxRetries(0).
		VersionedParams(&metav1.CreateOptions{DryRun: dryRun}, scheme.ParameterCodec).Body(&rbacv1beta1.MulticlusterRoleAssignment{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1beta1.SchemeGroupVersion.String(), Kind: "MulticlusterRoleAssignment"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"},
		Spec: rbacv1beta1.MulticlusterRoleAssignmentSpec{
			Subject: rbacv1beta1.Subject{Kind: "User", Name: "bob"},
			RoleAssignments: []rbacv1beta1.RoleAssignment{{Name: "view", ClusterRole: "view", ClusterSelection: rbacv1beta1.ClusterSelection{
				Type: rbacv1beta1.SelectClusterSets, ClusterSets: []string{set},
			}}},
		},
	}).Do(ctx).Into(out)
	return out, err
}

// TestHostileDryRuns checks that other callers get their answers while all dry runs of a caller wait for the hub.
func TestHostileDryRuns(t *testing.T) {
	server, h := serve(t, sets{"all": 200})
	results := make(chan error, hostileRequests)
	hostile := server.As(t, "hostile")
	for range hostileRequests {
		go func() {
			_, err := write(t.Context(), hostile, "all", metav1.DryRunAll)
			results <- err
		}()
	}
	for range hostileRequests - checksPerCaller {
		if err := <-results; !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), `user "hostile" has 4 open checks of role assignments`) {
			t.Fatalf("dry run over the limit = %v, want status 429", err)
		}
	}
	for caller, allowed := range map[string]bool{"ann": true, "single": true, "nobody": false} {
		planned, err := write(t.Context(), server.As(t, caller), "all", metav1.DryRunAll)
		if !allowed {
			if !apierrors.IsForbidden(err) {
				t.Errorf("dry run of %s = %v, want 403", caller, err)
			}
			continue
		}
		if err != nil || planned.Status.Preview == nil || planned.Status.Preview.Changed != 200 {
			t.Errorf("dry run of %s = %+v, %v, want 200 changed clusters", caller, planned.Status.Preview, err)
		}
	}
	close(h.release)
	for range checksPerCaller {
		if err := <-results; err != nil {
			t.Errorf("dry run within the limit = %v, want no error", err)
		}
	}
}

// TestReviewsOfRequests checks how many access reviews a request requires, and that there is a limit.
func TestReviewsOfRequests(t *testing.T) {
	const many = authz.MaxReviews + 100
	server, h := serve(t, sets{"few": 30, "many": many})
	for _, test := range []struct {
		caller, set string
		reviews     int
		ok          func(error) bool
	}{
		// The set is read, then all clusters are decided at once.
		{"ann", "many", 2, func(err error) bool { return err == nil }},
		// One review in addition shows that the caller may not bind the set.
		{"single", "few", 3 + 30, func(err error) bool { return err == nil }},
		{"single", "many", 3 + authz.MaxReviews, apierrors.IsInvalid},
		{"nobody", "few", 3 + 30, apierrors.IsForbidden},
		{"nobody", "many", 3 + authz.MaxReviews, apierrors.IsForbidden},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			before := h.reviews.Load()
			_, err := write(t.Context(), server.As(t, test.caller), test.set, dryRun...)
			if got := int(h.reviews.Load() - before); !test.ok(err) || got != test.reviews {
				t.Errorf("create of %s for set %s, dry run %v = %v after %d reviews, want %d", test.caller, test.set, dryRun, err, got, test.reviews)
			}
			if apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "spec.roleAssignments: Forbidden: "+roleassignment.ErrTooManyReviews.Error()) {
				t.Errorf("create of %s for set %s = %v, want the limit", test.caller, test.set, err)
			}
		}
	}
}
