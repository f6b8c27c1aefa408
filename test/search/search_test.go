package search

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// smallFleet contains two clusters with the same few resources, and a user with permission to view the first cluster.
type smallFleet struct {
	*fleet
	seen, hidden *reporter
	viewer       *caller
}

const awkward = `it's "100%_done"*\`

// shop returns the resources and edges of each of the two clusters.
func (r *reporter) shop() ([]inventory.Resource, []inventory.Edge) {
	web := with{"label": with{"app": "web"}}
	node := r.resource("Node", "", "node-1", with{"status": "Ready"})
	deployment := r.resource("Deployment", "payments", "web", with{"label": with{"app": "web"}, "desired": 3, "strategy": "Rolling Update"})
	replicas := r.resource("ReplicaSet", "payments", "web-1", web)
	quick := r.resource("Pod", "payments", "web-1-a", with{
		"label": with{"app": "web", "tier": "front"}, "status": "Running", "restarts": 0, "image": []string{"nginx:1.27", "envoy:2"},
		"created": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "_ownerUID": r.name + "/" + uidOf("ReplicaSet", "payments", "web-1"),
	})
	restless := r.resource("Pod", "payments", "web-1-b", with{"label": with{"app": "web"}, "status": "CrashLoopBackOff", "restarts": 10, "image": []string{"nginx:1.27"}})
	job := r.resource("Pod", "default", "job-x", with{"label": with{"app": "job"}, "status": "Completed", "restarts": 9})
	bare := r.resource("Pod", "default", "bare", with{"note": awkward})
	return []inventory.Resource{
			node, deployment, replicas, quick, restless, job, bare,
			r.resource("ConfigMap", "default", "settings", nil), r.resource("Secret", "default", "top", with{"onlysecretshave": "this"}),
		}, []inventory.Edge{
			edge(replicas, deployment, "ownedBy"), edge(quick, replicas, "ownedBy"), edge(restless, replicas, "ownedBy"),
			edge(quick, node, "runsOn"), edge(job, node, "runsOn"),
		}
}

func (f *fleet) smallFleet(t *testing.T) *smallFleet {
	t.Helper()
	s := &smallFleet{fleet: f, seen: f.reporter(t), hidden: f.reporter(t), viewer: f.searcher(t, framework.Unique("viewer"))}
	for _, cluster := range []*reporter{s.seen, s.hidden} {
		resources, edges := cluster.shop()
		if got := cluster.has(t, resources, edges...); got.TotalResources != len(resources) || got.TotalEdges != len(edges) {
			t.Fatalf("response to a report of %d resources and %d edges = %+v", len(resources), len(edges), got)
		}
	}
	s.viewer.views(t, s.seen.name)
	finds(t, s.viewer.OCM, "kind:Node", uidOf("Node", "", "node-1"))
	return s
}

func TestSearchQueries(t *testing.T) { onShared(t, searchQueries) }

func searchQueries(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	a, b, job, bare := "pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"
	literal := func(property, operator string, values ...string) searchv1alpha1.SearchTerms {
		return searchv1alpha1.SearchTerms{Filters: []searchv1alpha1.SearchFilter{{Property: property, Operator: operator, Values: values}}}
	}
	text := func(query string) searchv1alpha1.SearchTerms { return searchv1alpha1.SearchTerms{Query: query} }
	for what, test := range map[string]struct {
		terms searchv1alpha1.SearchTerms
		want  []string
	}{
		"everything but Secrets": {text(""), []string{a, b, job, bare, "configmap.default.settings", "node.node-1", "deployment.payments.web", "replicaset.payments.web-1", clusterItself}},
		"a kind":                 {text("kind:Pod"), []string{a, b, job, bare}},
		"a kind in lower case":   {text("kind:pod"), []string{a, b, job, bare}},
		"several values":         {text("kind:Node,ConfigMap"), []string{"node.node-1", "configmap.default.settings"}},
		"several filters":        {text("kind:Pod namespace:payments"), []string{a, b}},
		"!= matches resources without the property": {text("kind:Pod status!=Running"), []string{b, job, bare}},
		"several negatives exclude all of them":     {text("kind:Pod status!=Running,Completed"), []string{b, bare}},
		"status:* requires the property":            {text("kind:Pod status:* status!=Running"), []string{b, job}},
		"numbers are compared as numbers":           {text("restarts>8"), []string{b, job}},
		"a range":                                   {text("restarts>0 restarts<10"), []string{job}},
		"an age":                                    {text("kind:Pod created:day"), []string{a}},
		"a label":                                   {text("label:app=web"), []string{a, b, "deployment.payments.web", "replicaset.payments.web-1"}},
		"the key of a label":                        {text("label:tier"), []string{a}},
		"a wildcard in a label":                     {text("label:app=j*"), []string{job}},
		"an element of a list":                      {text("image:envoy:2"), []string{a}},
		"a wildcard in an element of a list":        {text("image:nginx*"), []string{a, b}},
		"a wildcard in a name":                      {text("kind:Pod name:web-*"), []string{a, b}},
		"wildcards are case-sensitive":              {text("kind:Pod name:WEB-*"), nil},
		"keywords in several properties":            {text("NGINX running payments"), []string{a}},
		"keywords, structured":                      {searchv1alpha1.SearchTerms{Keywords: []string{"nginx", "crash"}}, []string{b}},
		"keywords do not match hidden properties":   {searchv1alpha1.SearchTerms{Query: "kind:Pod", Keywords: []string{"replicaset.payments"}}, nil},
		"query and filters together":                {searchv1alpha1.SearchTerms{Query: "kind:Pod", Filters: literal("status", "", "!Running").Filters}, []string{b, job, bare}},
		"quotes and wildcards in values are data":   {literal("note", "=", awkward), []string{bare}},
		"quoted in the text form":                   {text(`note:"it's \"100%_done\"*\\"`), []string{bare}},
		"% and _ are not wildcards":                 {literal("name", "", "web_1%"), nil},
		"a quote in a label":                        {literal("label", "", `app='web"`), nil},
		"a literal star is not a wildcard":          {literal("name", "=", "web-*"), nil},
	} {
		terms := test.terms
		t.Run(what, func(t *testing.T) {
			result := framework.Must(search(t.Context(), s.viewer.OCM, searchv1alpha1.SearchRequest{SearchTerms: terms}))(t)
			if err := same(result, test.want); err != nil {
				t.Errorf("search of the viewer: %v", err)
			}
			// An administrator finds the same resources on each cluster.
			terms.Filters = append(slices.Clone(terms.Filters), searchv1alpha1.SearchFilter{Property: "cluster", Values: []string{s.hidden.name}})
			if err := same(framework.Must(search(t.Context(), s.OCM, searchv1alpha1.SearchRequest{SearchTerms: terms}))(t), test.want); err != nil {
				t.Errorf("search as administrator: %v", err)
			}
			if result := framework.Must(search(t.Context(), s.viewer.OCM, searchv1alpha1.SearchRequest{SearchTerms: terms}))(t); result.Count != 0 || len(result.Items) > 0 {
				t.Errorf("search without permission to view the cluster = %+v, want nothing", result)
			}
		})
	}
}

