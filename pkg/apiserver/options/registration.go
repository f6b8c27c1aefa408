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
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
)

var (
	registrationDrivers = []registerv1alpha1.RegistrationDriver{registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA}
	mappings            = []irsa.Mapping{irsa.AccessEntry, irsa.ConfigMap}
)

type Registration struct {
	apiserver.RegistrationConfig
	// Auth are the names of Drivers, HubClusterARN is HubARN, and AutoApprovedARNs are the patterns of AutoApproval.
	Auth             []string
	HubClusterARN    string
	AutoApprovedARNs []string
}

func newRegistration() Registration {
	return Registration{Auth: []string{string(registerv1alpha1.DriverCSR)}, RegistrationConfig: apiserver.RegistrationConfig{
		MaxRequests: csr.DefaultMaxRequests, DrainTimeout: 10 * time.Minute, Mapping: irsa.AccessEntry, ManageRoles: true,
	}}
}

func (r *Registration) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&r.Auth, "registration-auth", r.Auth,
		"How managed clusters authenticate to the hub. csr: with client certificates that the hub signs. aws-irsa: with AWS IAM roles, if the managed cluster runs on EKS and the hub runs on EKS or uses aws-iam-authenticator. If both are set, clusters that claim an ARN use aws-irsa.")
	fs.StringSliceVar(&r.Auth, "enabled-registration-drivers", r.Auth, "Alias of --registration-auth, for compatibility with the upstream registration controller.")
	fs.StringVar(&r.HubClusterARN, "hub-cluster-arn", r.HubClusterARN,
		"ARN of the EKS cluster of the hub, as arn:<partition>:eks:<region>:<account>:cluster/<name>. On a hub outside of EKS, <name> is the cluster ID of aws-iam-authenticator, and --eks-auth=ConfigMap is required. Required with --registration-auth=aws-irsa.")
	fs.StringVar((*string)(&r.Mapping), "eks-auth", string(r.Mapping),
		"How the EKS cluster of the hub maps IAM roles to groups: with access entries (AccessEntry), or with the ConfigMap kube-system/aws-auth (ConfigMap), which aws-iam-authenticator also reads.")
	fs.BoolVar(&r.ManageRoles, "irsa-manage-roles", r.ManageRoles,
		"Create and delete the IAM role of each managed cluster in the account of the hub. If false, create the roles that managedclusters/irsa describes by other means; the server only maps them.")
	fs.StringToStringVar(&r.ResourceTags, "aws-resource-tags", r.ResourceTags,
		"Additional tags, as key=value, of the IAM roles and access entries that the server creates.")
	fs.StringArrayVar(&r.AutoApprovedARNs, "auto-approved-arn-patterns", r.AutoApprovedARNs,
		"Regular expression of ARNs. A cluster is accepted if it claims an ARN that the expression matches completely. Can be repeated. Requires the feature gate ManagedClusterAutoApproval.")
	fs.StringArrayVar(&r.AutoApprovedUsers, "auto-approved-csr-identities", r.AutoApprovedUsers,
		"User for automatic approval: when this user creates ManagedClusters and certificate requests, the server accepts and approves them. Can be repeated. Requires the feature gate ManagedClusterAutoApproval.")
	fs.IntVar(&r.MaxRequests, "registration-max-requests", r.MaxRequests,
		"Maximum number of certificate requests of one cluster on the hub. The server deletes the oldest ones that exceed it. It is also the maximum number of pending requests of one requester for one cluster that the server considers.")
	fs.StringToStringVar(&r.Labels, "registration-labels", r.Labels,
		"Labels, as key=value, of the namespace, roles, bindings and Lease that the server creates for an accepted cluster.")
	fs.DurationVar(&r.DrainTimeout, "cluster-drain-timeout", r.DrainTimeout,
		"Time for the agent of a deleted ManagedCluster to remove the delivered objects before the cluster loses its access. 0 means no time.")
}

// drivers returns the drivers by their canonical names.
func (r *Registration) drivers() sets.Set[registerv1alpha1.RegistrationDriver] {
	out := sets.New[registerv1alpha1.RegistrationDriver]()
	for _, name := range r.Auth {
		if name == "awsirsa" {
			name = string(registerv1alpha1.DriverAWSIRSA)
		}
		out.Insert(registerv1alpha1.RegistrationDriver(name))
	}
	return out
}

