package clusteradm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicHub is a hub as OCM has it, and how to join it.
func publicHub(t *testing.T) (hub *localhub.Cluster, server, token, ca string) {
	t.Helper()
	hub = clusters.cluster(t, "public", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	words := joinWords(t, clusteradm(t, hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN).done(t).out)
	ocm := ocmOf(t, hub)
	eventually(t, "the hub has ManagedClusters", func(ctx context.Context) error {
		_, err := ocm.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		return err
	})
	return hub, words["--hub-apiserver"], words["--hub-token"], words["--ca-data"]
}

// joinArgs is a command that joins that hub.
func joinArgs(server, token, ca, cluster string, more ...string) []string {
	return append([]string{"join", "--hub-apiserver", server, "--hub-token", token, "--ca-data", ca, "--cluster-name", cluster}, more...)
}

func TestJoinInstallsAnAgent(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	args := joinArgs(server, token, ca, "joining", "--image=registry.example.com/hub:v2")
	clusteradm(t, managed, args...).done(t).shows(t, "deployment.apps/agent in open-cluster-management-agent created", "clusteradm accept --clusters joining")
	for line := range strings.Lines(clusteradm(t, managed, args...).done(t).out) {
		if strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " configured\n") {
			t.Errorf("the second time: %s", line)
		}
	}

	// The agent can ask the hub by what it was given.
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
	if _, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the agent asks the hub: %v", err)
	}

	deployment, err := kube.AppsV1().Deployments(defaultAgentNamespace).Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verifyAgent(t, deployment, "--cluster-name=joining", "--registration-auth=csr", "--registration-namespace="+defaultAgentNamespace)
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/hub:v2" {
		t.Errorf("image %s", image)
	}
	mayKeepItsSecret(t, kube, defaultAgentNamespace)
}

// verifyAgent checks that an agent finds its bootstrap kubeconfig, and its arguments.
func verifyAgent(t *testing.T, deployment *appsv1.Deployment, args ...string) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	for _, arg := range append(args, "--bootstrap-kubeconfig="+bootstrapKubeconfigFile) {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("the agent lacks %s: %q", arg, container.Args)
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
		t.Errorf("Secret %s is not at %s: %v %v", bootstrapSecret, bootstrapKubeconfigFile, container.VolumeMounts, volumes)
	}
}

