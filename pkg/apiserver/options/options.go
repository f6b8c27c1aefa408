// Package options holds the flags of the API server.
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
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
)

const (
	etcdPathPrefix = "/registry/open-cluster-management.io"

	// Firewalls between managed control planes and nodes let this port pass, as the kubelet's.
	defaultSecurePort = 10250

	defaultNamespace  = "open-cluster-management-hub"
	defaultLeaseName  = "hub-apiserver-controllers"
	defaultDataDir    = "/var/lib/hub-apiserver"
	defaultQuotaBytes = 8 << 30
	defaultLimitBytes = 500 << 10
	defaultWatchGrace = 5 * time.Second
	// defaultCompactionInterval is how often old revisions are compacted.
	defaultCompactionInterval = time.Minute
	// Ten years: hubs of today ask for up to that much.
	defaultTokenValidity = 87600 * time.Hour
	minimumLimitBytes    = 1 << 10
	minimumQuotaBytes    = 16 << 20
	maximumObjectBytes   = 1<<20 + 1<<19 // etcd's own limit for a request
)

func init() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.Add(apiserver.FeatureGates))
}

// Options are the flags of the API server.
type Options struct {
	ServerRun      *genericoptions.ServerRunOptions
	Recommended    *genericoptions.RecommendedOptions
	APIEnablement  *genericoptions.APIEnablementOptions
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	EmbeddedEtcd   etcd.Options
	Logs           *logs.Options

	// Namespace of the hub that holds the server's leases.
	Namespace string
	// ManifestLimitBytes bounds the manifests of one ManifestWork.
	ManifestLimitBytes int64
	// EscalationCheck, NamespaceSource and WorkExecutor are how ClusterPermissions are
	// checked and delivered.
	EscalationCheck string
	NamespaceSource string
	WorkExecutor    string
	// NilExecutor says what becomes of works that name no executor.
	NilExecutor string
	// MaximumTokenValidity bounds how long tokens of ManagedServiceAccounts are valid; 0 for no bound.
	MaximumTokenValidity time.Duration
	// ReservedAccountNames are names that no new ManagedServiceAccount may have.
	ReservedAccountNames []string
	// Quotas bound what namespaces hold, and single objects.
	Quotas apiserver.Quotas
	// Search is how the fleet is searched.
	Search Search
	// Registration is how managed clusters register.
	Registration Registration
	// Requests are the limits of each caller.
	Requests Requests
}

// New returns the defaults.
func New() *Options {
	o := &Options{
		ServerRun: genericoptions.NewServerRunOptions(),
		// The codec of the storage is up to each resource.
		Recommended:   genericoptions.NewRecommendedOptions(etcdPathPrefix, nil),
		APIEnablement: genericoptions.NewAPIEnablementOptions(),
		EmbeddedEtcd:  etcd.Options{DataDir: defaultDataDir, QuotaBytes: defaultQuotaBytes},
		Logs:          logs.NewOptions(),

		Namespace:          defaultNamespace,
		ManifestLimitBytes: defaultLimitBytes,
		EscalationCheck:    string(clusterpermission.Enforce),
		NamespaceSource:    string(apiserver.NamespacesOfCluster),
		NilExecutor:        string(executor.Allow),

		MaximumTokenValidity: defaultTokenValidity,
		ReservedAccountNames: authenticationvalidation.DefaultReservedNames(),
		Search:               newSearch(),
		Registration:         newRegistration(),
		Requests:             newRequests(),
	}
	o.ServerRun.MaxRequestsInFlight, o.ServerRun.MaxMutatingRequestsInFlight = requestsInFlight(runtime.GOMAXPROCS(0))
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		o.Namespace = namespace
	}
	o.Recommended.SecureServing.BindPort = defaultSecurePort
	// ManifestWorks are larger and change more often than most objects of a cluster, and the
	// embedded etcd has what was replaced in this process's memory.
	o.Recommended.Etcd.StorageConfig.CompactionInterval = defaultCompactionInterval
	// While it stops, the server answers 429 rather than refuse connections, and
	// ends the watches. The library's own defaults wait a minute for watches, most
	// of which never end, and are killed before that.
	o.ServerRun.ShutdownSendRetryAfter = true
	o.ServerRun.ShutdownWatchTerminationGracePeriod = defaultWatchGrace
	// Hubs before 1.36 do not serve these policies in v1; their informer would
	// never sync and every write would be refused.
	o.Recommended.Admission.DefaultOffPlugins.Insert(mutatingadmissionpolicy.PluginName)

	o.LeaderElection = componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect:   true,
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline: metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:   metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:  resourcelock.LeasesResourceLock,
		ResourceName:  defaultLeaseName,
	}
	return o
}

