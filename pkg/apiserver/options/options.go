// Package options defines the flags of the API server.
package options

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	mutatingadmissionpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	componentbaseconfig "k8s.io/component-base/config"
	configoptions "k8s.io/component-base/config/options"
	componentbasevalidation "k8s.io/component-base/config/validation"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	authenticationvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
)

const (
	// EtcdPathPrefix is the default prefix of the keys of the server in etcd.
	EtcdPathPrefix = "/registry/open-cluster-management.io"
	// DefaultDataDir is the default directory of the embedded etcd.
	DefaultDataDir = "/var/lib/hub-apiserver"

	minimumSnapshotInterval = time.Minute
	minimumLimitBytes       = 1 << 10
	minimumQuotaBytes       = 16 << 20
	maximumObjectBytes      = 1<<20 + 1<<19 // default limit of etcd for a request
)

func init() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.Add(apiserver.FeatureGates))
}

type Options struct {
	ServerRun     *genericoptions.ServerRunOptions
	Recommended   *genericoptions.RecommendedOptions
	APIEnablement *genericoptions.APIEnablementOptions
	EmbeddedEtcd  etcd.Options
	Logs          *logs.Options

	// ExtraConfig has the values of all other flags, except those of the fields below.
	apiserver.ExtraConfig
	WorkExecutor       string
	Search             Search
	Registration       Registration
	Requests           Requests
	ServingCertificate ServingCertificate
}

func New() *Options {
	o := &Options{
		ServerRun: genericoptions.NewServerRunOptions(),
		// Each resource has its own storage codec.
		Recommended:   genericoptions.NewRecommendedOptions(EtcdPathPrefix, nil),
		APIEnablement: genericoptions.NewAPIEnablementOptions(),
		EmbeddedEtcd:  etcd.Options{DataDir: DefaultDataDir, QuotaBytes: 8 << 30, Snapshots: etcd.Schedule{Keep: 14}},
		Logs:          logs.NewOptions(),

		ExtraConfig: apiserver.ExtraConfig{
			Namespace:          "open-cluster-management-hub",
			ManifestLimitBytes: 500 << 10,
			EscalationCheck:    clusterpermission.Enforce,
			NamespaceSource:    apiserver.NamespacesOfCluster,
			NilExecutor:        executor.Allow,
			Accounts: authenticationvalidation.Validator{
				// Ten years. Clients of existing hubs request validities up to this value.
				MaximumValidity: 87600 * time.Hour, ReservedNames: authenticationvalidation.DefaultReservedNames(),
			},
		},
		Search:             newSearch(),
		Registration:       newRegistration(),
		Requests:           newRequests(),
		ServingCertificate: newServingCertificate(),
	}
	o.ServerRun.MaxRequestsInFlight, o.ServerRun.MaxMutatingRequestsInFlight = requestsInFlight(runtime.GOMAXPROCS(0))
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		o.Namespace = namespace
	}
	// This is the port of the kubelet, which firewalls between managed control planes and nodes allow.
	o.Recommended.SecureServing.BindPort, o.Recommended.SecureServing.Required = 10250, true
	// Requests of the hub are refused until its current authorities are known.
	o.Recommended.Authentication.WithCustomRoundTripper(keepalive.Repeat)
	// ManifestWorks are larger and change more often than most objects, and the memory of the embedded
	// etcd contains the replaced revisions.
	o.Recommended.Etcd.StorageConfig.CompactionInterval = time.Minute
	// One worker does not delete a thousand objects within the timeout of a request.
	o.Recommended.Etcd.DeleteCollectionWorkers = 10
	// During shutdown, the server returns 429 instead of refusing connections, and ends the watches. With
	// the defaults of the library it would wait a minute for watches, which do not end by themselves.
	o.ServerRun.ShutdownSendRetryAfter = true
	o.ServerRun.ShutdownWatchTerminationGracePeriod = 5 * time.Second
	// Hubs before 1.36 do not serve these policies in v1. Their informer would never sync, and every write
	// would be refused.
	o.Recommended.Admission.DefaultOffPlugins.Insert(mutatingadmissionpolicy.PluginName)

	o.LeaderElection = componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect: true,
		// A replica tries to become the leader every 1.0 to 2.2 seconds. At worst it sees the last renewal 2.2 seconds
		// late, and the end of the Lease as late, so it leads 14.4 seconds after that renewal.
		LeaseDuration: metav1.Duration{Duration: 10 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 7 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: time.Second},
		ResourceLock:  resourcelock.LeasesResourceLock,
		ResourceName:  "hub-apiserver-controllers",
	}
	return o
}

