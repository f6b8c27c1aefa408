package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	searchEmbedded = "embedded"
	searchPostgres = "postgres"
	searchNone     = "none"

	servingSelfSigned  = "self-signed"
	servingCertManager = "cert-manager"

	// localCluster is the hub as a cluster, and localAgent the user of its agent, both of the component local-cluster.
	localCluster = "local-cluster"
	localAgent   = "system:serviceaccount:" + manifests.AgentNamespace + ":" + manifests.AgentName
)

type hubSettings struct {
	drivers     []registerv1alpha1.RegistrationDriver
	arn         *irsa.ARN
	roleARN     string
	eksAuth     string
	manageRoles bool
	tags        map[string]string
	arnPatterns []string
	identities  []string
	// keepRole is true if roleARN is the installed one, which may be empty.
	keepRole bool

	image       program.Images
	resources   program.Resources
	serving     string
	etcdServers []string
	search      string
	storageSize string
	// storageClass is empty for the default StorageClass of the hub.
	storageClass string
	existingOCM  bool
	// localCluster is true if init installs the agent of the hub itself, with agentImage. Later, the agent stays as it is.
	localCluster bool
	agentImage   string
	// proxyAccounts is true if the server also serves ManagedServiceAccounts in the version of the proposal.
	proxyAccounts bool
}

func newHubSettings() hubSettings {
	return hubSettings{eksAuth: string(irsa.AccessEntry), manageRoles: true, serving: servingSelfSigned, storageSize: "10Gi"}
}

func (h *hubSettings) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&h.roleARN, "hub-role-arn", "", "ARN of the IAM role of the server, for aws-irsa. Defaults to <hub>_managed-cluster-identity-creator in the account of the hub.")
	flags.StringVar(&h.eksAuth, "eks-auth", h.eksAuth, "How the hub's EKS cluster maps IAM roles to groups: AccessEntry, or ConfigMap for kube-system/aws-auth.")
	flags.BoolVar(&h.manageRoles, "irsa-manage-roles", h.manageRoles, "Whether the server creates the IAM role of each cluster in the account of the hub. If false, create the roles yourself.")
	flags.StringToStringVar(&h.tags, "aws-resource-tags", nil, "Additional tags (key=value) of the resources that the server creates in AWS.")
	flags.StringArrayVar(&h.arnPatterns, "auto-approved-arn-patterns", nil, "Regular expression. A cluster is accepted automatically if it matches its whole claimed ARN. Can be repeated.")
	flags.StringArrayVar(&h.identities, "auto-approved-csr-identities", nil, "User whose clusters are accepted automatically. Can be repeated.")
	h.image.AddFlags(flags, "server")
	h.resources.AddFlags(flags, "server")
	flags.StringVar(&h.serving, "serving-certificates", h.serving, "Source of the server's certificate: self-signed (the server creates and renews it) or cert-manager (which must be installed on the hub).")
	flags.StringSliceVar(&h.etcdServers, "etcd-servers", nil, "URLs of an etcd cluster, for two replicas of the server. The Secret hub-apiserver-etcd contains its certificates. If empty, one replica stores its data in a persistent volume.")
	flags.StringVar(&h.search, "search-engine", "", "Search engine: embedded, postgres (the Secret hub-apiserver-postgres contains its URL) or none. Defaults to embedded, or to postgres with --etcd-servers.")
	flags.BoolVar(&h.existingOCM, "existing-ocm", false, "The hub runs OCM, which continues to store ManifestWorks, ManagedClusters, sets and add-ons, and to register clusters. By default, init looks for its CustomResourceDefinitions.")
	flags.BoolVar(&h.localCluster, "local-cluster", false, "Also install the agent of the hub itself, as the cluster "+localCluster+", with which searches and fleet access contain the resources of the hub. Requires --registration-auth=csr.")
	flags.StringVar(&h.agentImage, "local-cluster-image", "", "Image of the agent of the hub. Defaults to the agent in the repository of the server's image.")
	flags.BoolVar(&h.proxyAccounts, "proxy-accounts", false, "Also serve ManagedServiceAccounts as "+proxyv1alpha1.SchemeGroupVersion.String()+", the API version of the proposal. This hides the hub's CustomResourceDefinitions in that version, such as ManagedProxyConfigurations and ManagedProxyServiceResolvers of the upstream cluster-proxy: their objects can no longer be read or written.")
	flags.StringVar(&h.storageClass, "storage-class", "", "StorageClass of the persistent volume. Defaults to the default StorageClass of the hub.")
	flags.StringVar(&h.storageSize, "storage-size", h.storageSize, "Size of the persistent volume.")
}

