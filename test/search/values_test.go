package search

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// manyLabels is the number of different labels in one cluster. It exceeds the default limit.
const manyLabels = 1200

func completed(ctx context.Context, client versioned.Interface, spec searchv1alpha1.SearchCompletionSpec) (*searchv1alpha1.SearchCompletionStatus, error) {
	completion, err := client.SearchV1alpha1().SearchCompletions().Create(ctx, &searchv1alpha1.SearchCompletion{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &completion.Status, nil
}

// counted returns values with their counts as text.
func counted(values []searchv1alpha1.PropertyValue) string {
	var out []string
	for _, value := range values {
		out = append(out, fmt.Sprintf("%s:%d", value.Value, value.Count))
	}
	return strings.Join(out, " ")
}

func TestSearchCompletions(t *testing.T) { onShared(t, searchCompletions) }

func searchCompletions(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	terms := func(query string) searchv1alpha1.SearchTerms { return searchv1alpha1.SearchTerms{Query: query} }
	for what, test := range map[string]struct {
		spec         searchv1alpha1.SearchCompletionSpec
		want         string
		typed        searchv1alpha1.PropertyType
		minimum, max string
		more         bool
	}{
		"kinds":                  {spec: searchv1alpha1.SearchCompletionSpec{Property: "kind"}, want: "Cluster:1 ConfigMap:1 Deployment:1 Node:1 Pod:4 ReplicaSet:1", typed: searchv1alpha1.PropertyString},
		"with a filter":          {spec: searchv1alpha1.SearchCompletionSpec{Property: "kind", SearchTerms: terms("namespace:payments")}, want: "Deployment:1 Pod:2 ReplicaSet:1", typed: searchv1alpha1.PropertyString},
		"prefix in another case": {spec: searchv1alpha1.SearchCompletionSpec{Property: "status", Prefix: "c"}, want: "Completed:1 CrashLoopBackOff:1", typed: searchv1alpha1.PropertyString},
		"labels are pairs":       {spec: searchv1alpha1.SearchCompletionSpec{Property: "label", SearchTerms: terms("kind:Pod")}, want: "app=job:1 app=web:2 tier=front:1", typed: searchv1alpha1.PropertyString},
		"elements of lists":      {spec: searchv1alpha1.SearchCompletionSpec{Property: "image"}, want: "envoy:2:1 nginx:1.27:2", typed: searchv1alpha1.PropertyString},
		"numbers in order":       {spec: searchv1alpha1.SearchCompletionSpec{Property: "restarts"}, want: "0:1 9:1 10:1", typed: searchv1alpha1.PropertyNumber, minimum: "0", max: "10"},
		"with a limit":           {spec: searchv1alpha1.SearchCompletionSpec{Property: "restarts", Limit: ptr.To[int32](2)}, want: "0:1 9:1", typed: searchv1alpha1.PropertyNumber, minimum: "0", max: "10", more: true},
		"clusters":               {spec: searchv1alpha1.SearchCompletionSpec{Property: "cluster"}, want: s.seen.name + ":9", typed: searchv1alpha1.PropertyString},
		"property of a Secret":   {spec: searchv1alpha1.SearchCompletionSpec{Property: "onlysecretshave"}, typed: searchv1alpha1.PropertyString},
	} {
		t.Run(what, func(t *testing.T) {
			got := framework.Must(completed(t.Context(), s.viewer.OCM, test.spec))(t)
			if counted(got.Values) != test.want || got.Type != test.typed || got.Min != test.minimum || got.Max != test.max || got.More != test.more {
				t.Errorf("completion = %s (%+v), want %+v", counted(got.Values), got, test)
			}
		})
	}
	t.Run("times", func(t *testing.T) {
		got := framework.Must(completed(t.Context(), s.viewer.OCM, searchv1alpha1.SearchCompletionSpec{Property: "created", SearchTerms: terms("kind!=Cluster")}))(t)
		if got.Type != searchv1alpha1.PropertyTime || len(got.Values) != 2 || got.Min != "2020-02-02T02:02:02Z" || got.Max <= got.Min {
			t.Errorf("completion = %+v, want 2 times from 2020-02-02T02:02:02Z", got)
		}
	})
}

// TestSearchCompletesEveryLabel checks that limits apply to distinct values.
func TestSearchCompletesEveryLabel(t *testing.T) { onShared(t, searchCompletesEveryLabel) }

func searchCompletesEveryLabel(t *testing.T, f *fleet) {
	r := f.reporter(t)
	viewer := f.searcher(t, framework.Unique("labels"))
	var resources []inventory.Resource
	for i := range manyLabels {
		resources = append(resources, r.resource("ConfigMap", "default", fmt.Sprintf("map-%04d", i), with{"label": with{
			"own": fmt.Sprintf("value-%04d", i), "parity": fmt.Sprint(i % 2),
		}}))
	}
	r.has(t, resources)
	viewer.views(t, r.name)
	spec := searchv1alpha1.SearchCompletionSpec{
		Property: "label", Limit: ptr.To[int32](-1), SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:ConfigMap"},
	}
	framework.Eventually(t, "the completion returns values of the cluster", func(ctx context.Context) error {
		got, err := completed(ctx, viewer.OCM, spec)
		if err == nil && len(got.Values) == 0 {
			err = fmt.Errorf("no values found")
		}
		return err
	})
	request := searchv1alpha1.SearchRequest{SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:ConfigMap"}}
	if first := framework.Must(search(t.Context(), viewer.OCM, request))(t); len(first.Items) != 1000 || first.Count != manyLabels || first.Continue == "" {
		t.Errorf("search without a limit: %d of %d items, continue %q, want 1000 of %d and a token", len(first.Items), first.Count, first.Continue, manyLabels)
	}
	got := framework.Must(completed(t.Context(), viewer.OCM, spec))(t)
	if len(got.Values) != manyLabels+2 || got.More {
		t.Errorf("completion = %d values, more = %t, want %d values and no more", len(got.Values), got.More, manyLabels+2)
	}
	if last := got.Values[len(got.Values)-1]; last.Value != "parity=1" || last.Count != manyLabels/2 {
		t.Errorf("last value = %+v, want parity=1 with count %d", last, manyLabels/2)
	}
	spec.Limit = ptr.To[int32](100)
	if got := framework.Must(completed(t.Context(), viewer.OCM, spec))(t); len(got.Values) != 100 || !got.More || got.Values[99].Value != "own=value-0099" {
		t.Errorf("completion with limit 100 = %d values, more = %t, want 100 values and more", len(got.Values), got.More)
	}
	spec.Prefix = "PARITY="
	if got := framework.Must(completed(t.Context(), viewer.OCM, spec))(t); counted(got.Values) != fmt.Sprintf("parity=0:%d parity=1:%d", manyLabels/2, manyLabels/2) || got.More {
		t.Errorf("completion with prefix PARITY= is %s, more = %t, want both values of parity and no more", counted(got.Values), got.More)
	}
}

func TestSearchSchemas(t *testing.T) { onShared(t, searchSchemas) }

func searchSchemas(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	schema := func(client versioned.Interface, query string) map[string]searchv1alpha1.PropertyType {
		t.Helper()
		answer := framework.Must(client.SearchV1alpha1().SearchSchemas().Create(t.Context(), &searchv1alpha1.SearchSchema{Spec: searchv1alpha1.SearchTerms{Query: query}}, metav1.CreateOptions{}))(t)
		out := map[string]searchv1alpha1.PropertyType{}
		var names []string
		for _, property := range answer.Status.Properties {
			out[property.Name] = property.Type
			names = append(names, property.Name)
		}
		if !slices.IsSorted(names) || len(out) != len(names) {
			t.Errorf("properties = %v, want them sorted and unique", names)
		}
		return out
	}
	got := schema(s.viewer.OCM, "")
	for name, want := range map[string]searchv1alpha1.PropertyType{
		"kind": searchv1alpha1.PropertyString, "restarts": searchv1alpha1.PropertyNumber, "label": searchv1alpha1.PropertyMap,
		"image": searchv1alpha1.PropertyList, "created": searchv1alpha1.PropertyTime, "desired": searchv1alpha1.PropertyNumber,
	} {
		if got[name] != want {
			t.Errorf("type of property %s = %q, want %s", name, got[name], want)
		}
	}
	for _, hidden := range []string{"_ownerUID", "onlysecretshave"} {
		if _, there := got[hidden]; there {
			t.Errorf("schema contains %s, want it hidden", hidden)
		}
	}
	if got := schema(s.viewer.OCM, "kind:Deployment"); got["desired"] == "" || got["restarts"] != "" {
		t.Errorf("schema of Deployments = %v, want desired and no restarts", got)
	}
	if got := schema(s.viewer.OCM, "cluster:"+s.hidden.name); len(got) != 0 {
		t.Errorf("schema without permission to view the cluster = %v, want none", got)
	}
	if got := schema(s.OCM, "cluster:"+s.hidden.name); got["restarts"] != searchv1alpha1.PropertyNumber {
		t.Errorf("schema as administrator = %v, want restarts of type %s", got, searchv1alpha1.PropertyNumber)
	}
}
