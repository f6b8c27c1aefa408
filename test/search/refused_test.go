package search

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// searchEndpoints returns one request to each endpoint of search, for a cluster.
func searchEndpoints(cluster string) map[string]func(context.Context, versioned.Interface) error {
	return map[string]func(context.Context, versioned.Interface) error{
		"create searches": func(ctx context.Context, client versioned.Interface) error {
			_, err := search(ctx, client, textQuery("kind:Pod"))
			return err
		},
		"create searchcompletions": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{Spec: searchv1alpha1.SearchCompletionSpec{Property: "kind"}}, metav1.CreateOptions{})
			return err
		},
		"create searchschemas": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{}, metav1.CreateOptions{})
			return err
		},
		"list fleetresources": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().FleetResources(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		},
		"list fleetresources of a cluster": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().FleetResources(cluster).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		},
		"get fleetresources": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().FleetResources(cluster).Get(ctx, "node.node-1", metav1.GetOptions{})
			return err
		},
		"watch fleetresources": func(ctx context.Context, client versioned.Interface) error {
			watching, err := client.SearchV1alpha1().FleetResources(cluster).Watch(ctx, metav1.ListOptions{})
			if err == nil {
				watching.Stop()
			}
			return err
		},
		"list inventories": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			return err
		},
		"get inventories": func(ctx context.Context, client versioned.Interface) error {
			_, err := client.SearchV1alpha1().Inventories(cluster).Get(ctx, cluster, metav1.GetOptions{})
			return err
		},
		"list graphql": func(ctx context.Context, client versioned.Interface) error {
			return client.SearchV1alpha1().RESTClient().Get().AbsPath(graphqlPath).Param("query", "{messages{id}}").Do(ctx).Error()
		},
		"create graphql": func(ctx context.Context, client versioned.Interface) error {
			_, err := graphqlPost(ctx, client, "{messages{id}}", nil)
			return err
		},
	}
}

// reportEndpoints returns one request to each endpoint for reports of a cluster.
func reportEndpoints(cluster string) map[string]func(context.Context, versioned.Interface) error {
	out := map[string]func(context.Context, versioned.Interface) error{}
	for _, path := range []string{syncPath(cluster), publicSyncPath(cluster)} {
		out["create "+path] = func(ctx context.Context, client versioned.Interface) error {
			_, err := postReport(ctx, client, path, false, map[string]any{})
			return err
		}
	}
	return out
}

func TestSearchRequiresPermission(t *testing.T) {
	t.Parallel()
	s := shared(t).smallFleet(t)
	nobody, viewsOnly := newCaller(t, s.Hub, framework.Unique("nobody")), newCaller(t, s.Hub, framework.Unique("views-only"))
	viewsOnly.views(t, s.seen.name)
	anonymous := framework.OCMClient(t, s.Hub.AnonymousConfig(), nil)
	for what, request := range searchEndpoints(s.seen.name) {
		t.Run(what, func(t *testing.T) {
			for who, client := range map[string]versioned.Interface{"anonymous": anonymous, "without a role": nobody.OCM, "a viewer without permission to search": viewsOnly.OCM, "an agent": s.seen.agent.OCM} {
				if err := request(t.Context(), client); !apierrors.IsForbidden(err) {
					t.Errorf("%s: error = %v, want 403", who, err)
				}
			}
			for who, client := range map[string]versioned.Interface{"an administrator": s.OCM, "a searcher": s.viewer.OCM} {
				if err := request(t.Context(), client); err != nil {
					t.Errorf("%s: error = %v, want none", who, err)
				}
			}
		})
	}
	for what, request := range reportEndpoints(s.seen.name) {
		t.Run(what, func(t *testing.T) {
			for who, client := range map[string]versioned.Interface{"anonymous": anonymous, "without a role": nobody.OCM, "a searcher": s.viewer.OCM, "another agent": s.hidden.agent.OCM} {
				if err := request(t.Context(), client); !apierrors.IsForbidden(err) {
					t.Errorf("%s: error = %v, want 403", who, err)
				}
			}
		})
	}
}

