package permission

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// moves is the number of consecutive moves of an account. The upstream controller renders a previous
// namespace after nearly half of them.
const moves = 12

// whereTo returns the namespace of an account after a move.
func whereTo(move int) string { return fmt.Sprintf("moved-%d", move) }

func inNamespace(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// TestAccountThatMovesFast checks defect 4 for our own agents: after fast moves, the binding refers
// to the ServiceAccount that was reported last.
func TestAccountThatMovesFast(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "fast-account"
	cluster := f.SilentCluster(t)
	framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, name))
	f.ReportAccount(t, cluster, name, framework.PlacedIn("where-it-begins", name))
	like := framework.PermissionForAccount(cluster, name, name)
	cp := framework.CreatePermission(t, f.OCM, like)
	f.rendersSubject(t, cp, inNamespace("where-it-begins", name))
	for i := range moves {
		f.ReportAccount(t, cluster, name, framework.PlacedIn(whereTo(i), name))
	}
	f.rendersSubject(t, cp, inNamespace(whereTo(moves-1), name))
	f.lookedAgain(t, like)
	f.rendersNow(t, cp, inNamespace(whereTo(moves-1), name))
}

var addonResource = addonv1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons")

// addOnMovesFast checks defect 4 for agents of the upstream add-on, which do not report the
// namespace of their ServiceAccounts. If the ManagedClusterAddOn exists, one of two fields contains
// it.
func (o *overlaid) addOnMovesFast(t *testing.T) {
	ctx, hub, f := t.Context(), o.cluster, o.fleet
	const name = "fast-addon"
	framework.Apply(t, hub, framework.CRD(t, "test", "clusterclient", "testdata", "managedserviceaccounts.crd.yaml"),
		framework.CRD(t, "test", "permission", "testdata", "managedclusteraddons.crd.yaml"))
	reported := framework.NewAccount(framework.Cluster1, name)
	reported.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: name, LastRefreshTimestamp: metav1.Now()}
	framework.Eventually(t, "ManagedServiceAccount "+name+" is created", func(ctx context.Context) error {
		_, err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(ctx, reported, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the response to an earlier attempt was lost
		}
		return err
	})
	like := framework.PermissionForAccount(framework.Cluster1, name, name)
	cp := framework.CreatePermission(t, f.OCM, like)
	const noAddon = "the cluster does not have the add-on managed-serviceaccount"
	f.undelivered(t, framework.Cluster1, name, noAddon)
	f.rendersSubject(t, cp)

	addons := framework.Must(dynamic.NewForConfig(hub.AdminConfig()))(t).Resource(addonResource).Namespace(framework.Cluster1)
	addon := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": addonResource.GroupVersion().String(), "kind": "ManagedClusterAddOn",
		"metadata": map[string]any{"name": "managed-serviceaccount"},
	}}
	framework.Must(addons.Create(ctx, addon, metav1.CreateOptions{}))(t)
	f.rendersSubject(t, cp, inNamespace(framework.AccountsNamespace, name))

	patch := func(field, namespace string, subresources ...string) {
		t.Helper()
		content := fmt.Sprintf(`{%q:{%q:%q}}`, map[bool]string{true: "status", false: "spec"}[len(subresources) > 0], field, namespace)
		framework.Must(addons.Patch(ctx, "managed-serviceaccount", types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...))(t)
	}
	patch("installNamespace", "chosen")
	f.rendersSubject(t, cp, inNamespace("chosen", name))
	for i := range moves {
		patch("namespace", whereTo(i), "status")
	}
	f.rendersSubject(t, cp, inNamespace(whereTo(moves-1), name))
	f.lookedAgain(t, like)
	f.rendersNow(t, cp, inNamespace(whereTo(moves-1), name))
	patch("installNamespace", "no-longer-asked")
	f.lookedAgain(t, like)
	f.rendersNow(t, cp, inNamespace(whereTo(moves-1), name))

	if err := addons.Delete(ctx, "managed-serviceaccount", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.rendersSubject(t, cp)
	f.undelivered(t, framework.Cluster1, name, noAddon)
}
