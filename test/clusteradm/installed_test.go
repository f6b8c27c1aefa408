package clusteradm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	releaseImage  = "registry.example.com/project/hub-apiserver:v0.1.0"
	leaseName     = "hub-apiserver-controllers"
	migrationUser = "open-cluster-management:migration"
)

// deploymentOf returns the Deployment of the server, or of an agent.
func deploymentOf(t *testing.T, kube kubernetes.Interface, namespace, name string) *appsv1.Deployment {
	t.Helper()
	deployment, err := kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment
}

// patchDeployment changes a Deployment as another person.
func patchDeployment(t *testing.T, kube kubernetes.Interface, namespace, name, patch string) {
	t.Helper()
	if _, err := kube.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		t.Fatal(err)
	}
}

// sameSpec fails the test if a Deployment has another spec than before.
func sameSpec(t *testing.T, after string, got, want *appsv1.Deployment) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
		written := func(d *appsv1.Deployment) string {
			content, err := json.Marshal(d.Spec)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
		t.Errorf("spec of Deployment %s after %s = %s, want it unchanged: %s", got.Name, after, written(got), written(want))
	}
}

// unchanged fails the test if a command printed that it has created or changed an object.
func (o outcome) unchanged(t *testing.T, command string) {
	t.Helper()
	for line := range strings.Lines(o.out) {
		if strings.HasSuffix(line, " created\n") || strings.HasSuffix(line, " configured\n") || strings.HasSuffix(line, " deleted\n") {
			t.Errorf("%s printed %q, want all objects unchanged", command, line)
		}
	}
}

// largeHub is a hub with everything that init can set, and with changes of other people that init has no flags for.
func largeHub(t *testing.T, name string) (*localhub.Cluster, kubernetes.Interface) {
	t.Helper()
	hub := clusters.cluster(t, name, false)
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--etcd-servers=https://a:2379,https://b:2379", "--search-engine=postgres",
		"--registration-auth=csr,aws-irsa", "--hub-cluster-arn="+hubARN, "--hub-role-arn=arn:aws:iam::123456789012:role/server", "--eks-auth=ConfigMap",
		"--irsa-manage-roles=false", "--aws-resource-tags=team=a", "--auto-approved-csr-identities=alice", "--auto-approved-arn-patterns=.*",
		"--resource-requests=memory=1Gi", "--resource-limits=memory=6Gi").done(t)
	kube := kubeOf(t, hub)
	patchDeployment(t, kube, hubNamespace, serverName, `[
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--nil-executor=Deny"},
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--feature-gates=SearchByClusterPermission=true"},
{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}},
{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"pool": "hub"}},
{"op": "replace", "path": "/spec/replicas", "value": 3}]`)
	return hub, kube
}

