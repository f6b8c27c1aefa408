package clusteradm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
)

const (
	toServer = "server"
	toCRDs   = "crds"

	// watchesEndTimeout exceeds the two minutes for which a hub waits for requests before it ends watches.
	watchesEndTimeout = 3 * time.Minute
	// otherAPIServers is the time that the other API servers of a hub have to end their watches.
	otherAPIServers = 3 * time.Second
)

const migrateExample = `  # Move a hub that runs OCM to the server
  clusteradm init --before-migration --wait
  clusteradm migrate --to server --dry-run
  clusteradm migrate --to server

  # Remove what OCM stored, which gives up the way back
  clusteradm migrate --to server --delete-crds

  # Move it back
  clusteradm migrate --to crds --dry-run
  clusteradm migrate --to crds`

// migration moves the objects of a hub.
type migration struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	to      string
	dryRun  bool
	finish  bool
	stop    []string
	timeout time.Duration

	kube     kubernetes.Interface
	client   dynamic.Interface
	metadata metadata.Interface
	// other sends requests as the caller, whose writes are refused during a migration.
	other   dynamic.Interface
	install *installer
	kinds   []*customKind

	// left are the ManifestWorks that could not be replaced within patience.
	left     []finding
	patience time.Duration
}

func newMigrate(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	m := &migration{access: access, streams: streams, stop: slices.Clone(replacedDeployments), timeout: 30 * time.Minute, patience: successorPatience}
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Move a hub from the CustomResourceDefinitions of OCM to the server, or back",
		Long: `Move ManifestWorks, clusters, sets, add-ons, ClusterPermissions and ManagedServiceAccounts from the
CustomResourceDefinitions of OCM to the server, or back. Objects on managed clusters stay as they are. While
objects are copied, writes of these kinds are refused, and reads continue. If the command is interrupted, run
it again.`,
		Example: migrateExample,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return m.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&m.to, "to", "", "server or crds.")
	flags.BoolVar(&m.dryRun, "dry-run", false, "Check everything and change nothing.")
	flags.BoolVar(&m.finish, "delete-crds", false, "With --to=server, delete the CustomResourceDefinitions of OCM and the objects that they keep, once the hub is moved.")
	flags.StringSliceVar(&m.stop, "controllers", m.stop, "Deployments (namespace/name) of the controllers of OCM that the server replaces. They are stopped, or started after a migration back. Those that do not exist are ignored.")
	flags.DurationVar(&m.timeout, "timeout", m.timeout, "Maximum duration of the command.")
	return command
}

func (m *migration) run(ctx context.Context) error {
	if m.to != toServer && m.to != toCRDs {
		return fmt.Errorf("--to must be %s or %s, not %q", toServer, toCRDs, m.to)
	}
	if m.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0, not %s", m.timeout)
	}
	if m.finish && (m.to != toServer || m.dryRun) {
		return fmt.Errorf("--delete-crds requires --to=%s, and excludes --dry-run", toServer)
	}
	for _, name := range m.stop {
		if namespace, name, ok := strings.Cut(name, "/"); !ok || namespace == "" || name == "" {
			return fmt.Errorf("--controllers must be names like namespace/name, not %q", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	if err := m.connect(); err != nil {
		return err
	}
	findings, err := m.prepare(ctx)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return m.refuse(findings)
	}
	switch {
	case m.dryRun:
		return m.check(ctx)
	case m.finish:
		return m.deleteKept(ctx)
	case m.to == toServer:
		return m.moveToServer(ctx)
	}
	return m.moveToCRDs(ctx)
}

// connect builds the clients. All writes have the identity of the migration, because nobody else may write.
func (m *migration) connect() error {
	config, err := clientConfig(m.access)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	// A finding reports what a CustomResourceDefinition does not store.
	config.WarningHandler = rest.NoWarnings{}
	if m.other, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: migrationUser, Groups: []string{"system:masters"}}
	if m.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if m.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if m.metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	m.install, err = newInstaller(config, m.streams.Out)
	return err
}

func (m *migration) say(format string, args ...any) { say(m.streams.Out, format, args...) }

