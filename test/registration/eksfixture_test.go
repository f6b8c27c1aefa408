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
	// hubSecret is the Secret on the managed cluster that contains the identity of an agent.
	hubSecret = "hub-kubeconfig-secret"
	// shortLease is a lease duration in seconds that is short enough to wait for a renewal.
	shortLease = 3
)

// eksHub is a hub on EKS. Clusters on EKS join it with the documented commands only.
type eksHub struct {
	*awsHub
	adm *localhub.Clusteradm
	// serverArgs are the arguments of the first start of the server.
	serverArgs []string

	mu sync.Mutex
	// printed is the output of the last command, on stdout and stderr.
	printed string
}

// startEKSHub starts a hub on EKS that clusteradm init has set up for both drivers, and managed
// clusters on EKS without agents.
func startEKSHub(t *testing.T, names ...string) (*eksHub, []*localhub.Cluster) {
	t.Helper()
	framework.Slots(t, 1+len(names))
	h := &eksHub{awsHub: &awsHub{
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
		framework.KillLater(t, cluster.Kill)
		clusters = append(clusters, cluster)
		starting.Go(func() error { return cluster.Start(t.Context()) })
	}
	// The cleanup waits for starting clusters before it stops them, even if the hub fails to start.
	framework.StopLater(t, func(context.Context) error { return starting.Wait() })
	h.fleet = ownFleet(t, localhub.FleetOptions{
		AWS: h.aws, Join: localhub.JoinByRegistration, Ran: h.ran,
		// Without a cache, the hub denies deleted identities immediately.
		HubArgs: []string{"--authentication-token-webhook-cache-ttl=0s"},
	})
	h.serverArgs = slices.Clone(h.Server.Args)
	if err := starting.Wait(); err != nil {
		t.Fatal(err)
	}
	return h, clusters
}

// makeHub turns a cluster into a hub that registers clusters with client certificates.
func (h *eksHub) makeHub(t *testing.T, cluster *localhub.Cluster) *fleet {
	t.Helper()
	invitation := framework.Must(h.adm.Init(t.Context(), cluster))(t)
	server := framework.OwnServer(t, localhub.APIServerOptions{
		Hub: cluster, Dir: filepath.Join(framework.OwnDir(t), "apiserver"), Granted: true, Args: invitation.ServerArgs,
	})
	return &fleet{framework.Serve(t, cluster, server)}
}

func (h *eksHub) ran(_ *localhub.Cluster, _ []string, output string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.printed = output
}

// shows fails the test unless the output of the last command contains all texts.
func (h *eksHub) shows(t *testing.T, texts ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range texts {
		if !strings.Contains(h.printed, text) {
			t.Errorf("output of the last command does not contain %q:\n%s", text, h.printed)
		}
	}
}

// clusteradm runs a command that must succeed, as an administrator of the cluster.
func (h *eksHub) clusteradm(t *testing.T, cluster *localhub.Cluster, args ...string) {
	t.Helper()
	if _, err := h.adm.Run(t.Context(), cluster, args...); err != nil {
		t.Fatal(err)
	}
}

// restartServer restarts the server with the arguments that clusteradm init prints for args.
func (h *eksHub) restartServer(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + localhub.HubARN}, args...)
	invitation := framework.Must(h.adm.Init(t.Context(), h.Hub, args...))(t)
	if err := h.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// If a flag is repeated, its last value applies.
	h.Server.Args = slices.Concat(h.serverArgs, invitation.ServerArgs)
	if err := h.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eksMember is a managed cluster, and its agent of one hub.
type eksMember struct {
	*localhub.Cluster
	agent     *localhub.Agent
	namespace string
	kube      kubernetes.Interface
	ocm       versioned.Interface
}

// newEKSMember prepares an agent of a managed cluster, with the name of the cluster on its hub. It does
// not start the agent.
func newEKSMember(t *testing.T, cluster *localhub.Cluster, name, namespace string) *eksMember {
	t.Helper()
	c := &eksMember{
		Cluster: cluster, namespace: namespace,
		kube: framework.Must(kubernetes.NewForConfig(cluster.AdminConfig()))(t), ocm: framework.OCMClient(t, cluster.AdminConfig(), nil),
		agent: framework.Must(localhub.NewAgent(localhub.AgentOptions{
			Managed: cluster, ClusterName: name, Namespace: namespace, Dir: filepath.Join(framework.OwnDir(t), name, namespace),
		}))(t),
	}
	framework.KillLater(t, c.agent.Kill)
	framework.StopLater(t, func(context.Context) error {
		if t.Failed() {
			t.Logf("log of the agent in namespace %s of %s:%s", namespace, cluster.Name, c.agent.LogTail())
		}
		return nil
	})
	return c
}

