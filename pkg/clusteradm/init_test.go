package clusteradm

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub-cluster1"
	managedARN = "arn:aws:eks:us-east-1:123456789012:cluster/managed-cluster1"
)

// joinWords are the flags of the first join command that init has printed.
func joinWords(t *testing.T, out string) map[string]string {
	t.Helper()
	_, after, ok := strings.Cut(out, "clusteradm join \\\n")
	if !ok {
		t.Fatalf("there is no join command in\n%s", out)
	}
	after, _, _ = strings.Cut(after, "\n\n")
	words := strings.Fields(strings.ReplaceAll(after, "\\\n", " "))
	flags := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		flags[words[i]] = words[i+1]
	}
	return flags
}

func TestInitInstallsAHubOnce(t *testing.T) {
	hub := clusters.cluster(t, "fresh", true)
	kube := kubeOf(t, hub)
	first := clusteradm(t, hub, "init", "--image", "registry.example.com/hub:v1").done(t)
	first.shows(t, "the hub signs client certificates", "deployment.apps/hub-apiserver in open-cluster-management-hub created",
		"secret/hub-apiserver-serving in open-cluster-management-hub created", "clusteradm accept --clusters CLUSTER_NAME")
	if strings.Contains(first.errOut, "Warning") {
		t.Errorf("it warns: %s", first.errOut)
	}
	secret, err := kube.CoreV1().Secrets(hubNamespace).Get(t.Context(), servingSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	second := clusteradm(t, hub, "init", "--image", "registry.example.com/hub:v1").done(t)
	for line := range strings.Lines(second.out) {
		if strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " configured\n") {
			t.Errorf("the second time: %s", line)
		}
	}
	again, err := kube.CoreV1().Secrets(hubNamespace).Get(t.Context(), servingSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.ResourceVersion != secret.ResourceVersion {
		t.Error("the second time, there is another certificate")
	}

	verifyAPIServices(t, hub.AdminConfig(), secret)
	deployment, err := kube.AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verifyOneReplica(t, deployment)
	if requests, err := kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil || len(requests.Items) > 0 {
		t.Errorf("what was tried is left: %v %v", requests.Items, err)
	}
}

// verifyAPIServices checks that the hub will trust the server behind every APIService.
func verifyAPIServices(t *testing.T, config *rest.Config, secret *corev1.Secret) {
	t.Helper()
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for _, service := range list.Items {
		if service.Spec.Service == nil {
			continue
		}
		groups = append(groups, service.Spec.Group)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(service.Spec.CABundle)
		name := service.Spec.Service.Name + "." + service.Spec.Service.Namespace + ".svc"
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("APIService %s: %v", service.Name, err)
		}
	}
	for _, group := range []string{clusterv1.GroupName, "work.open-cluster-management.io", "search.open-cluster-management.io"} {
		if !slices.Contains(groups, group) {
			t.Errorf("there is no APIService for %s", group)
		}
	}
}

// verifyOneReplica checks a server that keeps its data itself: two of them, or one that
// waits for Secrets of others, would never start.
func verifyOneReplica(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if *deployment.Spec.Replicas != 1 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%d replicas, %s", *deployment.Spec.Replicas, deployment.Spec.Strategy.Type)
	}
	if container.Image != "registry.example.com/hub:v1" {
		t.Errorf("image %s", container.Image)
	}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil && volume.Secret.SecretName != servingSecret {
			t.Errorf("it waits for Secret %s", volume.Secret.SecretName)
		}
	}
	for _, arg := range container.Args {
		if strings.HasPrefix(arg, "--etcd-") || strings.HasPrefix(arg, "--search-postgres") {
			t.Errorf("it has %s", arg)
		}
	}
	for _, arg := range []string{"--registration-auth=csr", "--search-engine=embedded", "--data-dir=" + dataDir + "/data"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("it lacks %s: %q", arg, container.Args)
		}
	}
}

