package rehoming_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// simulatedAgents is the default number of simulated agents. REHOMED sets another.
const simulatedAgents = 20

// TestHubLost replaces a hub that was killed, and then its successor, which lives. It checks that the objects on the
// clusters stay as they are, that exactly one hub writes, that an interrupted adoption continues, and that nobody takes
// the name of another cluster.
func TestHubLost(t *testing.T) {
	framework.Slots(t, 5)
	first := startHub(t, "first", cluster1, cluster2)
	members := membersOf(t, first)
	second := startHub(t, "second")

	for _, m := range members {
		for _, w := range []string{"app-1", "app-2"} {
			framework.Must(first.OCM.WorkV1().ManifestWorks(m.Name).Create(t.Context(), appWork(m.Name, w), metav1.CreateOptions{}))(t)
		}
		framework.Must(first.OCM.WorkV1().ManifestWorks(m.Name).Create(t.Context(), markerWork(m.Name, "first"), metav1.CreateOptions{}))(t)
	}
	permission := framework.PermissionIn(cluster1, "developers")
	framework.Must(first.OCM.RbacV1alpha1().ClusterPermissions(cluster1).Create(t.Context(), permission, metav1.CreateOptions{}))(t)
	account := framework.NewAccount(cluster1, "pipeline")
	framework.Must(first.OCM.AuthenticationV1beta1().ManagedServiceAccounts(cluster1).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	for _, m := range members {
		for _, w := range []string{"app-1", "app-2", marker} {
			framework.Eventually(t, "ManifestWork "+w+" of "+m.Name+" is applied", func(ctx context.Context) error { return applied(ctx, first, m.Name, w) })
		}
	}
	framework.Eventually(t, "the ClusterPermission is applied", func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, first.OCM, permission.Name)
		if err == nil && len(works) == 0 {
			err = errors.New("it has no ManifestWork")
		}
		if err != nil {
			return err
		}
		return applied(ctx, first, cluster1, works[0].Name)
	})
	first.backedBy(t, second, members)
	simulated := startSimulated(t, first, second, members[1], framework.Environment(t, "REHOMED", simulatedAgents))
	file := first.export(t)
	before := map[string]map[string]string{}
	for _, m := range members {
		before[m.Name] = m.objects(t)
		if len(before[m.Name]) < 4 {
			t.Fatalf("objects of %s = %v, want those of two applications", m.Name, before[m.Name])
		}
	}
	sameObjects := func(when string) {
		t.Helper()
		for _, m := range members {
			if now := m.objects(t); !maps.Equal(now, before[m.Name]) {
				t.Errorf("objects of %s %s = %v, want no change of %v", m.Name, when, now, before[m.Name])
			}
		}
	}

	// A decision of the first hub is newer than this request, which somebody prepared on the second.
	prepared := takeover(t, second, cluster1, "prepared")
	if output, err := adm.Run(t.Context(), first.Hub, "hub", "adopt", file); err == nil || !strings.Contains(err.Error(), "the hub is not new") {
		t.Errorf("clusteradm hub adopt on the exported hub = %s, %v, want a refusal", output, err)
	}
	if output, err := adm.Run(t.Context(), first.Hub, "init", "--apiserver=external", "--standby"); err == nil || !strings.Contains(err.Error(), "the hub has clusters") {
		t.Errorf("clusteradm init --standby on a hub with clusters = %s, %v, want a refusal", output, err)
	}
	second.clusteradm(t, "hub", "adopt", file, "--dry-run")
	if clusters := framework.Must(second.OCM.ClusterV1().ManagedClusters().List(t.Context(), metav1.ListOptions{}))(t).Items; len(clusters) > 0 {
		t.Fatalf("ManagedClusters after a dry run = %d, want none", len(clusters))
	}

	first.kill(t)
	began := time.Now()
	t.Log(second.clusteradm(t, "hub", "adopt", file))
	t.Logf("adopted after %.1fs", time.Since(began).Seconds())
	attempt := takeover(t, second, cluster1, "attempt")
	for _, m := range members {
		framework.Eventually(t, m.Name+" has moved", func(ctx context.Context) error { return second.movedTo(ctx, m.Name) })
		t.Logf("%s re-homed after %.1fs", m.Name, time.Since(began).Seconds())
	}
	simulated.await(t, second)
	t.Logf("%d simulated agents re-homed after %.1fs", simulated.count, time.Since(began).Seconds())
	second.commands(t, members, "second")
	sameObjects("after the adoption")
	for _, m := range members {
		obeysOther(t, m.Name, m.audit(t), 1, "first")
	}
	framework.Eventually(t, "the account has a token on the second hub", func(ctx context.Context) error {
		_, err := second.HubClient.CoreV1().Secrets(cluster1).Get(ctx, account.Name, metav1.GetOptions{})
		return err
	})
	for _, request := range []string{prepared, attempt} {
		notApproved(t, second, request)
	}

	// The first hub returns, and has other wishes.
	for _, process := range first.Hub.Processes() {
		if err := process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		framework.Eventually(t, "the first hub stores other wishes", func(ctx context.Context) error { return first.mark(ctx, m.Name, "first again") })
		framework.Eventually(t, "the first hub deletes an application", func(ctx context.Context) error {
			if err := first.OCM.WorkV1().ManifestWorks(m.Name).Delete(ctx, "app-1", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				return err
			}
			return nil
		})
	}
	if err := members[0].Agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the first hub deletes a cluster", func(ctx context.Context) error {
		return first.OCM.ClusterV1().ManagedClusters().Delete(ctx, cluster2, metav1.DeleteOptions{})
	})
	second.commands(t, members, "second again")
	sameObjects("after the return of the first hub")
	for _, m := range members {
		if err := m.has(t.Context(), "second again"); err != nil {
			t.Error(err)
		}
		for _, event := range m.audit(t) {
			if event.RequestObject != nil && strings.Contains(string(event.RequestObject.Raw), "first again") {
				t.Errorf("%s of %s on %s writes for the first hub, want none", event.Verb, event.ObjectRef.Name, m.Name)
			}
		}
	}
	simulated.stop()
	first.kill(t)

	t.Run("two live hubs", func(t *testing.T) { twoLiveHubs(t, second, members, sameObjects) })
}

