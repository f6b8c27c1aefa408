package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

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
	verbs := map[string]sets.Set[string]{} // by resource
	for _, attributes := range wanted {
		review, err := r.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: serviceaccount.MakeUsername(namespace, account), Groups: groups, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if review.Status.Allowed {
			continue
		}
		resource := resourceText(&attributes)
		if verbs[resource] == nil {
			verbs[resource] = sets.New[string]()
		}
		verbs[resource].Insert(attributes.Verb)
	}
	var missing []string
	for _, resource := range slices.Sorted(maps.Keys(verbs)) {
		missing = append(missing, strings.Join(sets.List(verbs[resource]), "/")+" "+resource)
	}
	return about(missing, cli.Bad(subject, "role missing or incomplete: ServiceAccount "+namespace+"/"+account+" cannot ", remedy)), nil
}

func resourceText(attributes *authorizationv1.ResourceAttributes) string {
	text := attributes.Resource
	if attributes.Subresource != "" {
		text += "/" + attributes.Subresource
	}
	if attributes.Group != "" {
		text += "." + attributes.Group
	}
	if attributes.Name != "" {
		text += " " + attributes.Name
	}
	if attributes.Namespace != "" {
		text += " in " + attributes.Namespace
	}
	return text
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
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, entry := range rule.Resources {
				resource, subresource, _ := strings.Cut(entry, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{
							Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Name: name, Verb: verb,
						})
					}
				}
			}
		}
	}
	return all
}
