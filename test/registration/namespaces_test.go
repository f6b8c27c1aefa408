package registration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// requires creates a cluster set, or replaces the managed namespaces of an existing one. If selector is
// nil, a new set contains the clusters with its label.
func (f *fleet) requires(t *testing.T, set string, selector *metav1.LabelSelector, namespaces ...string) {
	t.Helper()
	sets := f.OCM.ClusterV1beta2().ManagedClusterSets()
	framework.Eventually(t, "ManagedClusterSet "+set+" is written", func(ctx context.Context) error {
		object, err := sets.Get(ctx, set, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			object, err = &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: set}}, nil
			if selector != nil {
				object.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: selector}
			}
		}
		if err != nil {
			return err
		}
		object.Spec.ManagedNamespaces = nil
		for _, name := range namespaces {
			object.Spec.ManagedNamespaces = append(object.Spec.ManagedNamespaces, clusterv1beta2.ManagedNamespaceConfig{Name: name})
		}
		if missing {
			_, err = sets.Create(ctx, object, metav1.CreateOptions{})
		} else {
			_, err = sets.Update(ctx, object, metav1.UpdateOptions{})
		}
		return err
	})
}

func (f *fleet) moves(t *testing.T, cluster, set string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, clusterv1beta2.ClusterSetLabel, set)
	framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

// lists waits until the status of a cluster lists exactly these namespaces, each as <set>/<name>, and
// all of them are available.
func (f *fleet) lists(t *testing.T, cluster string, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("ManagedCluster %s lists the available namespaces %v", cluster, want), func(ctx context.Context) error {
		mc, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		var errs []error
		for _, namespace := range mc.Status.ManagedNamespaces {
			got = append(got, namespace.ClusterSet+"/"+namespace.Name)
			condition := meta.FindStatusCondition(namespace.Conditions, "NamespaceAvailable")
			if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != "NamespaceApplied" {
				errs = append(errs, fmt.Errorf("conditions of %s = %v", got[len(got)-1], namespace.Conditions))
			}
		}
		if !slices.Equal(got, want) {
			errs = append(errs, fmt.Errorf("managed namespaces = %v", got))
		}
		return errors.Join(errs...)
	})
}

// hubLabel returns the label of the hub on namespaces of the managed cluster. It contains the hash
// of the URL of the hub, as upstream agents compute it.
func (f *fleet) hubLabel(t *testing.T) string {
	t.Helper()
	secret := framework.Must(f.ManagedClient.CoreV1().Secrets(localhub.AgentNamespace).Get(t.Context(), "hub-kubeconfig-secret", metav1.GetOptions{}))(t)
	config := framework.Must(clientcmd.Load(secret.Data["kubeconfig"]))(t)
	sum := sha256.Sum256([]byte(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server))
	return "clusterset.open-cluster-management.io/" + hex.EncodeToString(sum[:])[:63]
}

// labelled waits until a label of a namespace of the managed cluster has a value.
func (f *fleet) labelled(t *testing.T, namespace, label, want string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("label %s of namespace %s is %q", label, namespace, want), func(ctx context.Context) error {
		live, err := f.ManagedClient.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && live.Labels[label] != want {
			err = fmt.Errorf("labels = %v", live.Labels)
		}
		return err
	})
}

