package rehome

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

// Keys of the record of an adoption, and phases before the last one.
const (
	adoptionArchive = "archive"
	adoptionTime    = "adopted-at"

	phaseImporting = "Importing"
	phaseRaising   = "RaisingEpoch"
	phaseRaised    = "EpochRaised"
)

type adoption struct {
	cli.Environment
	*cli.Clients
	dryRun bool
	// skip leaves out the objects that the hub refuses.
	skip    bool
	number  int64
	timeout time.Duration

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

func newAdopt(env cli.Environment) *cobra.Command {
	a := &adoption{Environment: env, timeout: 30 * time.Minute}
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
		RunE: cli.Within(&a.timeout, a.run),
	}
	flags := command.Flags()
	flags.BoolVar(&a.dryRun, "dry-run", false, "Check everything and change nothing.")
	flags.BoolVar(&a.skip, "skip-refused", false, "Leave out the objects that this hub refuses or would change, and list them. Without this flag, the command then changes nothing.")
	flags.Int64Var(&a.number, "epoch", 0, "Epoch of this hub. Defaults to the epoch in the file plus 1. If a third hub has adopted the clusters after the export, it must be higher than the epoch of that hub.")
	flags.DurationVar(&a.timeout, "timeout", a.timeout, "Maximum duration of the command.")
	return command
}

func (a *adoption) run(ctx context.Context, args []string) error {
	// An epoch must be able to follow.
	if a.number < 0 || a.number >= rehoming.MaxEpochNumber {
		return fmt.Errorf("--epoch must be between 1 and %d, not %d", int64(rehoming.MaxEpochNumber-1), a.number)
	}
	var err error
	if a.archive, err = readArchive(args[0]); err != nil {
		return err
	}
	if _, err := a.next(); err != nil {
		return err
	}
	if a.Clients, err = a.Connect(); err != nil {
		return err
	}
	if err := a.resume(ctx); err != nil {
		return err
	}
	if a.phase == handover.AdoptionDone {
		a.Say("the hub has already adopted the clusters of this file, with epoch %d", a.epoch.Number)
		return nil
	}
	findings, err := a.obstacles(ctx)
	if err != nil {
		return err
	}
	if err := a.Refuse(findings); err != nil {
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
		a.Say("the adoption is possible, with epoch %d; nothing was changed", a.epoch.Number)
		return nil
	}
	if err := handover.RunSteps(ctx, a.Environment, "run the command again to continue", a.steps()); err != nil {
		return err
	}
	a.summarize()
	return nil
}

// steps returns the steps that are left after the recorded phase.
func (a *adoption) steps() []handover.Step {
	record := func(phase string) func(context.Context) error {
		return func(ctx context.Context) error { return a.record(ctx, phase) }
	}
	// The server refuses to raise the epoch once its controllers may run.
	steps := []handover.Step{
		{Name: "reserve the IAM identities of the clusters", Run: a.claimRoles},
		{Name: "start the controllers of the server", Run: func(ctx context.Context) error { return handover.Release(ctx, a.Kube) }},
		{Name: "record the end of the adoption", Run: record(handover.AdoptionDone)},
	}
	if a.phase == phaseRaised {
		return steps
	}
	// Once a cluster may have the epoch, agents and users work with this hub, and the file is outdated. To raise the epoch again
	// changes nothing.
	steps = append([]handover.Step{
		{Name: "raise the epoch", Run: a.raise},
		{Name: "record that the epoch is raised", Run: record(phaseRaised)},
	}, steps...)
	if a.phase == phaseRaising {
		return steps
	}
	return append([]handover.Step{
		{Name: "check all objects", Run: a.check},
		{Name: "record the adoption", Run: record(phaseImporting)},
		{Name: "stop the controllers of the server", Run: func(ctx context.Context) error { return handover.Hold(ctx, a.Kube) }},
		{Name: "create namespaces", Run: func(ctx context.Context) error { return a.createNamespaces(ctx, metav1.CreateOptions{}) }},
		{Name: "wait until all replicas have stopped", Run: func(ctx context.Context) error { return handover.WaitNoticed(ctx, a.Kube) }},
		{Name: "import the objects", Run: a.importAll},
		{Name: "record that all objects are imported", Run: record(phaseRaising)},
	}, steps...)
}

