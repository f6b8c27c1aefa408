package integration_test

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

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/worksync"
)

// moves is how often an account is moved in a row. The public controller renders an
// older namespace nearly every other time.
const moves = 12

// whereTo is a namespace that an account is moved to.
func whereTo(move int) string { return fmt.Sprintf("moved-%d", move) }

func inNamespace(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Weakness 4, for our own agents: the binding is for the ServiceAccount that was
// reported last, however fast it moves.
func TestWeakness4AccountThatMovesFast(t *testing.T) {
	f := shared(t)
	const name = "weakness-4"
	cluster := f.silentCluster(t)
	createAccount(t, f.ocm, account(cluster, name))
	f.reportAccount(t, cluster, name, placedIn("where-it-begins", name))
	like := forAccount(cluster, name, name)
	cp := create(t, f.ocm, like)
	f.rendersSubject(t, cp, inNamespace("where-it-begins", name))
	for i := range moves {
		f.reportAccount(t, cluster, name, placedIn(whereTo(i), name))
	}
	f.rendersSubject(t, cp, inNamespace(whereTo(moves-1), name))
	f.lookedAgain(t, like)
	f.rendersNow(t, cp, inNamespace(whereTo(moves-1), name))
}

// Weakness 4, for agents of the public addon, which do not say where they are: the
// addon does, in one of two fields, if there is one.
func TestWeakness4AddonThatMovesFast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hub := hubThatRunsOCM(t, authenticationv1beta1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion)
	f := &fleet{ocm: ocmClient(t, hub.AdminConfig(), nil)}
	const name = "weakness-4-addon"
	apply(t, hub, crd(t, "pkg", "tokens", "testdata", "managedserviceaccounts.crd.yaml"),
		crd(t, "test", "integration", "testdata", "managedclusteraddons.crd.yaml"))
	reported := account(cluster1, name)
	reported.Status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: name, LastRefreshTimestamp: metav1.Now()}
	eventually(t, "the hub has accounts", func(ctx context.Context) error {
		_, err := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1).Create(ctx, reported, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // a try whose answer was lost
		}
		return err
	})
	like := forAccount(cluster1, name, name)
	cp := create(t, f.ocm, like)
	const noAddon = "the cluster does not have the addon managed-serviceaccount"
	f.undelivered(t, cluster1, name, noAddon)
	f.rendersSubject(t, cp)

	addons := must(dynamic.NewForConfig(hub.AdminConfig()))(t).Resource(worksync.AddonResource).Namespace(cluster1)
	addon := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": worksync.AddonResource.GroupVersion().String(), "kind": "ManagedClusterAddOn",
		"metadata": map[string]any{"name": "managed-serviceaccount"},
	}}
	must(addons.Create(ctx, addon, metav1.CreateOptions{}))(t)
	f.rendersSubject(t, cp, inNamespace(accountsNamespace, name))

	patch := func(field, namespace string, subresources ...string) {
		t.Helper()
		content := fmt.Sprintf(`{%q:{%q:%q}}`, map[bool]string{true: "status", false: "spec"}[len(subresources) > 0], field, namespace)
		must(addons.Patch(ctx, "managed-serviceaccount", types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...))(t)
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
	f.undelivered(t, cluster1, name, noAddon)
}