// Init without the flags of the installation changes nothing, and with another flag only what that names.
func TestInitKeepsAnInstalledHub(t *testing.T) {
	t.Parallel()
	hub, kube := largeHub(t, "large")
	before := deploymentOf(t, kube, hubNamespace, serverName)
	account, err := kube.CoreV1().ServiceAccounts(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	again := run(t, hub, "init", "--csr-probe-timeout=0").done(t)
	again.unchanged(t, "init without flags")
	again.shows(t, "--image-registry registry.example.com/project", "--bundle-version v0.1.0", "--registration-auth aws-irsa", "--eks-hub-cluster-arn "+hubARN)
	sameSpec(t, "init without flags", deploymentOf(t, kube, hubNamespace, serverName), before)
	current, err := kube.CoreV1().ServiceAccounts(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil || current.Annotations[roleARNAnnotation] != account.Annotations[roleARNAnnotation] {
		t.Errorf("role of the server after init without flags = %q, %v, want %q", current.Annotations[roleARNAnnotation], err, account.Annotations[roleARNAnnotation])
	}

	run(t, hub, "init", "--csr-probe-timeout=0", "--resource-limits=memory=8Gi", "--auto-approved-csr-identities=bob", "--auto-approved-csr-identities=carol").done(t)
	changed := deploymentOf(t, kube, hubNamespace, serverName)
	container := changed.Spec.Template.Spec.Containers[0]
	if got := container.Resources.Limits.Memory().String(); got != "8Gi" {
		t.Errorf("memory limit after init --resource-limits=memory=8Gi = %s, want 8Gi", got)
	}
	for _, arg := range []string{"--auto-approved-csr-identities=bob", "--auto-approved-csr-identities=carol", "--nil-executor=Deny",
		"--feature-gates=SearchByClusterPermission=true", "--feature-gates=ManagedClusterAutoApproval=true", "--auto-approved-arn-patterns=.*", "--etcd-servers=https://a:2379,https://b:2379"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("arguments after init with two flags = %q, want %s", container.Args, arg)
		}
	}
	if slices.Contains(container.Args, "--auto-approved-csr-identities=alice") {
		t.Errorf("arguments after init with the users bob and carol = %q, want no alice", container.Args)
	}
	// Everything else is as before.
	restored := changed.DeepCopy()
	restored.Spec.Template.Spec.Containers[0].Args = before.Spec.Template.Spec.Containers[0].Args
	restored.Spec.Template.Spec.Containers[0].Resources = before.Spec.Template.Spec.Containers[0].Resources
	sameSpec(t, "init with two flags, except for these", restored, before)

	// A flag removes what it sets.
	run(t, hub, "init", "--csr-probe-timeout=0", "--registration-auth=csr").done(t)
	if args := deploymentOf(t, kube, hubNamespace, serverName).Spec.Template.Spec.Containers[0].Args; slices.ContainsFunc(args, func(arg string) bool {
		return strings.Contains(arg, "arn") || strings.Contains(arg, "eks") || strings.Contains(arg, "aws")
	}) {
		t.Errorf("arguments after init --registration-auth=csr = %q, want none of aws-irsa", args)
	}
}

// A change that would leave the data behind is refused, whatever the flags.
func TestInitRefusesToLoseData(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	large, kube := largeHub(t, "etcd")
	before := deploymentOf(t, kube, hubNamespace, serverName)
	for _, args := range [][]string{{"--reset"}, {"--reset", "--yes"}, {"--etcd-servers=", "--search-engine=none", "--yes"}} {
		run(t, large, append([]string{"init", "--csr-probe-timeout=0", "--image=" + releaseImage, "--search-engine=none"}, args...)...).
			refused(t, "--etcd-servers", "the etcd cluster https://a:2379,https://b:2379")
	}
	run(t, large, "init", "--csr-probe-timeout=0", "--existing-ocm", "--yes").refused(t, "--existing-ocm=true", "clusteradm migrate")
	sameSpec(t, "refused commands", deploymentOf(t, kube, hubNamespace, serverName), before)

	small := clusters.cluster(t, "volume", false)
	run(t, small, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--storage-size=20Gi").done(t)
	kube = kubeOf(t, small)
	before = deploymentOf(t, kube, hubNamespace, serverName)
	run(t, small, "init", "--csr-probe-timeout=0", "--etcd-servers=https://a:2379", "--search-engine=postgres", "--yes").
		refused(t, "--etcd-servers=https://a:2379", "PersistentVolumeClaim hub-apiserver")
	run(t, small, "init", "--csr-probe-timeout=0", "--storage-size=10Gi", "--yes").refused(t, "--storage-size=10Gi", "20Gi")
	sameSpec(t, "refused commands", deploymentOf(t, kube, hubNamespace, serverName), before)

	patchDeployment(t, kube, hubNamespace, serverName, `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/2", "value": "--data-dir=/var/lib/hub-apiserver/other"}]`)
	run(t, small, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--reset", "--storage-size=20Gi", "--yes").refused(t, "--reset", "--data-dir=/var/lib/hub-apiserver/other")
	run(t, small, "init", "--csr-probe-timeout=0").done(t).unchanged(t, "init with another --data-dir")
}

// TestInitKeepsSnapshots checks that the component backup, which others have applied, stays with init, and that init --reset
// requires a confirmation that names its end. The StorageClass of the volume stays in both cases.
func TestInitKeepsSnapshots(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "snapshots", false)
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--storage-class=fast").done(t).shows(t, "the hub has no fast StorageClass")
	kube := kubeOf(t, hub)
	patchDeployment(t, kube, hubNamespace, serverName, `[
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--snapshot-interval=6h"},
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--snapshot-dir=/var/lib/hub-apiserver-snapshots/snapshots"},
{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "snapshots", "mountPath": "/var/lib/hub-apiserver-snapshots"}},
{"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "snapshots", "persistentVolumeClaim": {"claimName": "hub-apiserver-snapshots"}}}]`)
	before := deploymentOf(t, kube, hubNamespace, serverName)
	run(t, hub, "init", "--csr-probe-timeout=0").done(t).unchanged(t, "init")
	run(t, hub, "init", "--csr-probe-timeout=0", "--reset", "--image="+releaseImage).refused(t, "requires --yes", "--snapshot-interval=6h is removed")
	sameSpec(t, "init", deploymentOf(t, kube, hubNamespace, serverName), before)
	run(t, hub, "init", "--csr-probe-timeout=0", "--storage-class=slow").refused(t, "--storage-class=slow", "the StorageClass fast, which cannot change")
	run(t, hub, "init", "--csr-probe-timeout=0", "--reset", "--image="+releaseImage, "--yes").done(t)
	claim, err := kube.CoreV1().PersistentVolumeClaims(hubNamespace).Get(t.Context(), serverName, metav1.GetOptions{})
	if err != nil || ptr.Deref(claim.Spec.StorageClassName, "") != "fast" {
		t.Errorf("StorageClass of the volume after init --reset = %v, %v, want fast", claim.Spec.StorageClassName, err)
	}
}

// Changes of the storage, the search engine, the number of replicas and of fields that others have set require --yes.
func TestInitRequiresConfirmation(t *testing.T) {
	t.Parallel()
	hub, kube := largeHub(t, "confirm")
	before := deploymentOf(t, kube, hubNamespace, serverName)
	run(t, hub, "init", "--csr-probe-timeout=0", "--search-engine=none", "--etcd-servers=https://a:2379,https://c:2379").
		refused(t, "requires --yes", "--search-engine changes from postgres to none", "--etcd-servers changes from https://a:2379,https://b:2379 to https://a:2379,https://c:2379")
	run(t, hub, "init", "--csr-probe-timeout=0", "--reset", "--image="+releaseImage, "--etcd-servers=https://a:2379,https://b:2379").
		refused(t, "requires --yes", "the replicas of the server change from 3 to 2", "kubectl-edit")
	sameSpec(t, "commands without --yes", deploymentOf(t, kube, hubNamespace, serverName), before)

	patchDeployment(t, kube, hubNamespace, serverName, `[{"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 30}]`)
	run(t, hub, "init", "--csr-probe-timeout=0").refused(t, "requires --yes", ".spec.template.spec.terminationGracePeriodSeconds", "kubectl-edit")

	search := "v1alpha1.search.open-cluster-management.io"
	run(t, hub, "init", "--csr-probe-timeout=0", "--search-engine=none", "--yes").done(t).shows(t, "apiservice.apiregistration.k8s.io/"+search+" deleted")
	got := deploymentOf(t, kube, hubNamespace, serverName)
	if args := got.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--search-engine=none") || slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--search-postgres") }) {
		t.Errorf("arguments after init --search-engine=none --yes = %q, want no PostgreSQL", args)
	}
	if seconds := *got.Spec.Template.Spec.TerminationGracePeriodSeconds; seconds != 90 || *got.Spec.Replicas != 3 {
		t.Errorf("terminationGracePeriodSeconds and replicas after init --yes = %d, %d, want 90 of the manifest and the installed 3", seconds, *got.Spec.Replicas)
	}
	if _, services := servedByHubAPIServer(t, hub.AdminConfig()); len(services) == 0 || slices.ContainsFunc(services, func(s apiService) bool { return s.Name == search }) {
		t.Errorf("APIServices after init --search-engine=none = %d, want some without %s", len(services), search)
	}
}