// prepare reads what the hub has, and returns what prevents a migration.
func (m *migration) prepare(ctx context.Context) ([]finding, error) {
	kinds, findings, err := readKinds(ctx, m.client)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("a migration requires permission to impersonate the user %s in the group system:masters, which cluster-admin contains: %w", migrationUser, err)
	}
	if err != nil {
		return nil, err
	}
	m.kinds = kinds
	if len(kinds) == 0 && len(findings) == 0 {
		return nil, errors.New("the hub has no CustomResourceDefinitions of OCM: there is nothing to migrate")
	}
	name := apiServiceName(migrationv1alpha1.SchemeGroupVersion)
	service, err := m.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		findings = append(findings, bad("server", "it is not installed", "clusteradm init --before-migration --wait"))
	case err != nil:
		return nil, err
	case m.to == toCRDs && !m.anyForwarded(ctx):
		// What is left of the migration does not need the server.
	default:
		if reason := unavailable(service); reason != "" {
			findings = append(findings, bad("APIService "+name, reason, "clusteradm doctor"))
		}
	}
	hidden, err := m.hiddenKinds(ctx)
	return append(findings, hidden...), err
}

// anyForwarded reports whether the hub forwards a kind to the server, or that is not known.
func (m *migration) anyForwarded(ctx context.Context) bool {
	pending, err := m.pending(ctx)
	return err != nil || len(pending) < len(m.kinds)
}

// hiddenKinds returns the CustomResourceDefinitions with objects that the server does not serve, in a version that
// would be forwarded to it.
func (m *migration) hiddenKinds(ctx context.Context) ([]finding, error) {
	if m.to != toServer {
		return nil, nil
	}
	crds, err := m.client.Resource(customResourceDefinitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var findings []finding
	versions := switchedVersions()
	for i := range crds.Items {
		crd := &crds.Items[i]
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		resource, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		if slices.ContainsFunc(migratedKinds, func(kind migratedKind) bool { return kind.resource.String() == crd.GetName() }) {
			continue
		}
		for _, version := range crdVersions(crd) {
			name, _ := version["name"].(string)
			i := slices.IndexFunc(versions, func(v schema.GroupVersion) bool { return v.Group == group && v.Version == name })
			if i < 0 {
				continue
			}
			forwarded, err := m.forwarded(ctx, versions[i])
			if err != nil {
				return nil, err
			}
			if forwarded {
				break
			}
			list, err := m.client.Resource(versions[i].WithResource(resource)).List(ctx, metav1.ListOptions{Limit: 1})
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			if list != nil && len(list.Items) > 0 {
				findings = append(findings, bad("CustomResourceDefinition "+crd.GetName(), "its objects would be hidden, because the server does not store them", "delete the objects, or do not migrate"))
			}
			break
		}
	}
	return findings, nil
}

func (m *migration) refuse(findings []finding) error { return refuse(m.streams.Out, findings) }

// refuse prints findings and returns an error.
func refuse(out io.Writer, findings []finding) error {
	const shown = 50
	for _, f := range findings[:min(len(findings), shown)] {
		line := fmt.Sprintf("%-8s %s: %s", f.State, f.Subject, printable(f.Cause))
		if f.Remedy != "" {
			line += "; to do: " + f.Remedy
		}
		say(out, "%s", line)
	}
	if len(findings) > shown {
		say(out, "… and %d more", len(findings)-shown)
	}
	problems := 0
	for _, f := range findings {
		if f.State == stateBad {
			problems++
		}
	}
	if problems == 0 {
		return nil
	}
	return fmt.Errorf("%d problems; nothing was changed on managed clusters", problems)
}

// check makes all checks of a migration and changes nothing.
func (m *migration) check(ctx context.Context) error {
	var counts map[string]int
	var findings []finding
	if m.to == toServer {
		pending, err := m.pending(ctx)
		if err != nil {
			return err
		}
		if len(pending) == 0 {
			m.say("the hub already forwards all kinds to the server")
			return nil
		}
		if counts, findings, err = m.copyToServer(ctx, pending, true); err != nil {
			return err
		}
	} else {
		for _, kind := range m.kinds {
			_, err := m.client.Resource(kind.kept()).List(ctx, metav1.ListOptions{Limit: 1})
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("customresourcedefinitions/%s has no version %s, without which nothing can be checked: it was created or changed after the migration. Run the command without --dry-run, which adds the version first and refuses what cannot be stored", kind.crd.GetName(), keptVersion)
			}
			if err != nil {
				return err
			}
		}
		var err error
		if counts, findings, err = m.copyFromServer(ctx, true); err != nil {
			return err
		}
	}
	for _, kind := range m.kinds {
		if count, counted := counts[kind.kind]; counted {
			m.say("%6d %s", count, kind.resource)
		}
	}
	if err := m.refuse(findings); err != nil {
		return err
	}
	m.say("the migration is possible; nothing was changed")
	return nil
}

