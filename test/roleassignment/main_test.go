package roleassignment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// home is the namespace of the MulticlusterRoleAssignments.
const home = "default"

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// region is the label by which sets select clusters.
const region = "region"

// makeSet creates a ManagedClusterSet of the clusters of a region with the same name.
func (f *fleet) makeSet(t *testing.T, name string) {
	t.Helper()
	framework.Must(f.OCM.ClusterV1beta2().ManagedClusterSets().Create(t.Context(), &clusterv1beta2.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{
			SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{region: name}},
		}},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := f.OCM.ClusterV1beta2().ManagedClusterSets().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// move moves a cluster to a region. The empty region is none.
func (f *fleet) move(t *testing.T, cluster, to string) {
	t.Helper()
	value := "null"
	if to != "" {
		value = fmt.Sprintf("%q", to)
	}
	framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, region, value), metav1.PatchOptions{}))(t)
}

// silentIn adds a cluster without an agent in a region.
func (f *fleet) silentIn(t *testing.T, to string) string {
	t.Helper()
	name := f.SilentCluster(t)
	f.move(t, name, to)
	return name
}

// forSet returns a MulticlusterRoleAssignment that grants ClusterRoles to a user on the clusters of a set.
func forSet(name, user, set string, roles ...string) *rbacv1beta1.MulticlusterRoleAssignment {
	a := &rbacv1beta1.MulticlusterRoleAssignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name},
		Spec:       rbacv1beta1.MulticlusterRoleAssignmentSpec{Subject: rbacv1beta1.Subject{Kind: rbacv1.UserKind, Name: user}},
	}
	for _, role := range roles {
		a.Spec.RoleAssignments = append(a.Spec.RoleAssignments, rbacv1beta1.RoleAssignment{
			Name: role, ClusterRole: role,
			ClusterSelection: rbacv1beta1.ClusterSelection{Type: rbacv1beta1.SelectClusterSets, ClusterSets: []string{set}},
		})
	}
	return a
}

// create creates a MulticlusterRoleAssignment, which is deleted at the end of the test.
func (f *fleet) create(t *testing.T, a *rbacv1beta1.MulticlusterRoleAssignment) *rbacv1beta1.MulticlusterRoleAssignment {
	t.Helper()
	created := framework.Must(f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Create(t.Context(), a, metav1.CreateOptions{}))(t)
	f.deleteLater(t, a)
	return created
}

func (f *fleet) deleteLater(t *testing.T, a *rbacv1beta1.MulticlusterRoleAssignment) {
	t.Cleanup(func() {
		err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Delete(context.WithoutCancel(t.Context()), a.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// permissions returns the ClusterPermissions of a MulticlusterRoleAssignment by cluster.
func (f *fleet) permissions(ctx context.Context, a *rbacv1beta1.MulticlusterRoleAssignment) (map[string]*rbacv1alpha1.ClusterPermission, error) {
	list, err := f.OCM.RbacV1alpha1().ClusterPermissions(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + render.Name(a.Namespace, a.Name),
	})
	if err != nil {
		return nil, err
	}
	out := map[string]*rbacv1alpha1.ClusterPermission{}
	for i := range list.Items {
		out[list.Items[i].Namespace] = &list.Items[i]
	}
	return out, nil
}

// granted waits until exactly these clusters have a ClusterPermission of a MulticlusterRoleAssignment.
func (f *fleet) granted(t *testing.T, a *rbacv1beta1.MulticlusterRoleAssignment, clusters ...string) map[string]*rbacv1alpha1.ClusterPermission {
	t.Helper()
	slices.Sort(clusters)
	var permissions map[string]*rbacv1alpha1.ClusterPermission
	framework.Eventually(t, fmt.Sprintf("the clusters with ClusterPermissions of %s are %q", a.Name, clusters), func(ctx context.Context) error {
		var err error
		if permissions, err = f.permissions(ctx, a); err != nil {
			return err
		}
		var got []string
		for cluster, permission := range permissions {
			if permission.DeletionTimestamp == nil {
				got = append(got, cluster)
			}
		}
		if slices.Sort(got); !slices.Equal(got, clusters) {
			return fmt.Errorf("clusters = %q", got)
		}
		return nil
	})
	return permissions
}

// says waits until check returns nil for the status of a MulticlusterRoleAssignment.
func (f *fleet) says(t *testing.T, a *rbacv1beta1.MulticlusterRoleAssignment, what string, check func(*rbacv1beta1.MulticlusterRoleAssignmentStatus) bool) {
	t.Helper()
	framework.Eventually(t, what, func(ctx context.Context) error {
		current, err := f.OCM.RbacV1beta1().MulticlusterRoleAssignments(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !check(&current.Status) {
			return errors.New("status = " + framework.ToJSON(current.Status))
		}
		return nil
	})
}

// fails returns a check that a cluster fails with a reason.
func fails(cluster, reason string) func(*rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
	return func(s *rbacv1beta1.MulticlusterRoleAssignmentStatus) bool {
		return s.Clusters != nil && slices.ContainsFunc(s.Clusters.Failing, func(c rbacv1beta1.ClusterFailure) bool {
			return c.Name == cluster && c.Reason == reason
		})
	}
}
