package migrate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

// TestWebhooksReturn checks that a migration suspends the webhooks of OCM and no others, that a migration back leaves the
// configurations as they were, and that it names a configuration that it cannot change.
func TestWebhooksReturn(t *testing.T) {
	webhook := func(name, service string, conditions ...any) map[string]any {
		out := map[string]any{"name": name, "failurePolicy": "Fail", "clientConfig": map[string]any{"service": map[string]any{"namespace": "open-cluster-management-hub", "name": service}}}
		if conditions != nil {
			out["matchConditions"] = conditions
		}
		return out
	}
	config := func(kind string, webhooks ...any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"webhooks": webhooks}}
		object.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		object.SetName("ocm")
		return object
	}
	existing := map[string]any{"name": "existing", "expression": "true"}
	suspending := map[string]any{"name": suspension, "expression": "false"}
	original := map[string]*unstructured.Unstructured{
		"validatingwebhookconfigurations": config("ValidatingWebhookConfiguration", webhook("works", "cluster-manager-work-webhook", existing), webhook("other", "other")),
		"mutatingwebhookconfigurations":   config("MutatingWebhookConfiguration", webhook("clusters", "cluster-manager-registration-webhook", existing)),
	}
	suspended := map[string]*unstructured.Unstructured{
		"validatingwebhookconfigurations": config("ValidatingWebhookConfiguration", webhook("works", "cluster-manager-work-webhook", existing, suspending), webhook("other", "other")),
		"mutatingwebhookconfigurations":   config("MutatingWebhookConfiguration", webhook("clusters", "cluster-manager-registration-webhook", existing, suspending)),
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"): "ValidatingWebhookConfigurationList",
		admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"):   "MutatingWebhookConfigurationList",
	}, original["validatingwebhookconfigurations"].DeepCopy(), original["mutatingwebhookconfigurations"].DeepCopy())
	m := &migration{Clients: &cli.Clients{Dynamic: client}}
	stop := func() error { return errors.Join(m.stopControllers(t.Context()), m.suspendWebhooks(t.Context(), true)) }
	for _, step := range []struct {
		run  func() error
		want map[string]*unstructured.Unstructured
	}{
		{stop, suspended},
		{stop, suspended}, // an interrupted migration continues
		{func() error { return m.startControllers(t.Context()) }, original},
		{func() error { return m.startControllers(t.Context()) }, original},
	} {
		if err := step.run(); err != nil {
			t.Fatal(err)
		}
		for resource, want := range step.want {
			got, err := client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)).Get(t.Context(), "ocm", metav1.GetOptions{})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: error %v, (-want +got):\n%s", resource, err, diff)
			}
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	client.PrependReactor("update", "mutatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	if err := m.startControllers(t.Context()); err == nil || !strings.Contains(err.Error(), "mutatingwebhookconfigurations/ocm: refused") {
		t.Errorf("startControllers() with a configuration that cannot be changed = %v, want an error that names it", err)
	}
}