// Flags returns the flags by topic.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.Recommended.SecureServing.AddFlags(sets.FlagSet("secure serving"))
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
	o.addWorkFlags(sets.FlagSet("works"))
	o.addPermissionFlags(sets.FlagSet("cluster permissions"))
	o.addAccountFlags(sets.FlagSet("managed service accounts"))
	o.addQuotaFlags(sets.FlagSet("quotas"))
	o.Search.addFlags(sets.FlagSet("search"))
	o.Registration.addFlags(sets.FlagSet("registration"))
	o.Requests.addFlags(sets.FlagSet("requests"))
	return sets
}

func (o *Options) addEmbeddedEtcdFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.EmbeddedEtcd.DataDir, "data-dir", o.EmbeddedEtcd.DataDir,
		"Directory for the data of the etcd that the server runs itself when --etcd-servers is not given. One server only may use it.")
	fs.Int64Var(&o.EmbeddedEtcd.QuotaBytes, "data-quota-bytes", o.EmbeddedEtcd.QuotaBytes,
		"Size of the database in --data-dir, in bytes, at which writes are refused.")
}

func (o *Options) addWorkFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&o.ManifestLimitBytes, "manifest-limit-bytes", o.ManifestLimitBytes,
		"Bytes that the manifests of one ManifestWork may have in all. Objects of more than 1.5 MiB need an etcd with a larger --max-request-bytes.")
	fs.StringVar(&o.NilExecutor, "nil-executor", o.NilExecutor,
		"What becomes of writes that give a ManifestWork without spec.executor its spec. Allow lets everybody pass who may write works, and Deny nobody. Check lets those pass who may execute-as "+executor.AgentExecutor+" on manifestworks in the namespace of the cluster.")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace,
		"Namespace of the hub in which the server keeps its leases; --leader-elect-resource-namespace moves one of them elsewhere. Defaults to the environment variable POD_NAMESPACE.")
}

func (o *Options) addPermissionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.EscalationCheck, "clusterpermission-escalation-check", o.EscalationCheck,
		"What becomes of a ClusterPermission that grants more than its author may grant. Enforce refuses it. Approve stores it, and delivers it once somebody who may grant it has approved it through clusterpermissions/approval. Warn delivers it with a Warning header. Off does not look.")
	fs.StringVar(&o.NamespaceSource, "namespace-selector-source", o.NamespaceSource,
		"Whose namespaces a namespaceSelector of a ClusterPermission selects by their labels: those of the managed cluster, as its agent reports them (Cluster), or those of the same names on the hub (Hub).")
	fs.StringVar(&o.WorkExecutor, "work-executor", o.WorkExecutor,
		"ServiceAccount of the managed clusters, as namespace/name, that the ManifestWorks of ClusterPermissions name as their executor. By default they name none, and the agent applies them as itself.")
}

func (o *Options) addAccountFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.MaximumTokenValidity, "managed-serviceaccount-max-validity", o.MaximumTokenValidity,
		"How long spec.rotation.validity of a ManagedServiceAccount may be, at most; 0 for no bound. Accounts that are stored already keep theirs.")
	fs.StringSliceVar(&o.ReservedAccountNames, "managed-serviceaccount-reserved-names", o.ReservedAccountNames,
		"Names that no new ManagedServiceAccount may have, since addons have ServiceAccounts of these names on managed clusters. A name that ends with * reserves every name that begins with the rest; an empty value reserves none. Accounts that are stored already keep theirs.")
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
		"Objects that a namespace, such as that of a cluster, may hold of a resource, as resource=number; 0 for no bound. Defaults: "+
			defaults(func(l quota.Limits) int64 { return l.Objects }))
	fs.StringToStringVar(&o.Quotas.Bytes, "namespace-quota-bytes", o.Quotas.Bytes,
		"Total size of the objects that a namespace may hold of a resource, as resource=quantity such as 64Mi; 0 for no bound. Defaults: "+
			defaults(func(l quota.Limits) int64 { return l.Bytes }))
	fs.StringToStringVar(&o.Quotas.ObjectLimits, "object-limits", o.Quotas.ObjectLimits,
		"Limits of a single object, as limit=quantity for all resources or resource.limit=quantity for one, such as clusternamespaces.labels=512; 0 for no bound. The limits are "+
			strings.Join(quota.ObjectLimitKeys(), ", ")+".")
}

