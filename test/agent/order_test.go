package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// widgets is a custom resource of a test, with a webhook configuration that refuses all writes of it.
type widgets struct{ webhook, widget, definition string }

func (c *cluster) widgets(widget string) widgets {
	return widgets{
		webhook: `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: NS}, webhooks: [{
		  name: widgets.NS.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, timeoutSeconds: 1,
		  clientConfig: {url: "https://127.0.0.1:9/mutate"}, rules: [{apiGroups: [NS.example.com], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE], resources: ["*"]}]}]}`,
		widget: widget,
		definition: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.NS.example.com}, spec: {
		  group: NS.example.com, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
		  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}]}}`,
	}
}

func (c *cluster) widgetClient() dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: c.name + ".example.com", Version: "v1", Resource: "widgets"}).Namespace(c.name)
}

// testWebhookLast checks that a webhook configuration refuses no object of its own ManifestWork, neither
// when the ManifestWork is applied nor when it is removed.
func testWebhookLast(t *testing.T, c *cluster) {
	c.run()
	widget := `{apiVersion: NS.example.com/v1, kind: Widget, metadata: {name: a, namespace: NS}, spec: {size: 1}}`
	w := c.widgets(widget)
	name := c.create("", nil, w.webhook, w.widget, w.definition)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.replace(name, w.webhook, strings.ReplaceAll(widget, "size: 1", "size: 2"), w.definition)
	work := c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	if message := work.Status.Conditions[0].Message; !strings.Contains(message, "webhook") {
		t.Errorf("message = %q, want the refusal of the webhook", message)
	}
	c.delete(name)
	c.gone(name)
}

// testWebhookWithRefusedManifest checks that a webhook configuration is created although another
// manifest is refused, which may require the webhook.
func testWebhookWithRefusedManifest(t *testing.T, c *cluster) {
	c.run()
	w := c.widgets("")
	name := c.create("", nil, w.webhook, `{apiVersion: v1, kind: ConfigMap, metadata: {name: NS, namespace: NS}, data: {"not/a/key": x}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionFalse)
	eventually(t, "the webhook configuration exists", func(ctx context.Context) error {
		_, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, c.name, metav1.GetOptions{})
		return err
	})
	c.delete(name)
	c.gone(name)
}

// testFinalizerOfController checks that the controller of a custom resource stays until the custom
// resource of the same ManifestWork is deleted.
func testFinalizerOfController(t *testing.T, c *cluster) {
	c.run()
	w := c.widgets(`{apiVersion: NS.example.com/v1, kind: Widget, metadata: {name: a, namespace: NS, finalizers: [NS.example.com/controller]}}`)
	name := c.create("", nil, w.definition, w.widget, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: controller, namespace: NS}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: controller, namespace: NS}, spec: {selector: {matchLabels: {app: a}}, template: {
		  metadata: {labels: {app: a}}, spec: {serviceAccountName: controller, containers: [{name: one, image: "registry.example.com/one:1"}]}}}}`)
	c.condition(name, workv1.WorkApplied, metav1.ConditionTrue)
	c.delete(name)
	eventually(t, "the agent waits for the finalizer", func(ctx context.Context) error {
		widget, err := c.widgetClient().Get(ctx, "a", metav1.GetOptions{})
		if err == nil && widget.GetDeletionTimestamp() == nil {
			err = errors.New("the Widget is not being deleted")
		}
		if err != nil {
			return err
		}
		work, err := c.works().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDeleting); got == nil || !strings.Contains(got.Message, "still exist") {
			return fmt.Errorf("condition Deleting = %+v, want the remaining objects", got)
		}
		return nil
	})
	if _, err := c.kube.AppsV1().Deployments(c.name).Get(t.Context(), "controller", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(Deployment) before its custom resource is deleted = %v, want nil", err)
	}
	if _, err := c.widgetClient().Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.gone(name)
	if _, err := c.kube.AppsV1().Deployments(c.name).Get(t.Context(), "controller", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Deployment) after the removal = %v, want NotFound", err)
	}
}