func (h *hubSettings) aws() bool { return slices.Contains(h.drivers, registerv1alpha1.DriverAWSIRSA) }

func (h *hubSettings) csr() bool { return slices.Contains(h.drivers, registerv1alpha1.DriverCSR) }

// complete sets the defaults, and returns the errors of the settings.
func (h *hubSettings) complete() []error {
	if h.search == "" {
		h.search = searchEmbedded
		if len(h.etcdServers) > 0 {
			h.search = searchPostgres
		}
	}
	isUnused := func(value string) bool { return value == "" || h.localCluster && value == localAgent } // the component adds it
	h.arnPatterns, h.identities = slices.DeleteFunc(h.arnPatterns, isUnused), slices.DeleteFunc(h.identities, isUnused)
	errs := append(h.resources.Check(), validate.FlagUsers("auto-approved-csr-identities", h.identities)...)
	for _, pattern := range h.arnPatterns {
		_, err := irsa.CompilePattern(pattern)
		errs = append(errs, cli.Prefix(err, "--auto-approved-arn-patterns"))
	}
	_, err := resource.ParseQuantity(h.storageSize)
	errs = append(errs, cli.Prefix(err, "--storage-size %q", h.storageSize), CheckMapping(h.eksAuth),
		cli.OneOf("serving-certificates", h.serving, servingSelfSigned, servingCertManager),
		cli.OneOf("search-engine", h.search, searchEmbedded, searchPostgres, searchNone),
		cli.Wrong(h.search == searchEmbedded && len(h.etcdServers) > 0, "--search-engine=%s supports only one replica and cannot be used with --etcd-servers", searchEmbedded),
		cli.Wrong(len(h.arnPatterns) > 0 && !h.aws(), "--auto-approved-arn-patterns requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA),
		cli.Wrong(h.localCluster && (h.existingOCM || !h.csr()), "--local-cluster requires --registration-auth=%s, and excludes --existing-ocm", registerv1alpha1.DriverCSR),
		cli.Wrong(len(h.identities) > 0 && !h.csr(), "--auto-approved-csr-identities requires --registration-auth=%s", registerv1alpha1.DriverCSR),
		cli.Wrong(h.roleARN != "" && !h.keepRole && !h.aws(), "--hub-role-arn requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	if !h.aws() {
		return errs
	}
	errs = append(errs, cli.Prefix(irsa.ValidateResourceTags(h.tags), "--aws-resource-tags"))
	if h.keepRole || *h.arn == (irsa.ARN{}) {
		return errs // without an ARN of the hub, that is an error of its own
	}
	role, err := ServerRole(*h.arn, h.roleARN)
	if err == nil {
		h.roleARN = role.String()
	}
	return append(errs, err)
}

// CheckMapping returns an error unless a value of --eks-auth is valid.
func CheckMapping(value string) error {
	return cli.OneOf("eks-auth", value, string(irsa.AccessEntry), string(irsa.ConfigMap))
}

// ServerRole returns the IAM role of the server of a hub: that of --hub-role-arn, or the default.
func ServerRole(hub irsa.ARN, arn string) (irsa.Role, error) {
	if arn == "" {
		name, err := irsa.CreatorRoleName(hub)
		if err != nil {
			return irsa.Role{}, fmt.Errorf("--hub-role-arn is required: %w", err)
		}
		return hub.Role(name), nil
	}
	role, err := irsa.ParseRoleARN(arn)
	if err != nil {
		return irsa.Role{}, fmt.Errorf("--hub-role-arn: %w", err)
	}
	if role.Partition != hub.Partition || role.AccountID != hub.AccountID {
		return irsa.Role{}, fmt.Errorf("--hub-role-arn %q must be the ARN of a role in the account of the hub, as %s", arn, hub.RoleARN("<name>"))
	}
	return role, nil
}

// arguments returns the arguments of the server that configure registration.
func (h *hubSettings) arguments() []string {
	names := make([]string, 0, len(h.drivers))
	for _, driver := range h.drivers {
		names = append(names, string(driver))
	}
	args := []string{"--registration-auth=" + strings.Join(names, ",")}
	if h.aws() {
		args = append(args, "--hub-cluster-arn="+h.arn.String(), "--eks-auth="+h.eksAuth)
		if !h.manageRoles {
			args = append(args, "--irsa-manage-roles=false")
		}
		for _, key := range slices.Sorted(maps.Keys(h.tags)) {
			args = append(args, "--aws-resource-tags="+key+"="+h.tags[key])
		}
	}
	if len(h.arnPatterns)+len(h.identities) > 0 && !h.localCluster {
		args = append(args, "--feature-gates=ManagedClusterAutoApproval=true")
	}
	for _, pattern := range h.arnPatterns {
		args = append(args, "--auto-approved-arn-patterns="+pattern)
	}
	for _, identity := range h.identities {
		args = append(args, "--auto-approved-csr-identities="+identity)
	}
	return args
}

// access returns the RBAC objects of the server, the agents and the administrators.
func (h *hubSettings) access() ([]*unstructured.Unstructured, error) {
	return h.build(&types.Kustomization{Resources: []string{"rbac", "agent/hub"}})
}

func (h *hubSettings) build(k *types.Kustomization) ([]*unstructured.Unstructured, error) {
	if h.aws() && irsa.Mapping(h.eksAuth) == irsa.ConfigMap {
		k.Components = append(k.Components, "deploy/components/aws-auth")
	}
	objects, err := manifests.Build(k)
	if err != nil {
		return nil, err
	}
	return objects, program.SetRole(objects, manifests.ServerName, h.roleARN)
}

// objects returns all objects of a hub: those of kubectl kustomize with the same components, with the settings.
func (h *hubSettings) objects() ([]*unstructured.Unstructured, error) {
	k := &types.Kustomization{Resources: []string{"deploy/base"}}
	for component, used := range map[string]bool{
		"cert-manager":      h.serving == servingCertManager,
		"existing-ocm":      h.existingOCM,
		"external-etcd":     len(h.etcdServers) > 0,
		"no-search":         h.search == searchNone,
		"local-cluster":     h.localCluster,
		"postgres":          h.search == searchPostgres,
		"accounts-in-proxy": h.proxyAccounts,
	} {
		if used {
			k.Components = append(k.Components, "deploy/components/"+component)
		}
	}
	slices.Sort(k.Components) // those that change APIServices come after accounts-in-proxy, which adds one
	objects, err := h.build(k)
	if err != nil {
		return nil, err
	}
	if h.localCluster {
		if err := manifests.ChangeContainer(objects, manifests.AgentName, func(container map[string]any) { container["image"] = h.agentImage }); err != nil {
			return nil, err
		}
	}
	if len(h.etcdServers) == 0 {
		claim, err := manifests.Find(objects, kindClaim, manifests.ServerName, nil)
		if err != nil {
			return nil, err
		}
		if err := unstructured.SetNestedField(claim.Object, h.storageSize, "spec", "resources", "requests", "storage"); err != nil {
			return nil, err
		}
		if h.storageClass != "" {
			if err := unstructured.SetNestedField(claim.Object, h.storageClass, "spec", "storageClassName"); err != nil {
				return nil, err
			}
		}
	}
	return objects, manifests.ChangeContainer(objects, manifests.ServerName, func(container map[string]any) {
		container["image"] = h.image.Image
		h.resources.Set(container)
		args, _ := container["args"].([]any)
		if len(h.etcdServers) > 0 {
			// The component has replaced this argument of the base.
			args[2] = "--etcd-servers=" + strings.Join(h.etcdServers, ",")
		}
		if !h.existingOCM {
			container["args"] = append(args, manifests.Args(h.arguments()...)...)
		}
	})
}
