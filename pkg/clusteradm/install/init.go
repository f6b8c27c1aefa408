package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	defaultTokenDuration = 24 * time.Hour
	// minTokenDuration is the shortest lifetime of a token in Kubernetes.
	minTokenDuration = 10 * time.Minute
)

const initExample = `  # A hub whose clusters join by client certificates
  clusteradm init --wait

  # A hub on EKS, whose clusters on EKS join by IAM roles
  clusteradm init --wait --registration-auth=aws-irsa \
      --hub-cluster-arn arn:aws:eks:us-west-2:123456789012:cluster/hub

  # The same, and the agent of the hub itself: searches find the resources of the hub
  clusteradm init --wait --local-cluster

  # All objects except the server, which runs elsewhere
  clusteradm init --apiserver=external

  # More memory for the server of an installed hub. Everything else stays as it is
  clusteradm init --resource-limits=memory=8Gi --dry-run
  clusteradm init --resource-limits=memory=8Gi

  # Print the manifests
  clusteradm init --output-manifests`

type initializing struct {
	cli.Environment
	*cli.Clients
	applier *manifests.Applier

	auth          []string
	hubARN        string
	server        string
	apiserver     string
	output        bool
	probeTimeout  time.Duration
	tokenDuration time.Duration
	// beforeMigration and standby are true if the hub waits for a migration, or to adopt the clusters of another hub.
	beforeMigration, standby bool
	hub                      hubSettings

	program.Options
	// held is true if the server waits for a migration or an adoption, and keeps waiting.
	held bool
	// installed is the server that the hub runs, or nil if it has no Deployment.
	installed *installedHub
}

func newInitializing(env cli.Environment) *initializing {
	return &initializing{
		Environment: env, auth: []string{string(program.DefaultDriver)}, apiserver: program.Deploy,
		probeTimeout: signing.DefaultTimeout, tokenDuration: defaultTokenDuration, hub: newHubSettings(),
	}
}

// NewInit returns the command clusteradm init.
func NewInit(env cli.Environment) *cobra.Command {
	i := newInitializing(env)
	command := &cobra.Command{
		Use:   "init",
		Short: "Make the cluster of the current context a hub",
		Long: `Make the cluster of the current context a hub: install the server and its roles, and
print the command with which a managed cluster joins. If the hub is installed, the command changes
only settings that its flags name. Changes of the storage, the search engine or the number of replicas require
--yes, as do changes of fields that others have set.`,
		Example: initExample,
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&i.Timeout, i.run),
	}
	flags := command.Flags()
	flags.StringSliceVar(&i.auth, "registration-auth", i.auth, "Registration drivers, by which agents authenticate: csr (client certificates that the hub signs), aws-irsa (AWS IAM roles; the cluster is on EKS, and the hub is on EKS or uses aws-iam-authenticator), or both.")
	flags.StringSliceVar(&i.auth, "registration-drivers", i.auth, "Same as --registration-auth, for compatibility with the OCM clusteradm.")
	flags.StringVar(&i.hubARN, "hub-cluster-arn", "", "ARN of the hub's EKS cluster, or of a hub with aws-iam-authenticator, for aws-irsa. Defaults to the name of the cluster in the kubeconfig if it is an ARN.")
	flags.StringVar(&i.hubARN, "eks-hub-cluster-arn", "", "Same as --hub-cluster-arn.")
	flags.StringVar(&i.server, "hub-apiserver", "", "URL at which managed clusters reach the hub. Defaults to the URL in the kubeconfig.")
	flags.StringVar(&i.apiserver, "apiserver", i.apiserver, "deploy runs the server on the hub. external installs all objects except its Deployment, Service and APIServices, for a server that runs elsewhere.")
	flags.BoolVar(&i.output, "output-manifests", false, "Print the manifests and apply nothing.")
	flags.DurationVar(&i.probeTimeout, "csr-probe-timeout", i.probeTimeout, "Time within which the hub must sign a test certificate. 0 skips the test.")
	flags.DurationVar(&i.tokenDuration, "token-duration", i.tokenDuration, "Lifetime of the printed token.")
	flags.BoolVar(&i.beforeMigration, "before-migration", false, "Install the server on a hub that runs OCM so that clusteradm migrate can move its objects to it. Until then, the server serves none of them and changes nothing.")
	flags.BoolVar(&i.standby, "standby", false, "Install a hub that waits to adopt the clusters of another hub. Until clusteradm hub adopt, or clusteradm init --standby=false, the server registers no clusters.")
	i.hub.addFlags(flags)
	i.AddFlags(flags, "hub", "Wait until the server serves.")
	return command
}