// TestSearchRoles checks that the default roles view, edit and admin of the hub contain the permissions to search.
func TestSearchRoles(t *testing.T) {
	t.Parallel()
	s := shared(t).smallFleet(t)
	for _, role := range []string{"view", "edit", "admin"} {
		t.Run(role, func(t *testing.T) {
			c := newCaller(t, s.Hub, framework.Unique(role))
			c.bindEverywhere(t, role)
			c.views(t, s.seen.name)
			framework.Eventually(t, "a search finds the Node of the cluster", func(ctx context.Context) error {
				result, err := search(ctx, c.OCM, textQuery("cluster:"+s.seen.name+" kind:Node"))
				if err != nil {
					return err
				}
				return same(result, []string{"node.node-1"})
			})
			if result := searched(t, c.OCM, "cluster:"+s.hidden.name); result.Count != 0 {
				t.Errorf("resources found on a cluster without permission to view it = %d, want 0", result.Count)
			}
		})
	}
}

func TestSearchRefused(t *testing.T) {
	t.Parallel()
	f := shared(t)
	searchOf := func(request searchv1alpha1.SearchRequest) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := search(ctx, f.OCM, request)
			return err
		}
	}
	text := func(query string) func(context.Context) error { return searchOf(textQuery(query)) }
	filter := func(property, operator string, values ...string) func(context.Context) error {
		return searchOf(searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{
			Filters: []searchv1alpha1.SearchFilter{{Property: "kind", Values: []string{"Pod"}}, {Property: property, Operator: operator, Values: values}},
		}})
	}
	several := func(spec searchv1alpha1.SearchSpec) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f.OCM.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{Spec: spec}, metav1.CreateOptions{})
			return err
		}
	}
	pods := textQuery("kind:Pod")
	for what, test := range map[string]struct {
		request func(context.Context) error
		// field is the path of the invalid field. The message must contain all texts.
		field string
		texts []string
	}{
		"an unsupported operator ==":      {text("namespace:a kind==Pod"), "spec.query", []string{"position 16", "use kind=Pod instead"}},
		"a space after an operator":       {text("kind: Pod"), "spec.query", []string{"position 5", "use kind:Pod instead"}},
		"a space before an operator":      {text("restarts >3"), "spec.query", []string{"position 9", "use restarts>3 instead"}},
		"a space after a comma":           {text("namespace:a, b"), "spec.query", []string{"position 12", "use namespace:a,b instead"}},
		"a quote that is not closed":      {text(`name:"web`), "spec.query", []string{"position 5", "not closed"}},
		"a wildcard inside a keyword":     {text("kind:Pod ng*x"), "spec.query", []string{"position 11", "use name:ng*x instead"}},
		"a query that is too long":        {text(strings.Repeat("x", 70_000)), "spec.query", []string{"position 65536"}},
		"an empty keyword":                {searchOf(searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Keywords: []string{"a", ""}}}), "spec.keywords[1]", []string{"empty"}},
		"no values":                       {filter("status", ""), "spec.filters[1].values", nil},
		"no property":                     {filter("", "", "x"), "spec.filters[1].property", nil},
		"an invalid property name":        {filter("sta tus", "", "x"), "spec.filters[1].property", []string{"sta tus"}},
		"an unknown operator":             {filter("status", "~", "x"), "spec.filters[1].operator", []string{"!="}},
		"a NUL in a value":                {filter("status", "", "x", "a\x00b"), "spec.filters[1].values[1]", []string{"NUL"}},
		"an unknown output":               {searchOf(searchv1alpha1.SearchRequest{Output: "Table"}), "spec.output", []string{"Items", "Count", "Related"}},
		"a limit below -1":                {searchOf(searchv1alpha1.SearchRequest{Limit: ptr.To[int32](-2)}), "spec.limit", nil},
		"a negative relatedLimit":         {searchOf(searchv1alpha1.SearchRequest{Output: searchv1alpha1.OutputRelated, RelatedLimit: ptr.To[int32](-7)}), "spec.relatedLimit", nil},
		"a negative offset":               {searchOf(searchv1alpha1.SearchRequest{Offset: -1}), "spec.offset", nil},
		"an offset and a continue token":  {searchOf(searchv1alpha1.SearchRequest{Offset: 1, Continue: "x"}), "spec.offset", nil},
		"an invalid order direction":      {searchOf(searchv1alpha1.SearchRequest{OrderBy: []string{"name", "restarts downwards"}}), "spec.orderBy[1]", []string{"desc"}},
		"an order by an invalid property": {searchOf(searchv1alpha1.SearchRequest{OrderBy: []string{"9lives"}}), "spec.orderBy[0]", []string{"9lives"}},
		"relatedKinds with output Items":  {searchOf(searchv1alpha1.SearchRequest{Output: searchv1alpha1.OutputItems, RelatedKinds: []string{"Pod"}}), "spec.relatedKinds", nil},
		"an invalid query among several": {several(searchv1alpha1.SearchSpec{Searches: []searchv1alpha1.SearchRequest{pods, textQuery("kind==Pod")}}),
			"spec.searches[1].query", []string{"position 4", "use kind=Pod instead"}},
		"a query and several searches": {several(searchv1alpha1.SearchSpec{SearchRequest: pods, Searches: []searchv1alpha1.SearchRequest{pods}}), "spec.searches", nil},
		"too many searches":            {several(searchv1alpha1.SearchSpec{Searches: make([]searchv1alpha1.SearchRequest, 101)}), "spec.searches", []string{"100"}},
		"completion without a property": {func(ctx context.Context) error {
			_, err := f.OCM.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{}, metav1.CreateOptions{})
			return err
		}, "spec.property", nil},
		"completion of an invalid property": {func(ctx context.Context) error {
			_, err := f.OCM.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{
				Spec: searchv1alpha1.SearchCompletionSpec{Property: "a b"}}, metav1.CreateOptions{})
			return err
		}, "spec.property", []string{"a b", "is not the name of a property"}},
		"completion with an invalid query": {func(ctx context.Context) error {
			_, err := f.OCM.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{
				Spec: searchv1alpha1.SearchCompletionSpec{Property: "kind", SearchTerms: searchv1alpha1.SearchTerms{Query: "kind==Pod"}}}, metav1.CreateOptions{})
			return err
		}, "spec.query", []string{"position 4"}},
		"schema with an invalid query": {func(ctx context.Context) error {
			_, err := f.OCM.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{Spec: searchv1alpha1.SearchTerms{Query: "kind==Pod"}}, metav1.CreateOptions{})
			return err
		}, "spec.query", []string{"position 4"}},
	} {
		t.Run(what, func(t *testing.T) {
			status := isRefused(t, test.request(t.Context()), http.StatusUnprocessableEntity)
			if status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != test.field {
				t.Fatalf("Status = %+v, want one cause with field %s", status, test.field)
			}
			for _, text := range test.texts {
				if !strings.Contains(status.Message, text) {
					t.Errorf("message = %.300s, want %q included", status.Message, text)
				}
			}
		})
	}
}

