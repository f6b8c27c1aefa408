package localhub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// FleetOptions says how a [Fleet] is made. Dir is required.
type FleetOptions struct {
	// Dir keeps everything: data, keys and kubeconfigs.
	Dir string
	// LogDir receives the logs; <Dir>/logs if empty.
	LogDir string
	// Clusters are the names of the managed clusters; there may be none.
	Clusters []string
	// HubAgent has the hub join itself, as [HubClusterName].
	HubAgent bool
	// Join is how the clusters join the hub; [JoinByAdministrator] if empty.
	Join JoinMode
	// InitArgs are further arguments of clusteradm init, with [JoinByRegistration].
	InitArgs []string
	// AWS has all clusters be of EKS, and the hub register by csr and aws-irsa. It takes
	// [JoinByRegistration], and must run from before NewFleet until after Stop.
	AWS *fakeaws.Server
	// ForeignHub has the hub not be of EKS, but run aws-iam-authenticator. It takes AWS.
	ForeignHub bool
	// IRSA are the names of the managed clusters that register by aws-irsa; the others do by csr.
	IRSA []string
	// BinDir has our programs; [BinDir]() if empty.
	BinDir string
	// KubeBinDir has the hub's Kubernetes programs, for another version than
	// that of BinDir; BinDir if empty.
	KubeBinDir string
	// NoFsync is as in [ClusterOptions].
	NoFsync bool
	// HubArgs, APIServerArgs and AgentArgs are further arguments of the hub's
	// kube-apiserver, our apiserver and every agent.
	HubArgs, APIServerArgs, AgentArgs []string
	// HubAuditPolicy, ServerAuditPolicy and ManagedAuditPolicy are the audit policies of
	// the hub, our apiserver and every managed cluster, as in [ClusterOptions].
	HubAuditPolicy, ServerAuditPolicy, ManagedAuditPolicy string
	// Progress is called with each finished step and the time since Start.
	Progress func(step string, elapsed time.Duration)
	// Ran is told of the commands by which the clusters join, with [JoinByRegistration].
	Ran Ran
}

// JoinMode is how the clusters of a [Fleet] join its hub.
type JoinMode string

const (
	// JoinByAdministrator has the hub accept every cluster before there is an agent, and
	// gives agents certificates that the hub's authority signs.
	JoinByAdministrator JoinMode = "Administrator"
	// JoinByRegistration has every cluster join by clusteradm init, join and accept, and
	// every agent register.
	JoinByRegistration JoinMode = "Registration"
)

// HubClusterName is the name under which the hub joins itself.
const HubClusterName = "local-cluster"

// Member is a managed cluster with its agent.
type Member struct {
	*Cluster
	// Agent is the cluster's agent.
	Agent *Agent
}

// Fleet is a hub with our apiserver, and managed clusters with our agents.
type Fleet struct {
	// Hub is the hub's control plane.
	Hub *Cluster
	// Server is our apiserver.
	Server *APIServer
	// Members are the managed clusters, in the order of the options.
	Members []*Member
	// HubAgent is the agent of the hub itself; nil if it has none.
	HubAgent *Agent

	options FleetOptions
	adm     *Clusteradm
	// serverArgs are the server's without those of the options.
	serverArgs []string
	invitation *Invitation
}

// NewFleet makes a fleet and starts nothing.
func NewFleet(opts FleetOptions) (*Fleet, error) {
	if opts.LogDir == "" {
		opts.LogDir = filepath.Join(opts.Dir, "logs")
	}
	if opts.BinDir == "" {
		opts.BinDir = BinDir()
	}
	if opts.KubeBinDir == "" {
		opts.KubeBinDir = opts.BinDir
	}
	if opts.Progress == nil {
		opts.Progress = func(string, time.Duration) {}
	}
	registering := opts.Join == JoinByRegistration
	if (opts.AWS != nil || len(opts.IRSA) > 0 || len(opts.InitArgs) > 0) && !registering || len(opts.IRSA) > 0 && opts.AWS == nil {
		return nil, errors.New("AWS and InitArgs take JoinByRegistration, and IRSA takes AWS")
	}
	f := &Fleet{options: opts, adm: &Clusteradm{BinDir: opts.BinDir, Ran: opts.Ran}}
	var err error
	f.Hub, err = NewCluster(ClusterOptions{
		Name:          "hub",
		Dir:           filepath.Join(opts.Dir, "hub"),
		LogDir:        opts.LogDir,
		BinDir:        opts.KubeBinDir,
		NoFsync:       opts.NoFsync,
		EKS:           opts.hubEKS(),
		AuditPolicy:   opts.HubAuditPolicy,
		APIServerArgs: opts.HubArgs,
	})
	if err != nil {
		return nil, err
	}
	f.Server, err = NewAPIServer(APIServerOptions{
		Hub:    f.Hub,
		Dir:    filepath.Join(opts.Dir, "apiserver"),
		LogDir: opts.LogDir,
		BinDir: opts.BinDir,
		// clusteradm init does so otherwise.
		Granted:     registering,
		AuditPolicy: opts.ServerAuditPolicy,
	})
	if err != nil {
		return nil, err
	}
	f.serverArgs = f.Server.Args
	f.Server.Args = slices.Concat(f.serverArgs, opts.APIServerArgs)
	// An agent that knows its hub does not register.
	agentHub := f.Hub
	if registering {
		agentHub = nil
	}
	if opts.HubAgent {
		f.HubAgent, err = NewAgent(AgentOptions{
			Hub: agentHub, Managed: f.Hub, ClusterName: HubClusterName,
			Dir:    filepath.Join(opts.Dir, HubClusterName, "agent"),
			LogDir: opts.LogDir, BinDir: opts.BinDir, Args: append([]string{"--works=false"}, opts.AgentArgs...),
		})
		if err != nil {
			return nil, err
		}
	}
	for i, name := range opts.Clusters {
		if name == "hub" || name == HubClusterName || slices.Contains(opts.Clusters[:i], name) {
			return nil, fmt.Errorf("managed cluster %q: the name is taken", name)
		}
		dir := filepath.Join(opts.Dir, name)
		m := &Member{}
		m.Cluster, err = NewCluster(ClusterOptions{
			Name:        name,
			Dir:         dir,
			LogDir:      opts.LogDir,
			BinDir:      opts.BinDir,
			NoFsync:     opts.NoFsync,
			EKS:         opts.eks(ManagedARN(name)),
			AuditPolicy: opts.ManagedAuditPolicy,
		})
		if err != nil {
			return nil, err
		}
		m.Agent, err = NewAgent(AgentOptions{
			Hub:     agentHub,
			Managed: m.Cluster,
			Dir:     filepath.Join(dir, "agent"),
			LogDir:  opts.LogDir,
			BinDir:  opts.BinDir,
			Args:    opts.AgentArgs,
		})
		if err != nil {
			return nil, err
		}
		f.Members = append(f.Members, m)
	}
	return f, nil
}

