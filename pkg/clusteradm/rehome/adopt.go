package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// adoptionState is the ConfigMap in the namespace of the server that records the adoption. With it, an interrupted
// adoption continues.
const adoptionState = "hub-adoption"

// Keys of that ConfigMap, and the values of the last one.
const (
	adoptionArchive = "archive"
	adoptionEpoch   = "epoch"
	adoptionTime    = "adopted-at"
	adoptionPhase   = "phase"

	phaseImporting = "Importing"
	phaseRaising   = "RaisingEpoch"
	phaseRaised    = "EpochRaised"
	phaseDone      = "Done"
)

// adoption is the command clusteradm hub adopt.
type adoption struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams
	dryRun  bool
	// skip leaves out the objects that the hub refuses.
	skip    bool
	number  int64
	timeout time.Duration

	kube    kubernetes.Interface
	client  dynamic.Interface
	install *installer
	archive *archive
	// epoch is the epoch of this hub, and at the time of the adoption. They stay the same when the command is run again.
	epoch rehoming.Epoch
	at    time.Time
	phase string
	// waves are the objects in the order in which they are imported: owners before dependents, which the garbage collector
	// of the hub would otherwise delete.
	waves [][]*unstructured.Unstructured
	// unproved are the clusters whose agents have to be accepted again.
	unproved []string
	// roles are the clusters that authenticate with IAM roles. offersRoles is true if this hub enables their driver.
	roles       []*iamCluster
	offersRoles bool
}

