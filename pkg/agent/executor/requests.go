package executor

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// requestsOf returns the requests that the lifecycle of an object requires.
func requestsOf(target work.Target) []authorizationv1.ResourceAttributes {
	requests := []authorizationv1.ResourceAttributes{requestOf("get", target)}
	if target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return requests
	}
	requests = append(requests, createOf(target))
	if target.Strategy != workv1.UpdateStrategyTypeCreateOnly {
		requests = append(requests, requestOf("update", target), requestOf("patch", target))
	}
	if target.Removed || replaceable(target) {
		requests = append(requests, requestOf("delete", target))
	}
	return requests
}

// replaceable reports whether the object is a binding that is deleted and created again when its
// roleRef changes.
func replaceable(target work.Target) bool {
	if target.Strategy != workv1.UpdateStrategyTypeUpdate || target.Resource.Group != rbacv1.GroupName {
		return false
	}
	return target.Resource.Resource == "rolebindings" || target.Resource.Resource == "clusterrolebindings"
}

func requestOf(verb string, target work.Target) authorizationv1.ResourceAttributes {
	request := authorizationv1.ResourceAttributes{
		Verb: verb, Group: target.Resource.Group, Version: target.Resource.Version, Resource: target.Resource.Resource,
		Namespace: target.Namespace, Name: target.Name,
	}
	if target.Resource.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		// For authorizers, a request for a Namespace object is in that namespace.
		request.Namespace = target.Name
	}
	return request
}

// createOf returns the request that creates the object. In a POST, the name is in the body, which
// authorizers do not read. So a rule with resourceNames does not allow it.
func createOf(target work.Target) authorizationv1.ResourceAttributes {
	request := requestOf("create", target)
	if posts(target) {
		// A namespace that does not exist yet contains no roles.
		request.Namespace, request.Name = target.Namespace, ""
	}
	return request
}

// posts reports whether the object is created by POST. Server-side apply uses PATCH.
func posts(target work.Target) bool {
	return target.Strategy != workv1.UpdateStrategyTypeServerSideApply
}
