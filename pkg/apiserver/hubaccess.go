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
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
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
	// required permissions are a condition of readiness. If search permissions are missing, the server
	// refuses searches. If others are missing, the conditions of single ClusterPermissions report it.
	required, search permissionSet

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

// hubPermission is a row of a table of permissions: verbs on resources of a group, in a namespace or in all.
type hubPermission struct {
	// needed is true if the server needs it with its options.
	needed                             bool
	namespace, group, resources, verbs string
}

func newPermissionSet(warning string, rows ...hubPermission) permissionSet {
	s := permissionSet{warning: warning}
	for _, row := range rows {
		if !row.needed {
			continue
		}
		for name := range strings.FieldsSeq(row.resources) {
			resource, subresource, _ := strings.Cut(name, "/")
			for verb := range strings.FieldsSeq(row.verbs) {
				s.attributes = append(s.attributes, authorizationv1.ResourceAttributes{
					Namespace: row.namespace, Group: row.group, Resource: resource, Subresource: subresource, Verb: verb,
				})
			}
		}
	}
	return s
}

func (s *Server) hubAccess() *hubAccess {
	const (
		read = "get list watch"
		all  = "get list watch create update delete"
		rbac = rbacv1.GroupName
	)
	// These are true if the hub stores the kind, so that the server reads it there.
	works, clusters, sets := s.clients.works != s.clients.own, s.clients.clusters != s.clients.own, s.clients.sets != s.clients.own
	required := []hubPermission{
		{true, "", "authentication.k8s.io", "tokenreviews", "create"},
		{true, "", "authorization.k8s.io", "subjectaccessreviews", "create"},
		{true, "", eventsv1.GroupName, "events", "create patch"},
		{true, "", "", "namespaces", read},
		{true, "", "flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations", "list watch"},
		{true, "", "admissionregistration.k8s.io", "validatingadmissionpolicies validatingadmissionpolicybindings mutatingwebhookconfigurations validatingwebhookconfigurations", "list watch"},
		{works, "", workv1.GroupName, "manifestworks", all},
		{!works, "", rbac, "rolebindings", "list watch update"},
		{clusters, "", clusterv1.GroupName, "managedclusters", read},
		// To register clusters. This includes the permissions of agents, because RBAC allows a user to grant only permissions
		// that the user has.
		{!clusters, "", "", "namespaces", "create update delete"},
		{!clusters, "", rbac, "clusterroles clusterrolebindings rolebindings", all},
		{!clusters, "", clusterv1.GroupName, "managedclusters", "get list watch update patch"},
		{!clusters, "", clusterv1.GroupName, "managedclusters/status", "update patch"},
		{!clusters, "", registerv1alpha1.GroupName, "managedclusters/clientcertificates", "renew"},
		{!clusters, "", certificatesv1.GroupName, "certificatesigningrequests", "create get list watch deletecollection"},
		{!clusters, "", certificatesv1.GroupName, "certificatesigningrequests/approval", "update"},
		{!clusters, "", coordinationv1.GroupName, "leases", "get list watch create delete"},
		{sets, "", clusterv1.GroupName, "managedclustersets managedclustersetbindings", read},
		{s.secretInformers != nil, "", rbac, "roles rolebindings", all},
		// These include the permissions that the server grants to agents.
		{s.secretInformers != nil, "", "", "secrets", "list watch get create update patch delete"},
	}
	for _, namespace := range slices.Compact([]string{s.extra.Namespace, s.extra.LeaderElection.ResourceNamespace}) {
		required = append(required, hubPermission{true, namespace, coordinationv1.GroupName, "leases", "get create update"})
	}
	if certificate := s.extra.ServingCertificate; certificate != nil {
		required = append(required, hubPermission{true, certificate.Namespace, "", "secrets", "get create update"},
			hubPermission{true, "", apiregistrationv1.GroupName, "apiservices", "list"})
	}
	a := &hubAccess{
		hub:      s.hub,
		required: newPermissionSet("The server lacks permissions that it requires on the hub", required...),
		search: newPermissionSet("The server refuses searches because it lacks permissions to read the RBAC objects of the hub",
			hubPermission{s.search != nil, "", rbac, "roles clusterroles rolebindings clusterrolebindings", "list watch"}),
	}
	for verb := range strings.FieldsSeq(read) {
		a.required.attributes = append(a.required.attributes, authorizationv1.ResourceAttributes{
			Namespace: metav1.NamespaceSystem, Resource: "configmaps", Name: authenticationConfigMap, Verb: verb,
		})
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
		// An error leaves the previous result unchanged.
		_ = a.check(ctx, &a.search)
	}, accessCheckPeriod, 0.2, true)
}

// check reviews a set of permissions. After an error of the hub, it keeps the previous result.
func (a *hubAccess) check(ctx context.Context, set *permissionSet) error {
	var missing []string
	for _, attributes := range set.attributes {
		review, err := a.hub.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating a SelfSubjectAccessReview: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, authz.Describe(attributes))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(missing) > 0 && !slices.Equal(missing, set.missing) {
		klog.FromContext(ctx).Error(nil, set.warning, "missing", strings.Join(missing, "; "))
	}
	set.missing = missing
	return nil
}

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

func (a *hubAccess) deniesSearch() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.search.missing) > 0
}
