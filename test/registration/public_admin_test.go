package registration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// publicGitOps has a GitOps tool create an accepted ManagedCluster before the agent exists, and
// apply it repeatedly.
func (h *awsHub) publicGitOps(t *testing.T) {
	const name = "public-gitops"
	manifest := fmt.Sprintf(`{"apiVersion":%q,"kind":"ManagedCluster","metadata":{"name":%q,"labels":{"env":"prod"}},"spec":{"hubAcceptsClient":true}}`,
		clusterv1.SchemeGroupVersion, name)
	applyIt := func() *clusterv1.ManagedCluster {
		t.Helper()
		if out, err := h.Kubectl(t, manifest, "apply", "--server-side", "--field-manager=gitops", "--filename=-"); err != nil {
			t.Fatalf("kubectl apply = %v, want nil: %s", err, out)
		}
		return framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t)
	}
	first := applyIt()
	if decided := first.Status.Acceptance; decided == nil || !decided.Accepted || decided.DecidedBy != "admin" {
		t.Fatalf("acceptance = %+v, want accepted by admin", decided)
	}
	framework.Eventually(t, "the second of the decision has passed", func(context.Context) error {
		if decided := first.Status.Acceptance.DecidedAt.Time; !time.Now().Truncate(time.Second).After(decided) {
			return errors.New("decidedAt is in the current second")
		}
		return nil
	})
	p := newPublicRegistration(t, h.Hub, name, bootstrapToken(t, h.Hub))
	p.begin(t, nil)
	csr, key := p.request(t, p.bootstrap)
	if approved := publicAccept(t, h.Hub, name); !slices.Equal(approved, []string{csr}) {
		t.Errorf("approved CertificateSigningRequests = %v, want %s only", approved, csr)
	}
	p.own, _ = p.certificate(t, p.bootstrap, csr, key)
	watched := p.joins(t, h)
	joined := framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t)
	again := applyIt()
	if again.Generation != joined.Generation || !equality.Semantic.DeepEqual(again.Status.Acceptance, first.Status.Acceptance) {
		t.Errorf("generation and acceptance after an unchanged apply = %d, %+v, want %d, %+v", again.Generation, again.Status.Acceptance, joined.Generation, first.Status.Acceptance)
	}
	if !slices.Equal(again.Finalizers, joined.Finalizers) || again.Labels["env"] != "prod" {
		t.Errorf("metadata after an unchanged apply = %+v, want finalizers %v and label env=prod", again.ObjectMeta, joined.Finalizers)
	}
	if err := h.hasAccess(t.Context(), name, fullAccess); err != nil {
		t.Error(err)
	}
	h.deleted(t, name, watched)
}

// deletedLater deletes a cluster at the end of the test.
func (h *awsHub) deletedLater(t *testing.T, cluster string) {
	t.Helper()
	t.Cleanup(func() {
		err := h.OCM.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(t.Context()), cluster, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func (h *awsHub) publicAndOurs(t *testing.T) {
	p := newPublicRegistration(t, h.Hub, "public-ours", bootstrapToken(t, h.Hub))
	p.begin(t, nil)
	h.deletedLater(t, p.cluster)
	name, key := p.request(t, p.bootstrap)
	out, complaints, code := (&framework.Caller{Kubeconfig: h.Kubeconfig}).Clusteradm(t, "accept", "--clusters="+p.cluster, "--wait")
	if code != 0 || !strings.Contains(out, name) {
		t.Fatalf("clusteradm accept exits with %d, want 0 and the request %s:\n%s%s", code, name, out, complaints)
	}
	p.own, _ = p.certificate(t, p.bootstrap, name, key)
	framework.Must(p.own.clusters().Get(t.Context(), p.cluster, metav1.GetOptions{}))(t)
	p.beats(t)
}

// impersonatedDecisions checks that the server authorizes and records the impersonated user.
func (h *awsHub) impersonatedDecisions(t *testing.T) {
	const name = "public-as"
	bind := func(role string, subject rbacv1.Subject) {
		t.Helper()
		binding := framework.Must(h.HubClient.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "public-as-"}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{}))(t)
		t.Cleanup(func() {
			if err := h.HubClient.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	framework.CreateClusterRole(t, h.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "public-as-editor"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters"}, Verbs: []string{"get", "update", "patch"},
	}}})
	bind("open-cluster-management:registration:accept", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "public-team"})
	bind("public-as-editor", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "public-bob"})
	newPublicRegistration(t, h.Hub, name, bootstrapAccount(t, h.Hub)).begin(t, nil)
	h.deletedLater(t, name)

	decide := func(as ...string) (string, error) {
		return h.Kubectl(t, acceptance(name), append(as, "replace", "--raw", acceptPath(name), "--filename=-")...)
	}
	if out, err := decide("--as=public-bob"); err == nil || !strings.Contains(out, `User "public-bob" cannot update resource "managedclusters/accept"`) {
		t.Errorf("acceptance by public-bob = %v: %s, want 403", err, out)
	}
	out, err := h.Kubectl(t, "", "patch", "managedcluster", name, "--type=merge", `--patch={"spec":{"hubAcceptsClient":true}}`, "--as=public-bob")
	if err == nil || !strings.Contains(out, "Forbidden") || !strings.Contains(out, "public-bob") || !strings.Contains(out, "managedclusters/accept") {
		t.Errorf("patch of hubAcceptsClient by public-bob = %v: %s, want 403 for managedclusters/accept", err, out)
	}
	var err2 error
	framework.Eventually(t, "a member of public-team can accept "+name, func(context.Context) error {
		out, err2 = decide("--as=public-alice", "--as-group=public-team")
		if err2 != nil {
			return fmt.Errorf("%w: %s", err2, out)
		}
		return nil
	})
	decided := framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t).Status.Acceptance
	if decided == nil || !decided.Accepted || decided.DecidedBy != "public-alice" || decided.Reason != "known" {
		t.Errorf("acceptance = %+v, want accepted by public-alice for the reason known", decided)
	}
}

