package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
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

// killAtStep runs clusteradm migrate, and kills it when it begins a step. It reports whether the step began.
func (h *ocmHub) killAtStep(t testing.TB, to string, step int) bool {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "clusteradm")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "migrate", "--to", to)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	began := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && strings.HasPrefix(fields[1], strconv.Itoa(step)+"/") {
			began = true
			break
		}
	}
	if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = command.Wait()
	return began
}

// TestMigration moves a hub from the CustomResourceDefinitions of OCM to the server and back, and kills clusteradm at
// each step.
func TestMigration(t *testing.T) {
	t.Parallel()
	const clusters, count = 4, 12
	h := newOCMHub(t)
	h.fill(t, clusters, count)
	const onSpoke = (count + clusters - 1) / clusters
	applied := h.delivered(t, onSpoke*6)
	h.tokensReported(t, onSpoke)
	before, err := h.hubObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addOn := h.addOn(t)

	h.run(t, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	h.ready(t, hubNamespace, 1)
	if role, err := h.kube.RbacV1().ClusterRoles().Get(t.Context(), "open-cluster-management:bootstrap", metav1.GetOptions{}); err != nil || !slices.Contains(role.Rules[0].Verbs, "list") {
		t.Errorf("ClusterRole of agents of OCM that join, after init = %v, %v, want the rules of OCM", role.Rules, err)
	}
	if _, err := h.kube.RbacV1().ClusterRoleBindings().Get(t.Context(), "open-cluster-management:bootstrap", metav1.GetOptions{}); err != nil {
		t.Errorf("ClusterRoleBinding of tokens of the server, after init = %v, want it", err)
	}
	h.refusesInvalid(t)
	t.Log(h.run(t, "clusteradm", "migrate", "--to", "server", "--dry-run"))

	stop := h.watchConsistency(t, before)
	for step := 1; h.killAtStep(t, "server", step); step++ {
		h.sameOnSpoke(t, applied)
	}
	h.run(t, "clusteradm", "migrate", "--to", "server")
	t.Logf("moved to the server, with %d consistent reads meanwhile", stop())
	h.sameOnSpoke(t, applied)

	if diff := cmp.Diff(addOn, h.addOn(t)); diff != "" {
		t.Errorf("ManagedClusterAddOn in the server (-want +got):\n%s", diff)
	}
	// The server works: it renders, the agent applies, and the account gets a token.
	h.create(t, "clusterpermissions", grant(migratedCluster, "late"))
	h.create(t, "managedserviceaccounts", account(migratedCluster, "late"))
	applied = h.grown(t, applied, 5)
	h.tokensReported(t, onSpoke+1)
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 0 {
		t.Errorf("replicas of the controller of OCM = %d, want 0", replicas)
	}
	if _, err := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "manifestworkvalidators", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ValidatingWebhookConfiguration) = %v, want NotFound", err)
	}
	token := h.secret(t, "late")
	hostile := h.hostileWorks(t)
	h.refusesTerminating(t)
	t.Log(h.run(t, "clusteradm", "migrate", "--to", "crds", "--dry-run"))

	stop = h.watchConsistency(t, before)
	for step := 1; h.killAtStep(t, "crds", step); step++ {
		h.sameOnSpoke(t, withoutVersions(applied, "late"))
	}
	h.run(t, "clusteradm", "migrate", "--to", "crds")
	t.Logf("moved back, with %d consistent reads meanwhile", stop())
	h.sameOnSpoke(t, withoutVersions(applied, "late"))
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 2 {
		t.Errorf("replicas of the controller of OCM = %d, want 2", replicas)
	}
	if _, err := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "manifestworkvalidators", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ValidatingWebhookConfiguration) = %v, want none", err)
	}
	if err := h.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "manifestworkvalidators", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(addOn, h.addOn(t)); diff != "" {
		t.Errorf("ManagedClusterAddOn after the migration back (-want +got):\n%s", diff)
	}
	// OCM accepts a cluster without the annotation, if it accepts clusters automatically.
	if cluster, err := h.objects.Resource(resourceOf("managedclusters")).Get(t.Context(), deniedCluster, metav1.GetOptions{}); err != nil || cluster.GetAnnotations()["open-cluster-management.io/automatically-accepted-on"] == "" {
		t.Errorf("annotations of a denied cluster after the migration back = %v, %v, want the one that keeps OCM from accepting it", cluster.GetAnnotations(), err)
	}
	h.keepsNewObjects(t, token)
	h.keepsHostile(t, hostile)
	// The agent follows the CustomResourceDefinitions again.
	h.create(t, "manifestworks", work(migratedCluster, "late2"))
	h.grown(t, applied, 1)
	permission, err := h.objects.Resource(resourceOf("clusterpermissions")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.objects.Resource(resourceOf("manifestworks")).Namespace(migratedCluster).Delete(t.Context(), "late-"+string(permission.GetUID())[:5], metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete(ManifestWork) with the name that the controller of OCM expects = %v, want none", err)
	}
	await.Eventually(t, "the agent removes the objects of the ClusterPermission", func(ctx context.Context) error {
		got, err := h.spokeObjects(ctx)
		for name := range got {
			if strings.Contains(name, "role") && strings.HasSuffix(name, "/late") {
				err = errors.Join(err, errors.New(name+" exists"))
			}
		}
		return err
	})

	// The other way again, without a way back.
	applied, err = h.spokeObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.run(t, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	deletions := h.watchDeletions(t)
	h.run(t, "clusteradm", "migrate", "--to", "server")
	if before, err = h.hubObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.run(t, "clusteradm", "migrate", "--to", "server", "--delete-crds")
	// The garbage collector would delete the dependents of such objects.
	if deleted := deletions(); len(deleted) > 0 {
		t.Errorf("objects that a watch of the CustomResourceDefinitions reports as deleted = %v, want none", deleted)
	}
	h.create(t, "manifestworks", work(migratedCluster, "late3"))
	// The server also delivers the ClusterPermission again, whose ManifestWork was deleted.
	h.grown(t, applied, 5)
	after, err := h.hubObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if missing := lost(before, after); len(missing) > 0 {
		t.Errorf("objects on the hub after the CustomResourceDefinitions are deleted: %s", strings.Join(missing, "; "))
	}
}

// refusesInvalid checks that a dry run reports an object that the server refuses, and changes nothing.
func (h *ocmHub) refusesInvalid(t testing.TB) {
	t.Helper()
	invalid := account(migratedCluster, "invalid")
	invalid["spec"] = map[string]any{"rotation": map[string]any{"enabled": true, "validity": "1s"}}
	h.create(t, "managedserviceaccounts", invalid)
	for _, args := range [][]string{{"--dry-run"}, nil} {
		out, err := h.try(t, "clusteradm", append([]string{"migrate", "--to", "server"}, args...)...)
		if err == nil || !strings.Contains(out, "invalid in cluster1") || !strings.Contains(out, "spec.rotation.validity") {
			t.Errorf("clusteradm migrate --to server %q = %v, want an error with the path of the field:\n%s", args, err, out)
		}
	}
	if err := h.objects.Resource(resourceOf("managedserviceaccounts")).Namespace(migratedCluster).Delete(t.Context(), "invalid", metav1.DeleteOptions{}); err != nil {
		t.Errorf("Delete() after a refused migration = %v, want none", err)
	}
	if replicas := h.replicasOf(t, "open-cluster-management", "cluster-permission"); replicas != 2 {
		t.Errorf("replicas of the controller of OCM after a refused migration = %d, want 2", replicas)
	}
}

// keepsNewObjects checks the account and its token that were created in the server.
func (h *ocmHub) keepsNewObjects(t testing.TB, token *corev1.Secret) {
	t.Helper()
	late, err := h.objects.Resource(resourceOf("managedserviceaccounts")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret := h.secret(t, "late")
	if secret.UID != token.UID || string(secret.Data["token"]) != string(token.Data["token"]) {
		t.Errorf("Secret of the account = UID %s, want the one from before, UID %s, with the same token", secret.UID, token.UID)
	}
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != late.GetUID() {
		t.Errorf("owners of the Secret = %v, want the account with UID %s", secret.OwnerReferences, late.GetUID())
	}
}

// refusesTerminating checks that a migration back names an object that its CustomResourceDefinition refuses, before it refuses
// writes or stops anything.
func (h *ocmHub) refusesTerminating(t testing.TB) {
	t.Helper()
	const namespace = "terminating"
	if _, err := h.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object := work(namespace, "stays")
	object["metadata"].(map[string]any)["finalizers"] = []any{"example.com/stays"}
	h.create(t, "manifestworks", object)
	if err := h.kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err := h.try(t, "clusteradm", "migrate", "--to", "crds")
	if err == nil || !strings.Contains(out, "stays in "+namespace+": ") || strings.Contains(out, "refuse writes") {
		t.Errorf("clusteradm migrate --to crds with an object in a terminating namespace = %v, want an error that names it, before writes are refused:\n%s", err, out)
	}
	if replicas := h.replicasOf(t, hubNamespace, "hub-apiserver"); replicas != 1 {
		t.Errorf("replicas of the server after a refused migration = %d, want 1", replicas)
	}
	// Writes are accepted.
	works := h.objects.Resource(resourceOf("manifestworks")).Namespace(namespace)
	if _, err := works.Patch(t.Context(), "stays", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("Patch() after a refused migration = %v, want none", err)
	}
	await.Eventually(t, "the object is gone", func(ctx context.Context) error {
		if _, err := works.Get(ctx, "stays", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get() = %w", err)
		}
		return nil
	})
}

// hostileWorks creates ManifestWorks that tenants may create, and that would end a migration or make it replace others. It
// returns their names.
func (h *ocmHub) hostileWorks(t testing.TB) []string {
	t.Helper()
	annotate := func(name string, annotations map[string]any) {
		object := work(migratedCluster, name)
		object["metadata"].(map[string]any)["annotations"] = annotations
		h.create(t, "manifestworks", object)
	}
	annotate("pinned", map[string]any{"migration.open-cluster-management.io/successor": "nothing"})
	annotate("owned", map[string]any{"migration.open-cluster-management.io/owner": "x"})
	annotate("replaced", map[string]any{"migration.open-cluster-management.io/successor": "other"})
	annotate("other", nil)
	// The first ManifestWork of the hub, to which no annotation can be added.
	full := map[string]any{}
	for i := range 256 {
		full[fmt.Sprintf("example.com/%d", i)] = ""
	}
	annotate("a-full", full)
	permission, err := h.objects.Resource(resourceOf("clusterpermissions")).Namespace(migratedCluster).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object := work(migratedCluster, "claim")
	object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
		"apiVersion": permission.GetAPIVersion(), "kind": permission.GetKind(), "name": permission.GetName(), "uid": string(permission.GetUID()), "controller": true,
	}}
	h.create(t, "manifestworks", object)
	return []string{"pinned", "owned", "replaced", "other", "a-full", "claim"}
}

