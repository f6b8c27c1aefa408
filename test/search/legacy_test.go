package search

import (
	"context"
	"encoding/json"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const etcdPrefix = "/registry/open-cluster-management.io/"

// plant writes an object to etcd without validation. A previous version or another implementation could have stored
// such an object.
func (r *replicas) plant(t *testing.T, resource schema.GroupResource, obj metav1.Object) {
	t.Helper()
	client := framework.Must(clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.Endpoint}}))(t)
	defer func() { _ = client.Close() }()
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(metav1.Now())
	obj.SetGeneration(1)
	content := framework.Must(json.Marshal(obj))(t)
	key := etcdPrefix + resource.Group + "/" + resource.Resource + "/" + obj.GetNamespace() + "/" + obj.GetName()
	if _, err := client.Put(t.Context(), key, string(content)); err != nil {
		t.Fatal(err)
	}
}

func (r *replicas) plantPermission(t *testing.T, cp *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	cp.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"}
	r.plant(t, rbacv1alpha1.Resource("clusterpermissions"), cp)
}

// keepLegacy checks that clients can read, label, correct and delete stored invalid objects, that these objects report
// their errors, and that they do not affect others.
func (r *replicas) keepLegacy(t *testing.T) {
	const name = "legacy"
	client := r.clients[0]
	permissions := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	bad := framework.Permission(name)
	(*bad.Spec.RoleBindings)[0].RoleRef.Name = new("half-a-reference")
	(*bad.Spec.RoleBindings)[0].NamespaceSelector = &metav1.LabelSelector{}
	r.plantPermission(t, bad)
	orphan := framework.Permission("legacy-deleted")
	orphan.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{}}
	r.plantPermission(t, orphan)

	framework.Eventually(t, "condition AppliedRBACManifestWork of the invalid ClusterPermission is False", func(ctx context.Context) error {
		cp, err := permissions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	})
	patch := func(patch string) error {
		_, err := permissions.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"metadata":{"labels":{"team":"blue"}}}`); err != nil {
		t.Errorf("patch that adds a label: error = %v, want none", err)
	}
	if err := patch(`{"spec":{"clusterRoleBinding":{"subject":{"name":"anna"}}}}`); err != nil {
		t.Errorf("patch of another field of the spec: error = %v, want none", err)
	}
	if err := patch(`{"spec":{"clusterRoleBinding":{"subject":{"kind":"Robot"}}}}`); !apierrors.IsInvalid(err) {
		t.Errorf("patch that adds an invalid field: error = %v, want 422", err)
	}
	other := framework.CreatePermission(t, client, framework.Permission("legacy-neighbour"))
	framework.AwaitWorkCreated(t, client, other.Name)

	if err := patch(`{"spec":{"roleBindings":[{"namespace":"default","roleRef":{"kind":"Role"},"subject":{"kind":"User","name":"bob"}}]}}`); err != nil {
		t.Errorf("patch that corrects the object: error = %v, want none", err)
	}
	framework.AwaitWorkCreated(t, client, name)
	for _, name := range []string{name, orphan.Name} {
		if err := permissions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		framework.Eventually(t, "ClusterPermission "+name+" and its ManifestWork do not exist", func(ctx context.Context) error {
			if _, err := permissions.Get(ctx, name, metav1.GetOptions{}); framework.IsGone(err) != nil {
				return framework.IsGone(err)
			}
			works, err := framework.WorksOf(ctx, client, name)
			if err == nil && len(works) > 0 {
				return framework.IsGone(nil)
			}
			return err
		})
	}
}

// keepLegacyAccounts checks that accounts with an invalid validity do not affect others, and that clients can label,
// correct and delete them.
func (r *replicas) keepLegacyAccounts(t *testing.T) {
	accounts := r.clients[0].AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1)
	for name, validity := range map[string]string{"legacy-abc": "abc", "legacy-short": "1m", "legacy-long": "9999999h", "legacy-empty": ""} {
		bad := framework.NewAccount(framework.Cluster1, name)
		bad.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount"}
		bad.Spec.Rotation.Validity = validity
		r.plant(t, authenticationv1beta1.Resource("managedserviceaccounts"), bad)
	}
	framework.CreateAccount(t, r.clients[0], framework.NewAccount(framework.Cluster1, "legacy-neighbour"))
	list := framework.Must(accounts.List(t.Context(), metav1.ListOptions{}))(t)
	if len(list.Items) != 5 {
		t.Errorf("listed accounts = %d, want 5", len(list.Items))
	}
	for _, name := range []string{"legacy-abc", "legacy-short", "legacy-long", "legacy-empty"} {
		if _, err := accounts.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"blue"}}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("patch of %s that adds a label: error = %v, want none", name, err)
		}
		if _, err := accounts.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"audiences":["vault"]}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("patch of %s that changes another field: error = %v, want none", name, err)
		}
		if _, err := accounts.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"rotation":{"validity":"2m"}}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("patch of %s with another invalid validity: error = %v, want 422", name, err)
		}
		if _, err := accounts.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"rotation":{"validity":"24h"}}}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("patch of %s that corrects the validity: error = %v, want none", name, err)
		}
		if err := accounts.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