// publicNames checks that kubectl resolves the name managedclusters to the API group
// cluster.open-cluster-management.io.
func (h *awsHub) publicNames(t *testing.T) {
	const name = "public-names"
	newPublicRegistration(t, h.Hub, name, bootstrapAccount(t, h.Hub)).begin(t, nil)
	h.deletedLater(t, name)
	for _, test := range []struct {
		args, want string
	}{
		{"explain managedclusters", "KIND:       ManagedCluster\n"},
		{"explain mcl", "KIND:       ManagedCluster\n"},
		{"explain managedclusters --api-version=" + registerv1alpha1.SchemeGroupVersion.String(), "KIND:       ManagedClusterRegistration\n"},
		{"explain managedclusterregistration", "KIND:       ManagedClusterRegistration\n"},
		{"explain mclr.spec.irsa", "managedClusterARN"},
		{"get managedclusters --output=name", "managedcluster.cluster.open-cluster-management.io/" + name + "\n"},
		{"get managedcluster " + name + " --output=name", "managedcluster.cluster.open-cluster-management.io/" + name + "\n"},
		{"get mclr --output=name", "managedclusterregistration.register.open-cluster-management.io/" + name + "\n"},
		{"get managedclusters." + registerv1alpha1.GroupName + " " + name, "csr"},
	} {
		// The hub serves the OpenAPI documents for kubectl explain later than the API.
		framework.Eventually(t, "kubectl "+test.args+" prints "+test.want, func(context.Context) error {
			if out, err := h.Kubectl(t, "", strings.Fields(test.args)...); err != nil || !strings.Contains(out, test.want) {
				return fmt.Errorf("kubectl %s = %v: %s", test.args, err, out)
			}
			return nil
		})
	}
}

// TestRegistrationOnAHubThatRunsOCM checks that the server does not change clusters that the
// controllers of OCM register, and that clusteradm accept names what to use instead.
func TestRegistrationOnAHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	hub, _ := framework.HubThatRunsOCM(t)
	disco := framework.Must(discovery.NewDiscoveryClientForConfig(hub.AdminConfig()))(t)
	if _, err := disco.ServerResourcesForGroupVersion(registerv1alpha1.SchemeGroupVersion.String()); !apierrors.IsNotFound(err) {
		t.Errorf("discovery of %s = %v, want NotFound", registerv1alpha1.SchemeGroupVersion, err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := hub.WriteAdminKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	ocm, kube := framework.OCMClient(t, hub.AdminConfig(), nil), framework.Must(kubernetes.NewForConfig(hub.AdminConfig()))(t)

	p := newPublicRegistration(t, hub, "ocm-public", bootstrapAccount(t, hub))
	p.begin(t, nil)
	name, key := p.request(t, p.bootstrap)
	if out, complaints, code := (&framework.Caller{Kubeconfig: kubeconfig}).Clusteradm(t, "accept", "--clusters="+p.cluster); code == 0 || !strings.Contains(complaints, "this hub runs OCM") {
		t.Errorf("clusteradm accept exits with %d, want an error that says that the hub runs OCM:\n%s%s", code, out, complaints)
	}
	publicAccept(t, hub, p.cluster)
	p.certificate(t, p.bootstrap, name, key)
	accepted := framework.Must(ocm.ClusterV1().ManagedClusters().Get(t.Context(), p.cluster, metav1.GetOptions{}))(t)
	if !accepted.Spec.HubAcceptsClient {
		t.Error("hubAcceptsClient of ocm-public = false, want true")
	}
	accepted.Spec.HubAcceptsClient = false
	framework.Must(ocm.ClusterV1().ManagedClusters().Update(t.Context(), accepted, metav1.UpdateOptions{}))(t)

	// A rendered ClusterPermission proves that the controllers of this server run.
	cp := framework.Permission("registration-on-ocm")
	framework.CreatePermission(t, ocm, cp)
	framework.Eventually(t, "ClusterPermission "+cp.Name+" has a ManifestWork", func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, ocm, cp.Name)
		if err == nil && len(works) == 0 {
			err = errors.New("ManifestWorks = none")
		}
		return err
	})
	denied := framework.Must(ocm.ClusterV1().ManagedClusters().Get(t.Context(), p.cluster, metav1.GetOptions{}))(t)
	if denied.Spec.HubAcceptsClient || len(denied.Finalizers) > 0 || denied.Status.Acceptance != nil || len(denied.Status.Conditions) > 0 || len(denied.Spec.Taints) > 0 {
		t.Errorf("denied ManagedCluster = %+v, want no change by this server", denied)
	}
	labelled := metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + p.cluster}
	roles := framework.Must(kube.RbacV1().ClusterRoles().List(t.Context(), labelled))(t)
	bindings := framework.Must(kube.RbacV1().RoleBindings("").List(t.Context(), labelled))(t)
	namespaces := framework.Must(kube.CoreV1().Namespaces().List(t.Context(), labelled))(t)
	if n := len(roles.Items) + len(bindings.Items) + len(namespaces.Items); n > 0 {
		t.Errorf("objects of this server for ocm-public = %d, want 0", n)
	}
}