// Flags returns the flags in named sets.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.Recommended.SecureServing.AddFlags(sets.FlagSet("secure serving"))
	o.ServingCertificate.addFlags(sets.FlagSet("secure serving"))
	o.Recommended.Authentication.AddFlags(sets.FlagSet("authentication"))
	o.Recommended.Authorization.AddFlags(sets.FlagSet("authorization"))
	o.Recommended.Audit.AddFlags(sets.FlagSet("auditing"))
	o.Recommended.Features.AddFlags(sets.FlagSet("features"))
	o.Recommended.CoreAPI.AddFlags(sets.FlagSet("hub"))
	o.Recommended.Admission.AddFlags(sets.FlagSet("admission"))
	o.Recommended.EgressSelector.AddFlags(sets.FlagSet("egress"))
	o.Recommended.Traces.AddFlags(sets.FlagSet("traces"))
	o.Recommended.Etcd.AddFlags(sets.FlagSet("etcd"))
	o.APIEnablement.AddFlags(sets.FlagSet("API enablement"))
	o.ServerRun.AddUniversalFlags(sets.FlagSet("generic"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	configoptions.BindLeaderElectionFlags(&o.LeaderElection, sets.FlagSet("leader election"))
	o.addEmbeddedEtcdFlags(sets.FlagSet("embedded etcd"))
	o.addObjectFlags(&sets)
	o.addQuotaFlags(sets.FlagSet("quotas"))
	o.Search.addFlags(sets.FlagSet("search"))
	o.Registration.addFlags(sets.FlagSet("registration"))
	o.Requests.addFlags(sets.FlagSet("requests"))
	return sets
}

func (o *Options) addEmbeddedEtcdFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.EmbeddedEtcd.DataDir, "data-dir", o.EmbeddedEtcd.DataDir,
		"Directory for the data of the embedded etcd, which the server runs if --etcd-servers is not set. Only one server may use it.")
	fs.Int64Var(&o.EmbeddedEtcd.QuotaBytes, "data-quota-bytes", o.EmbeddedEtcd.QuotaBytes,
		"Maximum size in bytes of the database in --data-dir. If it is exceeded, writes are refused.")
	fs.DurationVar(&o.EmbeddedEtcd.Snapshots.Interval, "snapshot-interval", o.EmbeddedEtcd.Snapshots.Interval,
		"Interval of snapshots of the embedded etcd in --snapshot-dir, at least 1m. 0 disables them.")
	fs.StringVar(&o.EmbeddedEtcd.Snapshots.Dir, "snapshot-dir", o.EmbeddedEtcd.Snapshots.Dir,
		"Directory for the snapshots of --snapshot-interval. Use another volume than --data-dir. The server creates the directory, and deletes only its own older snapshots in it.")
	fs.IntVar(&o.EmbeddedEtcd.Snapshots.Keep, "snapshot-keep", o.EmbeddedEtcd.Snapshots.Keep,
		"Number of snapshots in --snapshot-dir. The server deletes older ones after a new one is complete.")
}