// --reset returns to the defaults what no flag names.
func TestInitReset(t *testing.T) {
	t.Parallel()
	hub, kube := largeHub(t, "reset")
	run(t, hub, "init", "--csr-probe-timeout=0", "--reset", "--yes", "--image=registry.example.com/other:v2", "--etcd-servers=https://a:2379,https://b:2379").done(t)
	got := deploymentOf(t, kube, hubNamespace, serverName)
	container := got.Spec.Template.Spec.Containers[0]
	if *got.Spec.Replicas != 2 || container.Image != "registry.example.com/other:v2" || container.Resources.Limits.Memory().String() != "4Gi" {
		t.Errorf("Deployment after init --reset has %d replicas, image %s, memory limit %s, want 2, registry.example.com/other:v2, 4Gi", *got.Spec.Replicas, container.Image, container.Resources.Limits.Memory())
	}
	for _, arg := range []string{"--nil-executor", "--aws-resource-tags", "--hub-cluster-arn", "--feature-gates", "--auto-approved"} {
		if slices.ContainsFunc(container.Args, func(a string) bool { return strings.HasPrefix(a, arg) }) {
			t.Errorf("arguments after init --reset = %q, want no %s", container.Args, arg)
		}
	}
	if !slices.Contains(container.Args, "--registration-auth=csr") {
		t.Errorf("arguments after init --reset = %q, want --registration-auth=csr", container.Args)
	}
}