// steps runs the steps of a migration.
func (m *migration) steps(ctx context.Context, steps []step) error {
	return runSteps(ctx, m.streams.Out, "run the command again to continue, or with the other value of --to to return", steps)
}

// runSteps runs steps in order, and prints the name of each. Each step can be repeated. The error of a step contains the
// remedy.
func runSteps(ctx context.Context, out io.Writer, remedy string, steps []step) error {
	begin := time.Now()
	for i, s := range steps {
		say(out, "%5.1fs  %d/%d  %s", time.Since(begin).Seconds(), i+1, len(steps), s.name)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w; %s", s.name, err, remedy)
		}
	}
	say(out, "%5.1fs  done", time.Since(begin).Seconds())
	return nil
}

type step struct {
	name string
	run  func(context.Context) error
}

func (m *migration) moveToServer(ctx context.Context) error {
	manifests, err := apiServiceManifests()
	if err != nil {
		return err
	}
	finish := []step{
		{"accept writes", func(ctx context.Context) error { return m.removePolicy(ctx, freezePolicy) }},
		{"start the controllers of the server", func(ctx context.Context) error { return releaseControllers(ctx, m.kube) }},
	}
	// Without a freeze, both sides may differ because the server has accepted writes since.
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	if frozen, err := writesFrozen(ctx, m.kube); err != nil {
		return err
	} else if len(pending) == 0 && !frozen {
		return m.steps(ctx, finish)
	}
	return m.steps(ctx, append([]step{
		{"check all objects", m.checkPending},
		{"prevent that the server changes anything yet", m.hold},
		{"stop the controllers that the server replaces", m.stopControllers},
		{"refuse writes", m.freeze},
		{"copy the objects", m.copyPending},
		{"forward requests to the server", func(ctx context.Context) error { return m.forward(ctx, manifests) }},
		{"keep the objects in the CustomResourceDefinitions, and end their watches", func(ctx context.Context) error {
			return errors.Join(m.keepUnchanged(ctx), keepVersions(ctx, m.client, m.kinds, true))
		}},
		{"compare both sides", m.compare},
		{"grant upstream agents access to the server", m.grantUpstreamAgents},
	}, finish...))
}

func (m *migration) hold(ctx context.Context) error { return holdControllers(ctx, m.kube) }

// checkPending refuses to begin with objects that the server would refuse, while nothing has changed yet.
func (m *migration) checkPending(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}
	_, findings, err := m.copyToServer(ctx, pending, true)
	if err != nil {
		return err
	}
	return m.refuse(findings)
}

func (m *migration) copyPending(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil || len(pending) == 0 {
		return err
	}
	if err := m.discard(ctx, pending); err != nil {
		return err
	}
	counts, findings, err := m.copyToServer(ctx, pending, false)
	if err != nil {
		return err
	}
	for _, kind := range pending {
		m.say("%6d %s", counts[kind.kind], kind.resource)
	}
	return m.refuse(findings)
}

// compare refuses to continue if both sides differ. Nobody but a migration can have written since they were copied.
func (m *migration) compare(ctx context.Context) error {
	findings, err := m.verify(ctx)
	if err != nil {
		return err
	}
	return m.refuse(findings)
}

