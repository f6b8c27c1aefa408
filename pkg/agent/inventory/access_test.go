package inventory

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// rbacRecord extracts a ClusterRole with a rule.
func rbacRecord(t *testing.T, id, verb string) *record {
	t.Helper()
	settings, err := (&Configuration{}).Settings()
	if err != nil {
		t.Fatal(err)
	}
	e, err := newExtractor("c1", &resource{
		GroupVersionResource: schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: "clusterroles"}, kind: "ClusterRole", reported: true,
	}, settings)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.extract(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": id, "uid": id, "annotations": map[string]any{"secret": "annotation"}},
		"rules":    []any{map[string]any{"verbs": []any{verb}, "nonResourceURLs": []any{"/<x>"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// accessOf returns the AccessReport in a batch, or nil, and the properties of a resource.
func accessOf(t *testing.T, b *batch, uid string) (*inventory.AccessReport, map[string]any) {
	t.Helper()
	var encoded bytes.Buffer
	if err := b.encode(&encoded, "v1"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(encoded.String(), "annotation") {
		t.Errorf("report = %s, want no annotations", encoded.String())
	}
	var report inventory.Sync
	if err := json.Unmarshal(encoded.Bytes(), &report); err != nil {
		t.Fatalf("report %s: %v", encoded.String(), err)
	}
	var access *inventory.AccessReport
	var found map[string]any
	for _, r := range append(report.AddResources, report.UpdateResources...) {
		properties := map[string]any{}
		for name, value := range r.Properties {
			var decoded any
			if err := json.Unmarshal(value, &decoded); err != nil {
				t.Fatal(err)
			}
			properties[name] = decoded
		}
		switch r.UID {
		case "c1/" + inventory.AccessReportID:
			access = &inventory.AccessReport{}
			if err := json.Unmarshal([]byte(properties[inventory.Access].(string)), access); err != nil {
				t.Fatal(err)
			}
		case uid:
			found = properties
		}
	}
	return access, found
}

func TestAccessInReports(t *testing.T) {
	s := newState()
	described := inventory.AccessReport{Complete: true}
	s.access.reports("c1", func() inventory.AccessReport { return described })
	s.put(rbacRecord(t, "one", "get"))

	// The hub stores no content.
	b := s.begin(true)
	if access, role := accessOf(t, b, "c1/one"); access != nil || role[inventory.Rules] != nil {
		t.Errorf("report to a hub that does not store content: %v and %v, want neither", access, role[inventory.Rules])
	}
	s.applied()
	s.put(rbacRecord(t, "one", "list"))
	if idle, urgent := s.idle(); !idle || urgent {
		t.Errorf("idle() after a change of content = %t, urgent %t, want nothing to report", idle, urgent)
	}

	if !s.accept(true) {
		t.Error("accept(true) = false, want true")
	}
	b = s.begin(true)
	access, role := accessOf(t, b, "c1/one")
	if want := (inventory.AccessReport{Complete: true, Objects: 1}); access == nil || *access != want {
		t.Errorf("AccessReport = %v, want %v", access, want)
	}
	if got, want := role[inventory.Rules], `[{"nonResourceURLs":["/<x>"],"verbs":["list"]}]`; strings.ReplaceAll(strings.ReplaceAll(got.(string), `\u003c`, "<"), `\u003e`, ">") != want {
		t.Errorf("rules = %v, want %s", got, want)
	}
	if b.resources != 2 {
		t.Errorf("total of resources = %d, want the role and the AccessReport", b.resources)
	}
	s.applied()

	// A change that the hub did not receive stays urgent. The AccessReport is part of the same report.
	s.put(rbacRecord(t, "two", "get"))
	if _, urgent := s.idle(); !urgent {
		t.Error("a new role is not urgent")
	}
	s.begin(false)
	if _, urgent := s.idle(); !urgent {
		t.Error("a new role is not urgent after a failed report")
	}
	b = s.begin(false)
	if access, role := accessOf(t, b, "c1/two"); access == nil || access.Objects != 2 || role == nil {
		t.Errorf("AccessReport = %v and role %v, want 2 objects and the role", access, role)
	}
	s.applied()
	if idle, urgent := s.idle(); !idle || urgent {
		t.Errorf("idle() after the report = %t, urgent %t, want idle and not urgent", idle, urgent)
	}

	// A role that is too large, and a collection that is not complete.
	s.put(rbacRecord(t, "two", strings.Repeat("x", inventory.MaxAccessBytes)))
	b = s.begin(false)
	access, role = accessOf(t, b, "c1/two")
	if access == nil || access.Complete || access.Objects != 1 || role[inventory.Rules] != nil || role[omittedProperty] == nil {
		t.Errorf("AccessReport = %v and rules %v, omitted %v, want an incomplete report without the rules", access, role[inventory.Rules], role[omittedProperty])
	}
	s.applied()
	s.remove(clusterRoles, "c1/two")
	described = inventory.AccessReport{Reason: "denied"}
	b = s.begin(false)
	if access, _ = accessOf(t, b, ""); access == nil || access.Complete || access.Reason != "denied" || access.Objects != 1 {
		t.Errorf("AccessReport = %v, want an incomplete one with the reason and 1 object", access)
	}
	s.applied()

	s.accept(false)
	b = s.begin(true)
	if access, role = accessOf(t, b, "c1/one"); access != nil || role[inventory.Rules] != nil || b.resources != 1 {
		t.Errorf("report to a hub of an earlier release: %v and %v, want neither", access, role[inventory.Rules])
	}
}