// next returns the number of the epoch of this hub, which follows that of the exported hub.
func (a *adoption) next() (int64, error) {
	former := a.archive.Epoch
	number, err := rehoming.NextEpoch(former)
	if err != nil {
		return 0, fmt.Errorf("the epoch in the file is not that of a hub: %w", err)
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
	state, err := a.Kube.CoreV1().ConfigMaps(manifests.HubNamespace).Get(ctx, handover.AdoptionState, metav1.GetOptions{})
	if err != nil {
		return cli.IgnoreNotFound(err)
	}
	if id := state.Data[adoptionArchive]; id != a.archive.ID {
		return fmt.Errorf("the hub adopts or has adopted the clusters of another file, with ID %s, not %s: continue with that file, or use another hub", cli.Printable(id), a.archive.ID)
	}
	if a.epoch, err = rehoming.ParseEpoch(state.Data[handover.AdoptionEpoch]); err != nil {
		return fmt.Errorf("ConfigMap %s in %s: %w", handover.AdoptionState, manifests.HubNamespace, err)
	}
	if a.number != 0 && a.number != a.epoch.Number {
		return fmt.Errorf("--epoch cannot change once an adoption has begun: it is %d", a.epoch.Number)
	}
	if a.epoch.Number < number {
		return fmt.Errorf("ConfigMap %s in %s: agents would not obey this hub, because its epoch is %d, and must be at least %d", handover.AdoptionState, manifests.HubNamespace, a.epoch.Number, number)
	}
	if a.at, err = time.Parse(time.RFC3339, state.Data[adoptionTime]); err != nil {
		return fmt.Errorf("ConfigMap %s in %s: %s: %w", handover.AdoptionState, manifests.HubNamespace, adoptionTime, err)
	}
	a.phase = state.Data[handover.AdoptionPhase]
	return nil
}

func (a *adoption) record(ctx context.Context, phase string) error {
	client := a.Kube.CoreV1().ConfigMaps(manifests.HubNamespace)
	data := map[string]string{
		adoptionArchive: a.archive.ID, handover.AdoptionEpoch: a.epoch.String(), adoptionTime: a.at.Format(time.RFC3339), handover.AdoptionPhase: phase,
	}
	return cli.Persist(ctx, func(ctx context.Context) error {
		state, err := client.Get(ctx, handover.AdoptionState, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: handover.AdoptionState}, Data: data}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if state.Data[handover.AdoptionEpoch] != data[handover.AdoptionEpoch] {
			return errors.New("another process adopts clusters at the same time")
		}
		state.Data = data
		_, err = client.Update(ctx, state, metav1.UpdateOptions{})
		return err
	})
}

// obstacles returns what prevents an adoption.
func (a *adoption) obstacles(ctx context.Context) ([]cli.Finding, error) {
	var findings []cli.Finding
	for _, version := range append(handover.SwitchedVersions(), migrationv1alpha1.SchemeGroupVersion) {
		name := cli.APIServiceName(version)
		service, err := cli.Optional(a.APIServices.Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return nil, err
		}
		if service == nil {
			findings = append(findings, cli.Bad("APIService "+name, "it does not exist", "clusteradm init --wait"))
		} else if reason := cli.Unavailable(service); reason != "" {
			findings = append(findings, cli.Bad("APIService "+name, reason, "clusteradm doctor"))
		}
	}
	if len(findings) > 0 || a.phase != "" {
		return findings, nil
	}
	var stored []*unstructured.Unstructured
	requests := sets.New[string]()
	for _, kind := range handover.Kinds {
		objects, err := handover.ListAll(ctx, a.Dynamic, kind.Resource)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			switch {
			case servedAnyway(kind.Name, object.GetName()):
			case kind.Name == handover.KindManagedCluster && handover.OnlyRequests(object):
				requests.Insert(string(object.GetUID()))
			default:
				stored = append(stored, object)
			}
		}
	}
	for _, object := range stored {
		cluster, _, _ := unstructured.NestedString(object.Object, "spec", "managedClusterUID")
		if object.GetKind() != handover.KindRegistration || !requests.Has(cluster) {
			findings = append(findings, cli.Bad(manifests.Display(object), "the hub is not new", "use a hub without clusters, or delete the object"))
		}
	}
	return findings, nil
}

// servedAnyway reports whether the server creates an object itself.
func servedAnyway(kind, name string) bool {
	return kind == handover.KindClusterSet && (name == clusterv1beta2.DefaultClusterSet || name == clusterv1beta2.GlobalClusterSet)
}