// What init prints is good for joining, and for nothing else.
func TestInitGivesAnIdentityToJoinBy(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	words := joinWords(t, clusteradm(t, hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN, "--token-duration=1h").done(t).out)
	ca, err := givenAuthority("", words["--ca-data"])
	if err != nil {
		t.Fatal(err)
	}
	if words["--eks-hub-cluster-arn"] != hubARN || words["--registration-auth"] != "aws-irsa" {
		t.Errorf("it prints %v", words)
	}
	config := &rest.Config{Host: words["--hub-apiserver"], BearerToken: words["--hub-token"], TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub takes the token", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-token"}}, metav1.CreateOptions{})
		return err
	})
	if err := client.ClusterV1().ManagedClusters().Delete(t.Context(), "by-token", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting by the token: %v", err)
	}
	cluster, err := client.ClusterV1().ManagedClusters().Get(t.Context(), "by-token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.HubAcceptsClient = true
	if _, err := client.ClusterV1().ManagedClusters().Update(t.Context(), cluster, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("accepting by the token: %v", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading Secrets by the token: %v", err)
	}
}

func TestInitWarnsWhereNobodySigns(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	got := clusteradm(t, hub, "init", "--apiserver=external", "--csr-probe-timeout=2s").done(t)
	got.shows(t, "Warning: the hub does not sign client certificates", "--registration-auth=aws-irsa", "--cluster-signing-cert-file", "clusteradm join")
	requests, err := kubeOf(t, hub).CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range requests.Items {
		if strings.HasPrefix(request.Name, probeName) {
			t.Errorf("%s is left", request.Name)
		}
	}
}

func TestInitKeepsOffAHubThatRunsOCM(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	clusteradm(t, hub, "init").refused(t, "runs OCM already", "existing-ocm")
	if _, err := kubeOf(t, hub).AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the server is installed: %v", err)
	}
}

func TestInitRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"unknown way":             {[]string{"--registration-auth=password"}, []string{"--registration-auth must be csr or aws-irsa", `"password"`}},
		"no ARN":                  {[]string{"--registration-auth=aws-irsa"}, []string{"--hub-cluster-arn is required"}},
		"bad ARN":                 {[]string{"--registration-drivers=csr,awsirsa", "--hub-cluster-arn=arn:aws:eks:x"}, []string{"--hub-cluster-arn: "}},
		"ARN without aws-irsa":    {[]string{"--hub-cluster-arn=" + hubARN}, []string{"takes --registration-auth=aws-irsa"}},
		"long name of a hub":      {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("h", 40)}, []string{"--hub-role-arn is required", "64"}},
		"bad pattern":             {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-arn-patterns=("}, []string{"--auto-approved-arn-patterns"}},
		"patterns without ARNs":   {[]string{"--auto-approved-arn-patterns=.*"}, []string{"takes --registration-auth=aws-irsa"}},
		"users without csr":       {[]string{"--registration-auth=aws-irsa", "--hub-cluster-arn=" + hubARN, "--auto-approved-csr-identities=u"}, []string{"takes --registration-auth=csr"}},
		"short token":             {[]string{"--token-duration=1m"}, []string{"--token-duration must be at least 10m"}},
		"hub over HTTP":           {[]string{"--hub-apiserver=http://hub.example.com"}, []string{"--hub-apiserver", "https://"}},
		"embedded search of two":  {[]string{"--etcd-servers=https://etcd:2379", "--search-engine=embedded"}, []string{"--search-engine=embedded is for one replica"}},
		"unknown place of server": {[]string{"--apiserver=cloud"}, []string{"--apiserver must be deploy or external"}},
	} {
		t.Run(name, func(t *testing.T) {
			runCommand(t, append([]string{"init", "--output-manifests"}, test.args...)...).refused(t, test.want...)
		})
	}
}

