package rehoming_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	successorARN = "arn:aws:eks:us-east-1:111122223333:cluster/successor"
)

// TestAdoptedRoles adopts a cluster that authenticates with IAM roles. The command must print what its administrator has to
// do, and that must be enough: the cluster stays accepted, and no other cluster can claim its ARN.
func TestAdoptedRoles(t *testing.T) {
	framework.Slots(t, 3)
	aws := framework.Must(fakeaws.New(fakeaws.Options{Region: "us-west-2"}))(t)
	framework.StopLater(t, func(context.Context) error { return aws.Close() })
	start := func(name, arn string, clusters ...string) *hub {
		h := &hub{Fleet: framework.Must(framework.StartFleet(t.Context(), localhub.FleetOptions{
			Dir: filepath.Join(framework.OwnDir(t), name), Clusters: clusters, IRSA: clusters, AWS: aws, HubARN: arn,
			Join: localhub.JoinByRegistration, NoFsync: true,
			HubArgs: []string{"--authentication-token-webhook-cache-ttl=0s"},
		}))(t)}
		framework.KillLater(t, h.Kill)
		h.invitation = framework.Must(h.Invite(t.Context()))(t)
		return h
	}
	first := start("first", localhub.HubARN, cluster1)
	members := membersOf(t, first)
	second := start("second", successorARN)
	framework.Must(first.OCM.WorkV1().ManifestWorks(cluster1).Create(t.Context(), markerWork(cluster1, "first"), metav1.CreateOptions{}))(t)
	first.commands(t, members, "first")
	before := framework.Must(members[0].client.CoreV1().ConfigMaps("default").Get(t.Context(), marker, metav1.GetOptions{}))(t)

	file := filepath.Join(t.TempDir(), "hub.gz")
	first.clusteradm(t, "hub", "export", file)
	first.kill(t)
	output := second.clusteradm(t, "hub", "adopt", file)
	managed := framework.Must(irsa.ParseARN(localhub.ManagedARN(cluster1)))(t)
	former := irsa.Identity{Hub: framework.Must(irsa.ParseARN(localhub.HubARN))(t), Managed: managed}
	wanted := irsa.Identity{Hub: framework.Must(irsa.ParseARN(successorARN))(t), Managed: managed}
	join := []string{"--registration-auth aws-irsa", "--eks-hub-cluster-arn " + successorARN, "--managed-cluster-arn " + managed.String()}
	for _, want := range append([]string{
		"--cluster-name " + cluster1, wanted.ManagedClusterRoleARN(), wanted.HubRoleARN(), former.ManagedClusterRoleARN(), former.HubRoleARN(),
	}, join...) {
		if !strings.Contains(output, want) {
			t.Errorf("output of clusteradm hub adopt does not contain %q:\n%s", want, output)
		}
	}

	adopted := framework.Must(second.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(t.Context(), cluster1, metav1.GetOptions{}))(t)
	if claim := adopted.Spec.IRSA; adopted.Spec.Driver != registerv1alpha1.DriverAWSIRSA || claim == nil || claim.ManagedClusterARN != managed.String() {
		t.Errorf("spec of the adopted registration = %s, want the claim of %s", framework.ToJSON(adopted.Spec), managed)
	}
	thief := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "thief", Annotations: map[string]string{registration.ARNAnnotation: managed.String()}}}
	if _, err := second.OCM.ClusterV1().ManagedClusters().Create(t.Context(), thief, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a claim of the ARN by another cluster = %v, want status 422", err)
	}

	// The administrator of the cluster follows the output.
	agent := members[0].Agent
	if err := agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := agent.Join(t.Context(), adm, second.invitation, strings.Fields(strings.Join(join, " "))...); err != nil {
		t.Fatal(err)
	}
	if err := agent.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Must(localhub.MakeManagedRole(t.Context(), second.Hub, members[0].Cluster, agentNamespace, nil))(t)
	second.commands(t, members, "second")
	if after := framework.Must(members[0].client.CoreV1().ConfigMaps("default").Get(t.Context(), marker, metav1.GetOptions{}))(t); after.UID != before.UID {
		t.Errorf("UID of an object on the cluster after the adoption = %s, want %s", after.UID, before.UID)
	}
}
