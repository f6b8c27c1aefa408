package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// managedAccount is a subject that stands for an account.
func managedAccount(name string) *rbacv1.Subject {
	return &rbacv1.Subject{APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: name}
}

// reportNamespace creates a ClusterNamespace as the agent of the cluster.
func (f *fleet) reportNamespace(t *testing.T, cluster, name string, labels map[string]string) {
	t.Helper()
	_, agent := f.AgentOf(t, cluster)
	framework.Must(agent.RbacV1alpha1().ClusterNamespaces(cluster).Create(t.Context(), &rbacv1alpha1.ClusterNamespace{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: labels},
	}, metav1.CreateOptions{}))(t)
}

// workHas waits until the manifests of the work of a ClusterPermission contain all of some texts.
func (f *fleet) workHas(t *testing.T, cp *rbacv1alpha1.ClusterPermission, texts ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the work of %s has %v", cp.Name, texts), func(ctx context.Context) error {
		work, err := f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		content := framework.ToJSON(framework.Manifests(work))
		for _, text := range texts {
			if !strings.Contains(content, strconv.Quote(text)) {
				return fmt.Errorf("it does not have %s: %s", text, content)
			}
		}
		return nil
	})
}

// lookedAgain returns when the controllers have looked at what came before: they
// have delivered a ClusterPermission that needs the same account, roles and
// namespaces, and that was created later.
func (f *fleet) lookedAgain(t *testing.T, like *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	marker := like.DeepCopy()
	marker.ObjectMeta = metav1.ObjectMeta{Namespace: like.Namespace, GenerateName: like.Name + "-marker-"}
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(like.Namespace)
	marker = framework.Must(permissions.Create(t.Context(), marker, metav1.CreateOptions{}))(t)
	framework.DeletePermissionLater(t, f.OCM, marker.Namespace, marker.Name)
	f.PermissionSays(t, marker.Namespace, marker.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	if err := permissions.Delete(t.Context(), marker.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the work of the marker is gone", func(ctx context.Context) error {
		_, err := f.OCM.WorkV1().ManifestWorks(marker.Namespace).Get(ctx, render.WorkName(marker), metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// rendersNow tells whether the binding in the work has, without waiting, exactly one subject.
func (f *fleet) rendersNow(t *testing.T, cp *rbacv1alpha1.ClusterPermission, want rbacv1.Subject) {
	t.Helper()
	work := framework.Must(f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
	var got []rbacv1.Subject
	for _, manifest := range work.Spec.Workload.Manifests {
		var binding rbacv1.RoleBinding
		if err := json.Unmarshal(manifest.Raw, &binding); err != nil {
			t.Fatal(err)
		}
		got = append(got, binding.Subjects...)
	}
	if !slices.Equal(got, []rbacv1.Subject{want}) {
		t.Errorf("the binding is for %v, no longer for %v", got, want)
	}
}

// deletePermission deletes a ClusterPermission and waits until it and its work are gone.
func (f *fleet) deletePermission(t *testing.T, cp *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace)
	if err := permissions.Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, cp.Name+" and its work are gone", func(ctx context.Context) error {
		_, err := permissions.Get(ctx, cp.Name, metav1.GetOptions{})
		_, workErr := f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		return framework.Gone(err, workErr)
	})
}

// allTrue tells which conditions of a ClusterPermission are not True.
func allTrue(cp *rbacv1alpha1.ClusterPermission) error {
	var errs []error
	for _, condition := range cp.Status.Conditions {
		errs = append(errs, framework.HasCondition(cp, condition.Type, metav1.ConditionTrue))
	}
	return errors.Join(errs...)
}
