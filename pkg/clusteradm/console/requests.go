package console

import (
	"net/http"
	"path"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
)

// forwardedRequests are all requests of the console, as RBAC rules. The proxy refuses all others, even if the user may send
// them, so that the page cannot be used to read Secrets or to change objects. In addition, the page may discover these
// groups. docs/console.md lists them.
var forwardedRequests = []rbacv1.PolicyRule{
	{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"console"}, Verbs: []string{"get"}},
	{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"searches", "searchcompletions", "searchschemas"}, Verbs: []string{"create"}},
	{APIGroups: []string{searchv1alpha1.GroupName}, Resources: []string{"fleetresources", "inventories"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{accessv1alpha1.GroupName}, Resources: []string{"selffleetaccessreviews", "fleetaccessreviews", "fleetsubjectreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{
		"addon.open-cluster-management.io", "authentication.open-cluster-management.io", "cluster.open-cluster-management.io",
		"clusterview.open-cluster-management.io", "rbac.open-cluster-management.io", "register.open-cluster-management.io",
		"work.open-cluster-management.io",
	}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/accept"}, Verbs: []string{"update"}},
	{APIGroups: []string{"rbac.open-cluster-management.io"}, Resources: []string{"clusterpermissions/approval"}, Verbs: []string{"update"}},
	{APIGroups: []string{"rbac.open-cluster-management.io"}, Resources: []string{"clusterpermissions/rendered"}, Verbs: []string{"create"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"}, Verbs: []string{"create"}},
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// consoleRequest describes a request with the path that the hub will see, or returns nil if the console does not need it.
func describe(r *http.Request) *request.RequestInfo {
	// A server that cleans the path would serve another resource than the one that was checked.
	if path.Clean(r.URL.Path) != r.URL.Path {
		return nil
	}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return nil
	}
	allowed := slices.ContainsFunc(forwardedRequests, func(rule rbacv1.PolicyRule) bool {
		if !info.IsResourceRequest {
			return info.Verb == "get" && discovers(info.Path, rule.APIGroups)
		}
		resource := info.Resource
		if info.Subresource != "" {
			resource += "/" + info.Subresource
		}
		return info.APIPrefix == "apis" && slices.Contains(rule.APIGroups, info.APIGroup) && slices.Contains(rule.Verbs, info.Verb) &&
			(slices.Contains(rule.Resources, resource) || slices.Contains(rule.Resources, rbacv1.ResourceAll))
	})
	if !allowed {
		return nil
	}
	return info
}

// discovers reports whether a path is that of the discovery of one of the groups, of all groups or of the version.
func discovers(path string, groups []string) bool {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) == 1 {
		return parts[0] == "apis" || parts[0] == "version"
	}
	return len(parts) <= 3 && parts[0] == "apis" && slices.Contains(groups, parts[1])
}