// joins has the cluster join a hub with clusteradm, and starts the agent with the resulting
// configuration.
func (c *eksMember) joins(t *testing.T, adm *localhub.Clusteradm, invitation *localhub.Invitation, args ...string) {
	t.Helper()
	if err := c.agent.Join(t.Context(), adm, invitation, args...); err != nil {
		t.Fatal(err)
	}
	if err := c.agent.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// joinsByIRSA has the cluster join the hub with its IAM role.
func (h *eksHub) joinsByIRSA(t *testing.T, c *eksMember) {
	t.Helper()
	invitation := framework.Must(h.adm.Init(t.Context(), h.Hub, "--registration-auth=csr,aws-irsa", "--hub-cluster-arn="+localhub.HubARN))(t)
	c.joins(t, h.adm, invitation, "--registration-auth=aws-irsa", "--eks-hub-cluster-arn="+localhub.HubARN, "--managed-cluster-arn="+c.EKS().ARN)
}

// identityOf returns the identity of a cluster in AWS.
func (h *eksHub) identityOf(c *eksMember) irsa.Desired { return h.desired(c.Name, c.Name) }

// secret returns the data of the Secret with the identity of the agent.
func (c *eksMember) secret(t *testing.T) map[string]string {
	t.Helper()
	secret := framework.Must(c.kube.CoreV1().Secrets(c.namespace).Get(t.Context(), hubSecret, metav1.GetOptions{}))(t)
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

// hubKubeconfig returns the kubeconfig in the Secret of the agent. Its token command runs in the
// environment of the agent, so the test acts as the agent.
func (c *eksMember) hubKubeconfig(t *testing.T) *clientcmdapi.Config {
	t.Helper()
	config := framework.Must(clientcmd.Load([]byte(c.secret(t)["kubeconfig"])))(t)
	for _, user := range config.AuthInfos {
		if user.Exec == nil {
			t.Fatalf("user in the kubeconfig of the agent = %+v, want a token command", user)
		}
		for _, variable := range c.agent.Env {
			name, value, _ := strings.Cut(variable, "=")
			user.Exec.Env = append(user.Exec.Env, clientcmdapi.ExecEnvVar{Name: name, Value: value})
		}
	}
	return config
}

// onHub returns a client configuration with the credentials of the agent.
func (c *eksMember) onHub(t *testing.T) *rest.Config {
	t.Helper()
	config := framework.Must(clientcmd.NewDefaultClientConfig(*c.hubKubeconfig(t), nil).ClientConfig())(t)
	config.QPS = -1
	return config
}

// awsToken runs the aws-token command of the agent's program and returns a token for the hub with
// an IAM role. env overrides the environment of the agent.
func (c *eksMember) awsToken(ctx context.Context, role string, env ...string) (string, error) {
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

// asks waits until the agent of a cluster has created its ManagedCluster.
func (f *fleet) asks(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "ManagedCluster "+name+" exists", func(ctx context.Context) error {
		_, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// isMember waits until the cluster is accepted, joined and available, and until its agent renews its
// lease.
func (f *fleet) isMember(t *testing.T, c *eksMember, name string) {
	t.Helper()
	framework.Eventually(t, "ManagedCluster "+name+" is accepted, joined and available", func(ctx context.Context) error {
		cluster, err := f.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, kind := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, kind) {
				return fmt.Errorf("conditions = %+v, log of the agent: %s", cluster.Status.Conditions, c.agent.LogTail())
			}
		}
		return nil
	})
	agent := c.secret(t)["agent-name"]
	framework.Eventually(t, "agent "+agent+" holds the Lease of "+name, func(ctx context.Context) error {
		lease, err := f.HubClient.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != agent) {
			err = fmt.Errorf("spec of the Lease = %+v", lease.Spec)
		}
		return err
	})
	f.renews(t, name)
}

// renews waits until the agent of a cluster renews its Lease once more.
func (f *fleet) renews(t *testing.T, name string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d}}`, shortLease)
	if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before := framework.Must(f.HubClient.CoordinationV1().Leases(name).Get(t.Context(), registration.LeaseName, metav1.GetOptions{}))(t)
	framework.Eventually(t, "the Lease of "+name+" is renewed", func(ctx context.Context) error {
		lease, err := f.HubClient.CoordinationV1().Leases(name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			err = fmt.Errorf("renewTime = %s, want later than %s", lease.Spec.RenewTime, before.Spec.RenewTime)
		}
		return err
	})
}

// hasWorkApplied creates a ManifestWork with a ConfigMap, and checks the ConfigMap on the cluster.
func (f *fleet) hasWorkApplied(t *testing.T, c *eksMember, name, work string) {
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
			return fmt.Errorf("conditions = %+v", current.Status.Conditions)
		}
		return nil
	})
	if got := framework.Must(c.kube.CoreV1().ConfigMaps("default").Get(t.Context(), work, metav1.GetOptions{}))(t); got.Data["cluster"] != name {
		t.Errorf("data of ConfigMap %s on the cluster = %v, want cluster %s", work, got.Data, name)
	}
}

// has reports whether a ConfigMap of hasWorkApplied exists on the cluster.
func (c *eksMember) has(ctx context.Context, work string) (bool, error) {
	_, err := c.kube.CoreV1().ConfigMaps("default").Get(ctx, work, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// hasNothing returns an error if an applied ConfigMap or AppliedManifestWork exists on the cluster.
func (c *eksMember) hasNothing(ctx context.Context, works ...string) error {
	for _, work := range works {
		if has, err := c.has(ctx, work); err != nil || has {
			return errors.Join(err, fmt.Errorf("ConfigMap %s exists", work))
		}
	}
	applied, err := c.ocm.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(applied.Items) > 0 {
		return fmt.Errorf("AppliedManifestWorks = %d, want 0", len(applied.Items))
	}
	return nil
}

// proposed returns a document of the enhancement proposal. Its placeholders are replaced as the proposal
// describes.
func (h *eksHub) proposed(t *testing.T, document string, managed *localhub.Cluster) string {
	t.Helper()
	content := framework.Must(os.ReadFile(filepath.Join("testdata", "proposal", document+".json")))(t)
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
		"<md5-hash-unique-identifier>", proposalHash(h.arn.AccountID, h.arn.ClusterName, arn.AccountID, arn.ClusterName),
		"<oidc-provider>", issuer,
		"<klusterlet-name>", "klusterlet",
	).Replace(string(content))
}

// proposalHash returns the identifier of a managed cluster as the proposal computes it.
func proposalHash(hubAccount, hubName, managedAccount, managedName string) string {
	sum := md5.Sum([]byte(strings.Join([]string{hubAccount, hubName, managedAccount, managedName}, "#")))
	return hex.EncodeToString(sum[:])
}

// role returns an IAM role of an account.
func (h *eksHub) role(t *testing.T, account, name string) fakeaws.Role {
	t.Helper()
	roles := h.aws.Roles(account)
	i := slices.IndexFunc(roles, func(r fakeaws.Role) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("roles of account %s do not contain %s", account, name)
	}
	return roles[i]
}

// inAWSIsNothingOf returns an error if AWS has a role or an access entry for a cluster in the
// account of the hub.
func (h *eksHub) inAWSIsNothingOf(c *eksMember) error {
	identity := h.identityOf(c)
	for _, role := range h.aws.Roles(faultsHubAccount) {
		if role.Name == identity.HubRoleName() {
			return fmt.Errorf("role %s exists", role.Name)
		}
	}
	return h.noAccessEntry(c)
}

func (h *eksHub) noAccessEntry(c *eksMember) error {
	for _, entry := range h.aws.AccessEntries(localhub.HubARN) {
		if entry.PrincipalARN == h.identityOf(c).HubRoleARN() {
			return fmt.Errorf("access entry of %s exists", entry.PrincipalARN)
		}
	}
	return nil
}

// nothingIsLeft returns an error that names the remaining objects of a cluster on the hub: objects
// of any resource that have its name or its label, or are in its namespace. Events are ignored,
// because Kubernetes removes them after an hour.
func (f *fleet) nothingIsLeft(ctx context.Context, name string) error {
	config := f.Hub.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // ignores warnings about deprecated resources
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
		return fmt.Errorf("remaining objects on the hub: %s", strings.Join(left, ", "))
	}
	return nil
}

func isOf(object *unstructured.Unstructured, cluster string) bool {
	return object.GetNamespace() == cluster || object.GetLabels()[clusterv1.ClusterNameLabel] == cluster ||
		slices.Contains(strings.Split(object.GetName(), ":"), cluster)
}

// claimed returns the claim of a cluster, read with kubectl get --raw.
func (h *eksHub) claimed(t *testing.T, name string) *registerv1alpha1.ManagedClusterIRSA {
	t.Helper()
	output, err := h.Kubectl(t, "", "get", "--raw", "/apis/"+registerv1alpha1.SchemeGroupVersion.String()+"/managedclusters/"+name+"/irsa")
	if err != nil {
		t.Fatalf("kubectl get --raw = %v, want nil: %s", err, output)
	}
	claim := &registerv1alpha1.ManagedClusterIRSA{}
	if err := json.Unmarshal([]byte(output), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// refused waits until the hub rejects a request with the credentials of the cluster.
func refused(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	client := framework.OCMClient(t, config, nil)
	framework.Eventually(t, "the hub rejects requests of "+name, func(ctx context.Context) error {
		_, err := client.WorkV1().ManifestWorks(name).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil
		}
		return fmt.Errorf("error = %v, want Forbidden or Unauthorized", err)
	})
}
