package localhub_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	return framework.Must(kubernetes.NewForConfig(config))(t)
}

// registering starts a fleet whose clusters register: cluster1 with csr, cluster2 with aws-irsa.
func registering(t *testing.T, dir string) (*localhub.Fleet, *fakeaws.Server, *[]string) {
	t.Helper()
	aws := framework.Must(fakeaws.New(fakeaws.Options{StateFile: filepath.Join(dir, "aws.json")}))(t)
	framework.KillLater(t, aws.Close)
	var commands []string
	fleet, err := localhub.NewFleet(localhub.FleetOptions{
		Dir: dir, NoFsync: true, Clusters: []string{"cluster1", "cluster2"}, HubAgent: true,
		Join: localhub.JoinByRegistration, AWS: aws, IRSA: []string{"cluster2"},
		Ran: func(_ *localhub.Cluster, words []string, _ string) {
			commands = append(commands, strings.Join(words, " "))
		},
		Progress: func(step string, elapsed time.Duration) { t.Logf("%6.1fs %s", elapsed.Seconds(), step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, fleet.Kill)
	if err := fleet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fleet, aws, &commands
}

// TestFleetThatRegisters checks that clusters join with the commands of administrators only, and
// that a new Fleet continues with their data.
func TestFleetThatRegisters(t *testing.T) {
	framework.UseSlots(t, 3)
	dir := t.TempDir()
	delivers := func(fleet *localhub.Fleet, name string) {
		t.Helper()
		for _, member := range fleet.Members {
			work := framework.ConfigMapWork(name)
			work.Namespace = member.Name
			ocm := framework.OCMClient(t, fleet.Hub.AdminConfig(), nil)
			framework.Must(ocm.WorkV1().ManifestWorks(member.Name).Create(t.Context(), work, metav1.CreateOptions{}))(t)
			configMaps := clientFor(t, member.AdminConfig()).CoreV1().ConfigMaps("default")
			await.Eventually(t, "ConfigMap "+name+" of the ManifestWork exists on "+member.Name, func(ctx context.Context) error {
				_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
				return err
			})
		}
	}
	requests := func(fleet *localhub.Fleet) []string {
		t.Helper()
		found := framework.Must(clientFor(t, fleet.Hub.AdminConfig()).CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel}))(t)
		var clusters []string
		for _, request := range found.Items {
			clusters = append(clusters, request.Labels[clusterv1.ClusterNameLabel])
		}
		slices.Sort(clusters)
		return clusters
	}

	fleet, aws, commands := registering(t, dir)
	delivers(fleet, "first")
	if asked := requests(fleet); !slices.Equal(asked, []string{"cluster1", localhub.HubClusterName}) {
		t.Errorf("clusters with CertificateSigningRequests = %v, want cluster1 and %s", asked, localhub.HubClusterName)
	}
	for _, want := range []string{"clusteradm init", "clusteradm join", "POST /apis/register", "aws iam create-role", "clusteradm accept --clusters cluster1,cluster2,local-cluster --wait"} {
		if !slices.ContainsFunc(*commands, func(command string) bool { return strings.HasPrefix(command, want) }) {
			t.Errorf("commands = %q, want one that begins with %q", *commands, want)
		}
	}

	kill := func(fleet *localhub.Fleet, aws *fakeaws.Server) {
		t.Helper()
		if err := errors.Join(fleet.Kill(), aws.Close()); err != nil {
			t.Fatal(err)
		}
	}
	kill(fleet, aws)
	again, aws, _ := registering(t, dir)
	delivers(again, "second")
	if asked := requests(again); len(asked) != 2 {
		t.Errorf("clusters with CertificateSigningRequests after a restart = %v, want 2", asked)
	}

	// A cluster that is being deleted when the fleet stops joins again.
	if err := again.Members[0].Agent.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := framework.OCMClient(t, again.Hub.AdminConfig(), nil).ClusterV1().ManagedClusters().Delete(t.Context(), "cluster1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kill(again, aws)
	last, _, _ := registering(t, dir)
	delivers(last, "third")
}
