package options

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
)

var (
	registrationDrivers = []registerv1alpha1.RegistrationDriver{registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA}
	mappings            = []irsa.Mapping{irsa.AccessEntry, irsa.ConfigMap}
)

// Registration are the flags of cluster registration.
type Registration struct {
	// Drivers are the ways by which clusters show the hub who they are.
	Drivers []string
	// HubClusterARN is the ARN of the hub's own EKS cluster.
	HubClusterARN string
	// EKSAuth is one of mappings.
	EKSAuth string
	// ManageRoles is whether the server makes the IAM roles in the account of the hub.
	ManageRoles bool
	// ResourceTags are further tags of what the server makes in AWS.
	ResourceTags map[string]string
	// AutoApprovedARNs and AutoApprovedUsers say which clusters are accepted at once.
	AutoApprovedARNs  []string
	AutoApprovedUsers []string
	// MaxRequests bounds the certificate requests that a cluster's agents may have on the hub.
	MaxRequests int
	// DrainTimeout is how long the agent of a deleted cluster keeps its access.
	DrainTimeout time.Duration
	// Labels are on what the server makes on the hub for an accepted cluster.
	Labels map[string]string
}

func newRegistration() Registration {
	return Registration{MaxRequests: csr.DefaultMaxRequests, DrainTimeout: 10 * time.Minute, Drivers: []string{string(registerv1alpha1.DriverCSR)}, EKSAuth: string(irsa.AccessEntry), ManageRoles: true}
}

func (r *Registration) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&r.Drivers, "registration-auth", r.Drivers,
		"How managed clusters show the hub who they are: csr, by client certificates that the hub signs; aws-irsa, by AWS IAM roles, where the cluster is on EKS and the hub is on EKS or runs aws-iam-authenticator. Both may be given; a cluster that claims an ARN uses the second.")
	fs.StringSliceVar(&r.Drivers, "enabled-registration-drivers", r.Drivers, "The spelling of --registration-auth in the public registration controller.")
	fs.StringVar(&r.HubClusterARN, "hub-cluster-arn", r.HubClusterARN,
		"ARN of the hub's own EKS cluster, as arn:<partition>:eks:<region>:<account>:cluster/<name>. On a hub that is not EKS, <name> is the cluster ID of aws-iam-authenticator; that takes --eks-auth=ConfigMap. Required with aws-irsa.")
	fs.StringVar(&r.EKSAuth, "eks-auth", r.EKSAuth,
		"How the hub's EKS cluster learns which group an IAM role belongs to: by access entries (AccessEntry), or by the ConfigMap kube-system/aws-auth (ConfigMap), which aws-iam-authenticator reads as well.")
	fs.BoolVar(&r.ManageRoles, "irsa-manage-roles", r.ManageRoles,
		"Make the IAM role of a cluster in the account of the hub, and remove it. Without, somebody else makes the roles that managedclusters/irsa tells, and the server maps them only.")
	fs.StringToStringVar(&r.ResourceTags, "aws-resource-tags", r.ResourceTags,
		"Further tags, as key=value, of the roles and access entries that the server makes.")
	fs.StringSliceVar(&r.AutoApprovedARNs, "auto-approved-arn-patterns", r.AutoApprovedARNs,
		"Regular expressions; a cluster is accepted when it claims an ARN that one of them matches as a whole. Takes the feature gate ManagedClusterAutoApproval.")
	fs.StringSliceVar(&r.AutoApprovedUsers, "auto-approved-csr-identities", r.AutoApprovedUsers,
		"Users whose clusters are accepted, and whose requests for client certificates are approved, when they create them. Takes the feature gate ManagedClusterAutoApproval.")
	fs.IntVar(&r.MaxRequests, "registration-max-requests", r.MaxRequests,
		"Certificate requests that the agents of one cluster may have on the hub, decided or not. The oldest ones beyond it are removed. Also the pending requests of one requester for one cluster that are looked at.")
	fs.StringToStringVar(&r.Labels, "registration-labels", r.Labels,
		"Labels, as key=value, of the namespace, roles, bindings and Lease that the server makes for an accepted cluster.")
	fs.DurationVar(&r.DrainTimeout, "cluster-drain-timeout", r.DrainTimeout,
		"How long the agent of a deleted ManagedCluster may take to remove what the hub delivered, before the cluster loses its access. 0 does not wait.")
}

