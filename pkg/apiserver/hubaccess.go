package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
)

const (
	accessCheckPeriod  = 10 * time.Second
	accessCheckTimeout = 8 * time.Second
)

// hubAccess checks that the hub lets the server do what it needs to do. Without
// this check, a missing permission shows only as an informer that never syncs
// and as writes that are refused with "not yet ready to handle request".
type hubAccess struct {
	hub kubernetes.Interface
	// required is what the server cannot be ready without. wanted is what single
	// ClusterPermissions depend on, which say in a condition what is denied.
	required, wanted []authorizationv1.ResourceAttributes
	// searched is what searches depend on, which are refused without it.
	searched []authorizationv1.ResourceAttributes

	mu      sync.Mutex
	checked bool
	missing []string
	// lacking is what is missing of wanted, unsearched of searched.
	lacking, unsearched []string
	err                 error
}

// hubKeeps tells which kinds the hub itself keeps, so that the server has to ask for them there.
type hubKeeps struct {
	works, clusters, sets, accounts, addons bool
}

// newHubAccess knows what the server needs. executors are the names by which what the
// works of ClusterPermissions act as is judged.
func newHubAccess(hub kubernetes.Interface, leaseNamespaces []string, keeps hubKeeps, search bool, executors []string) *hubAccess {
	a := &hubAccess{hub: hub}
	addTo := func(list *[]authorizationv1.ResourceAttributes, namespace, group, resource string, verbs ...string) {
		resource, subresource, _ := strings.Cut(resource, "/")
		for _, verb := range verbs {
			*list = append(*list, authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb,
			})
		}
	}
	add := func(namespace, group, resource string, verbs ...string) {
		addTo(&a.required, namespace, group, resource, verbs...)
	}
	add("", "authentication.k8s.io", "tokenreviews", "create")
	add("", "authorization.k8s.io", "subjectaccessreviews", "create")
	for _, verb := range []string{"get", "list", "watch"} {
		a.required = append(a.required, authorizationv1.ResourceAttributes{
			Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: "extension-apiserver-authentication", Verb: verb,
		})
	}
	add("", "", "namespaces", "get", "list", "watch")
	add("", "flowcontrol.apiserver.k8s.io", "flowschemas", "list", "watch")
	add("", "flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "list", "watch")
	for _, resource := range []string{
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
	} {
		add("", "admissionregistration.k8s.io", resource, "list", "watch")
	}
	for _, namespace := range slices.Compact(leaseNamespaces) {
		add(namespace, "coordination.k8s.io", "leases", "get", "create", "update")
	}
	if keeps.works {
		add("", workv1.GroupName, "manifestworks", "get", "list", "watch", "create", "update", "delete")
	} else {
		add("", rbacv1.GroupName, "rolebindings", "list", "watch", "update")
	}
	if keeps.clusters {
		add("", clusterv1.GroupName, "managedclusters", "get", "list", "watch")
	} else {
		for _, a := range registrationAccess {
			add("", a.group, a.resource, a.verbs...)
		}
	}
	if keeps.sets {
		add("", clusterv1.GroupName, "managedclustersets", "get", "list", "watch")
		add("", clusterv1.GroupName, "managedclustersetbindings", "get", "list", "watch")
	}
	if !keeps.accounts {
		add("", rbacv1.GroupName, "roles", "get", "list", "watch", "create", "update", "delete")
		add("", rbacv1.GroupName, "rolebindings", "get", "list", "watch", "create", "update", "delete")
		// Beside what it watches and collects, what it lets agents do: RBAC has nobody grant more.
		add("", "", "secrets", "list", "watch", "get", "create", "update", "patch", "delete")
	}
	// What ClusterPermissions deliver of the hub, and where public agents keep accounts.
	if keeps.accounts {
		addTo(&a.wanted, "", rbacv1.GroupName, "roles", "get", "list", "watch")
	}
	addTo(&a.wanted, "", rbacv1.GroupName, "clusterroles", "get", "list", "watch")
	if search {
		// Who may find what follows from the hub's RBAC.
		for _, resource := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
			addTo(&a.searched, "", rbacv1.GroupName, resource, "list", "watch")
		}
	}
	if !keeps.works && len(executors) > 0 {
		// The hub is asked who this server is, and then whether that may execute-as.
		addTo(&a.wanted, "", "authentication.k8s.io", "selfsubjectreviews", "create")
		for _, name := range executors {
			a.wanted = append(a.wanted, executor.ResourceAttributes("", name))
		}
	}
	if keeps.addons {
		addTo(&a.wanted, "", addonv1alpha1.GroupName, "managedclusteraddons", "get", "list", "watch", "delete")
	}
	return a
}

// run checks until everything needed is allowed, and then now and again, for
// permissions can be taken away.
func (a *hubAccess) run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, accessCheckTimeout)
		defer cancel()
		missing, err := a.review(ctx, a.required)
		lacking, lackingErr := a.review(ctx, a.wanted)
		unsearched, searchErr := a.review(ctx, a.searched)
		a.mu.Lock()
		defer a.mu.Unlock()
		logger := klog.FromContext(ctx)
		if !slices.Equal(missing, a.missing) && len(missing) > 0 {
			logger.Error(nil, "The hub does not let this server do all it needs to do", "missing", strings.Join(missing, "; "))
		}
		if !slices.Equal(lacking, a.lacking) && len(lacking) > 0 {
			logger.Error(nil, "The hub does not let this server do what some ClusterPermissions depend on", "missing", strings.Join(lacking, "; "))
		}
		if !slices.Equal(unsearched, a.unsearched) && len(unsearched) > 0 {
			logger.Error(nil, "The hub does not let this server see who may list what, so that it refuses searches", "missing", strings.Join(unsearched, "; "))
		}
		// A hub that does not answer takes nothing away from what it said before.
		a.err = err
		if err == nil {
			a.checked, a.missing = true, missing
		}
		if lackingErr == nil {
			a.lacking = lacking
		}
		if searchErr == nil {
			a.unsearched = unsearched
		}
	}, accessCheckPeriod, 0.2, true)
}

// review tells which of some attributes the hub denies.
func (a *hubAccess) review(ctx context.Context, asked []authorizationv1.ResourceAttributes) ([]string, error) {
	var missing []string
	for _, attributes := range asked {
		review, err := a.hub.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("asking the hub: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, describe(attributes))
		}
	}
	return missing, nil
}

func describe(a authorizationv1.ResourceAttributes) string {
	resource := a.Resource
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Name != "" {
		resource += "/" + a.Name
	}
	if a.Namespace != "" {
		return fmt.Sprintf("%s %s in namespace %s", a.Verb, resource, a.Namespace)
	}
	return fmt.Sprintf("%s %s", a.Verb, resource)
}

// check is the readiness check.
func (a *hubAccess) check(*http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.missing) > 0:
		return fmt.Errorf("the hub does not allow this server to: %s", strings.Join(a.missing, "; "))
	case !a.checked && a.err != nil:
		return a.err
	case !a.checked:
		return fmt.Errorf("not checked yet")
	}
	return nil
}

// deniesSearch tells whether the hub denies what searches depend on.
func (a *hubAccess) deniesSearch() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unsearched) > 0
}
