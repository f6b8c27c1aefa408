package work

import (
	"encoding/json"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
)

// TestInterceptorsWait checks that a webhook configuration waits for a manifest that it could refuse, but
// not for a manifest that may require the webhook.
func TestInterceptorsWait(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	noMatch := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Widget"}, SearchedVersions: []string{"v1"}}
	for name, test := range map[string]struct {
		// widget and definition are the errors of a custom resource and of its definition.
		widget, definition error
		version            string
		applied, want      bool
	}{
		"all applied":                   {version: "v1"},
		"kind not served yet":           {widget: noMatch, version: "v1", want: true},
		"kind not served, applied once": {widget: noMatch, version: "v1", applied: true},
		"version not defined":           {widget: noMatch, version: "v2"},
		"definition refused":            {widget: noMatch, version: "v1", definition: apierrors.NewForbidden(widgets, "w", errors.New("no"))},
		"refused by the cluster":        {widget: apierrors.NewForbidden(widgets, "w", errors.New("no")), version: "v1"},
		"conflict of managers":          {widget: apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "no"), version: "v1"},
		"unavailable":                   {widget: apierrors.NewServiceUnavailable("no"), version: "v1", want: true},
		"without namespace":             {widget: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n"), version: "v1", want: true},
		"being deleted":                 {widget: apply.ErrTerminating, version: "v1", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			crd := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"group":"example.com",
				"names":{"kind":"Widget","plural":"widgets"},"versions":[{"name":"`+test.version+`","served":true}]}}`), &crd.Object); err != nil {
				t.Fatal(err)
			}
			p := &pass{items: []*decide.Item{
				{Ordinal: 0, GVR: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}},
				{Ordinal: 1, GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}},
				{Ordinal: 2, GVR: crdResource, Object: crd},
			}}
			p.results = []status.Result{{}, {Err: test.widget}, {Err: test.definition}}
			if err := p.early(p.items[0], test.applied); (err != nil) != test.want {
				t.Errorf("early() = %v, want an error: %t", err, test.want)
			}
			if err := p.early(p.items[1], false); err != nil {
				t.Errorf("early() of the custom resource = %v, want nil", err)
			}
		})
	}
}