func newHubAdopt(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	a := &adoption{access: access, streams: streams, timeout: 30 * time.Minute}
	command := &cobra.Command{
		Use:   "adopt FILE",
		Short: "Take over the clusters of a hub that is lost",
		Long: `Take over all clusters of another hub from a file of clusteradm hub export. The hub of the current context must be new:
clusteradm init has installed the server, and it has no clusters. From then on, agents obey this hub only, even if the
other hub returns. Objects on the managed clusters stay as they are. If the command is interrupted, run it again.`,
		Example: `  clusteradm init --wait
  clusteradm hub adopt /backup/hub.gz --dry-run
  clusteradm hub adopt /backup/hub.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error { return a.run(command.Context(), args[0]) },
	}
	flags := command.Flags()
	flags.BoolVar(&a.dryRun, "dry-run", false, "Check everything and change nothing.")
	flags.BoolVar(&a.skip, "skip-refused", false, "Leave out the objects that this hub refuses or would change, and list them. Without this flag, the command then changes nothing.")
	flags.Int64Var(&a.number, "epoch", 0, "Epoch of this hub. Defaults to the epoch in the file plus 1. If a third hub has adopted the clusters after the export, it must be higher than the epoch of that hub.")
	flags.DurationVar(&a.timeout, "timeout", a.timeout, "Maximum duration of the command.")
	return command
}

func (a *adoption) say(format string, args ...any) { say(a.streams.Out, format, args...) }

func (a *adoption) run(ctx context.Context, path string) error {
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0, not %s", a.timeout)
	}
	// An epoch must be able to follow.
	if a.number < 0 || a.number >= rehoming.MaxEpochNumber {
		return fmt.Errorf("--epoch must be between 1 and %d, not %d", int64(rehoming.MaxEpochNumber-1), a.number)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var err error
	if a.archive, err = readArchive(path); err != nil {
		return err
	}
	if _, err := a.next(); err != nil {
		return err
	}
	if err := a.connect(); err != nil {
		return err
	}
	if err := a.resume(ctx); err != nil {
		return err
	}
	if a.phase == phaseDone {
		a.say("the hub has already adopted the clusters of this file, with epoch %d", a.epoch.Number)
		return nil
	}
	findings, err := a.obstacles(ctx)
	if err != nil {
		return err
	}
	if err := a.refuse(findings); err != nil {
		return err
	}
	if a.offersRoles, err = a.enablesRoles(ctx); err != nil {
		return err
	}
	a.plan()
	if a.dryRun {
		if err := a.check(ctx); err != nil {
			return err
		}
		a.say("the adoption is possible, with epoch %d; nothing was changed", a.epoch.Number)
		return nil
	}
	finish := []step{
		{"reserve the IAM identities of the clusters", a.claimRoles},
		{"start the controllers of the server", func(ctx context.Context) error { return releaseControllers(ctx, a.kube) }},
		{"record the end of the adoption", func(ctx context.Context) error { return a.record(ctx, phaseDone) }},
	}
	raise := append([]step{
		{"raise the epoch", a.raise},
		{"record that the epoch is raised", func(ctx context.Context) error { return a.record(ctx, phaseRaised) }},
	}, finish...)
	steps := append([]step{
		{"check all objects", a.check},
		{"record the adoption", func(ctx context.Context) error { return a.record(ctx, phaseImporting) }},
		{"stop the controllers of the server", func(ctx context.Context) error { return holdControllers(ctx, a.kube) }},
		{"create namespaces", func(ctx context.Context) error { return a.createNamespaces(ctx, metav1.CreateOptions{}) }},
		{"wait until all replicas have stopped", func(ctx context.Context) error { return waitNoticed(ctx, a.kube) }},
		{"import the objects", a.importAll},
		{"record that all objects are imported", func(ctx context.Context) error { return a.record(ctx, phaseRaising) }},
	}, raise...)
	// Once a cluster may have the epoch, agents and users work with this hub, and the file is outdated.
	switch a.phase {
	case phaseRaising:
		steps = raise
	case phaseRaised:
		steps = finish
	}
	if err := runSteps(ctx, a.streams.Out, "run the command again to continue", steps); err != nil {
		return err
	}
	a.summarize()
	return nil
}

func (a *adoption) connect() error {
	config, err := clientConfig(a.access)
	if err != nil {
		return err
	}
	// A finding reports what the server does not store.
	config.WarningHandler = rest.NoWarnings{}
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if a.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	a.install, err = newInstaller(config, a.streams.Out)
	return err
}

// next returns the number of the epoch of this hub, which follows that of the exported hub.
func (a *adoption) next() (int64, error) {
	former := a.archive.header.Epoch
	number, err := rehoming.NextEpoch(former)
	if err != nil {
		// An earlier release exported the epoch that a cluster without acceptance claimed.
		former, _ = highestEpoch(a.archive.objects)
		if a.number == 0 {
			return 0, fmt.Errorf("the epoch in the file is not that of a hub: %w; use --epoch with a number that is higher than the epoch of each hub that has adopted the clusters. In the file, the highest of an accepted cluster is %d", err, former)
		}
	}
	if a.number == 0 {
		return number, nil
	}
	if a.number <= former {
		return 0, fmt.Errorf("--epoch must be higher than the epoch of the exported hub, %d, not %d", former, a.number)
	}
	return a.number, nil
}

// resume reads the state of an adoption that was interrupted, or begins a new one.
func (a *adoption) resume(ctx context.Context) error {
	number, err := a.next()
	if err != nil {
		return err
	}
	a.epoch = rehoming.Epoch{Number: number, Hub: string(uuid.NewUUID())}
	a.at = time.Now().UTC().Truncate(time.Second)
	state, err := a.kube.CoreV1().ConfigMaps(hubNamespace).Get(ctx, adoptionState, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if id := state.Data[adoptionArchive]; id != a.archive.header.ID {
		return fmt.Errorf("the hub adopts or has adopted the clusters of another file, with ID %s, not %s: continue with that file, or use another hub", printable(id), a.archive.header.ID)
	}
	if a.epoch, err = rehoming.ParseEpoch(state.Data[adoptionEpoch]); err != nil {
		return fmt.Errorf("ConfigMap %s in %s: %w", adoptionState, hubNamespace, err)
	}
	if a.number != 0 && a.number != a.epoch.Number {
		return fmt.Errorf("--epoch cannot change once an adoption has begun: it is %d", a.epoch.Number)
	}
	if a.epoch.Number < number {
		return fmt.Errorf("ConfigMap %s in %s: agents would not obey this hub, because its epoch is %d, and must be at least %d", adoptionState, hubNamespace, a.epoch.Number, number)
	}
	if a.at, err = time.Parse(time.RFC3339, state.Data[adoptionTime]); err != nil {
		return fmt.Errorf("ConfigMap %s in %s: %s: %w", adoptionState, hubNamespace, adoptionTime, err)
	}
	a.phase = state.Data[adoptionPhase]
	return nil
}

// adoptionRuns reports whether an adoption has begun and not ended.
func adoptionRuns(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	state, err := kube.CoreV1().ConfigMaps(hubNamespace).Get(ctx, adoptionState, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && state.Data[adoptionPhase] != phaseDone, err
}

// record writes the state of the adoption.
func (a *adoption) record(ctx context.Context, phase string) error {
	client := a.kube.CoreV1().ConfigMaps(hubNamespace)
	data := map[string]string{
		adoptionArchive: a.archive.header.ID, adoptionEpoch: a.epoch.String(), adoptionTime: a.at.Format(time.RFC3339), adoptionPhase: phase,
	}
	return persist(ctx, func(ctx context.Context) error {
		state, err := client.Get(ctx, adoptionState, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: adoptionState}, Data: data}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if state.Data[adoptionEpoch] != data[adoptionEpoch] {
			return errors.New("another process adopts clusters at the same time")
		}
		state.Data = data
		_, err = client.Update(ctx, state, metav1.UpdateOptions{})
		return err
	})
}

// obstacles returns what prevents an adoption.
func (a *adoption) obstacles(ctx context.Context) ([]finding, error) {
	var findings []finding
	checked := sets.New[string]()
	for _, version := range append(switchedVersions(), migrationv1alpha1.SchemeGroupVersion) {
		name := apiServiceName(version)
		if checked.Has(name) {
			continue
		}
		checked.Insert(name)
		service, err := a.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			findings = append(findings, bad("APIService "+name, "it does not exist", "clusteradm init --wait"))
		case err != nil:
			return nil, err
		default:
			if reason := unavailable(service); reason != "" {
				findings = append(findings, bad("APIService "+name, reason, "clusteradm doctor"))
			}
		}
	}
	if len(findings) > 0 || a.phase != "" {
		return findings, nil
	}
	var stored []*unstructured.Unstructured
	requests := sets.New[string]()
	for _, kind := range ExportedKinds() {
		list, err := a.client.Resource(kind.Resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource.GroupResource(), err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			switch {
			case servedAnyway(kind.Kind, object.GetName()):
			case kind.Kind == kindManagedCluster && onlyRequests(object):
				requests.Insert(string(object.GetUID()))
			default:
				stored = append(stored, object)
			}
		}
	}
	for _, object := range stored {
		if of, _, _ := unstructured.NestedString(object.Object, "spec", "managedClusterUID"); object.GetKind() == kindRegistration && requests.Has(of) {
			continue
		}
		findings = append(findings, bad(display(object), "the hub is not new", "use a hub without clusters, or delete the object"))
	}
	return findings, nil
}

// onlyRequests reports whether a ManagedCluster was never accepted. Anybody with a bootstrap token creates such clusters, so
// they do not show that the hub is in use. An adoption replaces those of its clusters.
func onlyRequests(cluster *unstructured.Unstructured) bool {
	for _, field := range [][]string{{"spec", "hubAcceptsClient"}, {"status", "acceptance", "accepted"}, {"status", "acceptance", "everAccepted"}} {
		if yes, _, _ := unstructured.NestedBool(cluster.Object, field...); yes {
			return false
		}
	}
	return true
}

// servedAnyway reports whether the server creates an object itself.
func servedAnyway(kind, name string) bool {
	return kind == kindClusterSet && (name == clusterv1beta2.DefaultClusterSet || name == clusterv1beta2.GlobalClusterSet)
}

func (a *adoption) refuse(findings []finding) error { return refuse(a.streams.Out, findings) }

// plan prepares the objects of the file for this hub, and sorts them.
func (a *adoption) plan() {
	keys, drivers, decisions := map[string]string{}, map[string]string{}, map[string]string{}
	known := map[types.UID]*unstructured.Unstructured{}
	for _, object := range a.archive.objects {
		known[object.GetUID()] = object
		switch object.GetKind() {
		case kindManagedCluster:
			keys[object.GetName()] = claimOf(object, rehoming.KeyClaim)
			decisions[object.GetName()], _, _ = unstructured.NestedString(object.Object, "status", "acceptance", "decidedAt")
		case kindRegistration:
			drivers[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "driver")
		}
	}
	depths := map[types.UID]int{}
	for _, object := range a.archive.objects {
		// The hub does not have these owners, so its garbage collector would delete the object.
		object.SetOwnerReferences(slices.DeleteFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return known[owner.UID] == nil }))
	}
	var depthOf func(object *unstructured.Unstructured, above int) int
	depthOf = func(object *unstructured.Unstructured, above int) int {
		if depth, done := depths[object.GetUID()]; done {
			return depth
		}
		depth := 0
		for _, owner := range object.GetOwnerReferences() {
			if above < len(ExportedKinds()) {
				depth = max(depth, 1+depthOf(known[owner.UID], above+1))
			}
		}
		depths[object.GetUID()] = depth
		return depth
	}
	order := map[string]int{}
	for i, kind := range ExportedKinds() {
		order[kind.Kind] = i
	}
	waves := map[[2]int][]*unstructured.Unstructured{}
	var unregistered []finding
	for _, object := range a.archive.objects {
		name := object.GetName()
		object.SetResourceVersion("")
		switch object.GetKind() {
		case kindRegistration:
			byRole := drivers[name] == string(registerv1alpha1.DriverAWSIRSA)
			if byRole {
				a.addRoles(object)
			}
			unstructured.RemoveNestedField(object.Object, "status")
			annotations := object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[rehoming.AdoptedAnnotation] = a.at.Format(time.RFC3339)
			annotations[rehoming.DecisionAnnotation] = decisions[name]
			delete(annotations, rehoming.KeyAnnotation)
			if keys[name] != "" {
				annotations[rehoming.KeyAnnotation] = keys[name]
			} else if !byRole {
				a.unproved = append(a.unproved, name)
			}
			object.SetAnnotations(annotations)
		case kindManagedCluster:
			if drivers[name] == "" && !onlyRequests(object) {
				unregistered = append(unregistered, warning(display(object), "it is left out, because its registration is not in the file, so nothing shows which agent is its own", "join it again"))
				continue
			}
			// No agent obeys this epoch. raise sets the right one when everything is imported.
			setEpoch(object, rehoming.Epoch{Number: 0, Hub: a.epoch.Hub})
		case kindClusterSet:
			if servedAnyway(kindClusterSet, name) {
				continue
			}
		}
		wave := [2]int{depthOf(object, 0), order[object.GetKind()]}
		waves[wave] = append(waves[wave], object)
	}
	var sorted [][2]int
	for wave := range waves {
		sorted = append(sorted, wave)
	}
	slices.SortFunc(sorted, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
	for _, wave := range sorted {
		a.waves = append(a.waves, waves[wave])
	}
	_ = a.refuse(unregistered) // warnings are no error
}

func setEpoch(cluster *unstructured.Unstructured, epoch rehoming.Epoch) {
	annotations := cluster.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[rehoming.EpochAnnotation] = epoch.String()
	cluster.SetAnnotations(annotations)
}

// claimOf returns the value of a claim of a ManagedCluster.
func claimOf(cluster *unstructured.Unstructured, name string) string {
	claims, _, _ := unstructured.NestedSlice(cluster.Object, "status", "clusterClaims")
	for _, item := range claims {
		if claim, ok := item.(map[string]any); ok && claim["name"] == name {
			value, _ := claim["value"].(string)
			return value
		}
	}
	return ""
}

// check refuses namespaces and objects that the hub would refuse or change.
func (a *adoption) check(ctx context.Context) error {
	return errors.Join(a.createNamespaces(ctx, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}), a.importWaves(ctx, a.waves, true))
}

func (a *adoption) importAll(ctx context.Context) error {
	if err := a.importWaves(ctx, a.waves, false); err != nil {
		return err
	}
	for _, object := range a.archive.objects {
		if servedAnyway(object.GetKind(), object.GetName()) {
			if err := a.copySet(ctx, object); err != nil {
				return err
			}
		}
	}
	counts := map[string]int{}
	for _, object := range slices.Concat(a.waves...) {
		counts[object.GetKind()]++
	}
	for _, kind := range ExportedKinds() {
		a.say("%6d %s", counts[kind.Kind], kind.Resource.GroupResource())
	}
	return nil
}

// copySet copies a ManagedClusterSet that the server has created itself.
func (a *adoption) copySet(ctx context.Context, set *unstructured.Unstructured) error {
	client := a.client.Resource(clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets"))
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := client.Get(ctx, set.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			created := set.DeepCopy()
			unstructured.RemoveNestedField(created.Object, "status")
			created.SetUID("")
			_, err = client.Create(ctx, created, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		current.SetLabels(set.GetLabels())
		current.SetAnnotations(set.GetAnnotations())
		current.Object["spec"] = set.Object["spec"]
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", display(set), err)
	}
	return nil
}

// raise gives all clusters the epoch of this hub, by which their agents obey it. It changes nothing else: agents and users
// may already have changed the clusters, or deleted them.
func (a *adoption) raise(ctx context.Context) error {
	client := a.client.Resource(imports)
	clusters := slices.DeleteFunc(slices.Clone(a.archive.objects), func(object *unstructured.Unstructured) bool { return object.GetKind() != kindManagedCluster })
	return forEach(clusters, func(object *unstructured.Unstructured) error {
		raised := importRequest(map[string]any{"epoch": map[string]any{"managedCluster": object.GetName(), "epoch": a.epoch.String()}})
		err := persist(ctx, func(ctx context.Context) error {
			_, err := client.Create(ctx, raised, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		})
		// If the hub does not forward the request, the cluster may exist.
		if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", display(object), err)
		}
		return nil
	})
}

func (a *adoption) importWaves(ctx context.Context, waves [][]*unstructured.Unstructured, dryRun bool) error {
	var mu sync.Mutex
	var findings []finding
	left, unregistered := sets.New[types.UID](), sets.New[string]()
	// Without the adopted registration, the server would register the cluster like any other, and approve its first agent.
	isLeft := func(object *unstructured.Unstructured) bool {
		return left.Has(object.GetUID()) || object.GetKind() == kindManagedCluster && unregistered.Has(object.GetName())
	}
	for i := range waves {
		waves[i] = slices.DeleteFunc(waves[i], isLeft)
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(copyWorkers)
		for _, object := range waves[i] {
			group.Go(func() error {
				problem, err := importObject(ctx, a.client, object, map[string]any{"object": object.Object, "adopt": true}, dryRun)
				if err != nil || problem == "" {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if a.skip {
					cause := "it is left out: "
					if object.GetKind() == kindRegistration {
						cause = "it is left out with its ManagedCluster: "
						unregistered.Insert(object.GetName())
					}
					findings = append(findings, warning(display(object), cause+problem, ""))
					left.Insert(object.GetUID())
					return nil
				}
				findings = append(findings, bad(display(object), problem, "use the release of the exported hub, change the object there and export again, or use --skip-refused"))
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		waves[i] = slices.DeleteFunc(waves[i], isLeft)
	}
	slices.SortFunc(findings, func(x, y finding) int { return strings.Compare(x.Subject, y.Subject) })
	return a.refuse(findings)
}

func (a *adoption) createNamespaces(ctx context.Context, options metav1.CreateOptions) error {
	return forEach(a.archive.namespaces, func(namespace archivedNamespace) error {
		err := persist(ctx, func(ctx context.Context) error {
			_, err := a.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: namespace.Name, Labels: namespace.Labels, Annotations: namespace.Annotations,
			}}, options)
			return err
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", namespace.Name, err)
		}
		return nil
	})
}

// summarize prints what remains to be done.
func (a *adoption) summarize() {
	a.say("\nThis hub has adopted the clusters, with epoch %s. Agents with a standby hub move to it now; see\n\n    kubectl get managedclusters", strconv.FormatInt(a.epoch.Number, 10))
	names := func(list []string) string {
		slices.Sort(list)
		text := strings.Join(list[:min(len(list), maxListed)], ",")
		if len(list) > maxListed {
			text += fmt.Sprintf(" and %d more", len(list)-maxListed)
		}
		return printable(text)
	}
	if len(a.unproved) > 0 {
		a.say("\nThe agents of these clusters did not report a key, so their requests wait for you to accept them again:\n%s\n\n    clusteradm accept --clusters CLUSTER_NAME", names(a.unproved))
	}
	a.summarizeRoles()
}
