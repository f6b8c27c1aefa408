package localhub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// FleetOptions are the options of a [Fleet]. Dir is required.
type FleetOptions struct {
	// Dir contains all data, keys and kubeconfigs.
	Dir string
	// LogDir receives the logs; <Dir>/logs if empty.
	LogDir string
	// Clusters are the names of the managed clusters; it may be empty.
	Clusters []string
	// HubAgent makes the hub join itself, as [HubClusterName].
	HubAgent bool
	// Join is the way in which the clusters join the hub; [JoinByAdministrator] if empty.
	Join JoinMode
	// InitArgs are additional arguments of clusteradm init, with [JoinByRegistration].
	InitArgs []string
	// AWS makes all clusters EKS clusters, and enables the drivers csr and aws-irsa. It requires
	// [JoinByRegistration], and must run from before NewFleet until after Stop.
	AWS *fakeaws.Server
	// HubARN is the ARN of the hub with AWS; [HubARN] if empty.
	HubARN string
	// ForeignHub makes the hub a cluster with aws-iam-authenticator instead of EKS. It requires AWS.
	ForeignHub bool
	// IRSA are the names of the managed clusters with the driver aws-irsa; the others use csr.
	IRSA []string
	// BinDir contains our programs; [BinDir]() if empty.
	BinDir string
	// KubeBinDir contains the hub's Kubernetes programs, for another Kubernetes version
	// on the hub; BinDir if empty.
	KubeBinDir string
	// NoFsync is as in [ClusterOptions].
	NoFsync bool
	// HubArgs, APIServerArgs, AgentArgs and ManagedArgs are additional arguments of the hub's
	// kube-apiserver, our apiserver, every agent and every managed cluster's kube-apiserver.
	HubArgs, APIServerArgs, AgentArgs, ManagedArgs []string
	// HubAuditPolicy, ServerAuditPolicy and ManagedAuditPolicy are the audit policies of
	// the hub, our apiserver and every managed cluster, as in [ClusterOptions].
	HubAuditPolicy, ServerAuditPolicy, ManagedAuditPolicy string
	// Progress is called with each finished step and the time since Start.
	Progress func(step string, elapsed time.Duration)
	// Ran receives the commands with which the clusters join, with [JoinByRegistration].
	Ran Ran
}

// JoinMode is the way in which the clusters of a [Fleet] join its hub.
type JoinMode string

const (
	// JoinByAdministrator accepts every cluster on the hub before its agent exists. The
	// hub's authority signs certificates for the agents.
	JoinByAdministrator JoinMode = "Administrator"
	// JoinByRegistration runs clusteradm init, join and accept for every cluster, and every
	// agent registers.
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
	// HubAgent is the agent of the hub itself, or nil.
	HubAgent *Agent

	options FleetOptions
	adm     *Clusteradm
	// serverArgs are the arguments of the server without APIServerArgs of the options.
	serverArgs []string
	invitation *Invitation
}

// NewFleet returns a fleet without starting it.
func NewFleet(opts FleetOptions) (*Fleet, error) {
	opts.LogDir = cmp.Or(opts.LogDir, filepath.Join(opts.Dir, "logs"))
	opts.BinDir = cmp.Or(opts.BinDir, BinDir())
	opts.KubeBinDir = cmp.Or(opts.KubeBinDir, opts.BinDir)
	opts.HubARN = cmp.Or(opts.HubARN, HubARN)
	if opts.Progress == nil {
		opts.Progress = func(string, time.Duration) {}
	}
	registering := opts.Join == JoinByRegistration
	if (opts.AWS != nil || len(opts.IRSA) > 0 || len(opts.InitArgs) > 0) && !registering || len(opts.IRSA) > 0 && opts.AWS == nil {
		return nil, errors.New("AWS and InitArgs require JoinByRegistration, and IRSA requires AWS")
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
		// With JoinByRegistration, clusteradm init grants the permissions.
		Granted:     registering,
		AuditPolicy: opts.ServerAuditPolicy,
	})
	if err != nil {
		return nil, err
	}
	f.serverArgs = f.Server.Args
	f.Server.Args = slices.Concat(f.serverArgs, opts.APIServerArgs)
	// An agent with a Hub does not register.
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
			return nil, fmt.Errorf("managed cluster %q: the name is in use", name)
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
			AuditPolicy: opts.ManagedAuditPolicy, APIServerArgs: opts.ManagedArgs,
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

// Start starts all processes and returns when the hub serves our API and every
// agent is ready. If a process fails, Start stops all of them.
func (f *Fleet) Start(ctx context.Context) error {
	err := f.start(ctx)
	if err != nil {
		// The context of the caller may be cancelled. The processes must stop anyway.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*await.Patience)
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

	// The managed clusters start in parallel with the hub. Only the agents need both.
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
		if err := f.Hub.startAPI(ctx); err != nil {
			return err
		}
		startControllers := func() error {
			err := f.Hub.Start(ctx)
			if err == nil {
				done("hub is up")
			}
			return err
		}
		// clusteradm init checks that the controllers sign certificates.
		if f.options.Join == JoinByRegistration {
			if err := startControllers(); err != nil {
				return err
			}
		}
		if err := f.startServer(ctx); err != nil {
			return err
		}
		started(f.Server.Process)
		if err := f.Server.Register(ctx); err != nil {
			return err
		}
		done("APIServices are available")
		// The garbage collector discovers new resources only every 30 seconds, and when it starts.
		if err := startControllers(); err != nil {
			return err
		}
		if f.options.Join == JoinByRegistration {
			return nil
		}
		for _, m := range f.Members {
			if err := joinRunning(ctx, f.Hub, m.Cluster, m.Name); err != nil {
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
	// Return the first failure only: it may be the cause of the others.
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

// Stop stops all processes, each before its dependencies. It ignores processes that do
// not run.
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

// Kill kills all processes, as [Cluster.Kill] does.
func (f *Fleet) Kill() error {
	var errs []error
	for _, agent := range f.agents() {
		errs = append(errs, agent.Kill())
	}
	errs = append(errs, f.Server.Kill())
	for _, m := range f.Members {
		errs = append(errs, m.Cluster.Kill())
	}
	return errors.Join(append(errs, f.Hub.Kill())...)
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
