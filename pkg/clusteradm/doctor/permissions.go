package doctor

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// permissionsOf checks what the cluster allows a ServiceAccount, against the roles among objects and further permissions.
func (r *report) permissionsOf(ctx context.Context, subject, namespace, account string, objects []*unstructured.Unstructured, wanted []authorizationv1.ResourceAttributes, remedy string) []cli.Finding {
	for _, object := range objects {
		rules, err := rulesOf(object)
		if err != nil {
			return []cli.Finding{cli.Unknown(subject, err)}
		}
		wanted = append(wanted, attributesOf(object.GetNamespace(), rules)...)
	}
	groups := append(serviceaccount.MakeGroupNames(namespace), "system:authenticated")
	var order []string
	verbs := map[string][]string{} // by resource
	for _, attributes := range wanted {
		review, err := r.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: serviceaccount.MakeUsername(namespace, account), Groups: groups, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return []cli.Finding{cli.Unknown(subject, err)}
		}
		if review.Status.Allowed {
			continue
		}
		resource := resourceText(&attributes)
		if verbs[resource] == nil {
			order = append(order, resource)
		}
		if !slices.Contains(verbs[resource], attributes.Verb) {
			verbs[resource] = append(verbs[resource], attributes.Verb)
		}
	}
	if len(order) == 0 {
		return []cli.Finding{cli.Healthy(subject, "complete")}
	}
	missing := make([]string, 0, len(order))
	for _, resource := range order {
		missing = append(missing, strings.Join(verbs[resource], "/")+" "+resource)
	}
	return []cli.Finding{cli.Bad(subject, "role missing or incomplete: ServiceAccount "+namespace+"/"+account+" cannot "+cli.Some(missing), remedy)}
}

// resourceText returns the resource of a request, with its name and its namespace.
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

// rulesOf returns the rules of a Role or a ClusterRole, or none.
func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
		return nil, nil
	}
	var role rbacv1.ClusterRole
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role)
	return role.Rules, err
}

// attributesOf returns the permissions of rules.
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