// A dry run prints unified diffs, and writes nothing.
func TestInitDryRun(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "dryrun", false)
	kube := kubeOf(t, hub)
	fresh := run(t, hub, "init", "--dry-run", "--image="+releaseImage).done(t)
	fresh.shows(t, "+++ new deployment.apps/hub-apiserver in "+hubNamespace, "+        image: "+releaseImage)
	if strings.Contains(fresh.out, "hub-token") {
		t.Errorf("init --dry-run printed\n%s\nwant no token", fresh.out)
	}
	if _, err := kube.CoreV1().Namespaces().Get(t.Context(), hubNamespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Namespace) after init --dry-run = %v, want NotFound", err)
	}

	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage).done(t)
	before := deploymentOf(t, kube, hubNamespace, serverName)
	got := run(t, hub, "init", "--dry-run", "--resource-limits=memory=8Gi", "--search-engine=none").done(t)
	got.shows(t, "--- live deployment.apps/hub-apiserver in "+hubNamespace, "-            memory: 4Gi", "+            memory: 8Gi",
		"-        - --search-engine=embedded", "+        - --search-engine=none", "--- live apiservice.apiregistration.k8s.io/v1alpha1.search.open-cluster-management.io",
		"Requires --yes", "--search-engine changes from embedded to none")
	for line := range strings.Lines(got.out) {
		for _, field := range []string{"managedFields", "resourceVersion", "serviceaccount/"} {
			if strings.Contains(line, field) {
				t.Errorf("init --dry-run printed %q, want only what changes", line)
			}
		}
	}
	if after := deploymentOf(t, kube, hubNamespace, serverName); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("resourceVersion of the Deployment after init --dry-run = %s, want %s", after.ResourceVersion, before.ResourceVersion)
	}
	if none := run(t, hub, "init", "--dry-run").done(t); none.out != "" {
		t.Errorf("init --dry-run without a change printed\n%s\nwant nothing", none.out)
	}
}

// Without its Deployment, init cannot know the settings of a hub: it must not install an empty server next to one that runs
// elsewhere.
func TestInitDoesNotReplaceAServerElsewhere(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "elsewhere", false)
	kube := kubeOf(t, hub)
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage).done(t)
	if err := kube.AppsV1().Deployments(hubNamespace).Delete(t.Context(), serverName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage).refused(t, "--apiserver=external", "--apiserver=deploy")
	run(t, hub, "upgrade", "hub", "--image="+releaseImage).refused(t, "upgrade the server where it runs")
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--apiserver=external").done(t).unchanged(t, "init --apiserver=external")
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--apiserver=deploy").refused(t, "requires --yes", "its settings are not known")
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--apiserver=deploy", "--yes").done(t).shows(t, "deployment.apps/hub-apiserver in open-cluster-management-hub created")
}

