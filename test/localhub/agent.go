package localhub

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// AgentNamespace is the namespace in which clusteradm join installs the agent.
	AgentNamespace = "open-cluster-management-agent"
	// agentAccount is the agent's ServiceAccount there.
	agentAccount = "agent"
	// bootstrapSecret is the Secret that clusteradm join writes for the agent.
	bootstrapSecret = "bootstrap-hub-kubeconfig"
	// identitySecret is the Secret that the agent writes when it has registered.
	identitySecret = "hub-kubeconfig-secret"
)

// AgentOptions are the options of an [Agent]. Managed and Dir are required.
type AgentOptions struct {
	// Hub is the cluster from which the agent reads ManifestWorks. If it is nil, the agent
	// registers with the files of [Agent.Join], and its only credentials on the hub are those
	// that the hub issues.
	Hub *Cluster
	// Managed is the cluster to which the agent applies the manifests.
	Managed *Cluster
	// ClusterName is the managed cluster's name on the hub; the name of Managed if empty.
	ClusterName string
	// Namespace is the agent's namespace on the managed cluster, if it registers:
	// [AgentNamespace] if empty. Agents of several hubs need separate namespaces.
	Namespace string
	// Dir contains the agent's kubeconfigs.
	Dir string
	// LogDir receives the log; <Dir>/logs if empty.
	LogDir string
	// BinDir contains the program agent; [BinDir]() if empty.
	BinDir string
	// Args are additional arguments, which take precedence over the defaults.
	Args []string
	// Host is the host of the agent. Nil means this machine.
	Host *Host
}

// Agent is our agent of one managed cluster.
type Agent struct {
	*Process

	hub, managed           *Cluster
	clusterName, namespace string
	dir, clusterKubeconfig string
	// defaults and args are the arguments before and after the arguments of the registration.
	defaults, args []string
}

// NewAgent returns an agent without starting it.
func NewAgent(opts AgentOptions) (*Agent, error) {
	opts.LogDir = cmp.Or(opts.LogDir, filepath.Join(opts.Dir, "logs"))
	opts.BinDir = cmp.Or(opts.BinDir, BinDir())
	opts.ClusterName = cmp.Or(opts.ClusterName, opts.Managed.Name)
	opts.Namespace = cmp.Or(opts.Namespace, AgentNamespace)
	path, err := Binary(opts.BinDir, "agent")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	address := opts.Host.address() + ":" + strconv.Itoa(port)
	health := http.DefaultClient
	if opts.Host != nil {
		health = &http.Client{Transport: &http.Transport{DialContext: opts.Host.Dial}}
	}
	a := &Agent{
		hub:               opts.Hub,
		managed:           opts.Managed,
		clusterName:       opts.ClusterName,
		namespace:         opts.Namespace,
		dir:               dir,
		clusterKubeconfig: filepath.Join(dir, "cluster.kubeconfig"),
		args:              opts.Args,
	}
	a.defaults = []string{
		"--kubeconfig=" + a.clusterKubeconfig,
		"--cluster-name=" + opts.ClusterName,
		"--health-bind-address=" + address,
	}
	if a.hub != nil {
		a.defaults = append(a.defaults, "--hub-kubeconfig="+a.hubKubeconfig())
	} else {
		a.defaults = append(a.defaults, "--hub-kubeconfig-dir="+filepath.Join(dir, "identity"))
	}
	a.Process = &Process{
		Name:    opts.ClusterName + " agent",
		Path:    path,
		Args:    slices.Concat(a.defaults, opts.Args),
		LogFile: filepath.Join(opts.LogDir, opts.ClusterName+"-agent.log"),
		Host:    opts.Host,
		Ready:   func(ctx context.Context) error { return httpOK(ctx, health, "http://"+address+"/readyz") },
	}
	return a, nil
}

// hubKubeconfig returns the path of the credentials of an agent that does not register.
// bootstrapKubeconfig returns the path of the kubeconfig with which an agent registers.
func (a *Agent) hubKubeconfig() string       { return filepath.Join(a.dir, "hub.kubeconfig") }
func (a *Agent) bootstrapKubeconfig() string { return filepath.Join(a.dir, "bootstrap.kubeconfig") }