// complete drops empty values, which mean that there is no rule.
func (r *Registration) complete() {
	isEmpty := func(value string) bool { return value == "" }
	r.AutoApprovedARNs, r.AutoApprovedUsers = slices.DeleteFunc(r.AutoApprovedARNs, isEmpty), slices.DeleteFunc(r.AutoApprovedUsers, isEmpty)
}

func (r *Registration) validate() []error {
	var errs problems
	errs.addIf(r.MaxRequests < 1, "--registration-max-requests must be at least 1, not %d", r.MaxRequests)
	errs.add(nil, metav1validation.ValidateLabels(r.Labels, field.NewPath("--registration-labels")).ToAggregate())
	_, ours := r.Labels[clusterv1.ClusterNameLabel]
	errs.addIf(ours, "--registration-labels must not contain %s, which the server sets", clusterv1.ClusterNameLabel)
	errs.addIf(r.DrainTimeout < 0, "--cluster-drain-timeout must not be negative, not %s", r.DrainTimeout)
	drivers := r.drivers()
	errs.addIf(drivers.Len() == 0, "--registration-auth must contain at least one of %v", registrationDrivers)
	for _, name := range sets.List(drivers) {
		errs.addIf(!slices.Contains(registrationDrivers, name),
			"--registration-auth must be one of %v, not %q", registrationDrivers, name)
	}
	errs.add(r.hubARN())
	errs.addIf(r.HubClusterARN == "" && drivers.Has(registerv1alpha1.DriverAWSIRSA),
		"--hub-cluster-arn is required with --registration-auth=%s", registerv1alpha1.DriverAWSIRSA)
	errs.addIf(!slices.Contains(mappings, r.Mapping), "--eks-auth must be one of %v, not %q", mappings, r.Mapping)
	if err := irsa.ValidateResourceTags(r.ResourceTags); err != nil {
		errs = append(errs, fmt.Errorf("--aws-resource-tags: %w", err))
	}
	errs.add(r.autoApproval())
	errs = append(errs, validate.FlagUsers("auto-approved-csr-identities", r.AutoApprovedUsers)...)
	gate := utilfeature.DefaultFeatureGate.Enabled(apiserver.ManagedClusterAutoApproval)
	errs.addIf(!gate && len(r.AutoApprovedARNs)+len(r.AutoApprovedUsers) > 0,
		"--auto-approved-arn-patterns and --auto-approved-csr-identities require --feature-gates=%s=true", apiserver.ManagedClusterAutoApproval)
	errs.addIf(len(r.AutoApprovedARNs) > 0 && !drivers.Has(registerv1alpha1.DriverAWSIRSA),
		"--auto-approved-arn-patterns requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA)
	errs.addIf(len(r.AutoApprovedUsers) > 0 && !drivers.Has(registerv1alpha1.DriverCSR),
		"--auto-approved-csr-identities requires --registration-auth=%s", registerv1alpha1.DriverCSR)
	return errs
}

func (r *Registration) autoApproval() (registration.AutoApproval, error) {
	rules, err := registration.NewAutoApproval(r.AutoApprovedARNs, r.AutoApprovedUsers)
	if err != nil {
		return rules, fmt.Errorf("--auto-approved-arn-patterns: %w", err)
	}
	return rules, nil
}

// hubARN returns the ARN of the cluster of the hub, or nil if the flag is not set.
func (r *Registration) hubARN() (*irsa.ARN, error) {
	if r.HubClusterARN == "" {
		return nil, nil
	}
	arn, err := irsa.ParseARN(r.HubClusterARN)
	if err != nil {
		return nil, fmt.Errorf("--hub-cluster-arn: %w", err)
	}
	return &arn, nil
}

// config returns the configuration of registration. Validation has parsed the flags.
func (r *Registration) config() *apiserver.RegistrationConfig {
	config := r.RegistrationConfig
	config.Drivers = sets.List(r.drivers())
	config.AutoApproval, _ = r.autoApproval()
	config.HubARN, _ = r.hubARN()
	return &config
}
