package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

const (
	// DefaultServiceAccountNamespace is where the public agent is installed by
	// default, so that bindings with a fixed subject go on working. It is not the
	// namespace of this agent, whose own account nothing can ask a token of.
	DefaultServiceAccountNamespace = "open-cluster-management-agent-addon"
	// DefaultTokenVerifyInterval is how often a reported token is checked without a reason.
	DefaultTokenVerifyInterval = 10 * time.Minute
)

// Options are the flags of the agent.
type Options struct {
	// HubKubeconfig is the file with the hub's address and the agent's credentials there;
	// empty if the agent gets them by its registration.
	HubKubeconfig string
	// Registration is how it gets them.
	Registration *RegistrationOptions
	// Kubeconfig is the same for the managed cluster; the agent's own
	// ServiceAccount is used if it is empty.
	Kubeconfig string
	// ClusterName is the name of the managed cluster on the hub.
	ClusterName string
	// AgentID tells agents of one hub on one managed cluster apart.
	AgentID string
	// HealthBindAddress is where health checks and metrics are served; empty or "0" disables that.
	HealthBindAddress string
	// QPS and Burst limit the requests to each of the two API servers.
	QPS   float32
	Burst int
	// Workers is how many ManifestWorks are handled at the same time, WorkersPerTenant
	// how many of one tenant, and how many ManagedServiceAccounts.
	Workers, WorkersPerTenant int
	// PriorityWorkers is how many ManifestWorks are handled in addition that are deleted,
	// revoked or of ClusterPermissions.
	PriorityWorkers int
	// Works is whether the ManifestWorks of the cluster are applied.
	Works bool
	// EvictionGracePeriod is how long the objects of a work stay that the hub
	// lost without the agent having let it go.
	EvictionGracePeriod time.Duration
	// ExecutorMode is how works act that name an executor.
	ExecutorMode string
	// FeedbackJSONPaths are the parts of applied objects that works may have
	// reported, as .status; all if empty.
	FeedbackJSONPaths []string
	// ServiceAccounts is whether the ServiceAccounts of ManagedServiceAccounts are kept.
	ServiceAccounts bool
	// ServiceAccountNamespace is where the ServiceAccounts of ManagedServiceAccounts live.
	ServiceAccountNamespace string
	// TokenVerifyInterval is how often a reported token is checked without a reason.
	TokenVerifyInterval time.Duration
	// Inventory says which resources of the managed cluster are reported to the hub.
	Inventory *inventory.Options

	Logs    *logs.Options
	Metrics *metrics.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		HealthBindAddress: "127.0.0.1:8000",
		// Two hundred new works of three objects each take some 2,000 requests.
		QPS:     500,
		Burst:   1000,
		Workers: 32, WorkersPerTenant: 10, PriorityWorkers: 8,

		Works:               true,
		EvictionGracePeriod: time.Hour,
		ExecutorMode:        string(executor.Impersonate),

		ServiceAccounts:         true,
		ServiceAccountNamespace: DefaultServiceAccountNamespace,
		TokenVerifyInterval:     DefaultTokenVerifyInterval,

		Inventory:    inventory.NewOptions(),
		Registration: NewRegistrationOptions(),

		Logs:    logs.NewOptions(),
		Metrics: metrics.NewOptions(),
	}
}

