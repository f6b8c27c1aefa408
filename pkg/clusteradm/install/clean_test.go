package install

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// cleanedHub is a hub with an installation, and what clean does to it.
type cleanedHub struct {
	command *cleaning
	client  *dynamicfake.FakeDynamicClient
	out     bytes.Buffer
}

// deleted returns the deleted objects in their order.
func (h *cleanedHub) deleted() []string {
	var names []string
	for _, action := range h.client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
			names = append(names, deletion.GetResource().Resource+"/"+deletion.Name)
		}
	}
	return names
}

// newCleanedHub returns a hub with the manifests for the settings after a change, and with other objects.
func newCleanedHub(t *testing.T, settings hubSettings, change func(*unstructured.Unstructured), others ...*unstructured.Unstructured) *cleanedHub {
	t.Helper()
	settings.drivers = []registerv1alpha1.RegistrationDriver{registerv1alpha1.DriverCSR}
	objects, err := settings.objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() == manifests.KindNamespace {
			object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": cli.FieldManager})
		}
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: cli.FieldManager}, {Manager: "kube-controller-manager"}, {Manager: "other", Subresource: "status"}})
		change(object)
	}
	h := &cleanedHub{}
	kube, lists, groups := fake.NewClientset(), map[schema.GroupVersionResource]string{}, map[string]*metav1.APIResourceList{}
	resourceOf := func(object *unstructured.Unstructured) schema.GroupVersionResource {
		gvk := object.GroupVersionKind()
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		if lists[resource] == "" {
			lists[resource] = gvk.Kind + "List"
			if groups[resource.GroupVersion().String()] == nil {
				groups[resource.GroupVersion().String()] = &metav1.APIResourceList{GroupVersion: resource.GroupVersion().String()}
				kube.Resources = append(kube.Resources, groups[resource.GroupVersion().String()])
			}
			group := groups[resource.GroupVersion().String()]
			group.APIResources = append(group.APIResources, metav1.APIResource{Name: resource.Resource, Kind: gvk.Kind, Namespaced: object.GetNamespace() != "", Verbs: metav1.Verbs{"list", "delete"}})
		}
		return resource
	}
	objects = slices.Concat(objects, writtenByServer, others)
	for _, object := range objects {
		resourceOf(object)
	}
	for _, kind := range handover.Kinds {
		lists[kind.Resource] = kind.Name + "List"
	}
	h.client = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, object := range objects {
		if err := h.client.Tracker().Create(resourceOf(object), object.DeepCopy(), object.GetNamespace()); err != nil {
			t.Fatal(err)
		}
		if object.GetKind() == manifests.KindDeployment {
			deployment := &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
				t.Fatal(err)
			}
			if err := kube.Tracker().Add(deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	streams := genericiooptions.IOStreams{Out: &h.out, ErrOut: &h.out}
	h.command = &cleaning{initializing: newInitializing(cli.Environment{IOStreams: streams})}
	h.command.Clients = &cli.Clients{Kube: kube, Dynamic: h.client, APIServices: aggregatorfake.NewSimpleClientset().ApiregistrationV1().APIServices()}
	return h
}

func unchanged(*unstructured.Unstructured) {}

// TestCleanDeletesInOrder checks that no API of the hub waits for a server that is gone, that the settings stay until the
// end, and that a namespace with an object of others stays.
func TestCleanDeletesInOrder(t *testing.T) {
	h := newCleanedHub(t, newHubSettings(), unchanged, manifests.Named("v1", manifests.KindSecret, manifests.HubNamespace, "hub-apiserver-etcd"))
	if err := h.command.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := h.deleted()
	deployment := slices.Index(got, "deployments/hub-apiserver")
	want := []string{"deployments/hub-apiserver", "secrets/hub-apiserver-serving", "secrets/hub-apiserver-serving-ca", "leases/hub-apiserver-controllers", "leases/hub-apiserver-storage", "leases/hub-apiserver-search", "namespaces/open-cluster-management"}
	if deployment < 0 || !slices.Equal(got[deployment:], want) {
		t.Errorf("clean deletes %q, want the end %q", got, want)
	}
	services := slices.IndexFunc(got, func(name string) bool { return !strings.HasPrefix(name, "apiservices/") })
	if services < 10 || slices.ContainsFunc(got[services:], func(name string) bool { return strings.HasPrefix(name, "apiservices/") }) {
		t.Errorf("clean deletes %q, want all APIServices first", got)
	}
	for _, name := range []string{"persistentvolumeclaims/hub-apiserver", "clusterroles/open-cluster-management:hub-apiserver", "serviceaccounts/agent-registration-bootstrap"} {
		if !slices.Contains(got, name) {
			t.Errorf("clean deletes %q, want %s among them", got, name)
		}
	}
	if line := "namespace/open-cluster-management-hub stays: it contains secret/hub-apiserver-etcd in open-cluster-management-hub"; !strings.Contains(h.out.String(), line) {
		t.Errorf("clean prints %q, want %q", h.out.String(), line)
	}
}

// TestCleanKeepsObjectsOfOthers checks that clean deletes nothing that OCM or another program uses.
func TestCleanKeepsObjectsOfOthers(t *testing.T) {
	settings := newHubSettings()
	settings.existingOCM = true
	kept := map[string]string{
		"open-cluster-management:hub-apiserver:existing-ocm":  "clusterrole.rbac.authorization.k8s.io/open-cluster-management:hub-apiserver:existing-ocm stays: its field manager is also kubectl-edit",
		"open-cluster-management:managedcluster:registration": "clusterrole.rbac.authorization.k8s.io/open-cluster-management:managedcluster:registration stays: OCM needs it",
		"open-cluster-management:managedcluster:work":         "clusterrole.rbac.authorization.k8s.io/open-cluster-management:managedcluster:work stays: OCM needs it",
		"open-cluster-management-hub":                         "namespace/open-cluster-management-hub stays: clusteradm did not create it",
		"v1alpha1.search.open-cluster-management.io":          "",
	}
	h := newCleanedHub(t, settings, func(object *unstructured.Unstructured) {
		switch object.GetName() {
		case "open-cluster-management:hub-apiserver:existing-ocm":
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: cli.FieldManager}, {Manager: "kubectl-edit"}})
		case "open-cluster-management-hub":
			object.SetLabels(nil)
		case "v1alpha1.search.open-cluster-management.io":
			_ = unstructured.SetNestedField(object.Object, "other", "spec", "service", "name")
		}
	}, manifests.Named("apiextensions.k8s.io/v1", manifests.KindCRD, "", "managedclusters.cluster.open-cluster-management.io"))
	if err := h.command.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, line := range kept {
		if !strings.Contains(h.out.String(), line) {
			t.Errorf("clean prints %q, want %q", h.out.String(), line)
		}
		if slices.ContainsFunc(h.deleted(), func(deleted string) bool {
			return strings.HasSuffix(deleted, "/"+name) && !strings.HasPrefix(deleted, "clusterrolebindings/")
		}) {
			t.Errorf("clean deletes %q, want %s to stay", h.deleted(), name)
		}
	}
	if !slices.Contains(h.deleted(), "deployments/hub-apiserver") {
		t.Errorf("clean deletes %q, want the server among them", h.deleted())
	}
}

