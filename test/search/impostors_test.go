package search

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// hiddenResources contains resources of a managed cluster and of the hub that impostors must not find.
type hiddenResources struct {
	cluster, namespace, mark, property string
	// uid is the UID of a Pod on the cluster.
	uid string
}

// in returns the identifying words of the resources that a text contains.
func (o *hiddenResources) in(text string) []string {
	var out []string
	for _, word := range []string{o.cluster, o.namespace, o.mark, o.property} {
		if strings.Contains(text, word) {
			out = append(out, word)
		}
	}
	return out
}

// endpoints returns a request to each endpoint that returns resources. Only the request for a FleetResource by name
// contains a word of the hidden resources.
func (o *hiddenResources) endpoints() map[string]func(context.Context, versioned.Interface) (string, error) {
	const query = "kind:Pod,ConfigMap"
	asText := func(value any, err error) (string, error) {
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(value)
		return string(text), err
	}
	searching := func(output searchv1alpha1.SearchOutput) func(context.Context, versioned.Interface) (string, error) {
		return func(ctx context.Context, client versioned.Interface) (string, error) {
			request := textQuery(query)
			switch request.Output = output; output {
			case searchv1alpha1.OutputCount:
				request.Limit = nil
			case searchv1alpha1.OutputRelated:
				request.Query = "kind:Pod"
			}
			status, err := search(ctx, client, request)
			if err == nil && output == searchv1alpha1.OutputCount && status.Count > 0 {
				return o.cluster, nil
			}
			return asText(status, err)
		}
	}
	completing := func(property string) func(context.Context, versioned.Interface) (string, error) {
		return func(ctx context.Context, client versioned.Interface) (string, error) {
			return asText(completed(ctx, client, searchv1alpha1.SearchCompletionSpec{Property: property}))
		}
	}
	asking := func(query string) func(context.Context, versioned.Interface) (string, error) {
		return func(ctx context.Context, client versioned.Interface) (string, error) {
			return asText(graphqlPost(ctx, client, query, nil))
		}
	}
	const input = `input: [{filters: [{property: "kind", values: ["Pod", "ConfigMap"]}]}]`
	return map[string]func(context.Context, versioned.Interface) (string, error){
		"items":                 searching(searchv1alpha1.OutputItems),
		"count":                 searching(searchv1alpha1.OutputCount),
		"related":               searching(searchv1alpha1.OutputRelated),
		"completion of cluster": completing("cluster"), "completion of label": completing("label"), "completion of namespace": completing("namespace"),
		"schema": func(ctx context.Context, client versioned.Interface) (string, error) {
			return asText(client.SearchV1alpha1().SearchSchemas().Create(ctx, &searchv1alpha1.SearchSchema{}, metav1.CreateOptions{}))
		},
		"FleetResources": func(ctx context.Context, client versioned.Interface) (string, error) {
			return asText(client.SearchV1alpha1().FleetResources(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}))
		},
		"a FleetResource": func(ctx context.Context, client versioned.Interface) (string, error) {
			found, err := client.SearchV1alpha1().FleetResources(o.cluster).Get(ctx, o.uid, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			return asText(found, err)
		},
		"Inventories": func(ctx context.Context, client versioned.Interface) (string, error) {
			return asText(client.SearchV1alpha1().Inventories(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}))
		},
		"watch":              o.watched,
		"GraphQL items":      asking(`{search(` + input + `) {count items}}`),
		"GraphQL related":    asking(`{search(input: [{filters: [{property: "kind", values: ["Pod"]}]}]) {related {kind count items}}}`),
		"GraphQL completion": asking(`{searchComplete(property: "cluster")}`),
		"GraphQL schema":     asking(`{searchSchema}`),
	}
}

// watched returns the initial events of a watch.
func (o *hiddenResources) watched(ctx context.Context, client versioned.Interface) (string, error) {
	watching, err := client.SearchV1alpha1().FleetResources(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return "", err
	}
	defer watching.Stop()
	var out strings.Builder
	for event := range watching.ResultChan() {
		if event.Type == watch.Bookmark {
			return out.String(), nil
		}
		text, err := json.Marshal(event.Object)
		if err != nil {
			return "", err
		}
		out.Write(text)
	}
	return "", fmt.Errorf("the watch ended before its first bookmark: %s", out.String())
}

// withHeaders returns a client that sends the headers with every request.
func withHeaders(t *testing.T, config *rest.Config, headers http.Header) *versioned.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			for name, values := range headers {
				r.Header[name] = values
			}
			return next.RoundTrip(r)
		})
	})
	return framework.OCMClient(t, config, nil)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSearchRefusesImpostors checks that callers with an identity similar to that of a permitted caller find nothing at