// A standby hub waits until it adopts clusters: a command for a new token must not start its controllers.
func TestInitKeepsAStandbyHubWaiting(t *testing.T) {
	t.Parallel()
	hub := clusters.cluster(t, "standby", false)
	kube := kubeOf(t, hub)
	holder := func() string {
		t.Helper()
		lease, err := kube.CoordinationV1().Leases(hubNamespace).Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	run(t, hub, "init", "--csr-probe-timeout=0", "--image="+releaseImage, "--standby").done(t).shows(t, "clusteradm hub standby")
	for _, args := range [][]string{{"init", "--csr-probe-timeout=0"}, {"get", "join-command"}, {"get", "token"}} {
		run(t, hub, args...).done(t).shows(t, "clusteradm hub standby")
		if got := holder(); got != migrationUser {
			t.Errorf("holder of the Lease after clusteradm %s = %q, want %s", args, got, migrationUser)
		}
	}
	run(t, hub, "init", "--csr-probe-timeout=0", "--standby=false").done(t).shows(t, "clusteradm join")
	if got := holder(); got != "" {
		t.Errorf("holder of the Lease after init --standby=false = %q, want none", got)
	}
}

// The flags of programs that run elsewhere are not known. Their IAM roles stay.
func TestInitAndJoinKeepRolesOfProgramsElsewhere(t *testing.T) {
	hub, server, token, ca := publicHub(t)
	run(t, hub, "init", "--apiserver=external", "--csr-probe-timeout=0").done(t).shows(t, "Warning: the flags of a server that runs elsewhere are not known")
	managed := clusters.cluster(t, "managed", false)
	const namespace = "agent-elsewhere"
	args := []string{"join", "--agent=external", "--agent-namespace=" + namespace, "--hub-apiserver", server, "--hub-token", token, "--ca-data", ca, "--cluster-name=elsewhere"}
	run(t, managed, append(args, "--registration-auth=aws-irsa", "--eks-hub-cluster-arn", hubARN, "--managed-cluster-arn", managedARN)...).done(t)
	run(t, managed, args...).done(t).shows(t, "Warning: the flags of an agent that runs elsewhere are not known")
	for _, account := range []struct {
		cluster         *localhub.Cluster
		namespace, name string
	}{{hub, hubNamespace, serverName}, {managed, namespace, agentName}} {
		got, err := kubeOf(t, account.cluster).CoreV1().ServiceAccounts(account.namespace).Get(t.Context(), account.name, metav1.GetOptions{})
		if err != nil || got.Annotations[roleARNAnnotation] == "" {
			t.Errorf("annotations of ServiceAccount %s without the flags of its installation = %v, %v, want its role", account.name, got.Annotations, err)
		}
	}
}

// The tokens and the commands that get prints work, and getting them changes nothing.
func TestGetToken(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	hub := clusters.clusterWith(t, "tokens", localhub.ClusterOptions{NoControllerManager: true, APIServerArgs: []string{"--enable-bootstrap-token-auth"}})
	applyFile(t, hub, "test", "framework", "testdata", "managedclusters.crd.yaml")
	run(t, hub, "get", "token").refused(t, "clusteradm init")
	run(t, hub, "init", "--apiserver=external", "--csr-probe-timeout=0").done(t)
	for name, args := range map[string][]string{
		"token": {"token"}, "bootstrap": {"token", "--use-bootstrap-token"}, "join-command": {"join-command", "--cluster-name=join-command"},
	} {
		t.Run(name, func(t *testing.T) {
			words := joinWords(t, run(t, hub, append([]string{"get"}, args...)...).done(t).out)
			mayJoin(t, hub, name, words["--hub-apiserver"], words["--hub-token"])
			if name == "join-command" && words["--cluster-name"] != name {
				t.Errorf("get join-command --cluster-name=%s printed --cluster-name %s", name, words["--cluster-name"])
			}
		})
	}
	answer := map[string]string{}
	if err := json.Unmarshal([]byte(run(t, hub, "get", "token", "-o", "json").done(t).out), &answer); err != nil {
		t.Fatal(err)
	}
	mayJoin(t, hub, "json", answer["hub-apiserver"], answer["hub-token"])
	run(t, hub, "get", "token", "--token-duration=1m").refused(t, "--token-duration must be at least 10m")
	run(t, hub, "get", "join-command", "--registration-auth=aws-irsa", "--hub-cluster-arn", hubARN).done(t).shows(t, "--eks-hub-cluster-arn "+hubARN)

	// A hub that does not authenticate bootstrap tokens gets no Secret.
	other := clusters.cluster(t, "dryrun", false)
	run(t, other, "init", "--apiserver=external", "--csr-probe-timeout=0").done(t)
	run(t, other, "get", "token", "--use-bootstrap-token").refused(t, "--enable-bootstrap-token-auth")
	secrets, err := kubeOf(t, other).CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil || len(secrets.Items) > 0 {
		t.Errorf("bootstrap tokens after a refusal = %d, %v, want none", len(secrets.Items), err)
	}
}

// mayJoin checks that a token may request to join.
func mayJoin(t *testing.T, hub *localhub.Cluster, cluster, server, token string) {
	t.Helper()
	client, err := versioned.NewForConfig(&rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: hub.AdminConfig().CAData}})
	if err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the token may create a ManagedCluster", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, metav1.CreateOptions{})
		return err
	})
}

