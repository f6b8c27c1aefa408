package registration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestHubThatIsNotEKS checks that a hub outside EKS registers clusters with both drivers and
// without calls to EKS. The hub signs client certificates and runs aws-iam-authenticator.
func TestHubThatIsNotEKS(t *testing.T) {
	t.Parallel()
	const byCSR, byIRSA = "by-csr", "by-irsa"
	aws := framework.Must(fakeaws.New(fakeaws.Options{Region: faultsRegion}))(t)
	framework.StopLater(t, func(context.Context) error { return aws.Close() })
	f := ownFleet(t, localhub.FleetOptions{
		AWS: aws, ForeignHub: true, Join: localhub.JoinByRegistration,
		Clusters: []string{byCSR, byIRSA}, IRSA: []string{byIRSA},
	})

	for cluster, want := range map[string]registerv1alpha1.RegistrationDriver{byCSR: registerv1alpha1.DriverCSR, byIRSA: registerv1alpha1.DriverAWSIRSA} {
		framework.Eventually(t, "ManagedCluster "+cluster+" is registered by "+string(want), func(ctx context.Context) error {
			return registered(ctx, f, cluster, want)
		})
	}
	identity := irsa.Identity{
		Hub: framework.Must(irsa.ParseARN(localhub.HubARN))(t), Managed: framework.Must(irsa.ParseARN(localhub.ManagedARN(byIRSA)))(t),
	}
	auth := framework.Must(f.HubClient.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "aws-auth", metav1.GetOptions{}))(t)
	if roles := auth.Data["mapRoles"]; !strings.Contains(roles, identity.HubRoleARN()) || strings.Contains(roles, byCSR) {
		t.Errorf("mapRoles = %s, want an entry of %s only", roles, identity.HubRoleARN())
	}
	for _, call := range aws.Calls() {
		if call.Service == "eks" {
			t.Errorf("%s calls EKS %s, want no call to EKS", call.Caller, call.Operation)
		}
	}

	inspect := []string{"--managed-cluster-arn", localhub.ManagedARN(byIRSA), "--eks-auth=ConfigMap"}
	for _, account := range []string{faultsHubAccount, faultsManagedAccount} {
		output, err := doctor(t, aws, account, f.Kubeconfig, inspect...)
		if err != nil || strings.Contains(output, "missing ") || !strings.Contains(output, "ok       entry of "+identity.HubRoleARN()) {
			t.Errorf("clusteradm doctor aws for account %s prints %s, %v, want nothing missing", account, output, err)
		}
	}
	auth.Data["mapRoles"] = strings.ReplaceAll(auth.Data["mapRoles"], identity.HubRoleARN(), identity.HubRoleARN()+"-other")
	framework.Must(f.HubClient.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(t.Context(), auth, metav1.UpdateOptions{}))(t)
	if output, err := doctor(t, aws, faultsHubAccount, f.Kubeconfig, inspect...); err == nil || !strings.Contains(output, "missing  entry of "+identity.HubRoleARN()) {
		t.Errorf("clusteradm doctor aws without the entry prints %s, %v, want the missing entry", output, err)
	}

	// Nothing on this hub reads access entries. With --eks-auth=AccessEntry, the server reports this
	// before it accepts a cluster, and it stays ready.
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Server.Args = append(f.Server.Args, "--eks-auth=AccessEntry")
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "there is no EKS cluster " + localhub.HubARN
	framework.Eventually(t, "the server logs the missing EKS cluster", func(context.Context) error {
		log, err := os.ReadFile(f.Server.LogFile)
		if err == nil && !strings.Contains(string(log), want) {
			err = fmt.Errorf("log does not contain %q%s", want, f.Server.LogTail())
		}
		return err
	})
	manifest := fmt.Sprintf(`{"apiVersion":"cluster.open-cluster-management.io/v1","kind":"ManagedCluster","metadata":{"name":"later","annotations":{"eks-managed-cluster-arn":%q}},"spec":{"hubAcceptsClient":true}}`, localhub.ManagedARN("later"))
	output, err := f.Kubectl(t, manifest, "create", "--dry-run=server", "-f", "-")
	if err != nil || !strings.Contains(output, `Warning: ManagedCluster "later" gets no access yet, since the hub does not meet a requirement of the driver aws-irsa: `+want) {
		t.Errorf("accepting a cluster prints %q, %v, want a warning with %q", output, err, want)
	}
}

// registered returns why a cluster is not registered by the driver, with an agent that has joined.
func registered(ctx context.Context, f *fleet, name string, driver registerv1alpha1.RegistrationDriver) error {
	record, err := f.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if record.Spec.Driver != driver {
		return fmt.Errorf("driver = %s, want %s", record.Spec.Driver, driver)
	}
	cluster, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, kind := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, kind) {
			return fmt.Errorf("conditions = %+v, want %s", cluster.Status.Conditions, kind)
		}
	}
	return nil
}