// TestCleanRefuses checks that clean deletes nothing without --yes while clusters depend on stored objects, nothing of a
// server that others manage, and nothing in a dry run.
func TestCleanRefuses(t *testing.T) {
	cluster := func(name string, accepted bool) *unstructured.Unstructured {
		object := manifests.Named("cluster.open-cluster-management.io/v1", handover.KindManagedCluster, "", name)
		object.Object["spec"] = map[string]any{"hubAcceptsClient": accepted}
		return object
	}
	stored := []*unstructured.Unstructured{cluster("c1", true), cluster("c2", false), manifests.Named("rbac.open-cluster-management.io/v1alpha1", handover.KindClusterPermission, "c1", "p")}
	helm := func(object *unstructured.Unstructured) {
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm"}})
	}
	for name, test := range map[string]struct {
		change      func(*unstructured.Unstructured)
		yes, dryRun bool
		stored      []*unstructured.Unstructured
		want        string
		deletes     bool
	}{
		"clusters":      {unchanged, false, false, stored, "1 accepted ManagedClusters, 1 ClusterPermissions. Run clusteradm unjoin", false},
		"clusters, yes": {unchanged, true, false, stored, "", true},
		"pending":       {unchanged, false, false, stored[1:2], "", true},
		"dry run":       {unchanged, false, true, stored, "", false},
		"Helm":          {helm, true, false, nil, "a field manager of the Deployment hub-apiserver in open-cluster-management-hub is also helm", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCleanedHub(t, newHubSettings(), test.change, test.stored...)
			h.command.yes, h.command.DryRun = test.yes, test.dryRun
			err := h.command.clean(t.Context())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("clean() = %v, want an error with %q", err, test.want)
			}
			if deletes := len(h.deleted()) > 0; deletes != test.deletes {
				t.Errorf("clean() deletes %q, want deletions: %t", h.deleted(), test.deletes)
			}
			if printed := strings.Contains(h.out.String(), "deployment.apps/hub-apiserver in open-cluster-management-hub would be deleted"); printed != test.dryRun {
				t.Errorf("clean() prints %q, want what would be deleted: %t", h.out.String(), test.dryRun)
			}
		})
	}
}