// mayKeepItsSecret checks that the agent of a namespace may write what it gets from the hub.
func mayKeepItsSecret(t *testing.T, kube kubernetes.Interface, namespace string) {
	t.Helper()
	roles, err := kube.RbacV1().RoleBindings(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	subject := rbacv1.Subject{Kind: kindServiceAccount, Namespace: namespace, Name: agentName}
	if !slices.ContainsFunc(roles.Items, func(binding rbacv1.RoleBinding) bool { return slices.Contains(binding.Subjects, subject) }) {
		t.Errorf("nothing binds the agent to a role in %s", namespace)
	}
}

func TestJoinByIAMRoles(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	const namespace = "agent-of-eks"
	clusteradm(t, managed, joinArgs(server, token, ca, "eks1", "--registration-auth=aws-irsa", "--agent-namespace", namespace,
		"--eks-hub-cluster-arn", hubARN, "--managed-cluster-arn", managedARN)...).done(t).
		shows(t, "ocm-managed-cluster-7f8141296c75f2871e3d030f85c35692", "aws iam create-role", "system:serviceaccount:"+namespace+":agent")
	kube := kubeOf(t, managed)
	account, err := kube.CoreV1().ServiceAccounts(namespace).Get(t.Context(), agentName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if role := account.Annotations[roleARNAnnotation]; role != "arn:aws:iam::123456789012:role/ocm-managed-cluster-7f8141296c75f2871e3d030f85c35692" {
		t.Errorf("the agent acts as %q", role)
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

// Two hubs take two agents, none of which takes the other's rights away.
func TestJoinTwoHubs(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	namespaces := []string{"agent-of-hub-a", "agent-of-hub-b"}
	for _, namespace := range namespaces {
		clusteradm(t, managed, joinArgs(server, token, ca, "two-hubs", "--agent-namespace", namespace)...).done(t)
	}
	bindings, err := kube.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces {
		if !slices.ContainsFunc(bindings.Items, func(binding rbacv1.ClusterRoleBinding) bool {
			return binding.RoleRef.Name == agentClusterRole && slices.Contains(binding.Subjects, rbacv1.Subject{Kind: kindServiceAccount, Namespace: namespace, Name: agentName})
		}) {
			t.Errorf("the agent in %s has no rights", namespace)
		}
		accounts, err := kube.RbacV1().RoleBindings(accountsNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(accounts.Items, func(binding rbacv1.RoleBinding) bool { return binding.Subjects[0].Namespace == namespace }) {
			t.Errorf("the agent in %s may not keep ServiceAccounts", namespace)
		}
	}
	// The first leaves; the second stays as it is.
	clusteradm(t, managed, "unjoin", "--cluster-name=two-hubs", "--agent-namespace", namespaces[0]).done(t)
	if _, err := kube.AppsV1().Deployments(namespaces[1]).Get(t.Context(), agentName, metav1.GetOptions{}); err != nil {
		t.Errorf("the other agent: %v", err)
	}
	if _, err := kube.RbacV1().ClusterRoles().Get(t.Context(), agentClusterRole, metav1.GetOptions{}); err != nil {
		t.Errorf("the role of the other agent: %v", err)
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Get(t.Context(), agentClusterRole+":"+namespaces[0], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the rights of the agent that has left: %v", err)
	}
}

func TestJoinRefuses(t *testing.T) {
	valid := map[string]string{"--hub-token": "token", "--hub-apiserver": "https://127.0.0.1:1", "--cluster-name": "c1"}
	for name, test := range map[string]struct {
		flags map[string]string
		want  string
	}{
		"no token":             {map[string]string{"--hub-token": ""}, "--hub-token is required"},
		"no hub":               {map[string]string{"--hub-apiserver": ""}, "--hub-apiserver is required"},
		"hub over HTTP":        {map[string]string{"--hub-apiserver": "http://hub.example.com"}, "https://"},
		"no name":              {map[string]string{"--cluster-name": ""}, "--cluster-name is required"},
		"bad name":             {map[string]string{"--cluster-name": "Cluster_1"}, `--cluster-name "Cluster_1"`},
		"bad namespace":        {map[string]string{"--agent-namespace": "a/b"}, "--agent-namespace"},
		"two ways":             {map[string]string{"--registration-auth": "csr,aws-irsa"}, "must be one way"},
		"unknown way":          {map[string]string{"--registration-auth": "grpc"}, "--registration-auth must be"},
		"no ARN of the hub":    {map[string]string{"--registration-auth": "aws-irsa"}, "--eks-hub-cluster-arn is required"},
		"bad ARN of the hub":   {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": "arn:aws:eks"}, "--eks-hub-cluster-arn: "},
		"other partition":      {map[string]string{"--registration-auth": "aws-irsa", "--hub-cluster-arn": hubARN, "--managed-cluster-arn": strings.Replace(managedARN, "arn:aws:eks:us-east-1", "arn:aws-cn:eks:cn-north-1", 1)}, "partition"},
		"ARN without aws-irsa": {map[string]string{"--managed-cluster-arn": managedARN}, "take --registration-auth=aws-irsa"},
		"no certificates":      {map[string]string{"--ca-data": "bm9uZQ=="}, "--ca-data"},
		"no file":              {map[string]string{"--ca-file": "does-not-exist"}, "--ca-file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"join"}
			for flag, value := range valid {
				if _, ok := test.flags[flag]; !ok {
					args = append(args, flag, value)
				}
			}
			for flag, value := range test.flags {
				args = append(args, flag, value)
			}
			runCommand(t, args...).refused(t, test.want)
		})
	}
}

// What would fail later, without a word on this cluster, fails now.
func TestJoinLooksAtTheHub(t *testing.T) {
	hub, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	const namespace = "agent-of-nobody"
	arg := "--agent-namespace=" + namespace
	clusteradm(t, managed, joinArgs(server, "expired", ca, "c1", arg)...).refused(t, "does not take --hub-token", "clusteradm init")
	other := managed.AnonymousConfig()
	wrong := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(wrong, other.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	clusteradm(t, managed, "join", "--hub-apiserver", server, "--hub-token", token, "--ca-file", wrong, "--cluster-name=c1", arg).refused(t, "certificate")
	clusteradm(t, managed, "join", "--hub-apiserver", server, "--hub-token", token, "--cluster-name=c1", arg).refused(t, "--ca-file")
	if _, err := kubeOf(t, managed).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("something is installed: %v", err)
	}
	if _, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clusteradm(t, managed, joinArgs(server, token, ca, "taken", arg)...).done(t).shows(t, "Warning: the hub has a ManagedCluster taken already")
}

// A hub may publish its certificate authority, as kubeadm has it. The token is not shown
// to a hub that is not verified.
func TestJoinReadsWhatTheHubPublishes(t *testing.T) {
	var sent []string
	var publishes bool
	var hub *httptest.Server
	hub = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent = append(sent, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || !publishes {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		config := clientcmdapi.NewConfig()
		config.Clusters[""] = &clientcmdapi.Cluster{Server: hub.URL, CertificateAuthorityData: pemOf(hub.Certificate().Raw)}
		content, err := clientcmd.Write(*config)
		if err != nil {
			t.Error(err)
		}
		if err := json.NewEncoder(w).Encode(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{clusterInfoKey: string(content)}}); err != nil {
			t.Error(err)
		}
	}))
	defer hub.Close()
	if _, err := discoverTrust(t.Context(), hub.URL); err == nil || !strings.Contains(err.Error(), "--ca-file") {
		t.Errorf("a hub that publishes nothing: %v", err)
	}
	publishes = true
	trust, err := discoverTrust(t.Context(), hub.URL)
	if err != nil {
		t.Fatal(err)
	}
	if string(trust.ca) != string(pemOf(hub.Certificate().Raw)) || trust.fingerprint == "" {
		t.Errorf("it trusts %s (%q)", trust.ca, trust.fingerprint)
	}
	if len(sent) > 0 {
		t.Errorf("credentials are sent to %q", sent)
	}
}

func TestJoinKeepsToItsCluster(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	const namespace = "agent-registered"
	clusteradm(t, managed, joinArgs(server, token, ca, "first", "--agent-namespace", namespace)...).done(t)
	if _, err := kube.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: hubSecret}, Data: map[string][]byte{clusterNameKey: []byte("first")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clusteradm(t, managed, joinArgs(server, token, ca, "second", "--agent-namespace", namespace)...).refused(t, "is registered as cluster first", "unjoin")
	clusteradm(t, managed, "unjoin", "--cluster-name=second", "--agent-namespace", namespace).refused(t, "is that of cluster first")
	clusteradm(t, managed, joinArgs(server, token, ca, "first", "--agent-namespace", namespace)...).done(t)
}