func (m *migration) moveToCRDs(ctx context.Context) error {
	closing := step{"close the CustomResourceDefinitions", func(ctx context.Context) error { return keepVersions(ctx, m.client, m.kinds, false) }}
	finish := []step{
		{"assign the Secrets to their accounts", m.attachSecrets},
		{"stop the server", m.stopServer},
		{"accept writes", func(ctx context.Context) error {
			return errors.Join(m.removePolicy(ctx, accountPolicy), m.removePolicy(ctx, keepPolicy), m.removePolicy(ctx, freezePolicy))
		}},
		{"replace the ManifestWorks of ClusterPermissions that have another UID", m.finishSuccessors},
		{"start the controllers of OCM", func(ctx context.Context) error {
			return errors.Join(m.startControllers(ctx), m.revokeUpstreamAgents(ctx))
		}},
	}
	var steps []step
	switch pending, err := m.pending(ctx); {
	case err != nil:
		return err
	case len(pending) == len(m.kinds):
		steps = []step{closing}
	default:
		open := step{"open the CustomResourceDefinitions", func(ctx context.Context) error { return keepVersions(ctx, m.client, m.kinds, true) }}
		freeze := []step{
			{"refuse writes", func(ctx context.Context) error { return errors.Join(m.freeze(ctx), m.freezeSecrets(ctx)) }},
			{"stop the controllers of the server", m.hold},
		}
		switched := []step{
			{"wait until all watches of the server have ended", func(ctx context.Context) error { return waitNoticed(ctx, m.kube) }},
			{"release the Secrets of accounts that have another UID", m.detachSecrets},
			closing,
			{"serve requests from the CustomResourceDefinitions", m.serveLocally},
		}
		if len(pending) > 0 {
			// An earlier run has copied all objects. Owners that are served locally by now do not show their UIDs in the
			// server, to which owner references there refer.
			steps = slices.Concat([]step{open}, freeze, switched)
		} else {
			steps = slices.Concat([]step{open, {"check all objects", m.checkBack}}, freeze, []step{{"copy the objects", m.copyBack}}, switched)
		}
	}
	if err := m.steps(ctx, append(steps, finish...)); err != nil {
		return err
	}
	return m.refuse(m.left)
}

// checkBack refuses to begin with objects that the CustomResourceDefinitions would refuse, while nothing has changed yet.
func (m *migration) checkBack(ctx context.Context) error {
	_, findings, err := m.copyFromServer(ctx, true)
	if err != nil {
		return err
	}
	// The copy reports the others.
	return m.refuse(slices.DeleteFunc(findings, func(f finding) bool { return f.State != stateBad }))
}

