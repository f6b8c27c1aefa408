package server

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestEvents checks that users see in Events what happened to their objects.
func TestEvents(t *testing.T) {
	f := framework.Shared(t)
	t.Run("ClusterPermission that is applied", func(t *testing.T) {
		name := framework.Unique("events")
		cp := framework.CreatePermission(t, f.OCM, framework.Permission(name))
		f.Applied(t, name)
		work := f.WorkOf(t, cp)
		f.HasEvent(t, cp.Namespace, "ClusterPermission", name, corev1.EventTypeNormal, "ManifestWorkCreated", work.Name)
		f.HasEvent(t, cp.Namespace, "ClusterPermission", name, corev1.EventTypeNormal, "AppliedManifestWorkComplete", "All manifests are applied")
		f.HasEvent(t, cp.Namespace, "ManifestWork", work.Name, corev1.EventTypeNormal, "AppliedManifestWorkComplete", "applied")
		described, err := f.Kubectl(t, "", "describe", "clusterpermission", "-n", cp.Namespace, name)
		if err != nil || !strings.Contains(described, "ManifestWorkCreated") || !strings.Contains(described, "hub-apiserver") {
			t.Errorf("kubectl describe = %v\n%s\nwant the Event ManifestWorkCreated from hub-apiserver", err, described)
		}
	})
	t.Run("ManifestWork that the cluster refuses", func(t *testing.T) {
		work := framework.ConfigMapWork(framework.Unique("refused"),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"refused","namespace":"no-such-namespace"}}`)
		work.Namespace = framework.Cluster1
		works := f.OCM.WorkV1().ManifestWorks(work.Namespace)
		framework.Must(works.Create(t.Context(), work, metav1.CreateOptions{}))(t)
		f.HasEvent(t, work.Namespace, "ManifestWork", work.Name, corev1.EventTypeWarning, "AppliedManifestWorkFailed", "no-such-namespace")
		if err := works.Delete(t.Context(), work.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("token that is rotated", func(t *testing.T) {
		cluster := f.SilentCluster(t)
		account := framework.CreateAccount(t, f.OCM, framework.NewAccount(cluster, "rotated"))
		report := func(refreshed time.Time) {
			f.ReportAccount(t, cluster, account.Name, func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
				status.TokenSecretRef = &authenticationv1beta1.TokenSecretReference{Name: account.Name, LastRefreshTimestamp: metav1.NewTime(refreshed)}
				status.ExpirationTimestamp = &metav1.Time{Time: refreshed.Add(time.Hour)}
			})
		}
		now := time.Now().Truncate(time.Second)
		report(now.Add(-time.Minute))
		report(now)
		f.HasEvent(t, cluster, "ManagedServiceAccount", account.Name, corev1.EventTypeNormal, "TokenRotated", now.Add(time.Hour).UTC().Format(time.RFC3339))
	})
	t.Run("cluster that is accepted, then denied", func(t *testing.T) {
		cluster := f.SilentCluster(t)
		f.HasEvent(t, metav1.NamespaceDefault, "ManagedCluster", cluster, corev1.EventTypeNormal, "HubClusterAdminAccepted", "")
		framework.Must(f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{}))(t)
		f.HasEvent(t, metav1.NamespaceDefault, "ManagedCluster", cluster, corev1.EventTypeWarning, "HubClusterAdminDenied", "")
	})
}
