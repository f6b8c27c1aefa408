package localhub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// AgentNamespace is where clusteradm join puts the agent on a managed cluster.
	AgentNamespace = "open-cluster-management-agent"
	// agentAccount is the agent's ServiceAccount there.
	agentAccount = "agent"
	// bootstrapSecret is the Secret that clusteradm join writes for the agent.
	bootstrapSecret = "bootstrap-hub-kubeconfig"
)

// AgentOptions says how an [Agent] is made. Managed and Dir are required.
type AgentOptions struct {
	// Hub is the cluster whose works the agent applies. Without it, the agent registers
	// by what [Agent.Join] prepares, and has no credentials but those that the hub gives it.
	Hub *Cluster
	// Managed is the cluster that it applies them to.
	Managed *Cluster
	// ClusterName is the managed cluster's name on the hub; that of Managed if empty.
	ClusterName string
	// Namespace is where the agent is at home on the managed cluster, if it registers:
	// [AgentNamespace] if empty. Agents of several hubs have one each.
	Namespace string
	// Dir keeps the agent's kubeconfigs.
	Dir string
	// LogDir receives the log; <Dir>/logs if empty.
	LogDir string
	// BinDir has the program agent; [BinDir]() if empty.
	BinDir string
	// Args are further arguments, which win over the defaults.
	Args []string
	// Env is added to its environment, as KEY=value.
	Env []string
}

// Agent is our agent of one managed cluster.
type Agent struct {
	*Process

	hub, managed           *Cluster
	clusterName, namespace string
	dir, clusterKubeconfig string
	// defaults and args are the arguments before and after those of the registration.
	defaults, args, env []string
}

// NewAgent returns an agent, not started.
func NewAgent(opts AgentOptions) (*Agent, error) {
	if opts.LogDir == "" {
		opts.LogDir = filepath.Join(opts.Dir, "logs")
	}
	if opts.BinDir == "" {
		opts.BinDir = BinDir()
	}
	if opts.ClusterName == "" {
		opts.ClusterName = opts.Managed.Name
	}
	if opts.Namespace == "" {
		opts.Namespace = AgentNamespace
	}
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
	address := "127.0.0.1:" + strconv.Itoa(port)
	a := &Agent{
		hub:               opts.Hub,
		managed:           opts.Managed,
		clusterName:       opts.ClusterName,
		namespace:         opts.Namespace,
		dir:               dir,
		clusterKubeconfig: filepath.Join(dir, "cluster.kubeconfig"),
		args:              opts.Args,
		env:               opts.Env,
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
		Env:     opts.Env,
		LogFile: filepath.Join(opts.LogDir, opts.ClusterName+"-agent.log"),
		Ready:   func(ctx context.Context) error { return httpOK(ctx, "http://"+address+"/readyz") },
	}
	return a, nil
}

// hubKubeconfig is the file with the credentials of an agent that does not register,
// and bootstrapKubeconfig that by which one registers.
func (a *Agent) hubKubeconfig() string       { return filepath.Join(a.dir, "hub.kubeconfig") }
func (a *Agent) bootstrapKubeconfig() string { return filepath.Join(a.dir, "bootstrap.kubeconfig") }

func httpOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
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

// Join has the managed cluster join a hub by clusteradm, and the agent run as that says.
// To do so again leaves the agent who it is.
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
	return fmt.Errorf("clusteradm join does not say how to start the agent:\n%s", output)
}

// Start is [Agent.Launch] and, as [Process.Start], returns when the agent is ready.
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

// Launch gives the agent its identities and starts it. It does not wait until it is
// ready, which needs that the hub accepts the cluster. The managed cluster must be running.
//
// An agent that registers acts on the managed cluster, and in AWS, as the ServiceAccount
// of clusteradm join, and has the bootstrap kubeconfig in a file as a kubelet would give
// it to a Pod. Any other is granted what artifacts/agent says and nothing else, and has
// a certificate for a hub that has accepted the cluster by [JoinCluster].
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

func (a *Agent) prepareRegistration(ctx context.Context) error {
	config, err := a.managed.ServiceAccountConfig(ctx, a.namespace, agentAccount)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(a.clusterKubeconfig, a.managed.Name, agentAccount, config); err != nil {
		return err
	}
	if err := a.MountBootstrap(ctx); err != nil {
		return err
	}
	identity, err := a.managed.PodIdentity(ctx, a.namespace, agentAccount, filepath.Join(a.dir, "aws-token"))
	a.Env = append(identity, a.env...)
	return err
}

// MountBootstrap writes the file of the bootstrap kubeconfig as the Secret has it now, or
// removes it if there is no Secret, as a kubelet does a while after the Secret has changed.
func (a *Agent) MountBootstrap(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(a.managed.AdminConfig())
	if err != nil {
		return err
	}
	secret, err := client.CoreV1().Secrets(a.namespace).Get(ctx, bootstrapSecret, metav1.GetOptions{})
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
	for _, object := range grants {
		if object.GetKind() != "ServiceAccount" {
			continue
		}
		config, err := a.managed.ServiceAccountConfig(ctx, object.GetNamespace(), object.GetName())
		if err != nil {
			return err
		}
		return writeKubeconfig(a.clusterKubeconfig, a.managed.Name, object.GetName(), config)
	}
	return errors.New("artifacts/agent/managed has no ServiceAccount for the agent")
}

// AgentUser returns the user name of a managed cluster's agent on the hub.
func AgentUser(cluster string) string {
	return AgentGroup(cluster) + ":agent"
}

// AgentGroup returns the group of a managed cluster's agents on the hub.
func AgentGroup(cluster string) string {
	return "system:open-cluster-management:" + cluster
}