// Start starts everything and returns when the hub serves our API and every
// agent is ready. If anything fails, it stops what it started.
func (f *Fleet) Start(ctx context.Context) error {
	err := f.start(ctx)
	if err != nil {
		// The caller's context may be why it failed; stopping is still due.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopTimeout)
		defer cancel()
		err = errors.Join(err, f.Stop(stopCtx))
	}
	return err
}

func (f *Fleet) start(ctx context.Context) error {
	begin := time.Now()
	var mu sync.Mutex
	done := func(step string) {
		mu.Lock()
		defer mu.Unlock()
		f.options.Progress(step, time.Since(begin))
	}
	started := func(process *Process) { done(fmt.Sprintf("%s is up (process %d)", process.Name, process.PID())) }

	// The managed clusters come up beside the hub; only the agents need both.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var managed sync.WaitGroup
	for _, m := range f.Members {
		managed.Go(func() {
			if err := m.Cluster.Start(ctx); err != nil {
				cancel(err)
				return
			}
			done(m.Name + " is up")
		})
	}
	err := func() error {
		if err := f.Hub.Start(ctx); err != nil {
			return err
		}
		done("hub is up")
		if err := f.startServer(ctx); err != nil {
			return err
		}
		started(f.Server.Process)
		if err := f.Server.Register(ctx); err != nil {
			return err
		}
		done("APIServices are available")
		if f.options.Join == JoinByRegistration {
			return nil
		}
		for _, m := range f.Members {
			if err := JoinRunning(ctx, f.Hub, m.Cluster); err != nil {
				return err
			}
			done("the hub has accepted " + m.Name)
		}
		if f.HubAgent != nil {
			if err := joinRunning(ctx, f.Hub, f.Hub, HubClusterName); err != nil {
				return err
			}
			done("the hub has accepted itself as " + HubClusterName)
		}
		return nil
	}()
	if err != nil {
		cancel(err)
	}
	managed.Wait()
	// The first failure is the cause; others may be but its consequences.
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if f.options.Join == JoinByRegistration {
		if err := f.register(ctx); err != nil {
			return err
		}
	}
	for _, agent := range f.agents() {
		start := agent.Start
		if agent.Running() {
			start = agent.WaitReady
		}
		if err := start(ctx); err != nil {
			return err
		}
		started(agent.Process)
	}
	return nil
}

func (f *Fleet) agents() []*Agent {
	var out []*Agent
	for _, m := range f.Members {
		out = append(out, m.Agent)
	}
	if f.HubAgent != nil {
		out = append(out, f.HubAgent)
	}
	return out
}

// Stop stops everything, each before what it depends on. It is no error if
// some or all of it does not run.
func (f *Fleet) Stop(ctx context.Context) error {
	var errs []error
	for _, agent := range f.agents() {
		errs = append(errs, agent.Stop(ctx))
	}
	errs = append(errs, f.Server.Stop(ctx))
	clusters := []*Cluster{f.Hub}
	for _, m := range f.Members {
		clusters = append(clusters, m.Cluster)
	}
	stopped := make([]error, len(clusters))
	var wg sync.WaitGroup
	for i, cluster := range clusters {
		wg.Go(func() { stopped[i] = cluster.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(append(errs, stopped...)...)
}

// Processes returns every process of the fleet.
func (f *Fleet) Processes() []*Process {
	processes := append(f.Hub.Processes(), f.Server.Process)
	for _, m := range f.Members {
		processes = append(processes, m.Processes()...)
	}
	for _, agent := range f.agents() {
		processes = append(processes, agent.Process)
	}
	return processes
}
