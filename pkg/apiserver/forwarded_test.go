package apiserver

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestAuthorizedByHub checks that only the request itself that the hub has forwarded needs no review.
func TestAuthorizedByHub(t *testing.T) {
	ann := &forwardedUser{Info: &user.DefaultInfo{Name: "ann"}}
	own := request.RequestInfo{
		IsResourceRequest: true, Verb: "update", APIGroup: "work.open-cluster-management.io", APIVersion: "v1",
		Namespace: "cluster1", Resource: "manifestworks", Subresource: "status", Name: "web",
	}
	attributes := func(change func(*authorizer.AttributesRecord)) authorizer.Attributes {
		a := authorizer.AttributesRecord{
			User: ann, Verb: own.Verb, APIGroup: own.APIGroup, APIVersion: own.APIVersion, Namespace: own.Namespace,
			Resource: own.Resource, Subresource: own.Subresource, Name: own.Name, ResourceRequest: true,
		}
		change(&a)
		return &a
	}
	path := own
	path.IsResourceRequest = false
	for name, test := range map[string]struct {
		caller user.Info
		info   request.RequestInfo
		change func(*authorizer.AttributesRecord)
		want   bool
	}{
		"the forwarded request":                   {ann, own, func(*authorizer.AttributesRecord) {}, true},
		"a request that a client sends directly":  {&user.DefaultInfo{Name: "ann"}, own, func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "ann"} }, false},
		"an impersonated user":                    {&user.DefaultInfo{Name: "ben"}, own, func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "ben"} }, false},
		"the impersonator":                        {&user.DefaultInfo{Name: "ben"}, own, func(*authorizer.AttributesRecord) {}, false},
		"another forwarded user of the same name": {ann, own, func(a *authorizer.AttributesRecord) { a.User = &forwardedUser{Info: ann.Info} }, false},
		"a URL":                                 {ann, path, func(a *authorizer.AttributesRecord) { a.ResourceRequest = false }, false},
		"a resource during a request for a URL": {ann, path, func(*authorizer.AttributesRecord) {}, false},
		"another verb":                          {ann, own, func(a *authorizer.AttributesRecord) { a.Verb = "execute-as" }, false},
		"another group":                         {ann, own, func(a *authorizer.AttributesRecord) { a.APIGroup = "" }, false},
		"another version":                       {ann, own, func(a *authorizer.AttributesRecord) { a.APIVersion = "*" }, false},
		"another namespace":                     {ann, own, func(a *authorizer.AttributesRecord) { a.Namespace = "cluster2" }, false},
		"another resource":                      {ann, own, func(a *authorizer.AttributesRecord) { a.Resource = "secrets" }, false},
		"another subresource":                   {ann, own, func(a *authorizer.AttributesRecord) { a.Subresource = "" }, false},
		"another name":                          {ann, own, func(a *authorizer.AttributesRecord) { a.Name = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			reviewed := false
			authorize := authorizedByHub(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				reviewed = true
				return authorizer.DecisionDeny, "", nil
			}))
			ctx := request.WithRequestInfo(request.WithUser(t.Context(), test.caller), &test.info)
			decision, _, err := authorize.Authorize(ctx, attributes(test.change))
			if err != nil || (decision == authorizer.DecisionAllow) != test.want || reviewed == test.want {
				t.Errorf("Authorize() = %v, %v, reviewed %t, want allowed %t", decision, err, reviewed, test.want)
			}
			// An open connection checks again whether its caller is still allowed.
			if decision, _, err := authorize.Authorize(ctx, attributes(test.change)); err != nil || decision == authorizer.DecisionAllow || !reviewed {
				t.Errorf("second Authorize() = %v, %v, reviewed %t, want a review", decision, err, reviewed)
			}
			ann.authorized.Store(false)
		})
	}
}
