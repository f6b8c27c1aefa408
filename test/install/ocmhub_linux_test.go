package install

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	migratedCluster  = "cluster1"
	deniedCluster    = "denied"
	accountNamespace = "open-cluster-management-agent-addon"
)

// ocmHub is a hub that runs OCM, with a managed cluster.
type ocmHub struct {
	*site
	managed *site
	objects dynamic.Interface
	onSpoke dynamic.Interface
}

// newOCMHub starts a hub whose CustomResourceDefinitions store everything, and one managed cluster with an agent.
func newOCMHub(t testing.TB) *ocmHub {
	t.Helper()
	framework.Slots(t, 2)
	h := &ocmHub{site: newSite(t, "hub", nil)}
	h.managed = newSite(t, migratedCluster, nil)
	client := func(config *rest.Config) dynamic.Interface {
		config = rest.CopyConfig(config)
		config.QPS = -1
		out, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	h.objects, h.onSpoke = client(h.AdminConfig()), client(h.managed.AdminConfig())
	definitions := framework.OCMDefinitions(t)
	framework.ConvertAddOns(t, definitions)
	framework.Apply(t, h.Cluster, definitions...)
	await.Eventually(t, "the hub serves the CustomResourceDefinitions", func(ctx context.Context) error {
		for _, kind := range framework.OCMKinds {
			if _, err := h.objects.Resource(resourceOf(kind.Resource)).List(ctx, metav1.ListOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err := localhub.JoinAsOCM(t.Context(), h.Cluster, migratedCluster); err != nil {
		t.Fatal(err)
	}
	// An agent of OCM that joins needs all of this. An installation of the server must leave it, and needs no --yes for it.
	h.apply(t, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "open-cluster-management:bootstrap"},
"rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get", "list", "watch"]}]}`)
	// The add-on manager grants this to the agents of accounts.
	h.apply(t, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"namespace": "cluster1", "name": "managed-serviceaccount-addon-agent"},
"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "update"]}]}`)
	h.apply(t, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"namespace": "cluster1", "name": "managed-serviceaccount-addon-agent"},
"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "managed-serviceaccount-addon-agent"},
"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:open-cluster-management:cluster1"}]}`)
	agent, err := localhub.NewAgent(localhub.AgentOptions{Hub: h.Cluster, Managed: h.managed.Cluster, ClusterName: migratedCluster, Dir: filepath.Join(h.dir, "agent"), LogDir: h.dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			events, _, _ := localhub.ReadAudit(h.AuditLog(), 0)
			for _, event := range events {
				if event.ObjectRef != nil && event.Verb == "delete" && event.ObjectRef.Resource == "secrets" || event.ObjectRef != nil && event.ObjectRef.Resource == "leases" && event.ObjectRef.Name == "hub-apiserver" && event.Verb != "get" {
					t.Logf("%s %s %s %s %s by %s", event.StageTimestamp.Format("15:04:05.000"), event.Stage, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Name, event.User.Username)
				}
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if err := agent.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return h
}

// resourceOf returns a resource of framework.OCMKinds by its name.
func resourceOf(name string) schema.GroupVersionResource {
	for _, kind := range framework.OCMKinds {
		if kind.Resource == name {
			return schema.GroupVersionResource{Group: kind.Group + ".open-cluster-management.io", Version: kind.Version, Resource: name}
		}
	}
	panic("unknown resource " + name)
}

func (h *ocmHub) create(t testing.TB, resource string, object map[string]any) *unstructured.Unstructured {
	t.Helper()
	out, err := h.createObject(t.Context(), resource, object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *ocmHub) createObject(ctx context.Context, resource string, object map[string]any) (*unstructured.Unstructured, error) {
	content := &unstructured.Unstructured{Object: object}
	for _, kind := range framework.OCMKinds {
		if kind.Resource == resource {
			content.SetAPIVersion(resourceOf(resource).GroupVersion().String())
			content.SetKind(kind.Kind)
		}
	}
	return h.objects.Resource(resourceOf(resource)).Namespace(content.GetNamespace()).Create(ctx, content, metav1.CreateOptions{})
}

func named(namespace, name string) map[string]any {
	return map[string]any{"namespace": namespace, "name": name}
}

func grant(namespace, name string) map[string]any {
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"get"}}}
	return map[string]any{"metadata": named(namespace, name), "spec": map[string]any{
		"clusterRole":        map[string]any{"rules": rules},
		"clusterRoleBinding": map[string]any{"subject": map[string]any{"apiGroup": rbacv1.GroupName, "kind": "User", "name": "alice"}},
		"roles":              []any{map[string]any{"namespace": "default", "rules": rules}},
		"roleBindings": []any{map[string]any{
			"namespace": "default", "roleRef": map[string]any{"kind": "Role"}, "subject": map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Group", "name": "developers"},
		}},
	}}
}

func account(namespace, name string) map[string]any {
	return map[string]any{"metadata": named(namespace, name), "spec": map[string]any{"rotation": map[string]any{"enabled": true, "validity": "24h0m0s"}}}
}

func work(namespace, name string) map[string]any {
	return map[string]any{"metadata": named(namespace, name), "spec": map[string]any{"workload": map[string]any{"manifests": []any{
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": name}, "data": map[string]any{"name": name, "empty": ""}},
	}}}}
}

// deliver writes the ManifestWork of a ClusterPermission, as the controller of OCM does.
func (h *ocmHub) deliver(ctx context.Context, permission *unstructured.Unstructured) error {
	cp := &rbacv1alpha1.ClusterPermission{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(permission.Object, cp); err != nil {
		return err
	}
	result, errs := render.Render(cp, render.Inputs{})
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cp.Namespace, Name: render.WorkName(cp),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cp, rbacv1alpha1.SchemeGroupVersion.WithKind("ClusterPermission"))},
		},
		Spec: result.Work.Spec,
	})
	if err != nil {
		return err
	}
	delete(content, "status")
	_, err = h.createObject(ctx, "manifestworks", content)
	return err
}

// fill creates objects of each kind: count ClusterPermissions, accounts, and twice as many ManifestWorks, in all
// clusters. Only the first cluster has an agent.
func (h *ocmHub) fill(t testing.TB, clusters, count int) {
	t.Helper()
	h.create(t, "managedclustersets", map[string]any{"metadata": map[string]any{"name": "north"}, "spec": map[string]any{
		"clusterSelector": map[string]any{"selectorType": "LabelSelector", "labelSelector": map[string]any{"matchLabels": map[string]any{"region": "north"}}},
	}})
	h.create(t, "managedclustersetbindings", map[string]any{"metadata": named(migratedCluster, "north"), "spec": map[string]any{"clusterSet": "north"}})
	addOn := h.create(t, "clustermanagementaddons", map[string]any{"metadata": map[string]any{"name": "example"}, "spec": map[string]any{
		"addOnMeta": map[string]any{"displayName": "Example"}, "installStrategy": map[string]any{"type": "Manual"},
	}})
	h.create(t, "managedclusteraddons", map[string]any{
		"metadata": map[string]any{"namespace": migratedCluster, "name": "example", "ownerReferences": []any{map[string]any{
			"apiVersion": addOn.GetAPIVersion(), "kind": addOn.GetKind(), "name": addOn.GetName(), "uid": string(addOn.GetUID()),
		}}}, "spec": map[string]any{"installNamespace": "default"},
	})
	// A registration differs most between the versions of add-ons.
	if _, err := h.objects.Resource(resourceOf("managedclusteraddons")).Namespace(migratedCluster).Patch(t.Context(), "example", types.MergePatchType, []byte(`{"status": {"registrations": [
{"signerName": "kubernetes.io/kube-apiserver-client", "subject": {"user": "agent", "groups": ["agents"]}}, {"signerName": "example.com/signer", "subject": {"user": "agent"}}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	h.create(t, "addondeploymentconfigs", map[string]any{"metadata": named(migratedCluster, "example"), "spec": map[string]any{
		"customizedVariables": []any{map[string]any{"name": "LOG_LEVEL", "value": "2"}},
	}})
	h.create(t, "managedclusters", map[string]any{
		"metadata": map[string]any{"name": deniedCluster, "annotations": map[string]any{"register.open-cluster-management.io/requested-by": "mallory"}},
		"spec":     map[string]any{"hubAcceptsClient": false},
	})
	if _, err := h.objects.Resource(resourceOf("managedclusters")).Patch(t.Context(), deniedCluster, types.MergePatchType, []byte(`{"status": {"conditions": [
{"type": "HubAcceptedManagedCluster", "status": "False", "reason": "HubClusterAdminDenied", "message": "Denied by hub cluster admin", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := 2; i <= clusters; i++ {
		group.Go(func() error {
			name := "cluster" + strconv.Itoa(i)
			if _, err := h.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				return err
			}
			_, err := h.createObject(ctx, "managedclusters", map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"hubAcceptsClient": true, "leaseDurationSeconds": int64(60)}})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	group, ctx = errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range count {
		namespace, name := "cluster"+strconv.Itoa(i%clusters+1), "item"+strconv.Itoa(i)
		group.Go(func() error {
			permission, err := h.createObject(ctx, "clusterpermissions", grant(namespace, name))
			if err != nil {
				return err
			}
			if err := h.deliver(ctx, permission); err != nil {
				return err
			}
			if _, err := h.createObject(ctx, "managedserviceaccounts", account(namespace, name)); err != nil {
				return err
			}
			_, err = h.createObject(ctx, "manifestworks", work(namespace, name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	// OCM's controller and its webhook.
	if _, err := h.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.apply(t, `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "open-cluster-management", "name": "cluster-permission"}, "spec": {"replicas": 2, "paused": true,
"selector": {"matchLabels": {"app": "cluster-permission"}}, "template": {"metadata": {"labels": {"app": "cluster-permission"}}, "spec": {"containers": [{"name": "controller", "image": "none"}]}}}}`)
	h.apply(t, `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "manifestworkvalidators"}, "webhooks": [{"name": "works.example.com",
"clientConfig": {"service": {"namespace": "open-cluster-management-hub", "name": "cluster-manager-work-webhook"}}, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
"rules": [{"apiGroups": ["work.open-cluster-management.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["manifestworks"]}]}]}`)
}

// addOn returns what the versions of a ManagedClusterAddOn spell differently, by version.
func (h *ocmHub) addOn(t testing.TB) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		object, err := h.objects.Resource(resourceOf("managedclusteraddons").GroupResource().WithVersion(version)).Namespace(migratedCluster).Get(t.Context(), "example", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		registrations, _, _ := unstructured.NestedSlice(object.Object, "status", "registrations")
		out[version] = map[string]any{"annotations": object.GetAnnotations(), "spec": object.Object["spec"], "registrations": registrations}
	}
	return out
}

// identity is what must not change in a migration: the UID and, on a managed cluster, the version.
type identity struct {
	uid     types.UID
	version string
}

// spokeObjects returns everything on the managed cluster that the hub has delivered.
func (h *ocmHub) spokeObjects(ctx context.Context) (map[string]identity, error) {
	out := map[string]identity{}
	for _, resource := range []schema.GroupVersionResource{
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
		rbacv1.SchemeGroupVersion.WithResource("roles"), rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
		corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	} {
		list, err := h.onSpoke.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			if strings.HasPrefix(item.GetName(), "item") || strings.HasPrefix(item.GetName(), "late") {
				out[resource.Resource+" "+item.GetNamespace()+"/"+item.GetName()] = identity{item.GetUID(), item.GetResourceVersion()}
			}
		}
	}
	return out, nil
}

// hubObjects returns the UIDs of all objects on the hub, and of the Secrets of accounts.
func (h *ocmHub) hubObjects(ctx context.Context) (map[string]identity, error) {
	out := map[string]identity{}
	add := func(resource schema.GroupVersionResource, options metav1.ListOptions) error {
		list, err := h.objects.Resource(resource).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for _, item := range list.Items {
			out[resource.Resource+" "+item.GetNamespace()+"/"+item.GetName()] = identity{uid: item.GetUID()}
		}
		return nil
	}
	for _, kind := range framework.OCMKinds {
		if err := add(resourceOf(kind.Resource), metav1.ListOptions{}); err != nil {
			return nil, err
		}
	}
	err := add(corev1.SchemeGroupVersion.WithResource("secrets"), metav1.ListOptions{LabelSelector: "authentication.open-cluster-management.io/is-managed-serviceaccount=true"})
	return out, err
}

// watchConsistency lists the ManifestWorks and accounts of the cluster again and again, and reports an error as soon
// as one is missing or has another UID. It returns a function that stops it.
func (h *ocmHub) watchConsistency(t testing.TB, want map[string]identity) (stop func() (reads int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	reads := 0
	running.Go(func() {
		for ctx.Err() == nil {
			got, err := h.hubObjects(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Errorf("List() during the migration = %v, want no error", err)
				return
			}
			if missing := lost(want, got); len(missing) > 0 {
				t.Errorf("objects on the hub during the migration: %s", strings.Join(missing, "; "))
				return
			}
			reads++
		}
	})
	return func() int {
		cancel()
		running.Wait()
		return reads
	}
}

// watchDeletions watches all objects. The returned function waits until the hub has ended the watches, and returns the
// objects that they reported as deleted.
func (h *ocmHub) watchDeletions(t testing.TB) (deleted func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+2*await.Patience)
	var watches []watch.Interface
	for _, kind := range framework.OCMKinds {
		open, err := h.objects.Resource(resourceOf(kind.Resource)).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, open)
	}
	return func() (out []string) {
		defer cancel()
		for _, open := range watches {
			for event := range open.ResultChan() {
				if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
					out = append(out, object.GetKind()+" "+object.GetName())
				}
			}
		}
		if ctx.Err() != nil {
			t.Error("watches are open, want the hub to end them")
		}
		return out
	}
}

// lost returns the objects of want that got lacks or has with another identity.
func lost(want, got map[string]identity) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch found, ok := got[name]; {
		case !ok:
			out = append(out, name+" is missing")
		case found != want[name]:
			out = append(out, fmt.Sprintf("%s = %v, want %v", name, found, want[name]))
		}
	}
	return out[:min(len(out), 10)]
}