// Embedded tells whether the server runs its own etcd.
func (o *Options) Embedded() bool {
	return len(o.Recommended.Etcd.StorageConfig.Transport.ServerList) == 0
}

// Complete derives the options that follow from others.
func (o *Options) Complete() (Completed, error) {
	if err := o.ServerRun.Complete(); err != nil {
		return Completed{}, err
	}
	if o.LeaderElection.ResourceNamespace == "" {
		o.LeaderElection.ResourceNamespace = o.Namespace
	}
	return Completed{&completed{o}}, nil
}

// Completed are options that Complete has returned; there is no other way to get them.
type Completed struct {
	*completed
}

type completed struct {
	*Options
}

// Validate returns all that is wrong with the options.
func (c Completed) Validate() error {
	var errs []error
	errs = append(errs, c.ServerRun.Validate()...)
	errs = append(errs, c.Recommended.SecureServing.Validate()...)
	errs = append(errs, c.Recommended.Authentication.Validate()...)
	errs = append(errs, c.Recommended.Authorization.Validate()...)
	errs = append(errs, c.Recommended.Audit.Validate()...)
	errs = append(errs, c.Recommended.Features.Validate()...)
	errs = append(errs, c.Recommended.CoreAPI.Validate()...)
	errs = append(errs, c.Recommended.Admission.Validate()...)
	errs = append(errs, c.Recommended.EgressSelector.Validate()...)
	errs = append(errs, c.Recommended.Traces.Validate()...)
	errs = append(errs, c.APIEnablement.Validate(scheme.Scheme)...)
	errs = append(errs, c.ServerRun.ComponentGlobalsRegistry.Validate()...)
	if c.Embedded() {
		if c.EmbeddedEtcd.DataDir == "" {
			errs = append(errs, fmt.Errorf("--data-dir must be given when --etcd-servers is not"))
		}
		if c.EmbeddedEtcd.QuotaBytes < minimumQuotaBytes {
			errs = append(errs, fmt.Errorf("--data-quota-bytes must be at least %d, not %d", minimumQuotaBytes, c.EmbeddedEtcd.QuotaBytes))
		}
	} else {
		errs = append(errs, c.Recommended.Etcd.Validate()...)
	}
	if c.Namespace == "" {
		errs = append(errs, fmt.Errorf("--namespace must not be empty"))
	}
	if c.ManifestLimitBytes < minimumLimitBytes || c.Embedded() && c.ManifestLimitBytes > maximumObjectBytes {
		errs = append(errs, fmt.Errorf("--manifest-limit-bytes must be between %d and %d, not %d", minimumLimitBytes, maximumObjectBytes, c.ManifestLimitBytes))
	}
	if !slices.Contains(clusterpermission.EscalationChecks, clusterpermission.EscalationCheck(c.EscalationCheck)) {
		errs = append(errs, fmt.Errorf("--clusterpermission-escalation-check must be one of %v, not %q", clusterpermission.EscalationChecks, c.EscalationCheck))
	}
	if !slices.Contains(apiserver.NamespaceSources, apiserver.NamespaceSource(c.NamespaceSource)) {
		errs = append(errs, fmt.Errorf("--namespace-selector-source must be one of %v, not %q", apiserver.NamespaceSources, c.NamespaceSource))
	}
	if _, err := c.workExecutor(); err != nil {
		errs = append(errs, err)
	}
	if !slices.Contains(executor.NilExecutors, executor.NilExecutor(c.NilExecutor)) {
		errs = append(errs, fmt.Errorf("--nil-executor must be one of %v, not %q", executor.NilExecutors, c.NilExecutor))
	}
	if c.NilExecutor == string(executor.Deny) && c.WorkExecutor == "" {
		errs = append(errs, fmt.Errorf("--nil-executor=%s needs --work-executor: no ClusterPermission could be delivered", executor.Deny))
	}
	if c.MaximumTokenValidity != 0 && c.MaximumTokenValidity < authenticationv1beta1.MinimumValidity {
		errs = append(errs, fmt.Errorf("--managed-serviceaccount-max-validity must be 0 or at least %s, not %s", authenticationv1beta1.MinimumValidity, c.MaximumTokenValidity))
	}
	errs = append(errs, c.Quotas.Validate()...)
	errs = append(errs, c.Search.validate(c.Embedded())...)
	errs = append(errs, c.Registration.validate()...)
	errs = append(errs, c.Requests.validate()...)
	for _, err := range componentbasevalidation.ValidateLeaderElectionConfiguration(&c.LeaderElection, field.NewPath("leader-elect")) {
		errs = append(errs, err)
	}
	if err := logsapi.ValidateAndApply(c.Logs, utilfeature.DefaultFeatureGate); err != nil {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(errs)
}

// workExecutor is the ServiceAccount of --work-executor; nil if there is none.
func (c Completed) workExecutor() (*types.NamespacedName, error) {
	if c.WorkExecutor == "" {
		return nil, nil
	}
	namespace, name, both := strings.Cut(c.WorkExecutor, "/")
	problems := append(apivalidation.ValidateNamespaceName(namespace, false), apivalidation.ValidateServiceAccountName(name, false)...)
	if !both || len(problems) > 0 {
		return nil, fmt.Errorf("--work-executor must be the namespace and the name of a ServiceAccount with a slash between them, not %q", c.WorkExecutor)
	}
	return &types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Config builds the configuration of a server. embedded is the running etcd of
// an Embedded server and nil otherwise.
func (c Completed) Config(embedded *etcd.Server) (*apiserver.Config, error) {
	identity, err := c.identity(embedded)
	if err != nil {
		return nil, err
	}
	workExecutor, err := c.workExecutor()
	if err != nil {
		return nil, err
	}
	search, err := c.Search.config(c.EmbeddedEtcd.DataDir)
	if err != nil {
		return nil, err
	}
	registration, err := c.Registration.config()
	if err != nil {
		return nil, err
	}
	if embedded != nil {
		c.Recommended.Etcd.StorageConfig.Transport.ServerList = []string{embedded.Endpoint()}
	}
	// Without a certificate the server makes one, for its first start before anyone has given it one.
	if err := c.Recommended.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}

	generic := genericapiserver.NewRecommendedConfig(scheme.Codecs)
	apiserver.DescribeAPI(generic)
	if err := c.ServerRun.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	if err := c.APIEnablement.ApplyTo(&generic.Config, apiserver.DefaultResourceConfig(search), scheme.Scheme); err != nil {
		return nil, err
	}
	if err := c.Recommended.ApplyTo(generic); err != nil {
		return nil, err
	}
	return &apiserver.Config{
		Generic: generic,
		Extra: apiserver.ExtraConfig{
			Identity:             identity,
			Namespace:            c.Namespace,
			ManifestLimitBytes:   c.ManifestLimitBytes,
			EscalationCheck:      clusterpermission.EscalationCheck(c.EscalationCheck),
			NamespaceSource:      apiserver.NamespaceSource(c.NamespaceSource),
			WorkExecutor:         workExecutor,
			NilExecutor:          executor.NilExecutor(c.NilExecutor),
			MaximumTokenValidity: c.MaximumTokenValidity,
			ReservedAccountNames: c.ReservedAccountNames,
			LeaderElection:       c.LeaderElection,
			Embedded:             embedded,
			Quotas:               c.Quotas,
			Search:               search,
			Registration:         registration,
			Requests:             c.Requests.config(),
		},
	}, nil
}

// identity names this server among its replicas. A server with storage of its
// own is the only one on that storage, so its identity outlives restarts and
// it need not wait for a lease that it itself held.
func (c Completed) identity(embedded *etcd.Server) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	if embedded != nil {
		return host + "_" + embedded.StorageID(), nil
	}
	return host + "_" + uuid.NewString(), nil
}