func (o *Options) addObjectFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet("works")
	fs.Int64Var(&o.ManifestLimitBytes, "manifest-limit-bytes", o.ManifestLimitBytes,
		"Maximum total size in bytes of the manifests of one ManifestWork. Objects larger than 1.5 MiB require an etcd with a larger --max-request-bytes.")
	fs.StringVar((*string)(&o.NilExecutor), "nil-executor", string(o.NilExecutor),
		"Action for writes of the spec of a ManifestWork without spec.executor. Allow accepts them from all users with permission to write ManifestWorks. Check also requires permission to execute-as "+executor.AgentExecutor+" on manifestworks in the namespace of the cluster. Deny refuses them.")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace,
		"Namespace of the hub for the Leases of the server and for --serving-certificate-secret. --leader-elect-resource-namespace overrides it for the Lease of leader election. Defaults to the environment variable POD_NAMESPACE.")

	fs = sets.FlagSet("cluster permissions")
	fs.StringVar((*string)(&o.EscalationCheck), "clusterpermission-escalation-check", string(o.EscalationCheck),
		"Action for a ClusterPermission that grants more than its author may grant. Enforce rejects it. Approve stores it, and delivers it after a user with permission to grant it approves it with clusterpermissions/approval. Warn delivers it and returns a warning. Off disables the check.")
	fs.StringVar((*string)(&o.NamespaceSource), "namespace-selector-source", string(o.NamespaceSource),
		"Namespaces that the namespaceSelectors of ClusterPermissions match by label. Cluster: the namespaces of the managed cluster, as its agent reports them. Hub: the namespaces of the hub with the same names.")
	fs.BoolVar(&o.RequireManagedCluster, "require-managed-cluster", o.RequireManagedCluster,
		"Refuse a new ClusterPermission or ManagedServiceAccount in a namespace without a ManagedCluster of its name. By default it is stored, and delivered when the cluster joins.")
	fs.StringVar(&o.WorkExecutor, "work-executor", o.WorkExecutor,
		"ServiceAccount on the managed clusters, as namespace/name, that is the executor of the ManifestWorks of ClusterPermissions. By default they have no executor, and the agent applies them as itself.")

	fs = sets.FlagSet("managed service accounts")
	fs.DurationVar(&o.Accounts.MaximumValidity, "managed-serviceaccount-max-validity", o.Accounts.MaximumValidity,
		"Maximum spec.rotation.validity of a ManagedServiceAccount. 0 means no limit. It does not apply to existing accounts.")
	fs.StringSliceVar(&o.Accounts.ReservedNames, "managed-serviceaccount-reserved-names", o.Accounts.ReservedNames,
		"Names that are not allowed for new ManagedServiceAccounts, because add-ons have ServiceAccounts with these names on managed clusters. A trailing * matches any suffix. An empty value reserves no names. It does not apply to existing accounts.")
}

func (o *Options) addQuotaFlags(fs *pflag.FlagSet) {
	defaults := func(of func(quota.Limits) int64) string {
		var out []string
		for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
			if row.Quota != (quota.Limits{}) {
				out = append(out, fmt.Sprintf("%s=%d", row.Name, of(row.Quota)))
			}
		}
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	fs.StringToStringVar(&o.Quotas.Objects, "namespace-quota-objects", o.Quotas.Objects,
		"Maximum number of objects of a resource in a namespace, as resource=number. 0 means no limit. Defaults: "+
			defaults(func(l quota.Limits) int64 { return l.Objects }))
	fs.StringToStringVar(&o.Quotas.Bytes, "namespace-quota-bytes", o.Quotas.Bytes,
		"Maximum total size of the objects of a resource in a namespace, as resource=quantity such as manifestworks=64Mi. 0 means no limit. Defaults: "+
			defaults(func(l quota.Limits) int64 { return l.Bytes }))
	fs.StringToStringVar(&o.Quotas.ObjectLimits, "object-limits", o.Quotas.ObjectLimits,
		"Limits of each object, as limit=quantity for all resources or resource.limit=quantity for one resource, such as clusternamespaces.labels=512. 0 means no limit. The limits are "+
			strings.Join(quota.ObjectLimitKeys(), ", ")+".")
}