// drivers are the drivers in the product's own spelling, each once.
func (r *Registration) drivers() sets.Set[registerv1alpha1.RegistrationDriver] {
	out := sets.New[registerv1alpha1.RegistrationDriver]()
	for _, name := range r.Drivers {
		if name == "awsirsa" {
			name = string(registerv1alpha1.DriverAWSIRSA)
		}
		out.Insert(registerv1alpha1.RegistrationDriver(name))
	}
	return out
}

func (r *Registration) validate() []error {
	var errs []error
	if r.MaxRequests < 1 {
		errs = append(errs, fmt.Errorf("--registration-max-requests must be at least 1, not %d", r.MaxRequests))
	}
	for _, err := range metav1validation.ValidateLabels(r.Labels, field.NewPath("--registration-labels")) {
		errs = append(errs, err)
	}
	if _, ours := r.Labels[clusterv1.ClusterNameLabel]; ours {
		errs = append(errs, fmt.Errorf("--registration-labels must not set %s, which the server sets", clusterv1.ClusterNameLabel))
	}
	if r.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("--cluster-drain-timeout must not be negative, but is %s", r.DrainTimeout))
	}
	drivers := r.drivers()
	if drivers.Len() == 0 {
		errs = append(errs, fmt.Errorf("--registration-auth must name one of %v", registrationDrivers))
	}
	for _, name := range sets.List(drivers) {
		if !slices.Contains(registrationDrivers, name) {
			errs = append(errs, fmt.Errorf("--registration-auth must be of %v, not %q", registrationDrivers, name))
		}
	}
	if r.HubClusterARN != "" {
		if _, err := irsa.ParseARN(r.HubClusterARN); err != nil {
			errs = append(errs, fmt.Errorf("--hub-cluster-arn: %w", err))
		}
	} else if drivers.Has(registerv1alpha1.DriverAWSIRSA) {
		errs = append(errs, fmt.Errorf("--hub-cluster-arn must be given with --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if !slices.Contains(mappings, irsa.Mapping(r.EKSAuth)) {
		errs = append(errs, fmt.Errorf("--eks-auth must be one of %v, not %q", mappings, r.EKSAuth))
	}
	if err := irsa.ValidateResourceTags(r.ResourceTags); err != nil {
		errs = append(errs, fmt.Errorf("--aws-resource-tags: %w", err))
	}
	if _, err := r.autoApproval(); err != nil {
		errs = append(errs, err)
	}
	gate := utilfeature.DefaultFeatureGate.Enabled(apiserver.ManagedClusterAutoApproval)
	if !gate && len(r.AutoApprovedARNs)+len(r.AutoApprovedUsers) > 0 {
		errs = append(errs, fmt.Errorf("--auto-approved-arn-patterns and --auto-approved-csr-identities take --feature-gates=%s=true", apiserver.ManagedClusterAutoApproval))
	}
	if len(r.AutoApprovedARNs) > 0 && !drivers.Has(registerv1alpha1.DriverAWSIRSA) {
		errs = append(errs, fmt.Errorf("--auto-approved-arn-patterns take --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if len(r.AutoApprovedUsers) > 0 && !drivers.Has(registerv1alpha1.DriverCSR) {
		errs = append(errs, fmt.Errorf("--auto-approved-csr-identities take --registration-auth=%s", registerv1alpha1.DriverCSR))
	}
	return errs
}

// autoApproval are the rules by which clusters are accepted at once.
func (r *Registration) autoApproval() (registration.AutoApproval, error) {
	rules, err := registration.NewAutoApproval(r.AutoApprovedARNs, r.AutoApprovedUsers)
	if err != nil {
		return rules, fmt.Errorf("--auto-approved-arn-patterns: %w", err)
	}
	return rules, nil
}

// config is the server's configuration of registration, which validate has judged.
func (r *Registration) config() (*apiserver.RegistrationConfig, error) {
	config := &apiserver.RegistrationConfig{
		Drivers: sets.List(r.drivers()), Mapping: irsa.Mapping(r.EKSAuth), ManageRoles: r.ManageRoles, ResourceTags: r.ResourceTags,
		AutoApprovedUsers: r.AutoApprovedUsers, MaxRequests: r.MaxRequests, DrainTimeout: r.DrainTimeout, Labels: r.Labels,
	}
	var err error
	if config.AutoApproval, err = r.autoApproval(); err != nil {
		return nil, err
	}
	if r.HubClusterARN != "" {
		arn, err := irsa.ParseARN(r.HubClusterARN)
		if err != nil {
			return nil, fmt.Errorf("--hub-cluster-arn: %w", err)
		}
		config.HubARN = &arn
	}
	return config, nil
}
