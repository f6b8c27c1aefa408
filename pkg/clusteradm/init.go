package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/signing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	modeDeploy   = "deploy"
	modeExternal = "external"

	servingSelfSigned  = "self-signed"
	servingCertManager = "cert-manager"

	defaultTimeout       = 5 * time.Minute
	defaultTokenDuration = 24 * time.Hour
	// probeName is the prefix of the request that checks whether the hub signs certificates.
	probeName = "clusteradm-probe"
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

// initializing is the command clusteradm init.
type initializing struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	auth          []string
	hubARN        string
	server        string
	apiserver     string
	output        bool
	wait          bool
	timeout       time.Duration
	probeTimeout  time.Duration
	tokenDuration time.Duration
	// beforeMigration is true if the server must not serve what the hub stores in CustomResourceDefinitions yet.
	beforeMigration bool
	// standby is true if the hub waits to adopt the clusters of another hub.
	standby bool
	hub     hubSettings

	installation
	// held is true if the server waits for a migration or an adoption, and keeps waiting.
	held bool
	// upgrade is true if only the image changes.
	upgrade bool
}

func newInit(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	i := &initializing{
		access: access, streams: streams, auth: []string{string(registerv1alpha1.DriverCSR)}, apiserver: modeDeploy,
		timeout: defaultTimeout, probeTimeout: signing.DefaultTimeout, tokenDuration: defaultTokenDuration, hub: newHubSettings(),
	}
	command := &cobra.Command{
		Use:   "init",
		Short: "Make the cluster of the current context a hub",
		Long: `Make the cluster of the current context a hub: install the server and its roles, and
print the command with which a managed cluster joins. If the hub is installed, the command changes
only what its flags name. Changes of the storage, the search engine or the number of replicas require
--yes, as do changes of fields that others have set.`,
		Example: initExample,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			i.parsed(command.Flags())
			return i.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&i.auth, "registration-auth", i.auth, "Registration drivers, by which agents authenticate: csr (client certificates that the hub signs), aws-irsa (AWS IAM roles; hub and cluster are on EKS), or both.")
	flags.StringSliceVar(&i.auth, "registration-drivers", i.auth, "Same as --registration-auth, for compatibility with the OCM clusteradm.")
	flags.StringVar(&i.hubARN, "hub-cluster-arn", "", "ARN of the hub's EKS cluster, for aws-irsa. Defaults to the name of the cluster in the kubeconfig if it is an ARN.")
	flags.StringVar(&i.hubARN, "eks-hub-cluster-arn", "", "Same as --hub-cluster-arn.")
	flags.StringVar(&i.server, "hub-apiserver", "", "URL at which managed clusters reach the hub. Defaults to the URL in the kubeconfig.")
	flags.StringVar(&i.apiserver, "apiserver", i.apiserver, "deploy runs the server on the hub. external installs all objects except its Deployment, Service and APIServices, for a server that runs elsewhere.")
	flags.BoolVar(&i.output, "output-manifests", false, "Print the manifests and apply nothing.")
	flags.BoolVar(&i.wait, "wait", false, "Wait until the server serves.")
	flags.DurationVar(&i.timeout, "timeout", i.timeout, "Maximum duration of the command.")
	flags.DurationVar(&i.probeTimeout, "csr-probe-timeout", i.probeTimeout, "Time within which the hub must sign a test certificate. 0 skips the test.")
	flags.DurationVar(&i.tokenDuration, "token-duration", i.tokenDuration, "Lifetime of the printed token.")
	flags.BoolVar(&i.beforeMigration, "before-migration", false, "Install the server on a hub that runs OCM so that clusteradm migrate can move its objects to it. Until then, the server serves none of them and changes nothing.")
	flags.BoolVar(&i.standby, "standby", false, "Install a hub that waits to adopt the clusters of another hub. Until clusteradm hub adopt, or clusteradm init --standby=false, the server registers no clusters.")
	i.hub.addFlags(flags)
	i.addFlags(flags, "hub")
	return command
}

