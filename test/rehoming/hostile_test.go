package rehoming_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// bootstrap returns a client with the identity that all agents have before they are registered.
func (h *hub) bootstrap(t *testing.T) versioned.Interface {
	t.Helper()
	config := &rest.Config{Host: h.invitation.Server, BearerToken: h.invitation.Token, TLSClientConfig: rest.TLSClientConfig{CAData: h.invitation.CA}, QPS: -1}
	return framework.Must(versioned.NewForConfig(config))(t)
}

// TestHostileObjects exports a hub and adopts its clusters, while tenants of the first and holders of the bootstrap token of
// both hubs create what would keep the commands from that, or from a higher epoch.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	first := &hub{Fleet: framework.Must(framework.StartFleet(t.Context(), localhub.FleetOptions{
		Dir: filepath.Join(framework.OwnDir(t), "first"), Join: localhub.JoinByRegistration, NoFsync: true,
	}))(t)}
	framework.KillLater(t, first.Kill)
	first.invitation = framework.Must(first.Invite(t.Context()))(t)
	second := startHub(t, "second")
	clusters := first.OCM.ClusterV1().ManagedClusters()
	victim := framework.Must(clusters.Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "victim"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}, metav1.CreateOptions{}))(t)
	framework.Eventually(t, "the cluster is registered", func(ctx context.Context) error {
		_, err := first.HubClient.CoreV1().Namespaces().Get(ctx, victim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = first.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, victim.Name, metav1.GetOptions{})
		return err
	})
	framework.Must(first.bootstrap(t).ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "poison", Annotations: map[string]string{rehoming.EpochAnnotation: "9223372036854775807/x"}},
	}, metav1.CreateOptions{}))(t)
	orphan := work(victim.Name, "orphan")
	orphan.OwnerReferences = []metav1.OwnerReference{{APIVersion: "work.open-cluster-management.io/v9", Kind: "ManifestWork", Name: "gone", UID: "00000000-dead-beef-0000-000000000001"}}
	orphan.Spec = markerWork(victim.Name, "orphan").Spec
	framework.Must(first.OCM.WorkV1().ManifestWorks(victim.Name).Create(t.Context(), orphan, metav1.CreateOptions{}))(t)
	framework.Must(first.OCM.WorkV1().ManifestWorks(victim.Name).Create(t.Context(), markerWork(victim.Name, "first"), metav1.CreateOptions{}))(t)

	file := filepath.Join(t.TempDir(), "hub.gz")
	output := first.clusteradm(t, "hub", "export", file)
	for _, want := range []string{"with epoch 0\n", "orphan in victim: it is not exported"} {
		if !strings.Contains(output, want) {
			t.Errorf("output of clusteradm hub export does not contain %q:\n%s", want, output)
		}
	}

	requests := second.bootstrap(t).ClusterV1().ManagedClusters()
	request := func(name string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"hostile": "true"}}}
	}
	for _, name := range []string{victim.Name, "stranger", "denied"} {
		framework.Must(requests.Create(t.Context(), request(name), metav1.CreateOptions{}))(t)
	}
	// What an administrator does about a request completes only when the controllers run.
	if err := second.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), "denied", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second.clusteradm(t, "hub", "adopt", file, "--dry-run")
	ctx, stop := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	for range 4 {
		attack.Go(func() {
			for ctx.Err() == nil {
				if _, err := requests.Create(ctx, request(victim.Name), metav1.CreateOptions{}); err == nil {
					t.Error("the bootstrap identity has created a ManagedCluster with the name of an existing one")
				}
			}
		})
	}
	output = second.clusteradm(t, "hub", "adopt", file)
	stop()
	attack.Wait()
	if !strings.Contains(output, "with epoch 1.") {
		t.Errorf("output of clusteradm hub adopt does not contain the epoch 1:\n%s", output)
	}
	adopted := framework.Must(second.OCM.ClusterV1().ManagedClusters().Get(t.Context(), victim.Name, metav1.GetOptions{}))(t)
	epoch, err := rehoming.ParseEpoch(adopted.Annotations[rehoming.EpochAnnotation])
	if adopted.UID != victim.UID || !adopted.Spec.HubAcceptsClient || adopted.Labels["hostile"] != "" || err != nil || epoch.Number != 1 {
		t.Errorf("adopted cluster = %s with epoch %v (%v), want the accepted one of the first hub with epoch 1", framework.ToJSON(adopted), epoch, err)
	}
	registration := framework.Must(second.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(t.Context(), victim.Name, metav1.GetOptions{}))(t)
	if registration.Spec.ManagedClusterUID != victim.UID || registration.Annotations[rehoming.AdoptedAnnotation] == "" {
		t.Errorf("registration = %s, want the adopted one", framework.ToJSON(registration))
	}
	works := second.OCM.WorkV1().ManifestWorks(victim.Name)
	framework.Must(works.Get(t.Context(), marker, metav1.GetOptions{}))(t)
	if _, err := works.Get(t.Context(), "orphan", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() of the ManifestWork that is not exported = %v, want NotFound", err)
	}
	if stranger := framework.Must(second.OCM.ClusterV1().ManagedClusters().Get(t.Context(), "stranger", metav1.GetOptions{}))(t); stranger.Spec.HubAcceptsClient {
		t.Error("request of another cluster = accepted, want pending")
	}
}