// NewUpgrade returns the command clusteradm upgrade hub.
func NewUpgrade(env cli.Environment) *cobra.Command {
	i := newInitializing(env)
	i.Upgrade = true
	command := &cobra.Command{
		Use:     "hub",
		Aliases: []string{"clustermanager"},
		Short:   "Upgrade the server on the hub of the current context",
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&i.Timeout, i.run),
	}
	i.hub.image.AddFlags(command.Flags(), "server")
	i.AddFlags(command.Flags(), "hub", "Wait until the server serves.")
	return command
}

func (i *initializing) complete() error {
	var err error
	i.hub.drivers, err = program.ParseDrivers(i.auth)
	errs := []error{
		err,
		cli.OneOf("apiserver", i.apiserver, program.Deploy, program.External),
		cli.Wrong(!i.hub.aws() && i.hubARN != "", "--hub-cluster-arn requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA),
		cli.Wrong(i.probeTimeout < 0, "--csr-probe-timeout must not be negative, not %s", i.probeTimeout),
		cli.Wrong(i.output && i.DryRun, "--output-manifests excludes --dry-run"),
		cli.Wrong(i.beforeMigration && (i.hub.existingOCM || i.apiserver == program.External || i.output), "--before-migration excludes --existing-ocm, --apiserver=external and --output-manifests"),
		cli.Wrong(i.standby && (i.beforeMigration || i.hub.existingOCM || i.output), "--standby excludes --before-migration, --existing-ocm and --output-manifests"),
		cli.Wrong(i.hub.localCluster && (i.apiserver != program.Deploy || i.standby || i.beforeMigration), "--local-cluster excludes --apiserver=external, --standby and --before-migration"),
	}
	if i.hub.aws() {
		arn, err := program.ClusterARN(i.ConfigFlags, "hub-cluster-arn", i.hubARN)
		errs, i.hub.arn = append(errs, err), &arn
	}
	errs = append(errs, checkToken(i.tokenDuration, i.server)...)
	if i.apiserver == program.Deploy {
		errs = append(errs, i.Choose(&i.hub.image, manifests.ServerName))
	}
	if i.hub.localCluster && i.hub.agentImage == "" {
		// In the repository of the server's image, if that is one of a release.
		registry, tag, ok := program.ReleaseOf(manifests.ServerName, i.hub.image.Image)
		i.hub.agentImage = registry + "/" + manifests.AgentImage + ":" + tag
		errs = append(errs, cli.Wrong(!ok, "--local-cluster requires --local-cluster-image, since the image of the server is not in the repository of a release"))
	}
	return errors.Join(append(errs, i.hub.complete()...)...)
}

func (i *initializing) run(ctx context.Context, _ []string) error {
	if i.output {
		if err := i.complete(); err != nil {
			return err
		}
		objects, err := i.objects()
		if err != nil {
			return err
		}
		return manifests.Write(i.Out, objects)
	}
	var err error
	if i.Clients, err = i.Connect(); err == nil {
		i.applier = manifests.NewApplier(i.Environment, i.Clients)
		i.installed, err = readServer(ctx, i.Kube)
	}
	if err != nil {
		return errors.Join(i.complete(), err)
	}
	if i.installed == nil && i.Upgrade {
		return fmt.Errorf("the hub has no Deployment %s in %s: upgrade the server where it runs, or install it with clusteradm init", manifests.ServerName, manifests.HubNamespace)
	}
	if err := i.keep(ctx); err != nil {
		return err
	}
	if err := i.complete(); err != nil {
		return err
	}
	if i.apiserver == program.Deploy && !i.beforeMigration && (i.installed == nil || i.Given("before-migration")) {
		if err := i.detectOCM(ctx); err != nil {
			return err
		}
	}
	if !i.DryRun && !i.Upgrade && !i.hub.existingOCM && i.hub.csr() && i.probeTimeout > 0 {
		if err := i.probe(ctx); err != nil {
			return err
		}
	}
	if err := i.install(ctx); err != nil || i.DryRun || i.Upgrade {
		return err
	}
	return i.next(ctx)
}

// keep sets to the state of the hub what no flag names.
func (i *initializing) keep(ctx context.Context) error {
	held, err := handover.Held(ctx, i.Kube)
	if err != nil {
		return err
	}
	if i.held = held && !i.Given("standby", "before-migration"); i.held {
		waits, err := i.waitsForMigration(ctx)
		if err != nil {
			return err
		}
		i.beforeMigration, i.standby = waits && i.apiserver == program.Deploy, !waits
	}
	if i.installed == nil {
		return i.keepElsewhere(ctx)
	}
	installed := &i.installed.settings
	if i.Reset {
		i.hub.existingOCM = i.hub.existingOCM || installed.existingOCM && !i.Given("existing-ocm", "before-migration")
		i.hub.storageClass = cmp.Or(i.hub.storageClass, installed.storageClass)
		return nil
	}
	i.Current = installed.image.Image
	if !i.Given("registration-auth", "registration-drivers") {
		i.auth = nil
		for _, driver := range installed.drivers {
			i.auth = append(i.auth, string(driver))
		}
	}
	// Errors are those of complete.
	if i.hub.drivers, _ = program.ParseDrivers(i.auth); i.hub.aws() && i.hubARN == "" && installed.arn != nil {
		i.hubARN = installed.arn.String()
	}
	i.hub.keep(installed, i.Given)
	if (i.beforeMigration || i.Given("before-migration")) && !i.Given("existing-ocm") {
		i.hub.existingOCM = false
	}
	if i.hub.serving == "" {
		return fmt.Errorf("the server has a certificate that init does not know, with --tls-cert-file=%s and --serving-certificate-secret=%s: give --serving-certificates, or change the hub by the means that installed it",
			cli.Printable(i.installed.Value("tls-cert-file", "")), cli.Printable(i.installed.Value("serving-certificate-secret", "")))
	}
	if i.Given("before-migration") && ptr.Deref(i.installed.Spec.Replicas, 1) == 0 {
		// A migration back has stopped the server.
		i.installed.Spec.Replicas = nil
	}
	return nil
}

// keepElsewhere does the same for a hub that has no Deployment of the server.
func (i *initializing) keepElsewhere(ctx context.Context) error {
	claim, err := cli.Optional(i.Kube.CoreV1().PersistentVolumeClaims(manifests.HubNamespace).Get(ctx, manifests.ServerName, metav1.GetOptions{}))
	if err != nil {
		return err
	}
	if claim != nil {
		i.hub.storageClass = cmp.Or(i.hub.storageClass, ptr.Deref(claim.Spec.StorageClassName, ""))
	}
	served, err := i.Forwards(ctx, rbacv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	if served && !i.Given("apiserver") {
		return fmt.Errorf("the hub forwards requests to a server, but has no Deployment %s in %s: give --apiserver=%s if the server runs elsewhere, or --apiserver=%s to install it",
			manifests.ServerName, manifests.HubNamespace, program.External, program.Deploy)
	}
	if i.apiserver != program.External || i.Given("registration-auth", "registration-drivers") || i.Reset {
		return nil
	}
	role, err := program.RoleOf(ctx, i.Kube, manifests.HubNamespace, manifests.ServerName)
	if err == nil && role != "" {
		i.hub.roleARN, i.hub.keepRole = role, true
		i.Warn("the flags of a server that runs elsewhere are not known. It has the IAM role %s: give --registration-auth.", cli.Printable(role))
	}
	return err
}

func (i *initializing) objects() ([]*unstructured.Unstructured, error) {
	if i.apiserver == program.External {
		return i.hub.access()
	}
	objects, err := i.hub.objects()
	if err != nil || i.installed == nil || i.Reset {
		return objects, err
	}
	settings := i.installed.settings
	if settings.serving == "" {
		// Its certificate is in files of another origin, and flags replace them.
		settings.serving = servingCertManager
	}
	before, err := settings.objects()
	if err != nil {
		return nil, err
	}
	return objects, i.installed.Keep(objects, before, &i.hub.resources, settings.arguments())
}

func (i *initializing) install(ctx context.Context) error {
	if err := handover.Unfinished(ctx, i.Kube); err != nil {
		return err
	}
	objects, err := i.objects()
	if err == nil && i.installed != nil && i.apiserver == program.Deploy {
		err = i.refuse(objects)
	}
	if err != nil {
		return err
	}
	hold := i.standby && !i.held
	if i.beforeMigration {
		objects, hold, err = i.stepAside(ctx, objects)
	}
	if err == nil && hold && i.standby {
		err = i.refuseClusters(ctx)
	}
	if err != nil {
		return err
	}
	if err := i.checkVolume(ctx); err != nil {
		return err
	}
	changes, err := i.applier.Plan(ctx, objects...)
	if err != nil {
		return err
	}
	if err := i.decide(ctx, objects, &changes); err != nil || i.DryRun {
		return err
	}
	if hold {
		// The namespace contains the Lease.
		next := 1 + slices.IndexFunc(changes, func(c manifests.Change) bool {
			return c.Manifest.GetKind() == manifests.KindNamespace && c.Manifest.GetName() == manifests.HubNamespace
		})
		if err := i.applier.Write(ctx, changes[:next]); err != nil {
			return err
		}
		if err := handover.Hold(ctx, i.Kube); err != nil {
			return err
		}
		changes = changes[next:]
	}
	if err := i.applier.Write(ctx, changes); err != nil {
		return err
	}
	if !i.standby && !i.beforeMigration && !i.held {
		// An installation for a migration that did not begin.
		if err := handover.Release(ctx, i.Kube); err != nil {
			return err
		}
	}
	return i.await(ctx, objects)
}

// await waits with --wait until the hub forwards requests to the server and, with --local-cluster, until its agent works.
func (i *initializing) await(ctx context.Context, objects []*unstructured.Unstructured) error {
	if !i.Wait || i.apiserver == program.External {
		return nil
	}
	i.Say("waiting for the server")
	if err := i.WaitForDeployment(ctx, i.Kube, manifests.HubNamespace, manifests.ServerName); err != nil {
		return err
	}
	var versions []string
	for _, object := range objects {
		if object.GetKind() == cli.KindAPIService {
			if err := i.WaitForAPIService(ctx, object.GetName(), cli.Unavailable); err != nil {
				return err
			}
			version, group, _ := strings.Cut(object.GetName(), ".")
			versions = append(versions, group+"/"+version)
		}
	}
	if err := i.WaitForVersions(ctx, versions); err != nil || !i.hub.localCluster {
		return err
	}
	i.Say("waiting for the agent of the hub")
	return i.WaitForDeployment(ctx, i.Kube, manifests.AgentNamespace, manifests.AgentName)
}

// refuse returns an error if the server would not serve its data after the change.
func (i *initializing) refuse(objects []*unstructured.Unstructured) error {
	if before := i.installed.settings.existingOCM; i.hub.existingOCM != before && !i.beforeMigration && !i.Given("before-migration") {
		return fmt.Errorf("--existing-ocm=%t: the server of the hub runs with %t, and would no longer serve the same kinds: run clusteradm migrate", i.hub.existingOCM, before)
	}
	return i.installed.losses(&i.hub, objects)
}

// decide adds the APIServices to remove to the changes, and returns an error without a confirmation that they require.
func (i *initializing) decide(ctx context.Context, objects []*unstructured.Unstructured, changes *[]manifests.Change) error {
	var reasons []string
	switch {
	case i.apiserver == program.External:
	case i.installed == nil:
		served, err := i.Forwards(ctx, rbacv1alpha1.SchemeGroupVersion)
		if err != nil {
			return err
		}
		if served {
			reasons = append(reasons, fmt.Sprintf("the Deployment %s in %s does not exist, so its settings are not known: it would get the settings of the flags, and the defaults", manifests.ServerName, manifests.HubNamespace))
		}
	default:
		reasons = i.installed.reasons(&i.hub, objects)
		gone, err := i.unserved(ctx)
		if err != nil {
			return err
		}
		*changes = append(*changes, gone...)
	}
	if i.hub.proxyAccounts && i.apiserver == program.Deploy {
		hides, err := i.hiddenByProxyAccounts(ctx)
		if err != nil {
			return err
		}
		reasons = append(reasons, hides...)
	}
	return i.Confirm(i.Environment, *changes, reasons)
}

// unserved returns the APIServices that the server no longer serves. They would keep the hub from deleting namespaces.
func (i *initializing) unserved(ctx context.Context) ([]manifests.Change, error) {
	before, err := i.installed.settings.objects()
	after, wrong := i.hub.objects()
	if err := cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	var gone []manifests.Change
	for _, object := range before {
		if served, _ := manifests.Find(after, object.GetKind(), object.GetName(), nil); object.GetKind() != cli.KindAPIService || served != nil {
			continue
		}
		live, err := i.applier.Live(ctx, object)
		if err != nil {
			return nil, err
		}
		if serviceOf(live) == serviceOf(object) {
			gone = append(gone, manifests.Change{Manifest: object, Live: live, Remove: true})
		}
	}
	return gone, nil
}

// serviceOf returns the Service of an APIService. It is empty without an APIService, and if the hub serves the version itself.
func serviceOf(object *unstructured.Unstructured) types.NamespacedName {
	if object == nil {
		return types.NamespacedName{}
	}
	namespace, _, _ := unstructured.NestedString(object.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "service", "name")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// refuseClusters returns an error if the hub has clusters, for which a standby hub would do nothing.
func (i *initializing) refuseClusters(ctx context.Context) error {
	list, err := i.Dynamic.Resource(clusterv1.SchemeGroupVersion.WithResource("managedclusters")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return cli.IgnoreNotFound(err)
	}
	for n := range list.Items {
		if cluster := &list.Items[n]; !handover.OnlyRequests(cluster) {
			return fmt.Errorf("the hub has clusters, such as %s: a standby hub must have none", cli.Printable(cluster.GetName()))
		}
	}
	return nil
}

func (i *initializing) next(ctx context.Context) error {
	if i.beforeMigration {
		i.Say("\nThe server is installed, and does nothing yet. Next:\n\n    clusteradm migrate --to server --dry-run")
		return nil
	}
	if i.hub.existingOCM {
		i.Say("\nThe server is installed. Clusters join as before.")
		return nil
	}
	join, err := newJoinCommand(ctx, i.Clients, &i.hub, i.server, i.tokenDuration, bootstrapToken)
	if err != nil {
		return err
	}
	if i.apiserver == program.External {
		i.Say("\nStart the server with: %s", irsa.ShellLine(i.hub.arguments()...))
	}
	if join.standby = i.standby; i.standby {
		i.Say("\nThe hub waits to adopt clusters. On the hub whose clusters it may adopt, run before %s\n\n%s", join.expires.Format(time.RFC3339), join)
		return nil
	}
	if i.hub.aws() {
		i.Say("\nIn AWS, the server assumes the role %s\nwhich must exist with the policies of %s", i.hub.roleARN, version.Docs("registration-aws.md#create-the-role-of-the-hub"))
	}
	i.Say("\nThe hub is ready for clusters to join. On each cluster, run until %s\n\n%s", join.expires.Format(time.RFC3339), join)
	if len(i.hub.drivers) > 1 {
		join.drivers = join.drivers[1:]
		i.Say("\nor\n\n%s", join)
	}
	i.Say("\nand then on the hub\n\n    clusteradm accept --clusters CLUSTER_NAME")
	return nil
}
