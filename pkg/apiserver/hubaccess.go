package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
)

const (
	accessCheckPeriod  = 10 * time.Second
	accessCheckTimeout = 8 * time.Second
)

// hubAccess checks that the server has the permissions that it needs on the hub. Without this check, a
// missing permission shows only as an informer that never syncs, and as refused writes with the message
// "not yet ready to handle request".
type hubAccess struct {
	hub kubernetes.Interface
	// required permissions are a condition of readiness. If optional ones are missing, single
	// ClusterPermissions report it in a condition. If search permissions are missing, the server
	// refuses searches.
	required, optional, search permissionSet

	mu      sync.Mutex
	checked bool
	err     error
}

// permissionSet is a set of permissions on the hub.
type permissionSet struct {
	attributes []authorizationv1.ResourceAttributes
	// warning is logged if permissions are missing.
	warning string
	missing []string
}

func (s *permissionSet) add(namespace, group, resource string, verbs ...string) {
	resource, subresource, _ := strings.Cut(resource, "/")
	for _, verb := range verbs {
		s.attributes = append(s.attributes, authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb,
		})
	}
}

// hubStores contains the kinds that the hub stores itself, so that the server reads them from the hub.
type hubStores struct {
	works, clusters, sets, accounts, addons bool
}

// newHubAccess returns the check of the permissions that the server needs. executors are the executors that
// the server uses for the ManifestWorks of ClusterPermissions. certificate is nil if the server does not
// manage its serving certificate.
func newHubAccess(hub kubernetes.Interface, leaseNamespaces []string, certificate *servingcert.Policy, stores hubStores, search, assignments bool, executors []string) *hubAccess {
	a := &hubAccess{
		hub:      hub,
		required: permissionSet{warning: "The server lacks permissions that it requires on the hub"},
		optional: permissionSet{warning: "The server lacks permissions on the hub that some ClusterPermissions or MulticlusterRoleAssignments require"},
		search:   permissionSet{warning: "The server refuses searches because it lacks permissions to read the RBAC objects of the hub"},
	}
	add := a.required.add
	add("", "authentication.k8s.io", "tokenreviews", "create")
	add("", "authorization.k8s.io", "subjectaccessreviews", "create")
	add("", eventsv1.GroupName, "events", "create", "patch")
	for _, verb := range []string{"get", "list", "watch"} {
		a.required.attributes = append(a.required.attributes, authorizationv1.ResourceAttributes{
			Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: authenticationConfigMap, Verb: verb,
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
	if certificate != nil {
		add(certificate.Namespace, "", "secrets", "get", "list", "watch", "create", "update")
		add("", apiregistrationv1.GroupName, "apiservices", "list", "watch")
	}
	if stores.works {
		add("", workv1.GroupName, "manifestworks", "get", "list", "watch", "create", "update", "delete")
	} else {
		add("", rbacv1.GroupName, "rolebindings", "list", "watch", "update")
	}
	if stores.clusters {
		add("", clusterv1.GroupName, "managedclusters", "get", "list", "watch")
	} else {
		for _, access := range registrationAccess {
			add("", access.group, access.resource, access.verbs...)
		}
	}
	if stores.sets {
		add("", clusterv1.GroupName, "managedclustersets", "get", "list", "watch")
		add("", clusterv1.GroupName, "managedclustersetbindings", "get", "list", "watch")
	}
	if !stores.accounts {
		add("", rbacv1.GroupName, "roles", "get", "list", "watch", "create", "update", "delete")
		add("", rbacv1.GroupName, "rolebindings", "get", "list", "watch", "create", "update", "delete")
		// These include the permissions that the server grants to agents.
		add("", "", "secrets", "list", "watch", "get", "create", "update", "patch", "delete")
	}
	if stores.accounts {
		a.optional.add("", rbacv1.GroupName, "roles", "get", "list", "watch")
	}
	a.optional.add("", rbacv1.GroupName, "clusterroles", "get", "list", "watch")
	if assignments {
		a.optional.add("", clusterv1.GroupName, "placementdecisions", "list", "watch")
	}
	if search {
		for _, resource := range []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"} {
			a.search.add("", rbacv1.GroupName, resource, "list", "watch")
		}
	}
	if !stores.works && len(executors) > 0 {
		// The check of executors needs the identity of this server on the hub.
		a.optional.add("", "authentication.k8s.io", "selfsubjectreviews", "create")
		for _, name := range executors {
			a.optional.attributes = append(a.optional.attributes, executor.ResourceAttributes("", name))
		}
	}
	if stores.addons {
		a.optional.add("", addonv1alpha1.GroupName, "managedclusteraddons", "get", "list", "watch", "delete")
	}
	return a
}

// run checks the permissions periodically, because they can be revoked.
func (a *hubAccess) run(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, accessCheckTimeout)
		defer cancel()
		err := a.check(ctx, &a.required)
		a.mu.Lock()
		a.err, a.checked = err, a.checked || err == nil
		a.mu.Unlock()
		// Errors leave the previous result unchanged.
		_ = a.check(ctx, &a.optional)
		_ = a.check(ctx, &a.search)
	}, accessCheckPeriod, 0.2, true)
}

// check reviews a set of permissions. After an error of the hub, it keeps the previous result.
func (a *hubAccess) check(ctx context.Context, set *permissionSet) error {
	missing, err := a.review(ctx, set.attributes)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(missing) > 0 && !slices.Equal(missing, set.missing) {
		klog.FromContext(ctx).Error(nil, set.warning, "missing", strings.Join(missing, "; "))
	}
	set.missing = missing
	return nil
}

// review returns the permissions that the hub denies.
func (a *hubAccess) review(ctx context.Context, permissions []authorizationv1.ResourceAttributes) ([]string, error) {
	var missing []string
	for _, attributes := range permissions {
		review, err := a.hub.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("creating a SelfSubjectAccessReview: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, authz.Describe(attributes))
		}
	}
	return missing, nil
}

// ready is the readiness check.
func (a *hubAccess) ready(*http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.required.missing) > 0:
		return fmt.Errorf("the server lacks permissions on the hub: %s", strings.Join(a.required.missing, "; "))
	case !a.checked && a.err != nil:
		return a.err
	case !a.checked:
		return errors.New("the permissions on the hub are not checked yet")
	}
	return nil
}

// deniesSearch reports whether the hub denies permissions that searches require.
func (a *hubAccess) deniesSearch() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.search.missing) > 0
}