// applied returns nil if a ManifestWork is applied.
func applied(ctx context.Context, h *hub, cluster, name string) error {
	w, err := h.OCM.WorkV1().ManifestWorks(cluster).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range w.Status.Conditions {
		if condition.Type == "Applied" && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == w.Generation {
			return nil
		}
	}
	return fmt.Errorf("conditions of %s = %v, want Applied", name, w.Status.Conditions)
}

// twoLiveHubs adopts the clusters of a hub that lives and keeps writing. The adoption is killed at each step. One process
// of an agent is stopped while the clusters move.
func twoLiveHubs(t *testing.T, second *hub, members []*member, sameObjects func(string)) {
	third := startHub(t, "third")
	second.backedBy(t, third, members)
	// Another process of the agent of the first cluster, such as a Pod that a node did not end.
	stale := framework.Must(localhub.NewAgent(localhub.AgentOptions{Managed: members[0].Cluster, ClusterName: cluster1, Dir: t.TempDir()}))(t)
	if err := stale.Join(t.Context(), adm, second.invitation); err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, stale.Kill)
	if err := stale.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Must(second.OCM.WorkV1().ManifestWorks(cluster1).Create(t.Context(), work(cluster1, withdrawn, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"withdrawn","namespace":"default"}}`), metav1.CreateOptions{}))(t)
	framework.Eventually(t, "the ManifestWork to delete is applied", func(ctx context.Context) error { return applied(ctx, second, cluster1, withdrawn) })
	file := second.export(t)
	if err := syscall.Kill(stale.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	writing := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			for _, m := range members {
				_ = second.mark(ctx, m.Name, fmt.Sprintf("live %d", n))
			}
		}
		writing <- n
	}()
	const importing, raising = "import the objects", "raise the epoch"
	begun := sets.New[string]()
	for {
		step, output := third.adoptUntil(t, begun, file)
		if step == "" {
			t.Logf("the adoption was killed at %d steps; the last attempt:\n%s", begun.Len(), output)
			break
		}
		begun.Insert(step)
		switch step {
		case importing:
			// The controllers would act on half of the objects.
			if output, err := adm.Run(t.Context(), third.Hub, "init", "--apiserver=external"); err == nil || !strings.Contains(err.Error(), "an adoption has not ended") {
				t.Errorf("clusteradm init during an adoption = %s, %v, want a refusal", output, err)
			}
		case raising:
			third.changeEarly(t)
		}
	}
	if !begun.HasAll(importing, raising) {
		t.Errorf("steps at which the adoption was killed = %v, want all", sets.List(begun))
	}
	third.keepsChanges(t)
	if output := third.clusteradm(t, "hub", "adopt", file); !strings.Contains(output, "already adopted") {
		t.Errorf("clusteradm hub adopt after the adoption = %s, want that it is done", output)
	}
	for _, m := range members {
		framework.Eventually(t, m.Name+" has moved", func(ctx context.Context) error { return third.movedTo(ctx, m.Name) })
	}
	if err := syscall.Kill(stale.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	third.commands(t, members, "third")
	if err := await.Poll(t.Context(), func(context.Context) error {
		log, err := os.ReadFile(stale.LogFile)
		if err == nil && !strings.Contains(string(log), "has moved the cluster to another hub") {
			err = errors.New("its log does not say so")
		}
		return err
	}); err != nil {
		t.Errorf("the stopped process has not noticed that the cluster has moved: %v", err)
	}
	third.commands(t, members, "third again")
	stop()
	if writes := <-writing; writes < 10 {
		t.Errorf("writes on the second hub = %d, want many", writes)
	}
	sameObjects("after the second adoption")
	for _, m := range members {
		if err := m.has(t.Context(), "third again"); err != nil {
			t.Error(err)
		}
		obeysOther(t, m.Name, m.audit(t), 2, "live")
		epoch := framework.Must(m.secretData(t.Context(), "hub-epoch"))(t)
		if parsed, err := rehoming.ParseEpoch(epoch); err != nil || parsed.Number != 2 {
			t.Errorf("epoch of %s = %q, %v, want 2", m.Name, epoch, err)
		}
	}
}

// withdrawn is a ManifestWork that a user deletes during an adoption.
const withdrawn = "withdrawn"

// changeEarly makes the changes of users who work with the hub before its adoption has ended.
func (h *hub) changeEarly(t *testing.T) {
	t.Helper()
	framework.Eventually(t, "a ManifestWork is changed during the adoption", func(ctx context.Context) error { return h.mark(ctx, cluster1, "early") })
	if err := h.OCM.WorkV1().ManifestWorks(cluster1).Delete(t.Context(), withdrawn, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deny := []byte(`{"spec":{"hubAcceptsClient":false}}`)
	framework.Must(h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), simulatedName(0), types.MergePatchType, deny, metav1.PatchOptions{}))(t)
	if err := h.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), simulatedName(1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// keepsChanges checks that the rest of the adoption has not reverted the changes of changeEarly.
func (h *hub) keepsChanges(t *testing.T) {
	t.Helper()
	if got := framework.Must(h.OCM.WorkV1().ManifestWorks(cluster1).Get(t.Context(), marker, metav1.GetOptions{}))(t); !strings.Contains(string(got.Spec.Workload.Manifests[0].Raw), "early") {
		t.Errorf("ManifestWork that was changed during the adoption = %s, want the change", got.Spec.Workload.Manifests[0].Raw)
	}
	if denied := framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), simulatedName(0), metav1.GetOptions{}))(t); denied.Spec.HubAcceptsClient {
		t.Error("ManagedCluster that was denied during the adoption = accepted, want denied")
	}
	framework.Eventually(t, "what was deleted during the adoption is gone", func(ctx context.Context) error {
		_, err := h.OCM.WorkV1().ManifestWorks(cluster1).Get(ctx, withdrawn, metav1.GetOptions{})
		if err == nil {
			err = errors.New("the ManifestWork exists")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		if cluster, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, simulatedName(1), metav1.GetOptions{}); !apierrors.IsNotFound(err) && (err != nil || cluster.DeletionTimestamp == nil) {
			return fmt.Errorf("the ManagedCluster stays: %v, %v", cluster, err)
		}
		return nil
	})
}

// takeover requests a certificate for an agent of another cluster, with the bootstrap identity that all clusters have and
// a proof by another key. It returns the name of the request.
func takeover(t *testing.T, h *hub, cluster, name string) string {
	t.Helper()
	config := &rest.Config{Host: h.invitation.Server, BearerToken: h.invitation.Token, TLSClientConfig: rest.TLSClientConfig{CAData: h.invitation.CA}}
	client := framework.Must(kubernetes.NewForConfig(config))(t)
	key := framework.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	group := clusterv1.AgentGroups(cluster)[0]
	encoded := framework.Must(cert.MakeCSR(key, &pkix.Name{CommonName: group + ":" + name, Organization: []string{group, clusterv1.AllAgentsGroup}}, nil, nil))(t)
	own := framework.Must(rehoming.NewKey())(t)
	request := framework.Must(client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name: cluster + "-" + name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
			Annotations: map[string]string{rehoming.ProofAnnotation: framework.Must(rehoming.Prove(own, encoded))(t)},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: encoded, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{}))(t)
	// The bootstrap identity cannot change what the hub knows about the cluster either.
	ocm := framework.Must(versioned.NewForConfig(config))(t)
	if _, err := ocm.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, "application/merge-patch+json", []byte(`{"status":{"clusterClaims":[]}}`), metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("patch of the claims of %s with the bootstrap identity = %v, want 403", cluster, err)
	}
	return request.Name
}

// notApproved checks that a request is pending or denied.
func notApproved(t *testing.T, h *hub, name string) {
	t.Helper()
	request := framework.Must(h.HubClient.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{}))(t)
	for _, condition := range request.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved {
			t.Errorf("CertificateSigningRequest %s = approved: %s, want not approved", name, condition.Message)
		}
	}
	if len(request.Status.Certificate) > 0 {
		t.Errorf("CertificateSigningRequest %s has a certificate, want none", name)
	}
}
