package differential_test

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The authorizer of the API server watches each kind of RBAC objects in order. So
// once it knows the last object of a kind that was written, it knows all before.
// Those last objects are markers, which concern no executor.

// markers makes the objects by which a policy is known to have settled.
func (p *policy) markers(ctx context.Context) error {
	namespace, name := p.namespaces[0], p.id+"-marker"
	marked := metav1.ObjectMeta{Name: name}
	// What the marker of a role grants is bound for good, what the marker of a
	// binding binds is granted for good.
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

// settle waits until the API server judges by what was written last.
func (p *policy) settle(ctx context.Context, kube kubernetes.Interface) error {
	if p.touched["ClusterRole"] {
		if err := poll(ctx, p.aggregated); err != nil {
			return fmt.Errorf("rules are aggregated: %w", err)
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
		if err := poll(ctx, func(ctx context.Context) error {
			answer, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = fmt.Errorf("%s is not known", step)
			}
			return err
		}); err != nil {
			return fmt.Errorf("the API server knows every %s: %w", kind, err)
		}
	}
	clear(p.touched)
	return nil
}