// Embedded reports whether the server runs an embedded etcd.
func (o *Options) Embedded() bool {
	return len(o.Recommended.Etcd.StorageConfig.Transport.ServerList) == 0
}

func (o *Options) Complete() (Completed, error) {
	if err := o.ServerRun.Complete(); err != nil {
		return Completed{}, err
	}
	if o.LeaderElection.ResourceNamespace == "" {
		o.LeaderElection.ResourceNamespace = o.Namespace
	}
	o.Registration.complete()
	return Completed{&completed{o}}, nil
}

// Completed can only be created by Options.Complete.
type Completed struct {
	*completed
}

type completed struct {
	*Options
}

func (c Completed) Validate() error {
	var errs problems
	errs = append(errs, c.ServerRun.Validate()...)
	recommended := *c.Recommended
	if c.Embedded() {
		recommended.Etcd = nil
	}
	errs = append(errs, recommended.Validate()...)
	errs = append(errs, c.APIEnablement.Validate(scheme.Scheme)...)
	errs = append(errs, c.ServerRun.ComponentGlobalsRegistry.Validate()...)
	if c.Embedded() {
		errs.addIf(c.EmbeddedEtcd.DataDir == "", "--data-dir is required without --etcd-servers")
		errs.addIf(c.EmbeddedEtcd.QuotaBytes < minimumQuotaBytes,
			"--data-quota-bytes must be at least %d, not %d", minimumQuotaBytes, c.EmbeddedEtcd.QuotaBytes)
		snapshots := c.EmbeddedEtcd.Snapshots
		errs.addIf(snapshots.Interval != 0 && snapshots.Interval < minimumSnapshotInterval,
			"--snapshot-interval must be 0 or at least %s, not %s", minimumSnapshotInterval, snapshots.Interval)
		errs.addIf(snapshots.Interval != 0 && snapshots.Dir == "", "--snapshot-interval requires --snapshot-dir")
		errs.addIf(snapshots.Keep < 1, "--snapshot-keep must be at least 1, not %d", snapshots.Keep)
	}
	errs.addIf(!c.Embedded() && c.EmbeddedEtcd.Snapshots.Interval != 0,
		"--snapshot-interval saves the embedded etcd: schedule snapshots of --etcd-servers with etcdctl")
	errs.addIf(len(c.Recommended.Etcd.EtcdServersOverrides) > 0 && c.Embedded(), "--etcd-servers-overrides requires --etcd-servers")
	errs.add(c.etcdOverrides())
	errs.addIf(c.Namespace == "", "--namespace must not be empty")
	errs.addIf(c.ManifestLimitBytes < minimumLimitBytes || c.Embedded() && c.ManifestLimitBytes > maximumObjectBytes,
		"--manifest-limit-bytes must be between %d and %d, not %d", minimumLimitBytes, maximumObjectBytes, c.ManifestLimitBytes)
	errs.addIf(!slices.Contains(clusterpermission.EscalationChecks, c.EscalationCheck),
		"--clusterpermission-escalation-check must be one of %v, not %q", clusterpermission.EscalationChecks, c.EscalationCheck)
	errs.addIf(!slices.Contains(apiserver.NamespaceSources, c.NamespaceSource),
		"--namespace-selector-source must be one of %v, not %q", apiserver.NamespaceSources, c.NamespaceSource)
	errs.add(c.workExecutor())
	errs.addIf(!slices.Contains(executor.NilExecutors, c.NilExecutor),
		"--nil-executor must be one of %v, not %q", executor.NilExecutors, c.NilExecutor)
	errs.addIf(c.NilExecutor == executor.Deny && c.WorkExecutor == "",
		"--nil-executor=%s requires --work-executor to deliver ClusterPermissions", executor.Deny)
	errs.addIf(c.Accounts.MaximumValidity != 0 && c.Accounts.MaximumValidity < authenticationv1beta1.MinimumValidity,
		"--managed-serviceaccount-max-validity must be 0 or at least %s, not %s", authenticationv1beta1.MinimumValidity, c.Accounts.MaximumValidity)
	errs = append(errs, c.Quotas.Validate()...)
	errs = append(errs, c.Search.validate(c.Embedded())...)
	errs = append(errs, c.Registration.validate()...)
	errs = append(errs, c.Requests.validate()...)
	errs = append(errs, c.ServingCertificate.validate(c.Recommended.SecureServing)...)
	errs.add(nil, componentbasevalidation.ValidateLeaderElectionConfiguration(&c.LeaderElection, field.NewPath("leader-elect")).ToAggregate())
	errs.add(nil, logsapi.ValidateAndApply(c.Logs, utilfeature.DefaultFeatureGate))
	return utilerrors.NewAggregate(errs)
}

