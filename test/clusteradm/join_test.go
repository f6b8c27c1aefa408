package clusteradm_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicHub returns a hub that runs OCM, and the values of the flags to join it.
func publicHub(t *testing.T) (hub *localhub.Cluster, server, token, ca string) {
	t.Helper()
	hub = clusters.cluster(t, "public", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	words := joinWords(t, run(t, hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN).done(t).out)
	ocm := ocmOf(t, hub)
	await.Eventually(t, "the hub serves ManagedClusters", func(ctx context.Context) error {
		_, err := ocm.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		return err
	})
	return hub, words["--hub-apiserver"], words["--hub-token"], words["--ca-data"]
}

const agentImage = "registry.example.com/agent:v1"

// joinArgs returns the arguments of a command that joins the hub.
func joinArgs(server, token, ca, cluster string, more ...string) []string {
	return append([]string{"join", "--hub-apiserver", server, "--hub-token", token, "--ca-data", ca, "--cluster-name", cluster, "--image", agentImage}, more...)
}

func TestJoinInstallsAnAgent(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	args := joinArgs(server, token, ca, "joining", "--image=registry.example.com/hub:v2")
	run(t, managed, args...).done(t).shows(t, "deployment.apps/agent in open-cluster-management-agent created", "clusteradm accept --clusters joining")
	for line := range strings.Lines(run(t, managed, args...).done(t).out) {
		if strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " configured\n") {
			t.Errorf("second join printed %q, want all objects unchanged", line)
		}
	}

	claims := schema.GroupVersionResource{Group: clusterv1.GroupName, Version: "v1alpha1", Resource: "clusterclaims"}
	objects, err := dynamic.NewForConfig(managed.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the cluster serves ClusterClaims", func(ctx context.Context) error {
		_, err := objects.Resource(claims).List(ctx, metav1.ListOptions{})
		return err
	})

	// The agent can send requests to the hub with its bootstrap kubeconfig.
	secret, err := kube.CoreV1().Secrets(defaultAgentNamespace).Get(t.Context(), bootstrapSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[kubeconfigKey])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "joining-absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(CertificateSigningRequest) with the bootstrap kubeconfig = %v, want NotFound", err)
	}

	deployment, err := kube.AppsV1().Deployments(defaultAgentNamespace).Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verifyAgent(t, deployment, "--cluster-name=joining", "--registration-auth=csr", "--registration-namespace="+defaultAgentNamespace)
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/hub:v2" {
		t.Errorf("image of the agent = %s, want registry.example.com/hub:v2, the value of --image", image)
	}
	mayKeepItsSecret(t, kube, defaultAgentNamespace)
}

// verifyAgent checks the mount of an agent's bootstrap kubeconfig, and its arguments.
func verifyAgent(t *testing.T, deployment *appsv1.Deployment, args ...string) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	for _, arg := range append(args, "--bootstrap-kubeconfig="+bootstrapKubeconfigFile, "--bootstrap-kubeconfig-secret="+bootstrapSecret) {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments of the agent = %q, want %s among them", container.Args, arg)
		}
	}
	volumes := map[string]string{}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			volumes[volume.Name] = volume.Secret.SecretName
		}
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool {
		return mount.MountPath == filepath.Dir(bootstrapKubeconfigFile) && volumes[mount.Name] == bootstrapSecret
	}) {
		t.Errorf("mounts = %v of %v, want Secret %s at %s", container.VolumeMounts, volumes, bootstrapSecret, bootstrapKubeconfigFile)
	}
}

// mayKeepItsSecret checks that the agent of a namespace can store the credentials that the hub issues.
func mayKeepItsSecret(t *testing.T, kube kubernetes.Interface, namespace string) {
	t.Helper()
	roles, err := kube.RbacV1().RoleBindings(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: agentName}
	if !slices.ContainsFunc(roles.Items, func(binding rbacv1.RoleBinding) bool { return slices.Contains(binding.Subjects, subject) }) {
		t.Errorf("RoleBindings in %s = %v, want one for the agent", namespace, roles.Items)
	}
}

func TestJoinByIAMRoles(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	const namespace = "agent-of-eks"
	run(t, managed, joinArgs(server, token, ca, "eks1", "--registration-auth=aws-irsa", "--agent-namespace", namespace,
		"--eks-hub-cluster-arn", hubARN, "--managed-cluster-arn", managedARN)...).done(t).
		shows(t, "ocm-managed-cluster-7f8141296c75f2871e3d030f85c35692", "aws iam create-role", "system:serviceaccount:"+namespace+":agent")
	kube := kubeOf(t, managed)
	account, err := kube.CoreV1().ServiceAccounts(namespace).Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if role := account.Annotations[roleARNAnnotation]; role != "arn:aws:iam::123456789012:role/ocm-managed-cluster-7f8141296c75f2871e3d030f85c35692" {
		t.Errorf("role of the agent's ServiceAccount = %q, want ocm-managed-cluster-…", role)
	}
	deployment, err := kube.AppsV1().Deployments(namespace).Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verifyAgent(t, deployment, "--registration-auth=aws-irsa", "--hub-cluster-arn="+hubARN, "--managed-cluster-arn="+managedARN)
}