// TestSearchWithInvalidToken sends invalid tokens to every endpoint of search.
func TestSearchWithInvalidToken(t *testing.T) { onShared(t, searchWithInvalidToken) }

func searchWithInvalidToken(t *testing.T, f *fleet) {
	hub, valid := f.Hub.AdminConfig(), newAccountCaller(t, f.Hub, "default", framework.Unique("bad-token")).Config.BearerToken
	for where, config := range map[string]rest.Config{
		"through the hub": {Host: hub.Host, TLSClientConfig: rest.TLSClientConfig{CAData: hub.CAData}},
		"directly": {
			Host:            fmt.Sprintf("https://127.0.0.1:%d", f.Server.Port),
			TLSClientConfig: rest.TLSClientConfig{CAData: framework.Must(f.Server.CABundle())(t)},
		},
	} {
		for what, token := range map[string]string{"no token": "none", "a token with another signature": valid[:len(valid)-8] + "AAAAAAAA"} {
			config.BearerToken = token
			client := framework.OCMClient(t, &config, nil)
			for request, send := range searchEndpoints(framework.Cluster1) {
				if err := send(t.Context(), client); !apierrors.IsUnauthorized(err) {
					t.Errorf("%s with %s, %s: error = %v, want 401", request, what, where, err)
				}
			}
		}
	}
}