// plan prepares the objects of the file for this hub, and sorts them.
func (a *adoption) plan() {
	clusters, drivers := map[string]*unstructured.Unstructured{}, map[string]string{}
	known := sets.New[types.UID]()
	for _, object := range a.archive.Objects {
		known.Insert(object.GetUID())
		switch object.GetKind() {
		case handover.KindManagedCluster:
			clusters[object.GetName()] = object
		case handover.KindRegistration:
			drivers[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "driver")
		}
	}
	for _, object := range a.archive.Objects {
		object.SetResourceVersion("")
		// The hub does not have these owners, so its garbage collector would delete the object.
		object.SetOwnerReferences(slices.DeleteFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return !known.Has(owner.UID) }))
		if object.GetKind() == handover.KindRegistration {
			a.adopt(object, clusters[object.GetName()])
		}
	}
	var unregistered []cli.Finding
	objects := slices.DeleteFunc(slices.Clone(a.archive.Objects), func(object *unstructured.Unstructured) bool {
		if object.GetKind() != handover.KindManagedCluster {
			return servedAnyway(object.GetKind(), object.GetName())
		}
		if drivers[object.GetName()] == "" && !handover.OnlyRequests(object) {
			unregistered = append(unregistered, cli.Warning(manifests.Display(object), "it is left out, because its registration is not in the file, so nothing shows which agent is its own", "join it again"))
			return true
		}
		// No agent obeys this epoch. raise sets the right one when everything is imported.
		annotate(object, rehoming.EpochAnnotation, rehoming.Epoch{Number: 0, Hub: a.epoch.Hub}.String())
		return false
	})
	_ = a.Refuse(unregistered) // warnings are no error
	a.waves = waves(objects)
}

// adopt prepares a registration for this hub. cluster is its ManagedCluster, or nil.
func (a *adoption) adopt(registration, cluster *unstructured.Unstructured) {
	key, decision := "", ""
	if cluster != nil {
		key = claimOf(cluster, rehoming.KeyClaim)
		decision, _, _ = unstructured.NestedString(cluster.Object, "status", "acceptance", "decidedAt")
	}
	driver, _, _ := unstructured.NestedString(registration.Object, "spec", "driver")
	byRole := driver == string(registerv1alpha1.DriverAWSIRSA)
	if byRole {
		a.addRoles(registration)
	}
	unstructured.RemoveNestedField(registration.Object, "status")
	unstructured.RemoveNestedField(registration.Object, "metadata", "annotations", rehoming.KeyAnnotation)
	annotate(registration, rehoming.AdoptedAnnotation, a.at.Format(time.RFC3339))
	annotate(registration, rehoming.DecisionAnnotation, decision)
	if key != "" {
		annotate(registration, rehoming.KeyAnnotation, key)
	} else if !byRole {
		a.unproved = append(a.unproved, registration.GetName())
	}
}

func annotate(object *unstructured.Unstructured, name, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	object.SetAnnotations(annotations)
}

// waves sorts objects into lists: owners before dependents, and then by kind. Anybody may write owner references, so a
// long chain of owners is cut.
func waves(objects []*unstructured.Unstructured) [][]*unstructured.Unstructured {
	var out [][]*unstructured.Unstructured
	for round := 0; len(objects) > 0; round++ {
		left := sets.New[types.UID]()
		for _, object := range objects {
			left.Insert(object.GetUID())
		}
		ready := func(object *unstructured.Unstructured) bool {
			return round == len(handover.Kinds) || !slices.ContainsFunc(object.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return left.Has(owner.UID) })
		}
		byKind := map[int][]*unstructured.Unstructured{}
		for _, object := range objects {
			if ready(object) {
				i := slices.IndexFunc(handover.Kinds, func(kind handover.Kind) bool { return kind.Name == object.GetKind() })
				byKind[i] = append(byKind[i], object)
			}
		}
		for _, i := range slices.Sorted(maps.Keys(byKind)) {
			out = append(out, byKind[i])
		}
		objects = slices.DeleteFunc(objects, ready)
	}
	return out
}

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
	return errors.Join(a.createNamespaces(ctx, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}), a.importWaves(ctx, a.waves, metav1.DryRunAll))
}

