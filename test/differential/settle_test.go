package differential_test

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// The authorizer of the API server receives the changes of each kind of RBAC object in order. Once
// it has the last written object of a kind, it has all earlier ones. The last written objects are
// markers, which affect no executor.

// markers writes the objects that show whether a policy has settled.
func (p *policy) markers(ctx context.Context) error {
	namespace, name := p.namespaces[0], p.id+"-marker"
	marked := metav1.ObjectMeta{Name: name}
	// A marker role has a binding that does not change, and a marker binding has a role that does
	// not change.
	reader := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	bound := metav1.ObjectMeta{Name: p.id + "-marked"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"differential.example.com"}, Resources: []string{"bindings"}, Verbs: []string{"get"}}}
	roleRef := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	}
	for _, make := range []func() error{
		func() error {
			_, err := p.rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: marked}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: bound, Rules: rules}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: marked}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: bound, Rules: rules}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: marked, RoleRef: clusterRoleRef(name), Subjects: reader}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: bound, RoleRef: clusterRoleRef(bound.Name)}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: marked, RoleRef: roleRef(name), Subjects: reader}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := p.rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: bound, RoleRef: roleRef(bound.Name)}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := make(); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the API server uses the last written policy.
func (p *policy) settle(ctx context.Context, kube kubernetes.Interface) error {
	if p.touched["ClusterRole"] {
		if err := await.Poll(ctx, p.aggregated); err != nil {
			return fmt.Errorf("waiting until the rules are aggregated: %w", err)
		}
	}
	p.step++
	namespace, name := p.namespaces[0], p.id+"-marker"
	step := fmt.Sprintf("%s-%d", name, p.step)
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"differential.example.com"}, Resources: []string{"roles"}, ResourceNames: []string{step}, Verbs: []string{"get"}}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: step}}
	for kind := range p.touched {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "differential.example.com", Resource: "roles", Name: step},
		}}
		asked := review.Spec.ResourceAttributes
		var err error
		switch kind {
		case "ClusterRole":
			_, err = p.rbac.ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{})
		case "Role":
			asked.Namespace = namespace
			_, err = p.rbac.Roles(namespace).Update(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{})
		case "ClusterRoleBinding":
			review.Spec.User, asked.Resource = step, "bindings"
			_, err = p.rbac.ClusterRoleBindings().Update(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: p.id + "-marked"}, RoleRef: clusterRoleRef(p.id + "-marked"), Subjects: subjects,
			}, metav1.UpdateOptions{})
		case "RoleBinding":
			review.Spec.User, asked.Resource, asked.Namespace = step, "bindings", namespace
			_, err = p.rbac.RoleBindings(namespace).Update(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: p.id + "-marked"}, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: p.id + "-marked"},
			}, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("marker of kind %s: %w", kind, err)
		}
		if err := await.Poll(ctx, func(ctx context.Context) error {
			answer, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = fmt.Errorf("review of marker %s is denied, want allowed", step)
			}
			return err
		}); err != nil {
			return fmt.Errorf("waiting until the API server uses the last written %s: %w", kind, err)
		}
	}
	clear(p.touched)
	return nil
}