func httpOK(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// Join runs clusteradm join on the managed cluster, and sets the arguments of the agent to those
// in the output. A second call keeps the identity of the agent.
func (a *Agent) Join(ctx context.Context, adm *Clusteradm, invitation *Invitation, args ...string) error {
	args = slices.Concat(invitation.JoinArgs(a.clusterName), []string{"--agent-namespace", a.namespace}, args)
	output, err := adm.Run(ctx, a.managed, args...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(output) {
		flags, ok := strings.CutPrefix(strings.TrimSpace(line), "agent --")
		if !ok {
			continue
		}
		registration := strings.Fields("--" + flags)
		for i, flag := range registration {
			if strings.HasPrefix(flag, "--bootstrap-kubeconfig=") {
				registration[i] = "--bootstrap-kubeconfig=" + a.bootstrapKubeconfig()
			}
		}
		a.Args = slices.Concat(a.defaults, registration, a.args)
		return nil
	}
	return fmt.Errorf("the output of clusteradm join has no command to start the agent:\n%s", output)
}

// Start launches the agent as [Agent.Launch] does, and returns when the agent is ready.
func (a *Agent) Start(ctx context.Context) error {
	if err := a.Launch(ctx); err != nil {
		return err
	}
	err := a.WaitReady(ctx)
	if err != nil {
		_ = a.Kill()
	}
	return err
}

// Launch writes the credentials of the agent and starts it. It does not wait until the agent is
// ready, because an agent is ready only after the hub accepts the cluster. The managed cluster
// must be running.
//
// An agent that registers uses the ServiceAccount of clusteradm join on the managed cluster and
// in AWS. It reads the bootstrap kubeconfig from a file, as a kubelet mounts it into a Pod. An
// agent that does not register has only the permissions in artifacts/agent, and a certificate
// for a hub that accepted the cluster with [JoinCluster].
func (a *Agent) Launch(ctx context.Context) error {
	prepare := a.prepare
	if a.hub == nil {
		prepare = a.prepareRegistration
	}
	if err := prepare(ctx); err != nil {
		return fmt.Errorf("start %s: %w", a.Name, err)
	}
	return a.Process.Launch()
}

// ExpireIdentity replaces the certificate with which an agent has registered by one of the hub that expires at a time.
// The agent must not run: it uses the certificate from its next start.
func (a *Agent) ExpireIdentity(ctx context.Context, hub *Cluster, expires time.Time) error {
	secret, err := a.Identity(ctx)
	if err != nil {
		return err
	}
	current, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return err
	}
	subject := current[0].Subject
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], err = hub.pki.client.issueClient(expires, subject.CommonName, subject.Organization)
	if err != nil {
		return err
	}
	_, err = a.managed.client.CoreV1().Secrets(a.namespace).Update(ctx, secret, metav1.UpdateOptions{})
	return err
}

// Identity returns the Secret with the credentials with which an agent has registered.
func (a *Agent) Identity(ctx context.Context) (*corev1.Secret, error) {
	return a.managed.client.CoreV1().Secrets(a.namespace).Get(ctx, identitySecret, metav1.GetOptions{})
}

func (a *Agent) prepareRegistration(ctx context.Context) error {
	if err := a.writeClusterKubeconfig(ctx, a.namespace); err != nil {
		return err
	}
	if err := a.MountBootstrap(ctx); err != nil {
		return err
	}
	identity, err := a.managed.PodIdentity(ctx, a.namespace, agentAccount, filepath.Join(a.dir, "aws-token"))
	a.Env = identity
	return err
}

// MountBootstrap writes the bootstrap kubeconfig from the current Secret to a file, or removes
// the file if the Secret does not exist. A kubelet does the same some time after a change of the
// Secret.
func (a *Agent) MountBootstrap(ctx context.Context) error {
	secret, err := a.managed.client.CoreV1().Secrets(a.namespace).Get(ctx, bootstrapSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return os.RemoveAll(a.bootstrapKubeconfig())
	}
	if err != nil {
		return err
	}
	return writeFile(a.bootstrapKubeconfig(), secret.Data["kubeconfig"])
}

func (a *Agent) prepare(ctx context.Context) error {
	user := AgentUser(a.clusterName)
	if err := a.hub.WriteKubeconfig(a.hubKubeconfig(), user, AgentGroup(a.clusterName), clusterv1.AllAgentsGroup); err != nil {
		return err
	}
	grants, err := ReadManifests(filepath.Join(Root(), "artifacts", "agent", "managed"))
	if err != nil {
		return err
	}
	if err := a.managed.Apply(ctx, grants...); err != nil {
		return err
	}
	// artifacts/agent/managed contains the same ServiceAccount as clusteradm join.
	return a.writeClusterKubeconfig(ctx, AgentNamespace)
}

func (a *Agent) writeClusterKubeconfig(ctx context.Context, namespace string) error {
	config, err := a.managed.ServiceAccountConfig(ctx, namespace, agentAccount)
	if err != nil {
		return err
	}
	return writeKubeconfig(a.clusterKubeconfig, a.managed.Name, agentAccount, config)
}

// AgentUser returns the user name of a managed cluster's agent on the hub.
func AgentUser(cluster string) string {
	return AgentGroup(cluster) + ":agent"
}

// AgentGroup returns the group of a managed cluster's agents on the hub.
func AgentGroup(cluster string) string {
	return "system:open-cluster-management:" + cluster
}