func (a *adoption) importAll(ctx context.Context) error {
	if err := a.importWaves(ctx, a.waves); err != nil {
		return err
	}
	for _, object := range a.archive.Objects {
		if servedAnyway(object.GetKind(), object.GetName()) {
			if err := a.copySet(ctx, object); err != nil {
				return err
			}
		}
	}
	printCounts(a.Environment, slices.Concat(a.waves...))
	return nil
}

// copySet copies a ManagedClusterSet that the server has created itself.
func (a *adoption) copySet(ctx context.Context, set *unstructured.Unstructured) error {
	copied := manifests.Named(set.GetAPIVersion(), set.GetKind(), "", set.GetName())
	copied.SetLabels(set.GetLabels())
	copied.SetAnnotations(set.GetAnnotations())
	copied.Object["spec"] = set.Object["spec"]
	_, err := a.Dynamic.Resource(clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets")).
		Apply(ctx, set.GetName(), copied, metav1.ApplyOptions{FieldManager: cli.FieldManager, Force: true})
	return cli.Prefix(err, "%s", manifests.Display(set))
}

// raise gives all clusters the epoch of this hub, by which their agents obey it. It changes nothing else: agents and users
// may already have changed the clusters, or deleted them.
func (a *adoption) raise(ctx context.Context) error {
	clusters := slices.DeleteFunc(slices.Clone(a.archive.Objects), func(object *unstructured.Unstructured) bool { return object.GetKind() != handover.KindManagedCluster })
	return cli.ForEach(clusters, func(object *unstructured.Unstructured) error {
		_, err := handover.Import(ctx, a.Dynamic, map[string]any{"epoch": map[string]any{"managedCluster": object.GetName(), "epoch": a.epoch.String()}})
		// If the hub does not forward the request, the cluster may exist.
		if cli.Missing(err) {
			return nil
		}
		return cli.Prefix(err, "%s", manifests.Display(object))
	})
}

func (a *adoption) importWaves(ctx context.Context, waves [][]*unstructured.Unstructured, dryRun ...string) error {
	var findings []cli.Finding
	left, unregistered := sets.New[types.UID](), sets.New[string]()
	// Without the adopted registration, the server would register the cluster like any other, and approve its first agent.
	isLeft := func(object *unstructured.Unstructured) bool {
		return left.Has(object.GetUID()) || object.GetKind() == handover.KindManagedCluster && unregistered.Has(object.GetName())
	}
	for i := range waves {
		waves[i] = slices.DeleteFunc(waves[i], isLeft)
		if err := handover.ImportObjects(ctx, a.Dynamic, waves[i], true, dryRun, func(object *unstructured.Unstructured, problem string) {
			if !a.skip {
				findings = append(findings, cli.Bad(manifests.Display(object), problem, "use the release of the exported hub, change the object there and export again, or use --skip-refused"))
				return
			}
			cause := "it is left out: "
			if object.GetKind() == handover.KindRegistration {
				cause = "it is left out with its ManagedCluster: "
				unregistered.Insert(object.GetName())
			}
			findings = append(findings, cli.Warning(manifests.Display(object), cause+problem, ""))
			left.Insert(object.GetUID())
		}); err != nil {
			return err
		}
		waves[i] = slices.DeleteFunc(waves[i], isLeft)
	}
	cli.SortBySubject(findings)
	return a.Refuse(findings)
}

func (a *adoption) createNamespaces(ctx context.Context, options metav1.CreateOptions) error {
	return cli.ForEach(a.archive.Namespaces, func(namespace archivedNamespace) error {
		return cli.Prefix(cli.Persist(ctx, func(ctx context.Context) error {
			_, err := a.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: namespace.Name, Labels: namespace.Labels, Annotations: namespace.Annotations,
			}}, options)
			return cli.IgnoreAlreadyExists(err)
		}), "namespace %s", namespace.Name)
	})
}

func (a *adoption) summarize() {
	a.Say("\nThis hub has adopted the clusters, with epoch %d. Agents with a standby hub move to it now; see\n\n    kubectl get managedclusters", a.epoch.Number)
	if len(a.unproved) > 0 {
		slices.Sort(a.unproved)
		a.Say("\nThe agents of these clusters did not report a key, so their requests wait for you to accept them again:\n%s\n\n    clusteradm accept --clusters CLUSTER_NAME", cli.Printable(cli.Some(a.unproved)))
	}
	a.summarizeRoles()
}