// Upgrades change the image, and keep everything else.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	hub, kube := largeHub(t, "upgrade")
	before := deploymentOf(t, kube, hubNamespace, serverName)
	run(t, hub, "upgrade", "hub", "--bundle-version=v0.2.0").done(t)
	got := deploymentOf(t, kube, hubNamespace, serverName)
	if image := got.Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/project/hub-apiserver:v0.2.0" {
		t.Errorf("image after upgrade hub --bundle-version=v0.2.0 = %s, want registry.example.com/project/hub-apiserver:v0.2.0", image)
	}
	got.Spec.Template.Spec.Containers[0].Image = before.Spec.Template.Spec.Containers[0].Image
	sameSpec(t, "upgrade hub, except for the image", got, before)
	run(t, hub, "version").done(t).shows(t, "clusteradm", "Kubernetes v1.", "registry.example.com/project/hub-apiserver:v0.2.0")

	run(t, hub, "init", "--csr-probe-timeout=0", "--image=hub-apiserver:dev").done(t)
	run(t, hub, "upgrade", "hub", "--bundle-version=v0.3.0").refused(t, "--image-registry", "hub-apiserver:dev")
	run(t, hub, "upgrade", "clustermanager", "--bundle-version=v0.3.0", "--image-registry=registry.example.com").done(t)
	if image := deploymentOf(t, kube, hubNamespace, serverName).Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/hub-apiserver:v0.3.0" {
		t.Errorf("image after upgrade clustermanager = %s, want registry.example.com/hub-apiserver:v0.3.0", image)
	}
}

