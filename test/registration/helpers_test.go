package registration

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// hubSecret has the identity of an agent, on its own cluster.
	hubSecret = "hub-kubeconfig-secret"
	// shortLease has agents renew their leases often enough to be waited for.
	shortLease = 3
)

// storyHub is a hub on EKS that clusters on EKS join by the commands alone.
type storyHub struct {
	*awsHub
	adm *localhub.Clusteradm
	// serverArgs are those that the server was first started with.
	serverArgs []string

	mu sync.Mutex
	// printed is what the last command has printed, on both of its outputs.
	printed string
}

// startStoryHub starts a hub of EKS that clusteradm has made one, by both drivers, and
// managed clusters of EKS on which no agent runs.
func startStoryHub(t *testing.T, names ...string) (*storyHub, []*localhub.Cluster) {
	t.Helper()
	h := &storyHub{awsHub: &awsHub{
		aws: framework.Must(fakeaws.New(fakeaws.Options{Region: faultsRegion}))(t),
		arn: framework.Must(irsa.ParseARN(localhub.HubARN))(t),
	}}
	framework.StopLater(t, func(context.Context) error { return h.aws.Close() })
	h.adm = &localhub.Clusteradm{Ran: h.ran}
	var clusters []*localhub.Cluster
	var starting errgroup.Group
	for _, name := range names {
		cluster := framework.Must(localhub.NewCluster(localhub.ClusterOptions{
			Name: name, Dir: filepath.Join(framework.OwnDir(t), name), NoFsync: true,
			EKS: &localhub.EKS{AWS: h.aws, ARN: localhub.ManagedARN(name)},
		}))(t)
		framework.StopLater(t, cluster.Stop)
		clusters = append(clusters, cluster)
		starting.Go(func() error { return cluster.Start(t.Context()) })
	}
	// Also where the hub does not start, since what starts is stopped then.
	framework.StopLater(t, func(context.Context) error { return starting.Wait() })
	h.fleet = ownFleet(t, localhub.FleetOptions{
		AWS: h.aws, Join: localhub.JoinByRegistration, Ran: h.ran,
		// What AWS does not know any more, the hub is not to know either.
		HubArgs: []string{"--authentication-token-webhook-cache-ttl=0s"},
	})
	h.serverArgs = slices.Clone(h.Server.Args)
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	return h, clusters
}

// makeHub makes a cluster a hub, by client certificates.
func (h *storyHub) makeHub(t *testing.T, cluster *localhub.Cluster) *fleet {
	t.Helper()
	invitation := framework.Must(h.adm.Init(t.Context(), cluster))(t)
	server := framework.Must(localhub.NewAPIServer(localhub.APIServerOptions{
		Hub: cluster, Dir: filepath.Join(framework.OwnDir(t), "apiserver"), Granted: true, Args: invitation.ServerArgs,
	}))(t)
	framework.StopLater(t, server.Stop)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &fleet{&framework.Fleet{Fleet: &localhub.Fleet{Hub: cluster, Server: server}}}
	if err := f.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (h *storyHub) ran(_ *localhub.Cluster, _ []string, output string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.printed = output
}

// shows fails the test unless all of the texts are in what the last command has printed.
func (h *storyHub) shows(t *testing.T, texts ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range texts {
		if !strings.Contains(h.printed, text) {
			t.Errorf("it does not show %q:\n%s", text, h.printed)
		}
	}
}

// clusteradm runs a command that must succeed, as an administrator of the cluster.
func (h *storyHub) clusteradm(t *testing.T, cluster *localhub.Cluster, args ...string) {
	t.Helper()
	if _, err := h.adm.Run(t.Context(), cluster, args...); err != nil {
		t.Fatal(err)
	}
}

// restartServer has the server run as clusteradm init with these arguments says.
func (h *storyHub) restartServer(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + localhub.HubARN}, args...)
	invitation := framework.Must(h.adm.Init(t.Context(), h.Hub, args...))(t)
	if err := h.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The last of several flags wins.
	h.Server.Args = slices.Concat(h.serverArgs, invitation.ServerArgs)
	if err := h.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// storyCluster is a managed cluster, and its agent of one hub.
