package agent_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const bootstrapUser = "bootstrap"

// publicHub simulates the controllers of an upstream OCM hub, and grants only the permissions that
// they grant.
type publicHub struct {
	t       testing.TB
	control *localhub.Cluster
	kube    kubernetes.Interface
	ocm     versioned.Interface
	// extra contains additional subjects of the permissions of clusters.
	extra []rbacv1.Subject
}

func newPublicHub(t testing.TB, control *localhub.Cluster) *publicHub {
	t.Helper()
	h := &publicHub{t: t, control: control}
	config := rest.CopyConfig(control.AdminConfig())
	var err error
	if h.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if h.ocm, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "public-bootstrap"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"get", "create", "list", "watch"}},
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclustersets/join"}, Verbs: []string{"create"}},
	}}
	h.make(h.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))
	h.make(h.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers:managedcluster"}},
	}, metav1.CreateOptions{}))
	return h
}

// mayBootstrapByName grants a user the permissions of artifacts/rbac/bootstrap.yaml on ManagedClusters and certificate
// requests.
func (h *publicHub) mayBootstrapByName(user string) {
	h.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get"}},
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"create", "get"}},
	}}
	h.make(h.kube.RbacV1().ClusterRoles().Create(h.t.Context(), role, metav1.CreateOptions{}))
	h.make(h.kube.RbacV1().ClusterRoleBindings().Create(h.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{}))
}

// make fails the test if a request to create or update an object failed, unless the error is
// AlreadyExists.
func (h *publicHub) make(_ any, err error) {
	h.t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		h.t.Fatal(err)
	}
}

func (h *publicHub) bootstrapKubeconfig(path string) {
	h.t.Helper()
	if err := h.control.WriteKubeconfig(path, bootstrapUser, "system:bootstrappers:managedcluster"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *publicHub) cluster(name string) *clusterv1.ManagedCluster {
	h.t.Helper()
	var cluster *clusterv1.ManagedCluster
	eventually(h.t, "ManagedCluster "+name+" exists", func(ctx context.Context) (err error) {
		cluster, err = h.ocm.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return cluster
}

func (h *publicHub) change(name, subresource string, change func(*clusterv1.ManagedCluster)) {
	h.t.Helper()
	eventually(h.t, "ManagedCluster "+name+" is updated", func(ctx context.Context) error {
		cluster, err := h.ocm.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(cluster)
		if subresource == "status" {
			_, err = h.ocm.ClusterV1().ManagedClusters().UpdateStatus(ctx, cluster, metav1.UpdateOptions{})
		} else {
			_, err = h.ocm.ClusterV1().ManagedClusters().Update(ctx, cluster, metav1.UpdateOptions{})
		}
		return err
	})
}

// request returns a pending CertificateSigningRequest of a cluster. It fails the test if the request
// does not meet the requirements of the approver of an upstream OCM hub.
func (h *publicHub) request(name, user string) *certificatesv1.CertificateSigningRequest {
	h.t.Helper()
	var pending *certificatesv1.CertificateSigningRequest
	eventually(h.t, "a CertificateSigningRequest of cluster "+name+" is pending", func(ctx context.Context) error {
		pending = nil
		list, err := h.kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + name})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if request := &list.Items[i]; len(request.Status.Conditions) == 0 && request.Spec.Username == user {
				pending = request
			}
		}
		if pending == nil {
			return fmt.Errorf("requests = %d, want a pending one of user %s", len(list.Items), user)
		}
		return nil
	})
	block, _ := pem.Decode(pending.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		h.t.Fatal(err)
	}
	group := "system:open-cluster-management:" + name
	organizations := slices.Sorted(slices.Values(parsed.Subject.Organization))
	parts := strings.Split(strings.TrimPrefix(parsed.Subject.CommonName, group+":"), ":")
	if len(parts) != 1 || parts[0] == "" || parsed.Subject.CommonName == parts[0] ||
		!slices.Equal(organizations, slices.Sorted(slices.Values([]string{group, "system:open-cluster-management:managed-clusters"}))) ||
		!strings.HasPrefix(pending.Name, name+"-") || pending.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName ||
		len(parsed.DNSNames)+len(parsed.EmailAddresses)+len(parsed.IPAddresses)+len(parsed.URIs) > 0 {
		h.t.Fatalf("CertificateSigningRequest %s with subject %s does not meet the requirements of a hub", pending.Name, parsed.Subject)
	}
	return pending
}