// Flags returns the flags that set the options.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var flags cliflag.NamedFlagSets
	fs := flags.FlagSet("agent")
	fs.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "File with the address of the hub and the credentials of this agent there. Required without --bootstrap-kubeconfig.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "File with the address of the managed cluster and the credentials of this agent there. The agent's own ServiceAccount is used when this is empty.")
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName, "Name of the managed cluster on the hub. Required.")
	fs.StringVar(&o.AgentID, "agent-id", o.AgentID, "Identity of this agent in the AppliedManifestWorks it writes. The hash of the hub's URL when this is empty. Agents of two hubs must not have the same.")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "Address on which /healthz, /livez, /readyz and /metrics are served over HTTP; 0 for none.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "Requests per second to the hub, and as many to the managed cluster; negative for no limit.")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "Requests to the hub, and as many to the managed cluster, that may exceed --kube-api-qps at once.")
	fs.IntVar(&o.Workers, "workers", o.Workers, "How many ManifestWorks are handled at the same time.")
	fs.IntVar(&o.WorkersPerTenant, "workers-per-tenant", o.WorkersPerTenant, "How many ManifestWorks of one tenant, and how many ManagedServiceAccounts, are handled at the same time; at most --workers. The tenant of a ManifestWork is its executor, or else the user who wrote it or the namespace of its first object.")
	fs.IntVar(&o.PriorityWorkers, "priority-workers", o.PriorityWorkers, "How many ManifestWorks are handled in addition to --workers that are deleted, whose executor has lost permissions, or that deliver ClusterPermissions.")
	fs.BoolVar(&o.Works, "works", o.Works, "Apply the ManifestWorks of the hub. Switch it off for the agent of the hub itself: an API server that serves ManifestWorks cannot keep the agent's records of them.")
	fs.DurationVar(&o.EvictionGracePeriod, "eviction-grace-period", o.EvictionGracePeriod, "How long applied objects stay when the hub has lost their ManifestWork, as by a loss of its data. Works that are deleted are cleaned up at once.")
	fs.StringVar(&o.ExecutorMode, "executor-mode", o.ExecutorMode, "How works act that name an executor. Impersonate: every request for their objects is made as the executor, which takes the right to impersonate ServiceAccounts. Review: as the agent, after the managed cluster has said that the executor may do the same.")
	fs.StringSliceVar(&o.FeedbackJSONPaths, "feedback-json-paths", o.FeedbackJSONPaths, "Parts of applied objects that works may have reported to the hub by JSON paths, as .status; everything when this is empty. Well-known status is always reported.")
	fs.BoolVar(&o.ServiceAccounts, "service-accounts", o.ServiceAccounts, "Keep the ServiceAccounts of ManagedServiceAccounts, and report their tokens. Switch it off where another agent does so, such as that of the add-on managed-serviceaccount.")
	fs.StringVar(&o.ServiceAccountNamespace, "service-account-namespace", o.ServiceAccountNamespace, "Namespace of the managed cluster for the ServiceAccounts of ManagedServiceAccounts.")
	fs.DurationVar(&o.TokenVerifyInterval, "token-verify-interval", o.TokenVerifyInterval, "How often a reported token is checked without a reason: the Secret on the hub is read, and the managed cluster is asked whether it accepts the token.")
	o.Registration.AddFlags(flags.FlagSet("registration"))
	o.Inventory.AddFlags(flags.FlagSet("inventory"))
	logsapi.AddFlags(o.Logs, flags.FlagSet("logs"))
	o.Metrics.AddFlags(flags.FlagSet("metrics"))
	return flags
}

// Validate returns everything that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.HubKubeconfig == "" && o.Registration.BootstrapKubeconfig == "" {
		errs = append(errs, errors.New("--bootstrap-kubeconfig or --hub-kubeconfig is required"))
	}
	if o.HubKubeconfig != "" && o.Registration.BootstrapKubeconfig != "" {
		errs = append(errs, errors.New("--bootstrap-kubeconfig and --hub-kubeconfig exclude each other"))
	}
	if o.ClusterName == "" {
		errs = append(errs, errors.New("--cluster-name is required"))
	} else {
		// It is the name of a namespace of the hub.
		for _, problem := range validation.ValidateNamespaceName(o.ClusterName, false) {
			errs = append(errs, fmt.Errorf("--cluster-name %q: %s", o.ClusterName, problem))
		}
	}
	if o.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers must be at least 1, not %d", o.Workers))
	}
	if o.WorkersPerTenant < 1 {
		errs = append(errs, fmt.Errorf("--workers-per-tenant must be at least 1, not %d", o.WorkersPerTenant))
	}
	if o.PriorityWorkers < 1 {
		errs = append(errs, fmt.Errorf("--priority-workers must be at least 1, not %d", o.PriorityWorkers))
	}
	if o.EvictionGracePeriod < 0 {
		errs = append(errs, fmt.Errorf("--eviction-grace-period must not be negative, not %s", o.EvictionGracePeriod))
	}
	if !slices.Contains(executor.Modes(), executor.Mode(o.ExecutorMode)) {
		errs = append(errs, fmt.Errorf("--executor-mode must be one of %v, not %q", executor.Modes(), o.ExecutorMode))
	}
	if _, err := work.ParseFeedbackPaths(o.FeedbackJSONPaths); err != nil {
		errs = append(errs, fmt.Errorf("--feedback-json-paths: %w", err))
	}
	for _, problem := range validation.ValidateNamespaceName(o.ServiceAccountNamespace, false) {
		errs = append(errs, fmt.Errorf("--service-account-namespace %q: %s", o.ServiceAccountNamespace, problem))
	}
	if o.TokenVerifyInterval <= 0 {
		errs = append(errs, fmt.Errorf("--token-verify-interval must be more than 0, not %s", o.TokenVerifyInterval))
	}
	if o.QPS == 0 {
		errs = append(errs, errors.New("--kube-api-qps must not be 0"))
	}
	if o.QPS > 0 && o.Burst < 1 {
		errs = append(errs, fmt.Errorf("--kube-api-burst must be at least 1, not %d", o.Burst))
	}
	errs = append(errs, o.Registration.Validate()...)
	errs = append(errs, o.Inventory.Validate()...)
	errs = append(errs, o.Metrics.Validate()...)
	return utilerrors.NewAggregate(errs)
}