// complete checks the flags and sets the defaults.
func (i *initializing) complete(installed *installedHub) error {
	var errs []error
	var err error
	if i.hub.drivers, err = parseDrivers(i.auth); err != nil {
		errs = append(errs, err)
	}
	if i.hub.aws() {
		arn, err := clusterARN(i.access, "hub-cluster-arn", i.hubARN)
		if err != nil {
			errs = append(errs, err)
		}
		i.hub.arn = &arn
	} else if i.hubARN != "" {
		errs = append(errs, fmt.Errorf("--hub-cluster-arn requires --registration-auth=%s", registerv1alpha1.DriverAWSIRSA))
	}
	if i.apiserver != modeDeploy && i.apiserver != modeExternal {
		errs = append(errs, fmt.Errorf("--apiserver must be %s or %s, not %q", modeDeploy, modeExternal, i.apiserver))
	}
	if i.tokenDuration < minTokenDuration {
		errs = append(errs, fmt.Errorf("--token-duration must be at least %s, not %s", minTokenDuration, i.tokenDuration))
	}
	if i.server != "" {
		if err := checkURL(i.server); err != nil {
			errs = append(errs, fmt.Errorf("--hub-apiserver: %w", err))
		}
	}
	if i.probeTimeout < 0 {
		errs = append(errs, fmt.Errorf("--csr-probe-timeout must not be negative, not %s", i.probeTimeout))
	}
	if i.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout must be more than 0, not %s", i.timeout))
	}
	if i.output && i.dryRun {
		errs = append(errs, errors.New("--output-manifests excludes --dry-run"))
	}
	if i.beforeMigration && (i.hub.existingOCM || i.apiserver == modeExternal || i.output) {
		errs = append(errs, errors.New("--before-migration excludes --existing-ocm, --apiserver=external and --output-manifests"))
	}
	if i.standby && (i.beforeMigration || i.hub.existingOCM || i.output) {
		errs = append(errs, errors.New("--standby excludes --before-migration, --existing-ocm and --output-manifests"))
	}
	if i.apiserver == modeDeploy {
		image := ""
		if installed != nil && !i.reset {
			image = installed.image()
		}
		if i.hub.image.image, err = i.hub.image.of(serverName, image, version.Short()); err != nil {
			errs = append(errs, err)
		}
	}
	if i.hub.localCluster {
		if i.apiserver != modeDeploy || i.standby || i.beforeMigration {
			errs = append(errs, errors.New("--local-cluster excludes --apiserver=external, --standby and --before-migration"))
		}
		// In the repository of the server's image, if that is one of a release.
		if registry, tag, ok := releaseImage(serverName, i.hub.image.image); i.hub.agentImage == "" && ok {
			i.hub.agentImage = registry + "/" + agentImage + ":" + tag
		} else if i.hub.agentImage == "" {
			errs = append(errs, errors.New("--local-cluster requires --local-cluster-image, since the image of the server is not in the repository of a release"))
		}
	}
	errs = append(errs, i.hub.complete()...)
	return errors.Join(errs...)
}

// checkURL returns an error unless the address is an https URL, because tokens are sent
// to it.
func checkURL(address string) error {
	parsed, err := url.Parse(address)
	if err != nil {
		return err
	}
	if parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("must be a URL like https://hub.example.com:6443, not %q", address)
	}
	return nil
}