type storyCluster struct {
	*localhub.Cluster
	agent     *localhub.Agent
	namespace string
	kube      kubernetes.Interface
	ocm       versioned.Interface
}

// newStoryCluster prepares an agent of a managed cluster, under the name of the cluster
// on its hub. It does not run.
func newStoryCluster(t *testing.T, cluster *localhub.Cluster, name, namespace string) *storyCluster {
	t.Helper()
	c := &storyCluster{
		Cluster: cluster, namespace: namespace,
		kube: framework.Must(kubernetes.NewForConfig(cluster.AdminConfig()))(t), ocm: framework.OCMClient(t, cluster.AdminConfig(), nil),
		agent: framework.Must(localhub.NewAgent(localhub.AgentOptions{
			Managed: cluster, ClusterName: name, Namespace: namespace, Dir: filepath.Join(framework.OwnDir(t), name, namespace),
		}))(t),
	}
	framework.StopLater(t, c.agent.Stop)
	framework.StopLater(t, func(context.Context) error {
		if t.Failed() {
			t.Logf("the agent in %s of %s%s", namespace, cluster.Name, c.agent.LogTail())
		}
		return nil
	})
	return c
}

// joins has the cluster join a hub by clusteradm, and starts the agent as that says.
func (c *storyCluster) joins(t *testing.T, adm *localhub.Clusteradm, invitation *localhub.Invitation, args ...string) {
	t.Helper()
	if err := c.agent.Join(t.Context(), adm, invitation, args...); err != nil {
		t.Fatal(err)
	}
	if err := c.agent.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// joinsByIRSA has the cluster join the hub with its IAM role.
func (h *storyHub) joinsByIRSA(t *testing.T, c *storyCluster) {
	t.Helper()
	invitation := framework.Must(h.adm.Init(t.Context(), h.Hub, "--registration-auth=csr,aws-irsa", "--hub-cluster-arn="+localhub.HubARN))(t)
	c.joins(t, h.adm, invitation, "--registration-auth=aws-irsa", "--eks-hub-cluster-arn="+localhub.HubARN, "--managed-cluster-arn="+c.EKS().ARN)
}

// identityOf is what AWS has for a cluster, by its name alone.
func (h *storyHub) identityOf(c *storyCluster) irsa.Desired { return h.desired(c.Name, c.Name) }

// secret is the one with the identity of the agent.
func (c *storyCluster) secret(t *testing.T) map[string]string {
	t.Helper()
	secret := framework.Must(c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), hubSecret, metav1.GetOptions{}))(t)
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

// hubKubeconfig is the kubeconfig of the agent's Secret, by which the test acts as the
// agent: in the same environment.
func (c *storyCluster) hubKubeconfig(t *testing.T) *clientcmdapi.Config {
	t.Helper()
	config := framework.Must(clientcmd.Load([]byte(c.secret(t)["kubeconfig"])))(t)
	for _, user := range config.AuthInfos {
		if user.Exec == nil {
			t.Fatalf("the agent's kubeconfig has no token command: %+v", user)
		}
		for _, variable := range c.agent.Env {
			name, value, _ := strings.Cut(variable, "=")
			user.Exec.Env = append(user.Exec.Env, clientcmdapi.ExecEnvVar{Name: name, Value: value})
		}
	}
	return config
}

// onHub is a client configuration of the agent's own credentials.
func (c *storyCluster) onHub(t *testing.T) *rest.Config {
	t.Helper()
	config := framework.Must(clientcmd.NewDefaultClientConfig(*c.hubKubeconfig(t), nil).ClientConfig())(t)
	config.QPS = -1
	return config
}