// TestSearchItemsKeepTheirTypes checks that found resources equal the reported ones, in every format.
func TestSearchItemsKeepTheirTypes(t *testing.T) { onShared(t, searchItemsKeepTheirTypes) }

func searchItemsKeepTheirTypes(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	result := searched(t, s.viewer.OCM, "name:web-1-a")
	if len(result.Items) != 1 || result.Items[0].Cluster != s.seen.name || result.Items[0].UID != s.seen.name+"/pod.payments.web-1-a" {
		t.Fatalf("items = %+v, want only Pod web-1-a", result.Items)
	}
	properties := string(result.Items[0].Properties.Raw)
	for _, want := range []string{`"restarts":0`, `"image":["nginx:1.27","envoy:2"]`, `"label":{"app":"web","tier":"front"}`, `"status":"Running"`} {
		if !strings.Contains(properties, want) {
			t.Errorf("properties = %s, want %s included", properties, want)
		}
	}

	odd := with{
		"text": "<a> & \"b\" \\ \u2028 \t \x01 žluťoučký 🚀", "number": 1.5, "negative": -7, "large": 9007199254740993, "yes": true,
		"label": with{"a.b/c-d": "", "quote": `"`}, "image": []string{"", "x,y", `"`}, "ports": []any{80, "http"}, "empty": "",
	}
	widget := s.seen.resource("Widget", "shop", "odd", odd)
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{widget}})
	var want map[string]any
	decode := func(content []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatalf("%v: %s", err, content)
		}
	}
	decode(framework.Must(json.Marshal(widget.Properties))(t), &want)
	is := func(what string, content []byte) {
		t.Helper()
		var got map[string]any
		decode(content, &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-reported +found):\n%s", what, diff)
		}
		if !strings.Contains(string(content), "9007199254740993") {
			t.Errorf("%s = %s, want 9007199254740993 without rounding", what, content)
		}
	}
	is("a search", searched(t, s.viewer.OCM, "kind:Widget name:odd").Items[0].Properties.Raw)
	is("an object", framework.Must(s.viewer.OCM.SearchV1alpha1().FleetResources(s.seen.name).Get(t.Context(), "widget.shop.odd", metav1.GetOptions{}))(t).Properties.Raw)
	for _, format := range []string{"application/json", "application/json;pretty=1", "application/yaml"} {
		body := `{"apiVersion":"search.open-cluster-management.io/v1alpha1","kind":"Search","spec":{"query":"kind:Widget name:odd"}}`
		content := framework.Must(s.viewer.OCM.SearchV1alpha1().RESTClient().Post().Resource("searches").SetHeader("Accept", format).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Raw())(t)
		var answer searchv1alpha1.Search
		if format == "application/yaml" {
			if err := yaml.UnmarshalStrict(content, &answer); err != nil {
				t.Fatalf("%v\n%s", err, content)
			}
		} else {
			decode(content, &answer)
		}
		if answer.Kind != "Search" || answer.Status.Count != 1 || answer.Spec.Query != "kind:Widget name:odd" {
			t.Errorf("%s = %s, want a Search with its query and count 1", format, content)
		}
		if format != "application/yaml" {
			is(format, answer.Status.Items[0].Properties.Raw)
		}
	}
}