func (i *initializing) run(ctx context.Context) error {
	if i.output {
		if err := i.complete(nil); err != nil {
			return err
		}
		objects, err := i.objects(nil)
		if err != nil {
			return err
		}
		return writeManifests(i.streams.Out, objects)
	}
	ctx, cancel := context.WithTimeout(ctx, max(i.timeout, time.Nanosecond))
	defer cancel()
	config, err := clientConfig(i.access)
	if err != nil {
		return errors.Join(i.complete(nil), err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	install, err := newInstaller(config, i.streams.Out)
	if err != nil {
		return err
	}
	installed, err := readServer(ctx, kube)
	if err != nil {
		return errors.Join(i.complete(nil), err)
	}
	if installed == nil && i.upgrade {
		return fmt.Errorf("the hub has no Deployment %s in %s: upgrade the server where it runs, or install it with clusteradm init", serverName, hubNamespace)
	}
	if err := i.keep(ctx, kube, install, installed); err != nil {
		return err
	}
	if err := i.complete(installed); err != nil {
		return err
	}
	if i.apiserver == modeDeploy && !i.beforeMigration && (installed == nil || i.given("before-migration")) {
		if err := i.detectOCM(ctx, install); err != nil {
			return err
		}
	}
	if !i.dryRun && !i.upgrade && !i.hub.existingOCM && i.hub.csr() && i.probeTimeout > 0 {
		if err := i.probe(ctx, kube); err != nil {
			return err
		}
	}
	if err := i.install(ctx, kube, install, installed); err != nil || i.dryRun || i.upgrade {
		return err
	}
	return i.next(ctx, kube, config)
}

// keep sets to the state of the hub what no flag names.
func (i *initializing) keep(ctx context.Context, kube kubernetes.Interface, install *installer, installed *installedHub) error {
	held, err := controllersHeld(ctx, kube)
	if err != nil {
		return err
	}
	if i.held = held && !i.given("standby", "before-migration"); i.held {
		waits, err := i.waitsForMigration(ctx, install)
		if err != nil {
			return err
		}
		i.beforeMigration, i.standby = waits && i.apiserver == modeDeploy, !waits
	}
	if installed == nil {
		return i.keepElsewhere(ctx, kube, install)
	}
	if i.reset {
		i.hub.existingOCM = i.hub.existingOCM || installed.settings.existingOCM && !i.given("existing-ocm", "before-migration")
		return nil
	}
	if !i.given("registration-auth", "registration-drivers") {
		i.auth = nil
		for _, driver := range installed.settings.drivers {
			i.auth = append(i.auth, string(driver))
		}
	}
	// Errors are those of complete.
	if i.hub.drivers, _ = parseDrivers(i.auth); i.hub.aws() && i.hubARN == "" && installed.settings.arn != nil {
		i.hubARN = installed.settings.arn.String()
	}
	i.hub.keep(&installed.settings, i.given)
	if (i.beforeMigration || i.given("before-migration")) && !i.given("existing-ocm") {
		i.hub.existingOCM = false
	}
	if i.hub.serving == "" {
		return fmt.Errorf("the server has a certificate that init does not know, with --tls-cert-file=%s and --serving-certificate-secret=%s: give --serving-certificates, or change the hub by the means that installed it",
			printable(installed.value("tls-cert-file", "")), printable(installed.value("serving-certificate-secret", "")))
	}
	if i.given("before-migration") && ptr.Deref(installed.deployment.Spec.Replicas, 1) == 0 {
		// A migration back has stopped the server.
		installed.deployment.Spec.Replicas = nil
	}
	return nil
}

// keepElsewhere does the same for a hub that has no Deployment of the server.
func (i *initializing) keepElsewhere(ctx context.Context, kube kubernetes.Interface, install *installer) error {
	served, err := install.aggregates(ctx, rbacv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	if served && !i.given("apiserver") {
		return fmt.Errorf("the hub forwards requests to a server, but has no Deployment %s in %s: give --apiserver=%s if the server runs elsewhere, or --apiserver=%s to install it",
			serverName, hubNamespace, modeExternal, modeDeploy)
	}
	if i.apiserver != modeExternal || i.given("registration-auth", "registration-drivers") || i.reset {
		return nil
	}
	role, err := roleOf(ctx, kube, hubNamespace, serverName)
	if err == nil && role != "" {
		i.hub.roleARN, i.hub.keepRole = role, true
		i.warn("the flags of a server that runs elsewhere are not known. It has the IAM role %s: give --registration-auth.", printable(role))
	}
	return err
}

// waitsForMigration reports whether the hub still stores kinds that a migration moves to the server.
func (i *initializing) waitsForMigration(ctx context.Context, install *installer) (bool, error) {
	kinds, _, err := readKinds(ctx, install.client)
	if err != nil {
		return false, err
	}
	for _, kind := range kinds {
		if served, err := install.aggregates(ctx, kind.version); err != nil || !served {
			return err == nil, err
		}
	}
	return false, nil
}

// objects returns the objects to install.
func (i *initializing) objects(installed *installedHub) ([]*unstructured.Unstructured, error) {
	if i.apiserver == modeExternal {
		return i.hub.access()
	}
	objects, err := i.hub.objects()
	if err != nil || installed == nil || i.reset {
		return objects, err
	}
	settings := installed.settings
	if settings.serving == "" {
		// Its certificate is in files of another origin, and flags replace them.
		settings.serving = servingCertManager
	}
	before, err := settings.objects()
	if err != nil {
		return nil, err
	}
	return objects, installed.keep(objects, before, &i.hub.resources, installed.settings.arguments())
}

func (i *initializing) warn(format string, args ...any) {
	say(i.streams.ErrOut, "Warning: "+format, args...)
}

func (i *initializing) install(ctx context.Context, kube kubernetes.Interface, install *installer, installed *installedHub) error {
	switch frozen, err := writesFrozen(ctx, kube); {
	case err != nil && !apierrors.IsForbidden(err):
		return err
	case frozen:
		return errors.New("a migration has not ended: run clusteradm migrate again first")
	}
	if adopting, err := adoptionRuns(ctx, kube); err != nil {
		return err
	} else if adopting {
		return errors.New("an adoption has not ended: run clusteradm hub adopt again first")
	}
	objects, err := i.objects(installed)
	if err != nil {
		return err
	}
	if installed != nil && i.apiserver == modeDeploy {
		if err := i.refuse(installed, objects); err != nil {
			return err
		}
	}
	hold := i.standby && !i.held
	if i.beforeMigration {
		if objects, hold, err = i.stepAside(ctx, install, objects); err != nil {
			return err
		}
	}
	if hold && i.standby {
		if err := refuseClusters(ctx, install); err != nil {
			return err
		}
	}
	changes, err := install.plan(ctx, objects...)
	if err != nil {
		return err
	}
	if err := i.decide(ctx, install, installed, objects, &changes); err != nil || i.dryRun {
		return err
	}
	if hold {
		// The namespace contains the Lease.
		at := slices.IndexFunc(changes, func(c change) bool {
			return c.manifest.GetKind() == kindNamespace && c.manifest.GetName() == hubNamespace
		})
		if err := install.write(ctx, changes[at:at+1]); err != nil {
			return err
		}
		changes = slices.Delete(changes, at, at+1)
		if err := holdControllers(ctx, kube); err != nil {
			return err
		}
	}
	if err := install.write(ctx, changes); err != nil {
		return err
	}
	if !i.standby && !i.beforeMigration && !i.held {
		// An installation for a migration that did not begin.
		if err := releaseControllers(ctx, kube); err != nil {
			return err
		}
	}
	if !i.wait || i.apiserver == modeExternal {
		return nil
	}
	say(i.streams.Out, "waiting for the server")
	if err := waitForDeployment(ctx, kube, hubNamespace, serverName); err != nil {
		return err
	}
	if err := waitForAPIServices(ctx, install, objects); err != nil || !i.hub.localCluster {
		return err
	}
	say(i.streams.Out, "waiting for the agent of the hub")
	return waitForDeployment(ctx, kube, defaultAgentNamespace, agentName)
}

// refuse returns an error if the server would not serve its data after the change.
func (i *initializing) refuse(installed *installedHub, objects []*unstructured.Unstructured) error {
	if i.hub.existingOCM != installed.settings.existingOCM && !i.beforeMigration && !i.given("before-migration") {
		return fmt.Errorf("--existing-ocm=%t: the server of the hub runs with %t, and would no longer serve the same kinds: run clusteradm migrate", i.hub.existingOCM, installed.settings.existingOCM)
	}
	return installed.losses(&i.hub, objects)
}

// decide adds the APIServices that the changed settings remove to the changes. It returns an error if they require a
// confirmation that is not given. It prints them if the command only does that.
func (i *initializing) decide(ctx context.Context, install *installer, installed *installedHub, objects []*unstructured.Unstructured, changes *[]change) error {
	var reasons []string
	switch {
	case i.apiserver == modeExternal:
	case installed == nil:
		served, err := install.aggregates(ctx, rbacv1alpha1.SchemeGroupVersion)
		if err != nil {
			return err
		}
		if served {
			reasons = append(reasons, fmt.Sprintf("the Deployment %s in %s does not exist, so its settings are not known: it would get the settings of the flags, and the defaults", serverName, hubNamespace))
		}
	default:
		var err error
		if reasons, err = installed.reasons(&i.hub, objects); err != nil {
			return err
		}
		gone, err := i.unserved(ctx, install, installed)
		if err != nil {
			return err
		}
		*changes = append(*changes, gone...)
	}
	if i.hub.proxyAccounts && i.apiserver == modeDeploy {
		hides, err := hiddenByProxyAccounts(ctx, install)
		if err != nil {
			return err
		}
		reasons = append(reasons, hides...)
	}
	reasons = append(reasons, foreign(*changes, !i.reset)...)
	return i.confirm(i.streams, *changes, reasons)
}

// unserved returns the APIServices that the server no longer serves. They would keep the hub from deleting
// namespaces.
func (i *initializing) unserved(ctx context.Context, install *installer, installed *installedHub) ([]change, error) {
	searchEnds := i.hub.search == searchNone && installed.settings.search != searchNone
	if !searchEnds && (i.hub.proxyAccounts || !installed.settings.proxyAccounts) {
		return nil, nil
	}
	before, err := installed.settings.objects()
	if err != nil {
		return nil, err
	}
	after, err := i.hub.objects()
	if err != nil {
		return nil, err
	}
	var gone []change
	for _, object := range before {
		if object.GetKind() != kindAPIService || slices.ContainsFunc(after, func(other *unstructured.Unstructured) bool {
			return other.GetKind() == kindAPIService && other.GetName() == object.GetName()
		}) {
			continue
		}
		elsewhere, err := install.aggregatedElsewhere(ctx, object)
		if err != nil {
			return nil, err
		}
		live, err := install.client.Resource(apiServices).Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || elsewhere:
		case err != nil:
			return nil, err
		default:
			gone = append(gone, change{manifest: object, live: live, remove: true})
		}
	}
	return gone, nil
}

// refuseClusters returns an error if the hub has clusters, for which a standby hub would do nothing.
func refuseClusters(ctx context.Context, install *installer) error {
	list, err := install.client.Resource(clusterv1.SchemeGroupVersion.WithResource("managedclusters")).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range list.Items {
		if cluster := &list.Items[i]; !onlyRequests(cluster) {
			return fmt.Errorf("the hub has clusters, such as %s: a standby hub must have none", printable(cluster.GetName()))
		}
	}
	return nil
}

// rolesOfOCM are the ClusterRoles that an installation has in common with OCM, whose agents need its rules until the
// migration.
var rolesOfOCM = []string{"open-cluster-management:bootstrap", "open-cluster-management:managedcluster:registration", "open-cluster-management:managedcluster:work"}

// stepAside returns the objects without the APIServices of kinds that the hub stores and without existing ClusterRoles of
// OCM, and whether the server must not run its controllers.
func (i *initializing) stepAside(ctx context.Context, install *installer, objects []*unstructured.Unstructured) (kept []*unstructured.Unstructured, waiting bool, err error) {
	if kinds, _, err := readKinds(ctx, install.client); err != nil {
		return nil, false, err
	} else if len(kinds) == 0 {
		return nil, false, errors.New("the hub has no CustomResourceDefinitions of OCM: omit --before-migration")
	}
	versions := map[string]schema.GroupVersion{}
	for _, version := range switchedVersions() {
		versions[apiServiceName(version)] = version
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" && slices.Contains(rolesOfOCM, object.GetName()) {
			_, err := install.client.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")).Get(ctx, object.GetName(), metav1.GetOptions{})
			if err == nil {
				continue
			}
			if !apierrors.IsNotFound(err) {
				return nil, false, err
			}
		}
		if object.GetKind() == kindAPIService {
			elsewhere, err := install.aggregatedElsewhere(ctx, object)
			if err != nil {
				return nil, false, err
			}
			if elsewhere {
				continue
			}
			if version, moves := versions[object.GetName()]; moves {
				forwarded, err := install.aggregates(ctx, version)
				if err != nil {
					return nil, false, err
				}
				if !forwarded {
					waiting = true
					continue
				}
			}
		}
		kept = append(kept, object)
	}
	return kept, waiting, nil
}

// next prints the next steps.
func (i *initializing) next(ctx context.Context, kube kubernetes.Interface, config *rest.Config) error {
	if i.beforeMigration {
		say(i.streams.Out, "\nThe server is installed, and does nothing yet. Next:\n\n    clusteradm migrate --to %s --dry-run", toServer)
		return nil
	}
	if i.hub.existingOCM {
		say(i.streams.Out, "\nThe server is installed. Clusters join as before.")
		return nil
	}
	join, expires, err := newJoinCommand(ctx, kube, config, &i.hub, i.server, i.tokenDuration, bootstrapToken)
	if err != nil {
		return err
	}
	if i.apiserver == modeExternal {
		say(i.streams.Out, "\nStart the server with: %s", irsa.ShellLine(i.hub.arguments()...))
	}
	if i.standby {
		say(i.streams.Out, "\nThe hub waits to adopt clusters. On the hub whose clusters it may adopt, run before %s\n\n%s", expires.Format(time.RFC3339), join.standby())
		return nil
	}
	if i.hub.aws() {
		say(i.streams.Out, "\nIn AWS, the server assumes the role %s\nwhich must exist with the policies of docs/registration-aws.md.", i.hub.roleARN)
	}
	say(i.streams.Out, "\nThe hub is ready for clusters to join. On each cluster, run until %s\n\n%s", expires.Format(time.RFC3339), join)
	if len(i.hub.drivers) > 1 {
		join.drivers = join.drivers[1:]
		say(i.streams.Out, "\nor\n\n%s", join)
	}
	say(i.streams.Out, "\nand then on the hub\n\n    clusteradm accept --clusters CLUSTER_NAME")
	return nil
}

// waitForAPIServices waits until the hub proxies requests to the server.
func waitForAPIServices(ctx context.Context, install *installer, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != kindAPIService {
			continue
		}
		resource, err := install.resource(object)
		if err != nil {
			return err
		}
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			current, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return unavailable(current), nil
		}); err != nil {
			return fmt.Errorf("APIService %s: %w", object.GetName(), err)
		}
	}
	return nil
}