// workExecutor returns the ServiceAccount of --work-executor, or nil if the flag is not set.
func (c Completed) workExecutor() (*types.NamespacedName, error) {
	if c.WorkExecutor == "" {
		return nil, nil
	}
	namespace, name, both := strings.Cut(c.WorkExecutor, "/")
	problems := append(apivalidation.ValidateNamespaceName(namespace, false), apivalidation.ValidateServiceAccountName(name, false)...)
	if !both || len(problems) > 0 {
		return nil, fmt.Errorf("--work-executor must be <namespace>/<name> of a ServiceAccount, not %q", c.WorkExecutor)
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Config builds the configuration of a server. embedded is the running etcd if Embedded returns true.
func (c Completed) Config(embedded *etcd.Server) (*apiserver.Config, error) {
	identity, err := c.identity(embedded)
	if err != nil {
		return nil, err
	}
	search, err := c.Search.config(c.EmbeddedEtcd.DataDir)
	if err != nil {
		return nil, err
	}
	if embedded != nil {
		c.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{embedded.Endpoint()}
	}

	generic := genericapiserver.NewRecommendedConfig(scheme.Codecs)
	apiserver.DescribeAPI(generic)
	if err := c.applyServing(generic); err != nil {
		return nil, fmt.Errorf("creating a serving certificate: %w", err)
	}
	if err := c.ServerRun.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	if err := c.APIEnablement.ApplyTo(&generic.Config, apiserver.DefaultResourceConfig(search), scheme.Scheme); err != nil {
		return nil, err
	}
	overrides, err := c.etcdOverrides()
	if err != nil {
		return nil, err
	}
	if err := c.applyRecommended(generic, overrides); err != nil {
		return nil, err
	}
	generic.RESTOptionsGetter = overriddenEtcd{generic.RESTOptionsGetter, overrides}
	var reviewer genericapiserver.AuthorizationInfo
	if err := c.Recommended.Authorization.ApplyTo(&reviewer); err != nil {
		return nil, err
	}
	extra := c.ExtraConfig
	extra.Identity, extra.Embedded, extra.Reviewer = identity, embedded, reviewer.Authorizer
	extra.WorkExecutor, _ = c.workExecutor() // validation has parsed it
	extra.Search, extra.Registration, extra.Requests = search, c.Registration.config(), c.Requests.config()
	extra.ServingCertificate = c.ServingCertificate.policy(c.Namespace)
	return &apiserver.Config{Generic: generic, Extra: extra}, nil
}

// identity returns the unique name of this replica. A server with an embedded etcd is the only replica.
// Its identity stays the same after a restart, so that it does not wait for its own Lease to expire.
func (c Completed) identity(embedded *etcd.Server) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	if embedded != nil {
		return host + "_" + embedded.StorageID(), nil
	}
	return host + "_" + uuid.NewString(), nil
}

type problems []error

// add adds the error of a function, if there is one.
func (p *problems) add(_ any, err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

// addIf adds an error if a flag is wrong.
func (p *problems) addIf(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}