// TestManagedNamespaces checks the life cycle of the managed namespaces of cluster sets on a
// cluster that has joined.
func TestManagedNamespaces(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration})
	label := f.hubLabel(t)
	namespaces := f.ManagedClient.CoreV1().Namespaces()
	framework.Must(namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "present", Labels: map[string]string{"team": "a"}}}, metav1.CreateOptions{}))(t)

	f.requires(t, "prod", nil, "shop", "present")
	f.requires(t, "everywhere", &metav1.LabelSelector{}, "monitoring", "shop")
	f.requires(t, "test", nil, "lab", "shop")
	f.moves(t, framework.Cluster1, "prod")
	f.lists(t, framework.Cluster1, "everywhere/monitoring", "everywhere/shop", "prod/present", "prod/shop")
	for _, name := range []string{"monitoring", "present", "shop"} {
		f.labelled(t, name, label, "true")
	}
	f.labelled(t, "present", "team", "a")

	// The agent reverts changes by other users of the cluster.
	framework.Must(namespaces.Patch(t.Context(), "present", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, label), metav1.PatchOptions{}))(t)
	f.labelled(t, "present", label, "true")
	before := framework.Must(namespaces.Get(t.Context(), "monitoring", metav1.GetOptions{}))(t)
	if err := namespaces.Delete(t.Context(), "monitoring", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "namespace monitoring is created again", func(ctx context.Context) error {
		live, err := namespaces.Get(ctx, "monitoring", metav1.GetOptions{})
		if err == nil && live.UID == before.UID {
			err = errors.New("the previous namespace still exists")
		}
		return err
	})
	f.lists(t, framework.Cluster1, "everywhere/monitoring", "everywhere/shop", "prod/present", "prod/shop")

	// If a set no longer requires a namespace, the namespace stays and its label becomes false. If
	// another set of the cluster still requires it, the label stays true.
	f.requires(t, "prod", nil, "bank")
	f.labelled(t, "present", label, "false")
	f.lists(t, framework.Cluster1, "everywhere/monitoring", "everywhere/shop", "prod/bank")
	f.labelled(t, "shop", label, "true")

	// The same applies if the cluster moves to another set, and if a set is deleted.
	f.moves(t, framework.Cluster1, "test")
	f.labelled(t, "bank", label, "false")
	f.lists(t, framework.Cluster1, "everywhere/monitoring", "everywhere/shop", "test/lab", "test/shop")
	if err := f.OCM.ClusterV1beta2().ManagedClusterSets().Delete(t.Context(), "everywhere", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.labelled(t, "monitoring", label, "false")
	f.lists(t, framework.Cluster1, "test/lab", "test/shop")

	// If the agent lacks the permission to create namespaces, the status reports the failure.
	for _, role := range []string{"namespaces", "apply"} {
		if err := f.ManagedClient.RbacV1().ClusterRoleBindings().Delete(t.Context(), "open-cluster-management:agent:"+role, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.requires(t, "test", nil, "lab", "refused")
	framework.Eventually(t, "namespace refused is reported as NamespaceApplyFailed", func(ctx context.Context) error {
		mc, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, namespace := range mc.Status.ManagedNamespaces {
			condition := meta.FindStatusCondition(namespace.Conditions, "NamespaceAvailable")
			if condition != nil && condition.Status == metav1.ConditionFalse && condition.Reason == "NamespaceApplyFailed" && namespace.Name == "refused" {
				return nil
			}
		}
		return fmt.Errorf("managed namespaces = %v", mc.Status.ManagedNamespaces)
	})
}

// publicNamespaces reports on managed namespaces as an upstream agent does: it patches the whole list.
// The hub accepts only the conditions of the namespaces that it requires.
func (h *awsHub) publicNamespaces(t *testing.T) {
	p := newPublicRegistration(t, h.Hub, "public-namespaces", bootstrapAccount(t, h.Hub))
	p.begin(t, nil)
	name, key := p.request(t, p.bootstrap)
	publicAccept(t, h.Hub, p.cluster)
	p.own, _ = p.certificate(t, p.bootstrap, name, key)
	framework.Eventually(t, "ManagedCluster "+p.cluster+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, p.cluster) })
	watched := p.own.watch(t, p.cluster)
	h.requires(t, "of-public", nil, "shop", "bank")
	h.moves(t, p.cluster, "of-public")
	wantListed(t, watched, "of-public/bank", "of-public/shop")

	applied := func(list []clusterv1.ClusterSetManagedNamespaceConfig) []clusterv1.ClusterSetManagedNamespaceConfig {
		for i := range list {
			meta.SetStatusCondition(&list[i].Conditions, metav1.Condition{
				Type: "NamespaceAvailable", Status: metav1.ConditionTrue, Reason: "NamespaceApplied", Message: "Namespace applied", LastTransitionTime: metav1.Now(),
			})
		}
		return list
	}
	p.own.patchStatus(t, watched, map[string]any{"managedNamespaces": applied(listOf(watched()))})
	wantListed(t, watched, "of-public/bank: True", "of-public/shop: True")

	// The list follows the set, and keeps the reported conditions.
	h.requires(t, "of-public", nil, "shop", "post")
	wantListed(t, watched, "of-public/post", "of-public/shop: True")

	// The agent can neither add namespaces to the list nor remove them, with any verb.
	p.own.patchStatus(t, watched, map[string]any{"managedNamespaces": applied([]clusterv1.ClusterSetManagedNamespaceConfig{
		{ClusterSet: "of-public", Name: "kube-system"}, {ClusterSet: "global", Name: "shop"}, {ClusterSet: "of-public", Name: "post"},
	}), "version": map[string]any{"kubernetes": "v1.34.1"}})
	wantListed(t, watched, "of-public/post: True", "of-public/shop: True")
	p.own.patchStatus(t, watched, map[string]any{"managedNamespaces": nil, "version": map[string]any{"kubernetes": "v1.34.2"}})
	framework.Eventually(t, "the agent updates the status without managedNamespaces", func(ctx context.Context) error {
		object := watched()
		if version, _, _ := unstructured.NestedString(object.Object, "status", "version", "kubernetes"); version != "v1.34.2" {
			return fmt.Errorf("Kubernetes version = %q, want v1.34.2", version)
		}
		unstructured.RemoveNestedField(object.Object, "status", "managedNamespaces")
		_, err := p.own.clusters().UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
	wantListed(t, watched, "of-public/post: True", "of-public/shop: True")

	h.moves(t, p.cluster, "default")
	wantListed(t, watched)
	h.deleted(t, p.cluster, watched)
}

func listOf(cluster *unstructured.Unstructured) []clusterv1.ClusterSetManagedNamespaceConfig {
	var typed clusterv1.ManagedCluster
	if cluster == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(cluster.Object, &typed) != nil {
		return nil
	}
	return typed.Status.ManagedNamespaces
}

// wantListed waits until a watched cluster lists exactly these namespaces, each as <set>/<name>,
// followed by the status of its condition if it has one.
func wantListed(t *testing.T, watched func() *unstructured.Unstructured, want ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the agent reads the managed namespaces %v", want), func(context.Context) error {
		var got []string
		for _, namespace := range listOf(watched()) {
			text := namespace.ClusterSet + "/" + namespace.Name
			if condition := meta.FindStatusCondition(namespace.Conditions, "NamespaceAvailable"); condition != nil {
				text += ": " + string(condition.Status)
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("managed namespaces = %v", got)
		}
		return nil
	})
}
