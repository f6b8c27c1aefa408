package registration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

const prefix = "open-cluster-management:managedcluster:"

var roles = []string{"registration", "work", "serviceaccounts", "namespaces", "inventory"}

// may reports whether the hub allows a request of a group.
func (f *fleet) may(ctx context.Context, group string, what authorizationv1.ResourceAttributes) (bool, error) {
	review, err := f.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "agent", Groups: []string{group}, ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// rights are the permissions of the agents of a cluster that the tests check.
func rights(cluster string) map[string]authorizationv1.ResourceAttributes {
	const clusterGroup, workGroup = "cluster.open-cluster-management.io", "work.open-cluster-management.io"
	return map[string]authorizationv1.ResourceAttributes{
		"get itself":                 {Verb: "get", Group: clusterGroup, Resource: "managedclusters", Name: cluster},
		"update itself":              {Verb: "update", Group: clusterGroup, Resource: "managedclusters", Name: cluster},
		"report its status":          {Verb: "patch", Group: clusterGroup, Resource: "managedclusters", Subresource: "status", Name: cluster},
		"request certificates":       {Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		"renew its own certificate":  {Verb: "renew", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "clientcertificates", Name: cluster},
		"list its ManifestWorks":     {Verb: "list", Group: workGroup, Resource: "manifestworks", Namespace: cluster},
		"get another cluster":        {Verb: "get", Group: clusterGroup, Resource: "managedclusters", Name: "another"},
		"list all clusters":          {Verb: "list", Group: clusterGroup, Resource: "managedclusters"},
		"renew for another cluster":  {Verb: "renew", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "clientcertificates", Name: "another"},
		"list foreign ManifestWorks": {Verb: "list", Group: workGroup, Resource: "manifestworks", Namespace: "another"},
		"list all ManifestWorks":     {Verb: "list", Group: workGroup, Resource: "manifestworks"},
		"accept itself":              {Verb: "update", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "accept", Name: cluster},
		"list Secrets":               {Verb: "list", Resource: "secrets", Namespace: cluster},
	}
}

var (
	whenAccepted = []string{"get itself", "update itself", "report its status", "renew its own certificate", "list its ManifestWorks"}
	whenDenied   = []string{"get itself"}
)

// mayOnly returns an error that names the missing and the additional permissions of the agents of a
// cluster.
func (f *fleet) mayOnly(ctx context.Context, cluster string, expected ...string) error {
	var errs []error
	// If no registration exists, the test granted the access to the first group.
	needed := clusterv1.AgentGroups(cluster)[:1]
	record, err := f.ours.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, cluster, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case record.Spec.Driver == registerv1alpha1.DriverAWSIRSA:
		needed = clusterv1.AgentGroups(cluster)[1:]
	}
	for _, group := range clusterv1.AgentGroups(cluster) {
		expected := expected
		if !slices.Contains(needed, group) {
			expected = nil
		}
		for what, attributes := range rights(cluster) {
			allowed, err := f.may(ctx, group, attributes)
			if err != nil {
				return err
			}
			if allowed != slices.Contains(expected, what) {
				errs = append(errs, fmt.Errorf("permission of %s to %s = %t, want %t", group, what, allowed, !allowed))
			}
		}
	}
	return errors.Join(errs...)
}

// works returns an error unless an accepted cluster has full access.
func (f *fleet) works(ctx context.Context, name string) error {
	if err := f.hubAccepted(ctx, name, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted); err != nil {
		return err
	}
	if err := f.recordSays(ctx, name, registerv1alpha1.RegistrationAccessGranted, metav1.ConditionTrue, registerv1alpha1.ReasonGranted); err != nil {
		return err
	}
	namespace, err := f.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if namespace.Labels[clusterv1.ClusterNameLabel] != name {
		return fmt.Errorf("labels of namespace %s = %v, want the label of the cluster", name, namespace.Labels)
	}
	lease, err := f.admin.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease.Labels[clusterv1.ClusterNameLabel] != name {
		return fmt.Errorf("labels of the Lease of %s = %v, want the label of the cluster", name, lease.Labels)
	}
	for _, role := range roles {
		binding, err := f.admin.RbacV1().RoleBindings(name).Get(ctx, prefix+name+":"+role, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held := slices.Contains(binding.Finalizers, workv1.ManifestWorkFinalizer); held != (role == "work") || binding.RoleRef.Name != prefix+role {
			return fmt.Errorf("RoleBinding %s has finalizers %v and role %v, want role %s and a finalizer for work only", binding.Name, binding.Finalizers, binding.RoleRef, prefix+role)
		}
	}
	return f.mayOnly(ctx, name, whenAccepted...)
}

// isDenied returns an error that names the access that a denied cluster still has.
func (f *fleet) isDenied(ctx context.Context, name string) error {
	bindings, err := f.admin.RbacV1().RoleBindings(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(bindings.Items) > 0 {
		return fmt.Errorf("RoleBindings of %s = %d, such as %s, want 0", name, len(bindings.Items), bindings.Items[0].Name)
	}
	if _, err := f.admin.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("Get(Lease of %s) = %v, want NotFound", name, err)
	}
	if err := f.hubAccepted(ctx, name, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied); err != nil {
		return err
	}
	if err := f.recordSays(ctx, name, registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied); err != nil {
		return err
	}
	return f.recordSays(ctx, name, registerv1alpha1.RegistrationCleanedUp, metav1.ConditionTrue, registerv1alpha1.ReasonCleanedUp)
}

// isGone returns an error that names the remaining objects of a cluster on the hub.
func (f *fleet) isGone(ctx context.Context, name string) error {
	var errs []error
	left := func(what string, err error) {
		if !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %v", what, err))
		}
	}
	_, err := f.ours.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	left("ManagedCluster", err)
	_, err = f.records.Get(ctx, name)
	left("registration", err)
	_, err = f.admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	left("Namespace", err)
	_, err = f.admin.RbacV1().ClusterRoles().Get(ctx, prefix+name, metav1.GetOptions{})
	left("ClusterRole", err)
	_, err = f.admin.RbacV1().ClusterRoleBindings().Get(ctx, prefix+name, metav1.GetOptions{})
	left("ClusterRoleBinding", err)
	bindings, err := f.admin.RbacV1().RoleBindings(name).List(ctx, metav1.ListOptions{})
	if err != nil || len(bindings.Items) > 0 {
		errs = append(errs, fmt.Errorf("RoleBindings: %v", err))
	}
	works, err := f.ours.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
	if err != nil || len(works.Items) > 0 {
		errs = append(errs, fmt.Errorf("ManifestWorks: %v", err))
	}
	f.records.mu.Lock()
	defer f.records.mu.Unlock()
	if len(f.records.reserved) > 0 {
		errs = append(errs, errors.New("its identity is still reserved"))
	}
	if f.account.roles() > 0 {
		errs = append(errs, errors.New("AWS still has its role"))
	}
	return errors.Join(errs...)
}
