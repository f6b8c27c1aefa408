package integration_test

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// managedAccount is a subject that stands for an account.
func managedAccount(name string) *rbacv1.Subject {
	return &rbacv1.Subject{APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: name}
}

// named refers to a role that something else on the managed cluster has made.
func named(kind, name string) rbacv1alpha1.RoleRef {
	return rbacv1alpha1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// createClusterRole creates a ClusterRole, which is deleted after the test.
func createClusterRole(t *testing.T, client kubernetes.Interface, role *rbacv1.ClusterRole) {
	t.Helper()
	must(client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		err := client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(t.Context()), role.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// createRole creates a Role, which is deleted after the test.
func createRole(t *testing.T, client kubernetes.Interface, role *rbacv1.Role) {
	t.Helper()
	must(client.RbacV1().Roles(role.Namespace).Create(t.Context(), role, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		err := client.RbacV1().Roles(role.Namespace).Delete(context.WithoutCancel(t.Context()), role.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// permissionSays waits until a condition of a ClusterPermission has a status and a message
// that contains all of some texts, and returns the ClusterPermission.
func (f *fleet) permissionSays(t *testing.T, namespace, name, conditionType string, status metav1.ConditionStatus, texts ...string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	var cp *rbacv1alpha1.ClusterPermission
	eventually(t, fmt.Sprintf("%s of %s is %s: %v", conditionType, name, status, texts), func(ctx context.Context) error {
		var err error
		if cp, err = f.ocm.RbacV1alpha1().ClusterPermissions(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return conditionSays(cp, conditionType, status, texts...)
	})
	return cp
}

// conditionSays tells why a condition does not have a status and a message that
// contains all of some texts.
func conditionSays(cp *rbacv1alpha1.ClusterPermission, conditionType string, status metav1.ConditionStatus, texts ...string) error {
	if err := hasCondition(cp, conditionType, status); err != nil {
		return err
	}
	message := meta.FindStatusCondition(cp.Status.Conditions, conditionType).Message
	for _, text := range texts {
		if !strings.Contains(message, text) {
			return fmt.Errorf("the message of %s is %q, without %q", conditionType, message, text)
		}
	}
	return nil
}

// reportAccount changes the status of an account as the agent of its cluster.
func (f *fleet) reportAccount(t *testing.T, cluster, name string, change func(*authenticationv1beta1.ManagedServiceAccountStatus)) {
	t.Helper()
	_, agent := f.agentOf(t, cluster)
	accounts := agent.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	eventually(t, "the agent has reported account "+name, func(ctx context.Context) error {
		account, err := accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&account.Status)
		_, err = accounts.UpdateStatus(ctx, account, metav1.UpdateOptions{})
		return err
	})
}

// placedIn is the status of an account whose ServiceAccount is in a namespace.
func placedIn(namespace, name string) func(*authenticationv1beta1.ManagedServiceAccountStatus) {
	return func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: namespace, Name: name}
	}
}

// reportNamespace creates a ClusterNamespace as the agent of the cluster.
func (f *fleet) reportNamespace(t *testing.T, cluster, name string, labels map[string]string) {
	t.Helper()
	_, agent := f.agentOf(t, cluster)
	must(agent.RbacV1alpha1().ClusterNamespaces(cluster).Create(t.Context(), &rbacv1alpha1.ClusterNamespace{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: labels},
	}, metav1.CreateOptions{}))(t)
}

// workOf waits for the work of a ClusterPermission.
func (f *fleet) workOf(t *testing.T, cp *rbacv1alpha1.ClusterPermission) *workv1.ManifestWork {
	t.Helper()
	var work *workv1.ManifestWork
	eventually(t, cp.Name+" has a work", func(ctx context.Context) error {
		var err error
		work, err = f.ocm.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		return err
	})
	return work
}

// reportWork changes the status of the work of a ClusterPermission as the agent of its cluster.
func (f *fleet) reportWork(t *testing.T, cp *rbacv1alpha1.ClusterPermission, change func(*workv1.ManifestWork)) {
	t.Helper()
	_, agent := f.agentOf(t, cp.Namespace)
	works := agent.WorkV1().ManifestWorks(cp.Namespace)
	eventually(t, "the agent has reported the work of "+cp.Name, func(ctx context.Context) error {
		work, err := works.Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(work)
		_, err = works.UpdateStatus(ctx, work, metav1.UpdateOptions{})
		return err
	})
}

// applied reports that a work is applied; note tells one report from another.
func applied(work *workv1.ManifestWork, note string) {
	meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		Message: note, ObservedGeneration: work.Generation,
	})
}

// workHas waits until the manifests of the work of a ClusterPermission contain all of some texts.
func (f *fleet) workHas(t *testing.T, cp *rbacv1alpha1.ClusterPermission, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the work of %s has %v", cp.Name, texts), func(ctx context.Context) error {
		work, err := f.ocm.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if err != nil {
			return err
		}
		content := toJSON(manifests(work))
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
	permissions := f.ocm.RbacV1alpha1().ClusterPermissions(like.Namespace)
	marker = must(permissions.Create(t.Context(), marker, metav1.CreateOptions{}))(t)
	deleteLater(t, f.ocm, marker.Namespace, marker.Name)
	f.permissionSays(t, marker.Namespace, marker.Name, rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionTrue)
	if err := permissions.Delete(t.Context(), marker.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the work of the marker is gone", func(ctx context.Context) error {
		_, err := f.ocm.WorkV1().ManifestWorks(marker.Namespace).Get(ctx, render.WorkName(marker), metav1.GetOptions{})
		return isGone(err)
	})
}

// rendersNow tells whether the binding in the work has, without waiting, exactly one subject.
func (f *fleet) rendersNow(t *testing.T, cp *rbacv1alpha1.ClusterPermission, want rbacv1.Subject) {
	t.Helper()
	work := must(f.ocm.WorkV1().ManifestWorks(cp.Namespace).Get(t.Context(), render.WorkName(cp), metav1.GetOptions{}))(t)
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
	permissions := f.ocm.RbacV1alpha1().ClusterPermissions(cp.Namespace)
	if err := permissions.Delete(t.Context(), cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, cp.Name+" and its work are gone", func(ctx context.Context) error {
		_, err := permissions.Get(ctx, cp.Name, metav1.GetOptions{})
		_, workErr := f.ocm.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		return gone(err, workErr)
	})
}

// allTrue tells which conditions of a ClusterPermission are not True.
func allTrue(cp *rbacv1alpha1.ClusterPermission) error {
	var errs []error
	for _, condition := range cp.Status.Conditions {
		errs = append(errs, hasCondition(cp, condition.Type, metav1.ConditionTrue))
	}
	return errors.Join(errs...)
}
