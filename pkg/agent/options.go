package agent

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics"

	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
)

// DefaultServiceAccountNamespace is the default namespace of upstream OCM agents, so that
// bindings with a fixed subject remain valid. It is not the namespace of this agent, whose
// own ServiceAccount must not get tokens for others.
const DefaultServiceAccountNamespace = "open-cluster-management-agent-addon"

// Settings are the parts of the configuration that flags set directly. Flags describes them.
type Settings struct {
	ClusterName, AgentID                       string
	HealthBindAddress                          string
	Workers, WorkersPerTenant, PriorityWorkers int
	Works                                      bool
	EvictionGracePeriod                        time.Duration
	FeedbackJSONPaths                          []string
	ServiceAccounts                            bool
	ServiceAccountNamespace                    string
	TokenVerifyInterval                        time.Duration
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{
		HealthBindAddress: "127.0.0.1:8000",
		Workers:           32, WorkersPerTenant: 10, PriorityWorkers: 8,

		Works:               true,
		EvictionGracePeriod: time.Hour,

		ServiceAccounts:         true,
		ServiceAccountNamespace: DefaultServiceAccountNamespace,
		TokenVerifyInterval:     10 * time.Minute,
	}
}

// Options are the flags of the agent.
type Options struct {
	Settings
	// HubKubeconfig is empty if the agent registers. If Kubeconfig is empty, the agent uses its ServiceAccount.
	HubKubeconfig, Kubeconfig string
	Registration              *RegistrationOptions
	// QPS and Burst limit the requests to each of the two API servers.
	QPS               float32
	Burst             int
	Inventory         *inventory.Options
	TracingConfigFile string
	Logs              *logs.Options
	Metrics           *metrics.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Settings: DefaultSettings(),
		// 200 new ManifestWorks with three objects each require about 2,000 requests.
		QPS:   500,
		Burst: 1000,

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
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "File with the address of the managed cluster and the credentials of this agent there. If it is empty, the agent uses its ServiceAccount.")
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName, "Name of the managed cluster on the hub. Required.")
	fs.StringVar(&o.AgentID, "agent-id", o.AgentID, "Identity of this agent in its AppliedManifestWorks. Defaults to the hash of the URL of the hub. Agents of different hubs on one managed cluster must have different identities.")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "Address on which /healthz, /livez, /readyz and /metrics are served over HTTP. 0 disables the server.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "Maximum requests per second to the hub, and the same to the managed cluster. A negative value disables the limit.")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "Maximum burst of requests to the hub above --kube-api-qps, and the same to the managed cluster.")
	fs.IntVar(&o.Workers, "workers", o.Workers, "Number of ManifestWorks that are handled concurrently.")
	fs.IntVar(&o.WorkersPerTenant, "workers-per-tenant", o.WorkersPerTenant, "Number of ManifestWorks of one tenant, and number of ManagedServiceAccounts, that are handled concurrently; at most --workers. The tenant of a ManifestWork is its executor, or else the user who last wrote it, or else the namespace of its first object.")
	fs.IntVar(&o.PriorityWorkers, "priority-workers", o.PriorityWorkers, "Number of additional workers for ManifestWorks that are deleted or that deliver ClusterPermissions.")
	fs.BoolVar(&o.Works, "works", o.Works, "Apply the ManifestWorks of the hub. Disable it for an agent that manages the hub itself: an API server that serves ManifestWorks cannot store AppliedManifestWorks.")
	fs.DurationVar(&o.EvictionGracePeriod, "eviction-grace-period", o.EvictionGracePeriod, "How long applied objects stay after their ManifestWork has disappeared from the hub without being deleted, for example by a loss of data. Objects of a deleted ManifestWork are removed at once.")
	fs.StringSliceVar(&o.FeedbackJSONPaths, "feedback-json-paths", o.FeedbackJSONPaths, "Fields of applied objects that ManifestWorks may have reported to the hub by JSON paths, such as .status. If it is empty, all fields are allowed. Well-known status is always allowed.")
	fs.BoolVar(&o.ServiceAccounts, "service-accounts", o.ServiceAccounts, "Keep the ServiceAccounts of ManagedServiceAccounts and report their tokens. Disable it if another agent does so, such as the add-on managed-serviceaccount.")
	fs.StringVar(&o.ServiceAccountNamespace, "service-account-namespace", o.ServiceAccountNamespace, "Namespace on the managed cluster for the ServiceAccounts of ManagedServiceAccounts.")
	fs.DurationVar(&o.TokenVerifyInterval, "token-verify-interval", o.TokenVerifyInterval, "How often a reported token is checked without a trigger. The agent reads the Secret on the hub and sends a TokenReview to the managed cluster.")
	o.Registration.AddFlags(flags.FlagSet("registration"))
	o.Inventory.AddFlags(flags.FlagSet("inventory"))
	flags.FlagSet("traces").StringVar(&o.TracingConfigFile, "tracing-config-file", o.TracingConfigFile, "File with a TracingConfiguration of apiserver.config.k8s.io, as for kube-apiserver. If it is empty, the agent records no traces.")
	logsapi.AddFlags(o.Logs, flags.FlagSet("logs"))
	o.Metrics.AddFlags(flags.FlagSet("metrics"))
	return flags
}

// Validate returns all errors of the options.
func (o *Options) Validate() error {
	var errs []error
	if o.HubKubeconfig == "" && o.Registration.BootstrapKubeconfig == "" {
		errs = append(errs, errors.New("--bootstrap-kubeconfig or --hub-kubeconfig is required"))
	}
	if o.HubKubeconfig != "" && o.Registration.BootstrapKubeconfig != "" {
		errs = append(errs, errors.New("--bootstrap-kubeconfig and --hub-kubeconfig are mutually exclusive"))
	}
	if o.ClusterName == "" {
		errs = append(errs, errors.New("--cluster-name is required"))
	} else {
		// The namespace of the cluster on the hub has the same name.
		for _, problem := range validation.ValidateNamespaceName(o.ClusterName, false) {
			errs = append(errs, fmt.Errorf("--cluster-name %q: %s", o.ClusterName, problem))
		}
	}
	for flag, value := range map[string]int{"--workers": o.Workers, "--workers-per-tenant": o.WorkersPerTenant, "--priority-workers": o.PriorityWorkers} {
		if value < 1 {
			errs = append(errs, fmt.Errorf("%s must be at least 1, not %d", flag, value))
		}
	}
	if o.EvictionGracePeriod < 0 {
		errs = append(errs, fmt.Errorf("--eviction-grace-period must not be negative, not %s", o.EvictionGracePeriod))
	}
	if _, err := decide.ParseFeedbackPaths(o.FeedbackJSONPaths); err != nil {
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
	errs = append(errs, o.Metrics.Validate()...)
	return utilerrors.NewAggregate(errs)
}
