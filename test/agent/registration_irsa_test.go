package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// tokenFileEnv makes this test binary a credential plugin that prints the token in a file.
const tokenFileEnv = "AGENT_TEST_TOKEN_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(tokenFileEnv); file != "" && slices.Contains(os.Args, "aws-token") {
		token, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}`, token)
		return
	}
	os.Exit(framework.Run(m))
}

// TestRegistrationWithIRSA registers with an upstream OCM hub on EKS, which reads annotations instead
// of claims. The token of a ServiceAccount that the hub maps to the cluster replaces the AWS token.
func TestRegistrationWithIRSA(t *testing.T) {
	f := own(t)
	account, err := f.control.ServiceAccountConfig(t.Context(), "default", "role")
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(account.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(tokenFileEnv, tokenFile)
	hub := newPublicHub(t, f.control)
	hub.extra = []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "role"}}

	const args = "aws-token --region us-west-2 --cluster-name hub-cluster1 --role arn:aws:iam::123456789012:role/ocm-hub-"
	j := f.joiner(t, hub)
	register := j.config.Registration
	register.Driver = registerv1alpha1.DriverAWSIRSA
	register.HubCluster = irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: "123456789012", ClusterName: "hub-cluster1"}
	register.ManagedCluster = irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: "123456789012", ClusterName: "managed-cluster1"}
	identity := irsa.Identity{Hub: register.HubCluster, Managed: register.ManagedCluster}
	j.run()
	j.says("waiting for the hub to accept " + j.name)
	annotations := hub.cluster(j.name).Annotations
	for key, want := range map[string]string{
		"eks-managed-cluster-arn":                                          identity.Managed.String(),
		"agent.open-cluster-management.io/managed-cluster-arn":             identity.Managed.String(),
		"agent.open-cluster-management.io/managed-cluster-iam-role-suffix": identity.Hash(),
	} {
		if annotations[key] != want {
			t.Errorf("annotation %s = %q, want %q", key, annotations[key], want)
		}
	}
	requests, err := hub.kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + j.name})
	if err != nil || len(requests.Items) > 0 {
		t.Errorf("CertificateSigningRequests of the cluster = %d, %v, want 0", len(requests.Items), err)
	}
	// The cluster is accepted, but its identity is not provisioned yet.
	hub.change(j.name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Spec.HubAcceptsClient = true })
	hub.condition(j.name, metav1.ConditionFalse, clusterv1.ReasonError)
	j.says("its identity is not ready: decided by the test")
	hub.accept(j.name)
	j.ready()
	j.applies("one", nil)

	secret := j.secret()
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	exec := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Exec
	if exec == nil || exec.APIVersion != "client.authentication.k8s.io/v1" || strings.Join(exec.Args, " ") != args+identity.Hash() {
		t.Errorf("exec in the kubeconfig = %+v, want version v1 with arguments %s", exec, args+identity.Hash())
	}
	if _, ok := secret.Data["tls.key"]; ok {
		t.Error("the Secret contains tls.key, want none")
	}
	// A restart requires no bootstrap kubeconfig.
	j.kill()
	register.BootstrapKubeconfig = filepath.Join(t.TempDir(), "none")
	j.run()
	j.ready()
}
