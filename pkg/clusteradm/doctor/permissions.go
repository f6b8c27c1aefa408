package doctor

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/component-helpers/auth/rbac/validation"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// permissionsOf checks what the cluster allows a ServiceAccount, against the roles among objects and further permissions.
func (r *report) permissionsOf(ctx context.Context, subject, namespace, account string, objects []*unstructured.Unstructured, wanted []authorizationv1.ResourceAttributes, remedy string) ([]cli.Finding, error) {
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, attributesOf(object.GetNamespace(), rules)...)
	}
	groups := append(serviceaccount.MakeGroupNames(namespace), "system:authenticated")
	var denied []authorizationv1.ResourceAttributes
	for _, attributes := range wanted {
		review, err := r.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: serviceaccount.MakeUsername(namespace, account), Groups: groups, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			denied = append(denied, attributes)
		}
	}
	return about(textsOf(denied), cli.Bad(subject, "role missing or incomplete: ServiceAccount "+namespace+"/"+account+" cannot ", remedy)), nil
}

// textsOf returns a text for each resource, with all its verbs.
func textsOf(all []authorizationv1.ResourceAttributes) []string {
	verbs := map[string]sets.Set[string]{} // by resource
	for _, attributes := range all {
		resource := schema.GroupResource{Group: attributes.Group, Resource: path.Join(attributes.Resource, attributes.Subresource)}.String()
		if attributes.Name != "" {
			resource += " " + attributes.Name
		}
		if attributes.Namespace != "" {
			resource += " in " + attributes.Namespace
		}
		verbs[resource] = verbs[resource].Union(sets.New(attributes.Verb))
	}
	var texts []string
	for _, resource := range slices.Sorted(maps.Keys(verbs)) {
		texts = append(texts, strings.Join(sets.List(verbs[resource]), "/")+" "+resource)
	}
	return texts
}

func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
		return nil, nil
	}
	var role rbacv1.ClusterRole
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role)
	return role.Rules, err
}

func attributesOf(namespace string, rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		for _, one := range validation.BreakdownRule(rule) {
			if len(one.Resources) == 0 {
				continue // a URL
			}
			resource, subresource, _ := strings.Cut(one.Resources[0], "/")
			all = append(all, authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: one.APIGroups[0], Resource: resource, Subresource: subresource, Name: strings.Join(one.ResourceNames, ""), Verb: one.Verbs[0],
			})
		}
	}
	return all
}