func TestSearchPages(t *testing.T) { onShared(t, searchPages) }

func searchPages(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	a, b, job, bare := "pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"
	order := func(result *searchv1alpha1.SearchStatus) []string {
		var out []string
		for _, item := range result.Items {
			_, uid, _ := strings.Cut(item.UID, "/")
			out = append(out, uid)
		}
		return out
	}
	for _, test := range []struct {
		orderBy []string
		want    []string
	}{
		{[]string{"name"}, []string{bare, job, a, b}},
		{[]string{"name desc"}, []string{b, a, job, bare}},
		{[]string{"restarts desc"}, []string{b, job, a, bare}},
		{[]string{"restarts asc"}, []string{a, job, b, bare}},
		{[]string{"namespace", "name desc"}, []string{job, bare, b, a}},
		{nil, nil},
	} {
		t.Run(fmt.Sprint("by ", test.orderBy), func(t *testing.T) {
			request := textQuery("kind:Pod")
			request.OrderBy, request.Limit = test.orderBy, ptr.To[int32](3)
			first := framework.Must(search(t.Context(), s.viewer.OCM, request))(t)
			if first.Count != 4 || len(first.Items) != 3 || first.Continue == "" {
				t.Fatalf("first page = %d of %d items, continue %q, want 3 of 4 and a token", len(first.Items), first.Count, first.Continue)
			}
			request.Continue = first.Continue
			second := framework.Must(search(t.Context(), s.viewer.OCM, request))(t)
			if second.Count != 4 || len(second.Items) != 1 || second.Continue != "" {
				t.Fatalf("second page = %d of %d items, continue %q, want 1 of 4 and no token", len(second.Items), second.Count, second.Continue)
			}
			got := append(order(first), order(second)...)
			if test.want == nil {
				slices.Sort(got)
				test.want = slices.Sorted(slices.Values([]string{a, b, job, bare}))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("items of both pages = %v, want %v", got, test.want)
			}
			request.Continue, request.Offset = "", 3
			last := framework.Must(search(t.Context(), s.viewer.OCM, request))(t)
			if last.Count != 4 || !slices.Equal(order(last), order(second)) {
				t.Errorf("items at offset 3 = %v of %d, want %v of 4", order(last), last.Count, order(second))
			}
		})
	}
	t.Run("count only", func(t *testing.T) {
		request := textQuery("kind:Pod")
		request.Output = searchv1alpha1.OutputCount
		if got := framework.Must(search(t.Context(), s.viewer.OCM, request))(t); got.Count != 4 || len(got.Items) != 0 {
			t.Errorf("search with output Count = %+v, want count 4 and no items", got)
		}
		request.Output, request.Limit = "", ptr.To[int32](0)
		if got := framework.Must(search(t.Context(), s.viewer.OCM, request))(t); got.Count != 4 || len(got.Items) != 0 {
			t.Errorf("search with limit 0 = %+v, want count 4 and no items", got)
		}
	})
	t.Run("an invalid continue token", func(t *testing.T) {
		request := textQuery("kind:Pod")
		request.Continue = "bm90IGEgdG9rZW4"
		if _, err := search(t.Context(), s.viewer.OCM, request); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("error = %v, want 410", err)
		}
	})
}

