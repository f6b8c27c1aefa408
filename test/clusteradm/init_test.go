package clusteradm_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/yaml"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub-cluster1"
	managedARN = "arn:aws:eks:us-east-1:123456789012:cluster/managed-cluster1"
)

// joinWords returns the flags of the first join command in the output of init.
func joinWords(t *testing.T, out string) map[string]string {
	t.Helper()
	_, after, ok := strings.Cut(out, "clusteradm join \\\n")
	if !ok {
		t.Fatalf("init printed\n%s\nwant output that contains clusteradm join", out)
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
	t.Parallel()
	hub := clusters.cluster(t, "fresh", true)
	kube := kubeOf(t, hub)
	if _, err := kube.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner",
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first := run(t, hub, "init", "--image", "registry.example.com/hub:v1").done(t)
	first.shows(t, "the hub signs client certificates", "deployment.apps/hub-apiserver in open-cluster-management-hub created",
		"clusteradm accept --clusters CLUSTER_NAME")
	if strings.Contains(first.errOut, "Warning") {
		t.Errorf("init printed %q to standard error, want no warning", first.errOut)
	}
	// As the server does.
	setBundles(t, hub.AdminConfig(), "first")

	second := run(t, hub, "init", "--image", "registry.example.com/hub:v1").done(t)
	for line := range strings.Lines(second.out) {
		if strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " configured\n") {
			t.Errorf("second init printed %q, want all objects unchanged", line)
		}
	}
	verifyAPIServices(t, hub.AdminConfig(), "first")
	deployment, err := kube.AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	verifyOneReplica(t, deployment)
	if requests, err := kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{}); err != nil || len(requests.Items) > 0 {
		t.Errorf("CertificateSigningRequests after init = %v, %v, want none", requests.Items, err)
	}
}

type apiService = apiregistrationv1.APIService

// servedByHubAPIServer returns the APIServices of the server.
func servedByHubAPIServer(t *testing.T, config *rest.Config) (aggregator.Interface, []apiregistrationv1.APIService) {
	t.Helper()
	client, err := aggregator.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return client, slices.DeleteFunc(list.Items, func(service apiregistrationv1.APIService) bool { return service.Spec.Service == nil })
}

// setBundles sets the certificate authorities of the APIServices of the server.
func setBundles(t *testing.T, config *rest.Config, bundle string) {
	t.Helper()
	client, services := servedByHubAPIServer(t, config)
	patch := fmt.Appendf(nil, `{"spec":{"caBundle":%q}}`, base64.StdEncoding.EncodeToString([]byte(bundle)))
	for _, service := range services {
		if _, err := client.ApiregistrationV1().APIServices().Patch(t.Context(), service.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// verifyAPIServices checks that the server will find its APIServices, and that init keeps the authorities
// that the server wrote into them.
func verifyAPIServices(t *testing.T, config *rest.Config, bundle string) {
	t.Helper()
	_, services := servedByHubAPIServer(t, config)
	var groups []string
	for _, service := range services {
		groups = append(groups, service.Spec.Group)
		if got := service.Annotations["open-cluster-management.io/inject-ca-from-secret"]; got != hubNamespace+"/"+servingSecret {
			t.Errorf("Secret in the annotation of APIService %s = %q, want %s/%s", service.Name, got, hubNamespace, servingSecret)
		}
		if got := string(service.Spec.CABundle); got != bundle {
			t.Errorf("caBundle of APIService %s after a second init = %q, want %q", service.Name, got, bundle)
		}
	}
	for _, group := range []string{clusterv1.GroupName, "work.open-cluster-management.io", "search.open-cluster-management.io"} {
		if !slices.Contains(groups, group) {
			t.Errorf("groups of APIServices = %v, want %s among them", groups, group)
		}
	}
}

// verifyOneReplica checks a server that stores its data itself. Two replicas, or a server that
// waits for a Secret of another component, would never start.
func verifyOneReplica(t *testing.T, deployment *appsv1.Deployment) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	if rolling := deployment.Spec.Strategy.RollingUpdate; *deployment.Spec.Replicas != 1 || rolling == nil || rolling.MaxSurge.IntValue() != 0 {
		t.Errorf("Deployment has %d replicas and strategy %+v, want 1 and a RollingUpdate without surge", *deployment.Spec.Replicas, deployment.Spec.Strategy)
	}
	if container.Image != "registry.example.com/hub:v1" {
		t.Errorf("image = %s, want registry.example.com/hub:v1, the value of --image", container.Image)
	}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			t.Errorf("Deployment mounts Secret %s, want none", volume.Secret.SecretName)
		}
	}
	for _, arg := range container.Args {
		if strings.HasPrefix(arg, "--etcd-") || strings.HasPrefix(arg, "--search-postgres") {
			t.Errorf("arguments = %q, want no %s", container.Args, arg)
		}
	}
	for _, arg := range []string{"--serving-certificate-secret=" + servingSecret, "--registration-auth=csr", "--search-engine=embedded", "--data-dir=" + dataDir + "/data"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments = %q, want %s among them", container.Args, arg)
		}
	}
}

