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

// managedAccount returns a subject that refers to a ManagedServiceAccount.
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

// workHas waits until the manifests in the ManifestWork of a ClusterPermission contain all of the
// texts.
func (f *fleet) workHas(t *testing.T, cp *rbacv1alpha1.ClusterPermission, texts ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("the ManifestWork of ClusterPermission %s contains %q", cp.Name, texts), func(ctx context.Context) error {
		work, err := f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		content := framework.ToJSON(framework.Manifests(work))
		for _, text := range texts {
			if !strings.Contains(content, strconv.Quote(text)) {
				return fmt.Errorf("manifests = %s, want %q in them", content, text)
			}
		}
		return nil
	})
}

// lookedAgain waits until the controllers have processed all earlier changes. It creates a
// ClusterPermission that needs the same account, roles and namespaces, and waits for its delivery.
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
	framework.Eventually(t, "the ManifestWork of ClusterPermission "+marker.Name+" does not exist", func(ctx context.Context) error {
		_, err := f.OCM.WorkV1().ManifestWorks(marker.Namespace).Get(ctx, render.WorkName(marker), metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// rendersNow checks, without waiting, that the binding in the ManifestWork has exactly one subject.
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
		t.Errorf("subjects in the ManifestWork = %v, want %v", got, want)
	}
}

// deletePermission deletes a ClusterPermission, and waits until neither it nor its ManifestWork
// exists.
func (f *fleet) deletePermission(t *testing.T, cp *rbacv1alpha1.ClusterPermission) {
	t.Helper()
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace)
	if err := permissions.Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "neither ClusterPermission "+cp.Name+" nor its ManifestWork exists", func(ctx context.Context) error {
		_, err := permissions.Get(ctx, cp.Name, metav1.GetOptions{})
		_, workErr := f.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		return framework.Gone(err, workErr)
	})
}

// allTrue returns an error that lists the conditions of a ClusterPermission that are not True, or
// nil.
func allTrue(cp *rbacv1alpha1.ClusterPermission) error {
	var errs []error
	for _, condition := range cp.Status.Conditions {
		errs = append(errs, framework.HasCondition(cp, condition.Type, metav1.ConditionTrue))
	}
	return errors.Join(errs...)
}