func TestSearchSeveralAtOnce(t *testing.T) { onShared(t, searchSeveralAtOnce) }

func searchSeveralAtOnce(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	result := framework.Must(s.viewer.OCM.SearchV1alpha1().Searches().Create(t.Context(), &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{Searches: []searchv1alpha1.SearchRequest{
		textQuery("kind:Node"), {SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:Pod"}, Output: searchv1alpha1.OutputCount}, textQuery("kind:Secret"),
	}}}, metav1.CreateOptions{}))(t)
	results := result.Status.Results
	if len(results) != 3 || results[0].Count != 1 || len(results[0].Items) != 1 || results[1].Count != 4 || len(results[1].Items) != 0 || results[2].Count != 0 {
		t.Errorf("status = %+v, want three results with counts 1, 4 and 0", result.Status)
	}
}

func TestSearchRelated(t *testing.T) { onShared(t, searchRelated) }

func searchRelated(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	related := func(request searchv1alpha1.SearchRequest) map[string][]string {
		t.Helper()
		out := map[string][]string{}
		for _, kind := range framework.Must(search(t.Context(), s.viewer.OCM, request))(t).Related {
			out[kind.Kind] = uids(kind.Items)
			if int(kind.Count) != len(kind.Items) && len(kind.Items) > 0 {
				t.Errorf("count of related kind %s = %d, want the number of items, %d", kind.Kind, kind.Count, len(kind.Items))
			}
		}
		return out
	}
	request := textQuery("kind:ReplicaSet")
	request.Output = searchv1alpha1.OutputRelated
	if got, want := fmt.Sprint(related(request)), "map[Deployment:[deployment.payments.web] Pod:[pod.payments.web-1-a pod.payments.web-1-b]]"; got != want {
		t.Errorf("related to the ReplicaSet = %s, want %s", got, want)
	}
	request.RelatedKinds = []string{"pod"}
	if got, want := fmt.Sprint(related(request)), "map[Pod:[pod.payments.web-1-a pod.payments.web-1-b]]"; got != want {
		t.Errorf("related Pods = %s, want %s", got, want)
	}

	// Related items are those of the returned items. Counts are of the resources that are related to all matches.
	request = textQuery("kind:Pod")
	request.Output, request.RelatedLimit = searchv1alpha1.OutputRelated, ptr.To[int32](10)
	for limit, want := range map[int32]string{
		-1: "map[Node:[node.node-1] ReplicaSet:[replicaset.payments.web-1]]",
		0:  "map[Node:[node.node-1] ReplicaSet:[replicaset.payments.web-1]]",
	} {
		request.Limit = &limit
		if got := fmt.Sprint(related(request)); got != want {
			t.Errorf("related to all Pods with limit %d = %s, want %s", limit, got, want)
		}
	}
	request.OrderBy, request.Limit = []string{"name desc"}, ptr.To[int32](1)
	for _, kind := range framework.Must(search(t.Context(), s.viewer.OCM, request))(t).Related {
		if kind.Count != 1 || kind.Kind == "ReplicaSet" && len(kind.Items) != 1 {
			t.Errorf("related kind %s of one of the Pods = %d items, count %d, want the ReplicaSet of the Pod, and count 1", kind.Kind, len(kind.Items), kind.Count)
		}
		for _, item := range kind.Items {
			if want := []string{s.seen.name + "/pod.payments.web-1-b"}; !slices.Equal(item.RelatedTo, want) {
				t.Errorf("RelatedTo of %s = %v, want %v", item.UID, item.RelatedTo, want)
			}
		}
	}
	request.RelatedLimit = ptr.To[int32](0)
	for _, kind := range framework.Must(search(t.Context(), s.viewer.OCM, request))(t).Related {
		if kind.Count != 1 || len(kind.Items) != 0 {
			t.Errorf("related kind %s = %d items, count %d, want no items and count 1", kind.Kind, len(kind.Items), kind.Count)
		}
	}
	request = textQuery("name:web-1-a")
	request.Output = searchv1alpha1.OutputRelated
	for _, kind := range framework.Must(search(t.Context(), s.viewer.OCM, request))(t).Related {
		for _, item := range kind.Items {
			if want := []string{s.seen.name + "/pod.payments.web-1-a"}; !slices.Equal(item.RelatedTo, want) {
				t.Errorf("RelatedTo of %s = %v, want %v", item.UID, item.RelatedTo, want)
			}
		}
	}
}