// awsToken has the agent's program get a token for the hub, as a role there. More of the
// environment wins over the agent's own.
func (c *storyCluster) awsToken(ctx context.Context, role string, env ...string) (string, error) {
	command := exec.CommandContext(ctx, c.agent.Path, "aws-token", "--region", faultsRegion, "--cluster-name", "hub", "--role", role)
	command.Env = slices.Concat(os.Environ(), c.agent.Env, env)
	output, err := command.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", err
	}
	var credential clientauthenticationv1.ExecCredential
	if err := json.Unmarshal(output, &credential); err != nil {
		return "", err
	}
	return credential.Status.Token, nil
}

// asks waits until the cluster has asked the hub.
func (f *fleet) asks(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "the hub has ManagedCluster "+name, func(ctx context.Context) error {
		_, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// isMember waits until the hub knows the cluster as one that has joined and is well, whose
// agent renews its lease.
func (f *fleet) isMember(t *testing.T, c *storyCluster, name string) {
	t.Helper()
	framework.Eventually(t, name+" is a member", func(ctx context.Context) error {
		cluster, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, kind := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, kind) {
				return fmt.Errorf("its conditions: %+v; its agent: %s", cluster.Status.Conditions, c.agent.LogTail())
			}
		}
		return nil
	})
	agent := c.secret(t)["agent-name"]
	framework.Eventually(t, "the agent of "+name+" has renewed its lease", func(ctx context.Context) error {
		lease, err := f.HubClient.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != agent) {
			err = fmt.Errorf("it is %+v", lease.Spec)
		}
		return err
	})
	f.renews(t, name)
}

// renews waits until the lease of a cluster is renewed once more.
func (f *fleet) renews(t *testing.T, name string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d}}`, shortLease)
	if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before := framework.Must(f.HubClient.CoordinationV1().Leases(name).Get(t.Context(), registration.LeaseName, metav1.GetOptions{}))(t)
	framework.Eventually(t, "the lease of "+name+" is renewed", func(ctx context.Context) error {
		lease, err := f.HubClient.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			err = fmt.Errorf("it is of %s", lease.Spec.RenewTime)
		}
		return err
	})
}

// hasWorkApplied has the cluster apply a ConfigMap for the hub, and looks at it there.
func (f *fleet) hasWorkApplied(t *testing.T, c *storyCluster, name, work string) {
	t.Helper()
	manifest := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":{"cluster":%q}}`, work, name)
	if _, err := f.OCM.WorkV1().ManifestWorks(name).Create(t.Context(), &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: work},
		Spec:       workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: manifest}}}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ManifestWork "+work+" is applied", func(ctx context.Context) error {
		current, err := f.OCM.WorkV1().ManifestWorks(name).Get(ctx, work, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(current.Status.Conditions, workv1.WorkApplied) {
			return fmt.Errorf("its conditions: %+v", current.Status.Conditions)
		}
		return nil
	})
	if got := framework.Must(c.kube.CoreV1().ConfigMaps("default").Get(t.Context(), work, metav1.GetOptions{}))(t); got.Data["cluster"] != name {
		t.Errorf("the ConfigMap on the cluster is %v", got.Data)
	}
}

