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

// may asks the hub what a group may do.
func (f *fleet) may(ctx context.Context, group string, what authorizationv1.ResourceAttributes) (bool, error) {
	review, err := f.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "agent", Groups: []string{group}, ResourceAttributes: &what},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// rights are what matters of what the agents of a cluster may do, and to whom.
func rights(cluster string) map[string]authorizationv1.ResourceAttributes {
	const clusterGroup, workGroup = "cluster.open-cluster-management.io", "work.open-cluster-management.io"
	return map[string]authorizationv1.ResourceAttributes{
		"look at itself":            {Verb: "get", Group: clusterGroup, Resource: "managedclusters", Name: cluster},
		"update itself":             {Verb: "update", Group: clusterGroup, Resource: "managedclusters", Name: cluster},
		"report its status":         {Verb: "patch", Group: clusterGroup, Resource: "managedclusters", Subresource: "status", Name: cluster},
		"request certificates":      {Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
		"renew its own certificate": {Verb: "renew", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "clientcertificates", Name: cluster},
		"read its works":            {Verb: "list", Group: workGroup, Resource: "manifestworks", Namespace: cluster},
		"look at another cluster":   {Verb: "get", Group: clusterGroup, Resource: "managedclusters", Name: "another"},
		"look at all clusters":      {Verb: "list", Group: clusterGroup, Resource: "managedclusters"},
		"renew for another cluster": {Verb: "renew", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "clientcertificates", Name: "another"},
		"read works of others":      {Verb: "list", Group: workGroup, Resource: "manifestworks", Namespace: "another"},
		"read all works":            {Verb: "list", Group: workGroup, Resource: "manifestworks"},
		"accept itself":             {Verb: "update", Group: "register.open-cluster-management.io", Resource: "managedclusters", Subresource: "accept", Name: cluster},
		"read Secrets":              {Verb: "list", Resource: "secrets", Namespace: cluster},
	}
}

var (
	whenAccepted = []string{"look at itself", "update itself", "report its status", "renew its own certificate", "read its works"}
	whenDenied   = []string{"look at itself"}
)

// mayOnly tells what the agents of a cluster may do beside what is given, or not of it.
func (f *fleet) mayOnly(ctx context.Context, cluster string, expected ...string) error {
	var errs []error
	// Without a registration it is as the test has granted it.
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
				errs = append(errs, fmt.Errorf("%s may %s: %t", group, what, allowed))
			}
		}
	}
	return errors.Join(errs...)
}

// works tells why an accepted cluster cannot work yet.
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
		return fmt.Errorf("its namespace is labelled %v", namespace.Labels)
	}
	lease, err := f.admin.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease.Labels[clusterv1.ClusterNameLabel] != name {
		return fmt.Errorf("its Lease is labelled %v", lease.Labels)
	}
	for _, role := range roles {
		binding, err := f.admin.RbacV1().RoleBindings(name).Get(ctx, prefix+name+":"+role, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held := slices.Contains(binding.Finalizers, workv1.ManifestWorkFinalizer); held != (role == "work") || binding.RoleRef.Name != prefix+role {
			return fmt.Errorf("binding %s has %v and leads to %v", role, binding.Finalizers, binding.RoleRef)
		}
	}
	return f.mayOnly(ctx, name, whenAccepted...)
}

// isDenied tells what a denied cluster has that it should not.
func (f *fleet) isDenied(ctx context.Context, name string) error {
	bindings, err := f.admin.RbacV1().RoleBindings(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(bindings.Items) > 0 {
		return fmt.Errorf("it has %d RoleBindings, such as %s", len(bindings.Items), bindings.Items[0].Name)
	}
	if _, err := f.admin.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("its Lease: %v", err)
	}
	if err := f.hubAccepted(ctx, name, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied); err != nil {
		return err
	}
	if err := f.recordSays(ctx, name, registerv1alpha1.RegistrationAccessGranted, metav1.ConditionFalse, registerv1alpha1.ReasonDenied); err != nil {
		return err
	}
	return f.recordSays(ctx, name, registerv1alpha1.RegistrationCleanedUp, metav1.ConditionTrue, registerv1alpha1.ReasonCleanedUp)
}

// isGone tells what is left of a cluster on the hub.
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
		errs = append(errs, fmt.Errorf("works: %v", err))
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