// any endpoint of search, and that a cluster cannot report resources that appear to belong to another cluster.
func TestSearchRefusesImpostors(t *testing.T) { onShared(t, searchRefusesImpostors) }

func searchRefusesImpostors(t *testing.T, f *fleet) {
	var attempts atomic.Int64
	t.Cleanup(func() { t.Logf("%d attempts", attempts.Load()) })
	victim, attacker, hub := f.reporter(t), f.reporter(t), f.hubReporter(t)
	o := &hiddenResources{cluster: victim.name, namespace: framework.Unique("vault"), mark: framework.Unique("hidden"), property: "p" + strings.ReplaceAll(framework.Unique("jewel"), "-", "")}
	f.makeNamespace(t, o.namespace)
	labels := with{"label": with{markKey: o.mark}, o.property: "x"}
	pod, settings := victim.resource("Pod", "shop", "genuine", labels), victim.resource("ConfigMap", "shop", "settings", labels)
	ofHub := hub.resource("ConfigMap", o.namespace, "ours", labels)
	_, o.uid, _ = strings.Cut(pod.UID, "/")
	victim.has(t, []inventory.Resource{pod, settings}, edge(pod, settings, "uses"))
	hub.forgets(t, []inventory.Resource{ofHub})
	hub.changes(t, inventory.Sync{AddResources: []inventory.Resource{ofHub}})

	// The owner has permissions as a user and through a group. The user name contains a letter with two encodings in
	// Unicode.
	group := framework.Unique("owners")
	name := framework.Unique("caf\u00e9")
	owner := f.searcher(t, name, group)
	owner.May(t, o.namespace, listing("", []string{"configmaps"}))
	owner.views(t, victim.name)
	asGroup := newCaller(t, f.Hub, framework.Unique("member"), group)
	asGroup.Subject = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}
	asGroup.maySearch(t)
	asGroup.views(t, victim.name)
	want := map[string]string{uidOf("Pod", "shop", "genuine"): "Pod", uidOf("ConfigMap", "shop", "settings"): "ConfigMap", uidOf("ConfigMap", o.namespace, "ours"): "ConfigMap"}
	framework.Eventually(t, "the owner finds its resources", func(ctx context.Context) error { return answersAre(ctx, owner.OCM, markKey, o.mark, want) })
	framework.Eventually(t, "a member of the group finds the Pod of the cluster", func(ctx context.Context) error {
		return same(searched(t, asGroup.OCM, "kind:Pod"), []string{uidOf("Pod", "shop", "genuine")})
	})

	nobody := f.searcher(t, framework.Unique("nobody"))
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("%s-%d", group, i)
	}
	extra := map[string][]string{"scopes": {"everything"}, "example.com/user": {name}}
	as := func(user rest.ImpersonationConfig) versioned.Interface { return f.impersonating(t, user) }
	owners := map[string]versioned.Interface{
		"the owner":                owner.OCM,
		"the owner, with a UID":    as(rest.ImpersonationConfig{UserName: name, UID: "1"}),
		"the owner, with extra":    as(rest.ImpersonationConfig{UserName: name, UID: "1", Extra: extra}),
		"the owner, in all groups": as(rest.ImpersonationConfig{UserName: name, UID: "1", Groups: many}),
	}
	direct := framework.Must(f.Server.UserConfig(nobody.Name))(t)
	impostors := map[string]versioned.Interface{
		"without UID":                          nobody.OCM,
		"UID of the owner":                     as(rest.ImpersonationConfig{UserName: nobody.Name, UID: "1"}),
		"UID and extra of the owner":           as(rest.ImpersonationConfig{UserName: nobody.Name, UID: "1", Extra: extra}),
		"another extra":                        as(rest.ImpersonationConfig{UserName: nobody.Name, Extra: map[string][]string{"scopes": {"nothing", "everything"}}}),
		"5,000 groups":                         as(rest.ImpersonationConfig{UserName: nobody.Name, UID: "1", Groups: many}),
		"name of the group":                    f.searcher(t, group).OCM,
		"group with the owner's name":          f.searcher(t, framework.Unique("other"), name).OCM,
		"name in upper case":                   f.searcher(t, strings.ToUpper(name)).OCM,
		"group in upper case":                  f.searcher(t, framework.Unique("upper"), strings.ToUpper(group)).OCM,
		"name decomposed":                      f.searcher(t, strings.ReplaceAll(name, "\u00e9", "e\u0301")).OCM,
		"ServiceAccount with the owner's name": f.searcher(t, "system:serviceaccount:"+o.namespace+":"+name).OCM,
		"headers of the proxy": withHeaders(t, nobody.Config, http.Header{
			"X-Remote-User": {name}, "X-Remote-Group": {group, "system:masters"}, "X-Remote-Uid": {"1"}, "X-Remote-Extra-Scopes": {"everything"},
		}),
		"headers of the proxy, directly": withHeaders(t, direct, http.Header{"X-Remote-User": {name}, "X-Remote-Group": {group, "system:masters"}}),
	}
	refused := map[string]versioned.Interface{
		"the agent of another cluster":      attacker.agent.OCM,
		"the owner's headers, anonymously":  withHeaders(t, framework.Must(f.Server.AnonymousConfig())(t), http.Header{"X-Remote-User": {name}, "X-Remote-Group": {group}}),
		"impersonating a ServiceAccount":    withHeaders(t, nobody.Config, http.Header{"Impersonate-User": {"system:serviceaccount:" + o.namespace + ":default"}}),
		"impersonating no user but a group": withHeaders(t, nobody.Config, http.Header{"Impersonate-Group": {group}}),
	}
	for where, config := range map[string]*rest.Config{"": nobody.Config, ", directly": direct} {
		for what, headers := range map[string]http.Header{
			"the owner": {"Impersonate-User": {name}}, "itself in system:masters": {"Impersonate-User": {nobody.Name}, "Impersonate-Group": {"system:masters"}},
			"itself with a UID": {"Impersonate-User": {nobody.Name}, "Impersonate-Uid": {"1"}}, "itself with extra": {"Impersonate-User": {nobody.Name}, "Impersonate-Extra-Scopes": {"everything"}},
		} {
			refused["impersonating "+what+where] = withHeaders(t, config, headers)
		}
	}
	ask := func(t *testing.T, what string, client versioned.Interface, check func(t *testing.T, endpoint, answer string, err error)) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for endpoint, request := range o.endpoints() {
				answer, err := request(t.Context(), client)
				check(t, endpoint, answer, err)
			}
		})
	}
	t.Run("callers", func(t *testing.T) {
		for what, client := range owners {
			ask(t, what, client, func(t *testing.T, endpoint, answer string, err error) {
				if err != nil || len(o.in(answer)) == 0 {
					t.Errorf("%s for %s = %.200s, %v, want at least one of its resources", endpoint, what, answer, err)
				}
			})
		}
		for what, client := range impostors {
			ask(t, what, client, func(t *testing.T, endpoint, answer string, err error) {
				attempts.Add(1)
				if found := o.in(answer); err != nil || len(found) > 0 {
					t.Errorf("%s for a caller with %s = words %v, error %v, want neither: %.300s", endpoint, what, found, err, answer)
				}
			})
		}
		for what, client := range refused {
			ask(t, what, client, func(t *testing.T, endpoint, answer string, err error) {
				attempts.Add(1)
				if err == nil && endpoint == "a FleetResource" && answer == "" {
					t.Errorf("%s for %s = not found, want a rejection", endpoint, what)
				} else if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsInternalError(err) && (err == nil || !strings.Contains(err.Error(), "without impersonating a user")) {
					t.Errorf("%s for %s = %.300s, %v, want a rejection", endpoint, what, answer, err)
				}
			})
		}
	})

	t.Run("reports", func(t *testing.T) {
		both := f.searcher(t, framework.Unique("both"))
		both.views(t, attacker.name)
		hubOnly := f.searcher(t, framework.Unique("hub-only"))
		hubOnly.mayEverywhere(t, listing("*", []string{"*"}))
		forged := []inventory.Resource{}
		own := attacker.resource("Pod", "shop", "genuine", with{"label": with{"owner": "attacker"}, "_ownerUID": pod.UID})
		for _, uid := range []string{
			pod.UID, ofHub.UID, attacker.name + "/" + pod.UID, attacker.name + "/" + ofHub.UID, attacker.name + "/../" + pod.UID, "cluster__" + victim.name, "cluster__" + localhub.HubClusterName,
			strings.ToUpper(attacker.name) + "/x", attacker.name + "x/x", attacker.name, attacker.name + "/", "/" + pod.UID, " " + pod.UID, victim.name + "\u2044" + o.uid, attacker.name + "/" + o.uid,
			attacker.name + "\u0000/x", attacker.name + "/e\u0301", attacker.name + "/\u00e9", attacker.name + "//" + victim.name,
		} {
			each := own
			each.UID = uid
			forged = append(forged, each)
		}
		for i, properties := range []with{
			{"cluster": victim.name}, {"cluster": localhub.HubClusterName, "_hubClusterResource": true}, {"Cluster": victim.name, "CLUSTER": victim.name}, {"_uid": pod.UID, "_relatedUids": []string{pod.UID, ofHub.UID}},
			{"_hubClusterResource": "true", "namespace": o.namespace, "kind": "ConfigMap", "kind_plural": "configmaps", "name": "ours"}, {"_hubclusterresource": true}, {"_hubClusterResource": []bool{true}},
			{"namespace": strings.ToUpper(o.namespace)}, {"name": "gen\uff55ine"}, {"_ownerUID": ofHub.UID}, {"_relatedUids": with{"a": pod.UID}}, {"cluster": []string{victim.name, localhub.HubClusterName}},
		} {
			each := attacker.resource("Pod", "shop", fmt.Sprintf("forged-%d", i), nil)
			for key, value := range properties {
				each.Properties[key] = framework.Must(json.Marshal(value))(t)
			}
			forged = append(forged, each)
		}
		var edges []inventory.Edge
		for _, theirs := range []inventory.Resource{pod, settings, ofHub} {
			nested := theirs
			nested.UID = attacker.name + "/" + theirs.UID
			edges = append(edges, edge(own, theirs, "uses"), edge(theirs, own, "uses"), edge(own, nested, "uses"), edge(nested, theirs, "uses"), edge(nested, own, "uses"))
		}
		gone := []inventory.Deleted{{UID: pod.UID}, {UID: settings.UID}, {UID: ofHub.UID}, {UID: strings.ToUpper(pod.UID)}}
		attempts.Add(int64(2*len(forged) + 2*len(edges) + len(gone)))
		got := framework.Must(attacker.sync(t.Context(), inventory.Sync{AddResources: forged, UpdateResources: forged, DeleteResources: gone, AddEdges: edges, DeleteEdges: append(edges, edge(pod, settings, "uses"))}))(t)
		if len(got.AddErrors) == 0 || len(got.DeleteErrors) != len(gone) || len(got.AddEdgeErrors) == 0 {
			t.Errorf("response to the forged report = %+v, want errors for resources, %d deletions and edges", got, len(gone))
		}
		framework.Must(attacker.sync(t.Context(), inventory.Sync{AddResources: []inventory.Resource{own}, AddEdges: edges}))(t)
		for _, path := range []string{
			syncPath(victim.name), syncPath(localhub.HubClusterName), publicSyncPath(localhub.HubClusterName), syncPath(strings.ToUpper(attacker.name)), syncPath(attacker.name + "%2f.." + "%2f" + victim.name),
			strings.Replace(syncPath(attacker.name), "inventories/"+attacker.name, "inventories/"+victim.name, 1), strings.Replace(syncPath(attacker.name), "inventories/"+attacker.name, "inventories/"+localhub.HubClusterName, 1),
		} {
			attempts.Add(1)
			if answer, err := postReport(t.Context(), attacker.agent.OCM, path, false, inventory.Sync{AddResources: []inventory.Resource{own}}); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Errorf("report to %s = %+v, %v, want a refusal", path, answer, err)
			}
		}
		if err := answersAre(t.Context(), owner.OCM, markKey, o.mark, want); err != nil {
			t.Errorf("search of the owner after the forged reports: %v", err)
		}
		framework.Eventually(t, "the Pod of the attacker's cluster is found", func(ctx context.Context) error {
			result, err := search(ctx, both.OCM, textQuery("label:owner=attacker name:genuine"))
			if err == nil && !slices.Contains(uids(result.Items), o.uid) {
				err = fmt.Errorf("found %v", uids(result.Items))
			}
			return err
		})
		for who, client := range map[string]versioned.Interface{"a viewer of the attacker's cluster": both.OCM, "a caller with list on the hub": hubOnly.OCM, "the owner": owner.OCM} {
			request := textQuery("kind:Pod,ConfigMap name:genuine,forged*,ours,settings")
			request.Output = searchv1alpha1.OutputRelated
			result := framework.Must(search(t.Context(), client, request))(t)
			items := result.Items
			for _, related := range result.Related {
				items = append(items, related.Items...)
			}
			items = append(items, searched(t, client, "kind:Pod,ConfigMap name:genuine,forged*,ours,settings").Items...)
			if len(items) == 0 {
				t.Errorf("search of %s = no items, want some", who)
			}
			for _, item := range items {
				attempts.Add(1)
				mine := strings.HasPrefix(item.UID, attacker.name+"/") || item.UID == "cluster__"+attacker.name
				switch of := item.Cluster; {
				case mine != (of == attacker.name),
					who == "a viewer of the attacker's cluster" && !mine,
					who != "a viewer of the attacker's cluster" && mine,
					who == "a caller with list on the hub" && of != localhub.HubClusterName:
					t.Errorf("search of %s returns %s of cluster %s, want only resources that it may view", who, item.UID, of)
				}
			}
		}
	})
}