func TestInitPrintsWhatItWouldApply(t *testing.T) {
	got := runCommand(t, "init", "--output-manifests", "--registration-auth=csr,awsirsa", "--hub-cluster-arn="+hubARN,
		"--eks-auth=ConfigMap", "--irsa-manage-roles=false", "--aws-resource-tags=team=a", `--auto-approved-arn-patterns="arn:aws:eks:[a-z0-9-]{1,20}:1:cluster/x"`,
		"--etcd-servers=https://a:2379,https://b:2379", "--search-engine=none").done(t)
	objects, err := decodeManifests([]byte(got.out))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, object := range objects {
		found[display(object)] = true
		switch display(object) {
		case "deployment.apps/hub-apiserver in " + hubNamespace:
			deployment := &appsv1.Deployment{}
			if err := fromUnstructured(object, deployment); err != nil {
				t.Fatal(err)
			}
			args := deployment.Spec.Template.Spec.Containers[0].Args
			for _, arg := range []string{
				"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + hubARN, "--eks-auth=ConfigMap", "--irsa-manage-roles=false",
				"--aws-resource-tags=team=a", "--feature-gates=ManagedClusterAutoApproval=true", "--search-engine=none",
				"--etcd-servers=https://a:2379,https://b:2379", `--auto-approved-arn-patterns="arn:aws:eks:[a-z0-9-]{1,20}:1:cluster/x"`,
			} {
				if !slices.Contains(args, arg) {
					t.Errorf("the server lacks %s: %q", arg, args)
				}
			}
			if *deployment.Spec.Replicas != 2 {
				t.Errorf("%d replicas", *deployment.Spec.Replicas)
			}
		case "serviceaccount/hub-apiserver in " + hubNamespace:
			if role := object.GetAnnotations()[roleARNAnnotation]; role != "arn:aws:iam::123456789012:role/hub-cluster1_managed-cluster-identity-creator" {
				t.Errorf("the server acts as %q", role)
			}
		}
	}
	for _, name := range []string{
		"role.rbac.authorization.k8s.io/open-cluster-management:hub-apiserver:aws-auth in kube-system",
		"clusterrole.rbac.authorization.k8s.io/open-cluster-management:managedcluster:registration",
		"clusterrole.rbac.authorization.k8s.io/open-cluster-management:bootstrap",
		"serviceaccount/agent-registration-bootstrap in open-cluster-management",
		"secret/hub-apiserver-serving in " + hubNamespace,
	} {
		if !found[name] {
			t.Errorf("it does not print %s", name)
		}
	}
	if found["apiservice.apiregistration.k8s.io/v1alpha1.search.open-cluster-management.io"] {
		t.Error("a server without search gets its requests")
	}
}

// A value with commas must come out of the server's flags as it went in.
func TestValuesOfFlagsStayWhole(t *testing.T) {
	for _, value := range []string{"plain", "a{1,2}", `say "x", twice`} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		got := flags.StringSlice("value", nil, "")
		if err := flags.Parse([]string{"--value=" + oneValue(value)}); err != nil {
			t.Fatal(err)
		}
		if len(*got) != 1 || (*got)[0] != value {
			t.Errorf("%q became %q", value, *got)
		}
	}
}

func TestServingCertificateIsCheckedAgain(t *testing.T) {
	now := time.Now()
	secret, err := newServingSecret(now)
	if err != nil {
		t.Fatal(err)
	}
	if _, warning, err := checkServingSecret(secret, now); err != nil || warning != "" {
		t.Errorf("a new one: %q %v", warning, err)
	}
	if _, warning, err := checkServingSecret(secret, now.Add(servingLifetime-time.Hour)); err != nil || !strings.Contains(warning, "Delete the Secret") {
		t.Errorf("one that ends: %q %v", warning, err)
	}
	delete(secret.Data, caKey)
	if _, _, err := checkServingSecret(secret, now); err == nil || !strings.Contains(err.Error(), caKey) {
		t.Errorf("one without authority: %v", err)
	}
}