// deleteKept deletes the CustomResourceDefinitions, with the objects that they keep.
func (m *migration) deleteKept(ctx context.Context) error {
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	if frozen, err := writesFrozen(ctx, m.kube); err != nil {
		return err
	} else if len(pending) > 0 || frozen {
		return fmt.Errorf("the migration has not ended: run clusteradm migrate --to %s first", toServer)
	}
	return m.steps(ctx, []step{
		{"end the watches of the CustomResourceDefinitions", m.endWatches},
		{"release the kept objects", m.releaseKept},
		{"delete the CustomResourceDefinitions", m.deleteDefinitions},
		{"delete what a migration back would need", func(ctx context.Context) error {
			err := m.kube.CoreV1().ConfigMaps(hubNamespace).Delete(ctx, savedWebhooks, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return errors.Join(err, m.removePolicy(ctx, keepPolicy))
		}},
	})
}

// endWatches ends the watches that clients opened before the hub forwarded the versions. A hub ends them a second or
// more after a change of a CustomResourceDefinition, and later if requests are in flight. A garbage collector that
// watched the deletion of the kept objects would delete the dependents of the objects in the server, which have the
// same versions, names and UIDs.
func (m *migration) endWatches(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchesEndTimeout)
	defer cancel()
	group, running := errgroup.WithContext(ctx)
	for _, kind := range m.kinds {
		group.Go(func() error {
			if err := m.endWatchesOf(running, kind); err != nil {
				return fmt.Errorf("watches of customresourcedefinitions/%s: %w", kind.crd.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	select {
	case <-time.After(otherAPIServers):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endWatchesOf returns after a watch of the kept version has ended: the hub ends the watches of all versions at once.
func (m *migration) endWatchesOf(ctx context.Context, kind *customKind) error {
	var open watch.Interface
	if err := poll(ctx, func(context.Context) (_ string, err error) {
		open, err = m.client.Resource(kind.kept()).Watch(ctx, metav1.ListOptions{TimeoutSeconds: ptr.To(int64(2 * watchesEndTimeout.Seconds()))})
		return "", err
	}); err != nil {
		return err
	}
	defer open.Stop()
	if err := persist(ctx, func(ctx context.Context) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			crd, err := m.client.Resource(customResourceDefinitions).Get(ctx, kind.crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := describeKept(crd, "An object as of the migration. Its deletion began at "+time.Now().UTC().Format(time.RFC3339Nano)+"."); err != nil {
				return err
			}
			_, err = m.client.Resource(customResourceDefinitions).Update(ctx, crd, metav1.UpdateOptions{FieldManager: fieldManager})
			return err
		})
	}); err != nil {
		return err
	}
	for {
		select {
		case _, more := <-open.ResultChan():
			if !more {
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// releaseKept removes the finalizers of kept objects, for which no controller is left.
func (m *migration) releaseKept(ctx context.Context) error {
	var errs []error
	for _, kind := range m.kinds {
		objects, err := listAll(ctx, m.client, kind.kept())
		if err != nil {
			return err
		}
		errs = append(errs, forEach(slices.Collect(maps.Values(objects)), func(object *unstructured.Unstructured) error {
			if len(object.GetFinalizers()) == 0 {
				return nil
			}
			err := persist(ctx, func(ctx context.Context) error {
				_, err := m.client.Resource(kind.kept()).Namespace(object.GetNamespace()).
					Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: fieldManager})
				return err
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release %s: %w", display(object), err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

func (m *migration) deleteDefinitions(ctx context.Context) error {
	client := m.client.Resource(customResourceDefinitions)
	for _, kind := range m.kinds {
		if err := client.Delete(ctx, kind.crd.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("customresourcedefinitions/%s: %w", kind.crd.GetName(), err)
		}
	}
	for _, kind := range m.kinds {
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			if _, err := client.Get(ctx, kind.crd.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return "its objects are being deleted", err
			}
			return "", nil
		}); err != nil {
			return fmt.Errorf("customresourcedefinitions/%s: %w", kind.crd.GetName(), err)
		}
	}
	return nil
}

func (m *migration) copyBack(ctx context.Context) error {
	counts, findings, err := m.copyFromServer(ctx, false)
	if err != nil {
		return err
	}
	for _, kind := range m.kinds {
		m.say("%6d %s", counts[kind.kind], kind.resource)
	}
	return m.refuse(findings)
}

// stopServer stops the server, so that its watches end and clients read the CustomResourceDefinitions. Its data stay.
func (m *migration) stopServer(ctx context.Context) error {
	deployments := m.kube.AppsV1().Deployments(hubNamespace)
	if err := persist(ctx, func(ctx context.Context) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			deployment, err := deployments.Get(ctx, serverName, metav1.GetOptions{})
			if err != nil || ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
				return err
			}
			deployment.Spec.Replicas = ptr.To[int32](0)
			_, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{})
			return err
		})
	}); apierrors.IsNotFound(err) {
		m.say("the server does not run on the hub: stop it, so that clients notice that it does not serve any more")
		return nil
	} else if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) (string, error) {
		pods, err := m.kube.CoreV1().Pods(hubNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + serverName})
		if err != nil || len(pods.Items) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d Pods of the server run", len(pods.Items)), nil
	})
}

// apiServiceManifests returns the APIServices of an installation by name.
func apiServiceManifests() (map[string]*unstructured.Unstructured, error) {
	objects, err := manifests("apiservice/*.yaml")
	if err != nil {
		return nil, err
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		byName[object.GetName()] = object
	}
	return byName, nil
}