// has tells whether a ConfigMap of hasWorkApplied is on the cluster.
func (c *storyCluster) has(ctx context.Context, work string) (bool, error) {
	_, err := c.kube.CoreV1().ConfigMaps("default").Get(ctx, work, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// hasNothing tells what the hub has applied to the cluster.
func (c *storyCluster) hasNothing(ctx context.Context, works ...string) error {
	for _, work := range works {
		if has, err := c.has(ctx, work); err != nil || has {
			return errors.Join(err, fmt.Errorf("ConfigMap %s is there", work))
		}
	}
	applied, err := c.ocm.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(applied.Items) > 0 {
		return fmt.Errorf("there are %d AppliedManifestWorks", len(applied.Items))
	}
	return nil
}

// seed is a document of the enhancement proposal with its placeholders filled, by what
// the proposal says of them.
func (h *storyHub) seed(t *testing.T, document string, managed *localhub.Cluster) string {
	t.Helper()
	content := framework.Must(os.ReadFile(filepath.Join("testdata", "seed-003", document+".json")))(t)
	arn := h.arn
	issuer := h.Hub.EKS().Issuer()
	if managed != nil {
		arn = framework.Must(irsa.ParseARN(managed.EKS().ARN))(t)
		issuer = managed.EKS().Issuer()
	}
	return strings.NewReplacer(
		"<hub-account-id>", h.arn.AccountID,
		"<hub-cluster-account-id>", h.arn.AccountID,
		"<hub-cluster-name>", h.arn.ClusterName,
		"<hub-region>", h.arn.Region,
		"<managed-cluster-account-id>", arn.AccountID,
		"<managed-cluster-name>", arn.ClusterName,
		"<md5-hash-unique-identifier>", seedHash(h.arn.AccountID, h.arn.ClusterName, arn.AccountID, arn.ClusterName),
		"<oidc-provider>", issuer,
		"<klusterlet-name>", "klusterlet",
	).Replace(string(content))
}

// seedHash is the identifier of the proposal.
func seedHash(hubAccount, hubName, managedAccount, managedName string) string {
	sum := md5.Sum([]byte(strings.Join([]string{hubAccount, hubName, managedAccount, managedName}, "#")))
	return hex.EncodeToString(sum[:])
}

// role is an IAM role of an account as AWS has it.
func (h *storyHub) role(t *testing.T, account, name string) fakeaws.Role {
	t.Helper()
	roles := h.aws.Roles(account)
	i := slices.IndexFunc(roles, func(r fakeaws.Role) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("account %s has no role %s", account, name)
	}
	return roles[i]
}

// inAWSIsNothingOf tells what AWS has in the account of the hub for a cluster.
func (h *storyHub) inAWSIsNothingOf(c *storyCluster) error {
	identity := h.identityOf(c)
	for _, role := range h.aws.Roles(faultsHubAccount) {
		if role.Name == identity.HubRoleName() {
			return fmt.Errorf("role %s is there", role.Name)
		}
	}
	return h.noAccessEntry(c)
}

func (h *storyHub) noAccessEntry(c *storyCluster) error {
	for _, entry := range h.aws.AccessEntries(localhub.HubARN) {
		if entry.PrincipalARN == h.identityOf(c).HubRoleARN() {
			return fmt.Errorf("the access entry of %s is there", entry.PrincipalARN)
		}
	}
	return nil
}

// nothingIsLeft tells what the hub has of a cluster: of any resource, what carries its
// name, is in its namespace or is labelled with it. Events tell of the past; Kubernetes
// removes them after an hour.
func (f *fleet) nothingIsLeft(ctx context.Context, name string) error {
	config := f.Hub.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // of resources that are deprecated
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil {
		return err
	}
	var left []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			found, err := client.Resource(gv.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("%s: %w", resource.Name, err)
			}
			for i := range found.Items {
				if isOf(&found.Items[i], name) {
					left = append(left, fmt.Sprintf("%s %s/%s", resource.Name, found.Items[i].GetNamespace(), found.Items[i].GetName()))
				}
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the hub has %s", strings.Join(left, ", "))
	}
	return nil
}

func isOf(object *unstructured.Unstructured, cluster string) bool {
	return object.GetNamespace() == cluster || object.GetLabels()[clusterv1.ClusterNameLabel] == cluster ||
		slices.Contains(strings.Split(object.GetName(), ":"), cluster)
}

// claimed is the state of a cluster's claim, as kubectl get --raw shows it.
func (h *storyHub) claimed(t *testing.T, name string) *registerv1alpha1.ManagedClusterIRSA {
	t.Helper()
	output, err := h.Kubectl(t, "", "get", "--raw", "/apis/"+registerv1alpha1.SchemeGroupVersion.String()+"/managedclusters/"+name+"/irsa")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	claim := &registerv1alpha1.ManagedClusterIRSA{}
	if err := json.Unmarshal([]byte(output), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// refused waits until the hub refuses a request of the cluster's own credentials.
func refused(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	client := framework.OCMClient(t, config, nil)
	framework.Eventually(t, "the hub refuses "+name, func(ctx context.Context) error {
		_, err := client.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("the answer: %v", err)
	})
}