// Join without the flags of the installation keeps the settings of the agent, with or without the bootstrap Secret.
func TestJoinKeepsAnInstalledAgent(t *testing.T) {
	_, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	kube := kubeOf(t, managed)
	const namespace = "agent-installed"
	inNamespace := "--agent-namespace=" + namespace
	image := "registry.example.com/project/hub-apiserver-agent:v0.1.0"
	run(t, managed, "join", inNamespace, "--hub-apiserver", server, "--hub-token", token, "--ca-data", ca, "--cluster-name=kept", "--image", image,
		"--registration-auth=aws-irsa", "--eks-hub-cluster-arn", hubARN, "--managed-cluster-arn", managedARN, "--resource-limits=memory=1Gi").done(t)
	patchDeployment(t, kube, namespace, agentName, `[
{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--inventory-exclude=Pod"},
{"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]}]`)
	before := deploymentOf(t, kube, namespace, agentName)
	secrets := kube.CoreV1().Secrets(namespace)
	read := func() *corev1.Secret {
		t.Helper()
		secret, err := secrets.Get(t.Context(), bootstrapSecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	first := read()

	run(t, managed, "join", inNamespace).done(t).unchanged(t, "join without flags")
	sameSpec(t, "join without flags", deploymentOf(t, kube, namespace, agentName), before)
	if got := read(); got.ResourceVersion != first.ResourceVersion {
		t.Errorf("resourceVersion of the bootstrap Secret after join without a token = %s, want %s", got.ResourceVersion, first.ResourceVersion)
	}

	// The agent deletes the Secret once it has joined. A new token creates it again.
	if err := secrets.Delete(t.Context(), bootstrapSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, "join", inNamespace).refused(t, "--hub-token is required")
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"hub","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"agent","user":{"token":"t"}}],"contexts":[{"name":"hub","context":{"cluster":"hub","user":"agent"}}],"current-context":"hub"}`, server, ca)
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: hubSecret}, Data: map[string][]byte{clusterNameKey: []byte("kept"), kubeconfigKey: []byte(kubeconfig)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, "join", inNamespace).done(t).unchanged(t, "join of a joined agent")
	if _, err := secrets.Get(t.Context(), bootstrapSecret, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(bootstrap Secret) after join without a token = %v, want NotFound", err)
	}
	planned := run(t, managed, "join", inNamespace, "--hub-token", token, "--dry-run").done(t)
	planned.shows(t, "secret/"+bootstrapSecret, "its content is not printed")
	if strings.Contains(planned.out, token) {
		t.Error("join --dry-run printed the token, want no content of a Secret")
	}
	run(t, managed, "join", inNamespace, "--hub-token", token).done(t)
	if got := string(read().Data[kubeconfigKey]); !strings.Contains(got, token) || !strings.Contains(got, server) {
		t.Errorf("bootstrap Secret after join --hub-token = %s, want the token and the server of the joined hub", got)
	}
	sameSpec(t, "join --hub-token", deploymentOf(t, kube, namespace, agentName), before)

	run(t, managed, "upgrade", "agent", inNamespace, "--bundle-version=v0.2.0").done(t)
	upgraded := deploymentOf(t, kube, namespace, agentName)
	if got := upgraded.Spec.Template.Spec.Containers[0].Image; got != "registry.example.com/project/hub-apiserver-agent:v0.2.0" {
		t.Errorf("image after upgrade agent --bundle-version=v0.2.0 = %s, want v0.2.0 of the same registry", got)
	}
	upgraded.Spec.Template.Spec.Containers[0].Image = image
	sameSpec(t, "upgrade agent, except for the image", upgraded, before)

	// An administrator has restricted the agent.
	binding := agentClusterRole + ":apply:" + namespace
	if err := kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, "join", inNamespace).refused(t, "requires --yes", binding)
	if _, err := kube.RbacV1().ClusterRoleBindings().Get(t.Context(), binding, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ClusterRoleBinding) after a refusal = %v, want NotFound", err)
	}
	run(t, managed, "join", inNamespace, "--yes").done(t).shows(t, binding+" created")

	run(t, managed, "join", inNamespace, "--reset", "--yes", "--image", image).done(t)
	reset := deploymentOf(t, kube, namespace, agentName).Spec.Template.Spec.Containers[0]
	if !slices.Contains(reset.Args, "--registration-auth=csr") || slices.Contains(reset.Args, "--inventory-exclude=Pod") || reset.Resources.Limits.Memory().String() != "512Mi" {
		t.Errorf("agent after join --reset has arguments %q and memory limit %s, want --registration-auth=csr, no --inventory-exclude, 512Mi", reset.Args, reset.Resources.Limits.Memory())
	}

	if err := kube.AppsV1().Deployments(namespace).Delete(t.Context(), agentName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, managed, "join", inNamespace, "--image", image).refused(t, "--agent=external", "--agent=deploy")
}
