package integration_test

import (
	"context"
	"encoding/json"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const etcdPrefix = "/registry/open-cluster-management.io/rbac.open-cluster-management.io/clusterpermissions/"

// plant writes a ClusterPermission into etcd, past all that would refuse it, as
// an earlier version or another implementation may have stored it.
func (r *replicas) plant(t *testing.T, cp *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.Endpoint}}))(t)
	defer func() { _ = client.Close() }()
	cp.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"}
	cp.UID, cp.CreationTimestamp, cp.Generation = uuid.NewUUID(), metav1.Now(), 1
	content := must(json.Marshal(cp))(t)
	if _, err := client.Put(t.Context(), etcdPrefix+cp.Namespace+"/"+cp.Name, string(content)); err != nil {
		t.Fatal(err)
	}
}

// keepLegacy: what would be refused today but is stored can be read, labelled,
// mended and deleted, says what is wrong with it, and holds nothing else.
func (r *replicas) keepLegacy(t *testing.T) {
	const name = "legacy"
	client := r.clients[0]
	permissions := client.RbacV1alpha1().ClusterPermissions(cluster1)
	bad := permission(name)
	(*bad.Spec.RoleBindings)[0].RoleRef.Name = "half-a-reference"
	(*bad.Spec.RoleBindings)[0].NamespaceSelector = &metav1.LabelSelector{}
	r.plant(t, bad)
	orphan := permission("legacy-deleted")
	orphan.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{}}
	r.plant(t, orphan)

	eventually(t, "a condition says what is wrong", func(ctx context.Context) error {
		cp, err := permissions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return hasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
	})
	patch := func(patch string) error {
		_, err := permissions.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{"metadata":{"labels":{"team":"blue"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := patch(`{"spec":{"clusterRoleBinding":{"subject":{"name":"anna"}}}}`); err != nil {
		t.Errorf("a change elsewhere in the spec: %v", err)
	}
	if err := patch(`{"spec":{"clusterRoleBinding":{"subject":{"kind":"Robot"}}}}`); !apierrors.IsInvalid(err) {
		t.Errorf("got %v for one more fault, not 422", err)
	}
	other := create(t, client, permission("legacy-neighbour"))
	reportedBy(t, client, other.Name)

	if err := patch(`{"spec":{"roleBindings":[{"namespace":"default","roleRef":{"kind":"Role"},"subject":{"kind":"User","name":"bob"}}]}}`); err != nil {
		t.Errorf("mending it: %v", err)
	}
	reportedBy(t, client, name)
	for _, name := range []string{name, orphan.Name} {
		if err := permissions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		eventually(t, name+" and its work are gone", func(ctx context.Context) error {
			if _, err := permissions.Get(ctx, name, metav1.GetOptions{}); isGone(err) != nil {
				return isGone(err)
			}
			works, err := worksOf(ctx, client, name)
			if err == nil && len(works) > 0 {
				return isGone(nil)
			}
			return err
		})
	}
}