// The credentials that init prints allow only joining.
func TestInitTokenAllowsOnlyJoining(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	words := joinWords(t, run(t, hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN, "--token-duration=1h").done(t).out)
	ca, err := base64.StdEncoding.DecodeString(words["--ca-data"])
	if err != nil {
		t.Fatal(err)
	}
	if words["--eks-hub-cluster-arn"] != hubARN || words["--registration-auth"] != "aws-irsa" {
		t.Errorf("flags of the join command = %v, want the hub's ARN and aws-irsa", words)
	}
	config := &rest.Config{Host: words["--hub-apiserver"], BearerToken: words["--hub-token"], TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the hub accepts the bootstrap token", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-token"}}, metav1.CreateOptions{})
		return err
	})
	if err := client.ClusterV1().ManagedClusters().Delete(t.Context(), "by-token", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Delete(ManagedCluster) with the bootstrap token = %v, want Forbidden", err)
	}
	cluster, err := client.ClusterV1().ManagedClusters().Get(t.Context(), "by-token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.HubAcceptsClient = true
	if _, err := client.ClusterV1().ManagedClusters().Update(t.Context(), cluster, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Update(hubAcceptsClient) with the bootstrap token = %v, want Forbidden", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List(Secrets) with the bootstrap token = %v, want Forbidden", err)
	}
}

// A shell that runs the printed arguments must not expand the braces of a pattern.
func TestInitQuotesTheArgumentsOfTheServer(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	const pattern = "--auto-approved-arn-patterns=arn:aws:eks:us-east-1:[0-9]{11,12}:cluster/team-.*"
	run(t, hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN, pattern).done(t).
		shows(t, "Start the server with: --registration-auth=aws-irsa --hub-cluster-arn="+hubARN, " '"+pattern+"'")
}

func TestInitWarnsIfTheHubDoesNotSign(t *testing.T) {
	hub := clusters.cluster(t, "public", false)
	got := run(t, hub, "init", "--apiserver=external", "--csr-probe-timeout=2s").done(t)
	got.shows(t, "Warning: the hub does not sign client certificates", "--registration-auth=aws-irsa", "--cluster-signing-cert-file", "clusteradm join")
	requests, err := kubeOf(t, hub).CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range requests.Items {
		if strings.HasPrefix(request.Name, "clusteradm-probe") {
			t.Errorf("CertificateSigningRequest %s exists after init, want it deleted", request.Name)
		}
	}
}

func TestInitOnAHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "ocm", false)
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	clusterCRD, err := os.ReadFile(filepath.Join(localhub.Root(), "test", "framework", "testdata", "managedclusters.crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	accounts := &unstructured.Unstructured{}
	content := strings.NewReplacer("managedcluster", "managedserviceaccount", "ManagedCluster", "ManagedServiceAccount",
		"cluster.open-cluster-management.io", "authentication.open-cluster-management.io").Replace(string(clusterCRD))
	if err := yaml.Unmarshal([]byte(content), &accounts.Object); err != nil {
		t.Fatal(err)
	}
	if err := hub.Apply(t.Context(), accounts); err != nil {
		t.Fatal(err)
	}
	run(t, hub, "init", "--image=registry.example.com/hub:v1").refused(t, "stores managedserviceaccounts in a CustomResourceDefinition", "delete the CustomResourceDefinition managedserviceaccounts.authentication.open-cluster-management.io")
	if _, err := kubeOf(t, hub).AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Deployment of the server) = %v, want NotFound", err)
	}
	client, err := dynamic.NewForConfig(hub.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := crds.Delete(t.Context(), accounts.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the CustomResourceDefinition is deleted", func(ctx context.Context) error {
		if _, err := crds.Get(ctx, accounts.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(CustomResourceDefinition) = %w, want NotFound", err)
		}
		return nil
	})
	got := run(t, hub, "init", "--image=registry.example.com/hub:v1").done(t)
	got.shows(t, "the hub runs OCM", "Clusters join as before")
	deployment, err := kubeOf(t, hub).AppsV1().Deployments(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if args := strings.Join(deployment.Spec.Template.Spec.Containers[0].Args, " "); !strings.Contains(args, "cluster.open-cluster-management.io/v1=false") || strings.Contains(args, "--registration-auth") {
		t.Errorf("arguments of the server = %s, want clusters left to OCM", args)
	}
	if _, err := ocmOf(t, hub).ClusterV1().ManagedClusters().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("List(ManagedClusters) after init = %v, want the CustomResourceDefinition of OCM", err)
	}
}