// `aws eks update-kubeconfig` names clusters by their ARNs.
func TestJoinTakesTheARNFromTheKubeconfig(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := managed.WriteAdminKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	config.Clusters[managedARN] = config.Clusters[current.Cluster]
	config.Contexts["eks"] = &clientcmdapi.Context{Cluster: managedARN, AuthInfo: current.AuthInfo}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	args := joinArgs(server, token, ca, "eks2", "--registration-auth=awsirsa", "--agent-namespace=agent-of-arn", "--hub-cluster-arn", hubARN)
	runCommand(t, append([]string{"--kubeconfig", path}, args...)...).refused(t, "--managed-cluster-arn is required")
	runCommand(t, append([]string{"--kubeconfig", path, "--context=eks"}, args...)...).done(t).shows(t, "7f8141296c75f2871e3d030f85c35692")
}

// Two hubs need two agents. Removing one agent does not revoke the permissions of the other.
func TestJoinTwoHubs(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	namespaces := []string{"agent-of-hub-a", "agent-of-hub-b"}
	for _, namespace := range namespaces {
		run(t, managed, joinArgs(server, token, ca, "two-hubs", "--agent-namespace", namespace)...).done(t)
	}
	bindings, err := kube.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces {
		if !slices.ContainsFunc(bindings.Items, func(binding rbacv1.ClusterRoleBinding) bool {
			return binding.RoleRef.Name == agentClusterRole && slices.Contains(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: agentName})
		}) {
			t.Errorf("ClusterRoleBindings = %v, want one for the agent in %s", bindings.Items, namespace)
		}
		accounts, err := kube.RbacV1().RoleBindings(accountsNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(accounts.Items, func(binding rbacv1.RoleBinding) bool { return binding.Subjects[0].Namespace == namespace }) {
			t.Errorf("RoleBindings in %s = %v, want one for the agent in %s", accountsNamespace, accounts.Items, namespace)
		}
	}
	// The first agent is removed. The second stays unchanged.
	run(t, managed, "unjoin", "--cluster-name=two-hubs", "--agent-namespace", namespaces[0]).done(t)
	if _, err := kube.AppsV1().Deployments(namespaces[1]).Get(t.Context(), agentName, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(Deployment of the other agent) = %v, want nil", err)
	}
	if _, err := kube.RbacV1().ClusterRoles().Get(t.Context(), agentClusterRole, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(ClusterRole of the other agent) = %v, want nil", err)
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Get(t.Context(), agentClusterRole+":"+namespaces[0], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ClusterRoleBinding of the removed agent) = %v, want NotFound", err)
	}
}

// If the agent could not join, for example with an expired token, join fails immediately. Otherwise
// the managed cluster would show no error.
func TestJoinChecksTheHub(t *testing.T) {
	hub, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	const namespace = "agent-of-nobody"
	arg := "--agent-namespace=" + namespace
	run(t, managed, joinArgs(server, "expired", ca, "c1", arg)...).refused(t, "rejects --hub-token", "clusteradm get token")
	other := managed.AnonymousConfig()
	wrong := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(wrong, other.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, managed, "join", "--hub-apiserver", server, "--hub-token", token, "--ca-file", wrong, "--cluster-name=c1", arg, "--image", agentImage).refused(t, "certificate")
	run(t, managed, "join", "--hub-apiserver", server, "--hub-token", token, "--cluster-name=c1", arg, "--image", agentImage).refused(t, "--ca-file")
	if _, err := kubeOf(t, managed).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(namespace of the agent) = %v, want NotFound", err)
	}
	if _, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, joinArgs(server, token, ca, "taken", arg)...).done(t).shows(t, "Warning: ManagedCluster taken already exists on the hub")
}

func TestJoinRejectsAnotherClusterName(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	const namespace = "agent-registered"
	run(t, managed, joinArgs(server, token, ca, "first", "--agent-namespace", namespace)...).done(t)
	if _, err := kube.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: hubSecret}, Data: map[string][]byte{clusterNameKey: []byte("first")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, joinArgs(server, token, ca, "second", "--agent-namespace", namespace)...).refused(t, "is registered as cluster first", "unjoin")
	run(t, managed, "unjoin", "--cluster-name=second", "--agent-namespace", namespace).refused(t, "is that of cluster first")
	run(t, managed, joinArgs(server, token, ca, "first", "--agent-namespace", namespace)...).done(t)
}