func TestSearchWarnings(t *testing.T) { onShared(t, searchWarnings) }

func searchWarnings(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	absent := s.SilentCluster(t)
	warnsOf := func(client *caller, query string) string {
		t.Helper()
		return strings.Join(searched(t, client.OCM, query).Warnings, "\n")
	}
	if got := warnsOf(s.viewer, "kind:Pod"); got != "" {
		t.Errorf("warnings = %s, want none", got)
	}
	if got := warnsOf(s.viewer, "kind:Pod stauts:Running"); !strings.Contains(got, `"stauts"`) || !strings.Contains(got, `did you mean "status"?`) {
		t.Errorf("warnings for an unknown property = %s, want the property and a suggestion", got)
	}
	if got := warnsOf(s.viewer, "kind:Pod restarts>many"); !strings.HasPrefix(got, `"many" is no number, so values of restarts are ordered as texts`) {
		t.Errorf("warnings for a number that is compared with a text = %s, want the property and the value", got)
	}
	if got := warnsOf(s.viewer, "kind:Pod restarts>1 status>C created>2020-01-01"); got != "" {
		t.Errorf("warnings for ordered numbers, texts and times = %s, want none", got)
	}
	if got := warnsOf(s.viewer, "kind:Pod status:Flying"); got != "" {
		t.Errorf("warnings for an unknown value = %s, want none", got)
	}
	// Properties that only other callers find must not be suggested.
	if got := warnsOf(s.viewer, "onlysecretshav:this"); strings.Contains(got, "onlysecretshave") {
		t.Errorf("warnings = %s, want no property of a Secret", got)
	}
	s.viewer.views(t, absent)
	framework.Eventually(t, "a warning names the cluster without reports", func(ctx context.Context) error {
		result, err := search(ctx, s.viewer.OCM, textQuery("kind:Pod"))
		if err != nil {
			return err
		}
		if warning := strings.Join(result.Warnings, "\n"); warning != "cluster "+absent+" has not reported its resources" {
			return fmt.Errorf("warnings = %q", warning)
		}
		return nil
	})
}