func (h *publicHub) decide(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	h.t.Helper()
	request = request.DeepCopy()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Admin", Message: "decided by the test",
	})
	if _, err := h.kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(h.t.Context(), request.Name, request, metav1.UpdateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *publicHub) approve(name, user string) *certificatesv1.CertificateSigningRequest {
	h.t.Helper()
	request := h.request(name, user)
	h.decide(request, certificatesv1.CertificateApproved)
	return request
}

func (h *publicHub) rules(name string, accepted bool) []rbacv1.PolicyRule {
	own := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, ResourceNames: []string{name}, Verbs: verbs}
	}
	if !accepted {
		return []rbacv1.PolicyRule{own("get", "list", "watch")}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/clientcertificates"}, Verbs: []string{"renew"}},
		own("get", "list", "update", "watch"),
		{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters/status"}, ResourceNames: []string{name}, Verbs: []string{"patch", "update"}},
	}
}

func (h *publicHub) subjects(name string) []rbacv1.Subject {
	return append([]rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:open-cluster-management:" + name},
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "open-cluster-management:" + name},
	}, h.extra...)
}

func (h *publicHub) clusterRole(name string) string {
	return "open-cluster-management:managedcluster:" + name
}

// setRules replaces the permissions of the agents of a cluster for cluster-scoped objects.
func (h *publicHub) setRules(name string, rules []rbacv1.PolicyRule) {
	h.t.Helper()
	ctx := h.t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: h.clusterRole(name)}, Rules: rules}
	h.make(h.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}))
	h.make(h.kube.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}))
	h.make(h.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: h.subjects(name),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{}))
}

// accept grants the permissions of a cluster, and then reports that it is accepted.
func (h *publicHub) accept(name string) {
	h.t.Helper()
	ctx := h.t.Context()
	h.make(h.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name},
	}}, metav1.CreateOptions{}))
	h.setRules(name, h.rules(name, true))
	for _, role := range []string{"registration", "work", "serviceaccounts"} {
		role = "open-cluster-management:managedcluster:" + role
		h.make(h.kube.RbacV1().RoleBindings(name).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: h.subjects(name),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{}))
	}
	h.make(h.kube.CoordinationV1().Leases(name).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "managed-cluster-lease"}}, metav1.CreateOptions{}))
	h.change(name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Spec.HubAcceptsClient = true })
	h.condition(name, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted)
}

func (h *publicHub) condition(name string, status metav1.ConditionStatus, reason string) {
	h.t.Helper()
	h.change(name, "status", func(cluster *clusterv1.ManagedCluster) {
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
			Type: clusterv1.ManagedClusterConditionHubAccepted, Status: status, Reason: reason, Message: "decided by the test",
		})
	})
}

// deny revokes the permissions of a cluster, except to read its own ManagedCluster.
func (h *publicHub) deny(name string) {
	h.t.Helper()
	h.change(name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Spec.HubAcceptsClient = false })
	h.setRules(name, h.rules(name, false))
	h.dropBindings(name)
	h.condition(name, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied)
}

func (h *publicHub) dropBindings(name string) {
	h.t.Helper()
	if err := h.kube.RbacV1().RoleBindings(name).DeleteCollection(h.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// hold adds a finalizer to a ManagedCluster, as every hub does for accepted clusters.
func (h *publicHub) hold(name string) {
	h.t.Helper()
	h.change(name, "", func(cluster *clusterv1.ManagedCluster) {
		cluster.Finalizers = []string{clusterv1.ManagedClusterFinalizer}
	})
}

func (h *publicHub) remove(name string) {
	h.t.Helper()
	if err := h.ocm.ClusterV1().ManagedClusters().Delete(h.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// forget deletes the permissions of a cluster, and then removes the finalizer of its ManagedCluster.
func (h *publicHub) forget(name string) {
	h.t.Helper()
	ctx := h.t.Context()
	h.dropBindings(name)
	for _, err := range []error{
		h.kube.RbacV1().ClusterRoleBindings().Delete(ctx, h.clusterRole(name), metav1.DeleteOptions{}),
		h.kube.RbacV1().ClusterRoles().Delete(ctx, h.clusterRole(name), metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			h.t.Fatal(err)
		}
	}
	h.change(name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Finalizers = nil })
}

// apply creates a ManifestWork with a ConfigMap of the same name in a namespace of the managed
// cluster.
func (h *publicHub) apply(cluster, work, namespace string, option *workv1.DeleteOption) {
	h.t.Helper()
	object := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: work}}
	object.Spec.DeleteOption = option
	object.Spec.Workload.Manifests = []workv1.Manifest{{}}
	object.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q}}`, work, namespace)
	if _, err := h.ocm.WorkV1().ManifestWorks(cluster).Create(h.t.Context(), object, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}