// keepsHostile checks that a migration has neither changed nor deleted ManifestWorks.
func (h *ocmHub) keepsHostile(t testing.TB, names []string) {
	t.Helper()
	for _, name := range names {
		got, err := h.objects.Resource(resourceOf("manifestworks")).Namespace(migratedCluster).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("Get(ManifestWork %s) after the migration = %v, want none", name, err)
			continue
		}
		if option, found, _ := unstructured.NestedMap(got.Object, "spec", "deleteOption"); found || got.GetDeletionTimestamp() != nil {
			t.Errorf("ManifestWork %s after the migration = deleteOption %v, deleted at %v, want neither", name, option, got.GetDeletionTimestamp())
		}
	}
	records, err := h.kube.CoreV1().ConfigMaps(hubNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records.Items {
		if strings.HasPrefix(record.Name, "hub-apiserver-migration-successors") {
			t.Errorf("ConfigMap %s after the migration = %v, want none", record.Name, record.Data)
		}
	}
}

// BenchmarkMigration measures a migration to the server and back: 100 clusters, 1,000 ClusterPermissions, 1,000 accounts
// and 2,000 ManifestWorks.
func BenchmarkMigration(b *testing.B) {
	const clusters, count = 100, 1000
	h := newOCMHub(b)
	// A loaded machine must show in the figures, and not end the measurement.
	h.limit = 15 * time.Minute
	h.fill(b, clusters, count)
	applied := h.delivered(b, count/clusters*6)
	h.tokensReported(b, count/clusters)
	before, err := h.hubObjects(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	h.run(b, "clusteradm", "init", "--before-migration", "--wait", "--csr-probe-timeout=0")
	for _, to := range []string{"server", "crds"} {
		begin := time.Now()
		h.run(b, "clusteradm", "migrate", "--to", to, "--dry-run")
		b.ReportMetric(time.Since(begin).Seconds(), "s-dry-run-to-"+to)
		stop := h.watchConsistency(b, before)
		begin = time.Now()
		out := h.run(b, "clusteradm", "migrate", "--to", to)
		b.ReportMetric(time.Since(begin).Seconds(), "s-to-"+to)
		b.Logf("%d consistent reads during\n%s", stop(), out)
		h.sameOnSpoke(b, applied)
	}
}

// sameOnSpoke fails if an object on the managed cluster was touched.
func (h *ocmHub) sameOnSpoke(t testing.TB, want map[string]identity) {
	t.Helper()
	got, err := h.spokeObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if found := got[name]; want[name].version == "" {
			got[name] = identity{uid: found.uid}
		}
	}
	if touched := lost(want, got); len(touched) > 0 {
		t.Fatalf("objects on the managed cluster: %s", strings.Join(touched, "; "))
	}
}

// withoutVersions returns objects, of which those whose name begins with a prefix may have another version.
func withoutVersions(objects map[string]identity, prefix string) map[string]identity {
	out := maps.Clone(objects)
	for name := range out {
		if strings.Contains(name, "/"+prefix) {
			out[name] = identity{uid: out[name].uid}
		}
	}
	return out
}

// grown waits until the managed cluster has more objects, and checks that the others are the same.
func (h *ocmHub) grown(t testing.TB, before map[string]identity, more int) map[string]identity {
	t.Helper()
	after := h.delivered(t, len(before)+more)
	h.sameOnSpoke(t, withoutVersions(before, "late"))
	return after
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