// delivered waits until the managed cluster has everything, and returns it.
func (h *ocmHub) delivered(t testing.TB, want int) map[string]identity {
	t.Helper()
	var objects map[string]identity
	await.Eventually(t, "the managed cluster has everything", func(ctx context.Context) (err error) {
		if objects, err = h.spokeObjects(ctx); err != nil {
			return err
		}
		if len(objects) != want {
			return fmt.Errorf("objects = %d, want %d", len(objects), want)
		}
		return nil
	})
	return objects
}

// tokensReported waits until the accounts of the cluster have Secrets.
func (h *ocmHub) tokensReported(t testing.TB, want int) {
	t.Helper()
	await.Eventually(t, "tokens are reported", func(ctx context.Context) error {
		list, err := h.kube.CoreV1().Secrets(migratedCluster).List(ctx, metav1.ListOptions{LabelSelector: "authentication.open-cluster-management.io/is-managed-serviceaccount=true"})
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("Secrets of accounts = %d, want %d", len(list.Items), want)
		}
		return err
	})
}

func (h *ocmHub) replicasOf(t testing.TB, namespace, name string) int32 {
	t.Helper()
	deployment, err := h.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *deployment.Spec.Replicas
}

func (h *ocmHub) secret(t testing.TB, name string) *corev1.Secret {
	t.Helper()
	secret, err := h.kube.CoreV1().Secrets(migratedCluster).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}
