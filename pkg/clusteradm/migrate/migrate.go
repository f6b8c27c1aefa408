// Package migrate contains the command that moves the objects of a hub from the CustomResourceDefinitions of OCM to the
// server, or back.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

const (
	toServer = "server"
	toCRDs   = "crds"
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

type migration struct {
	cli.Environment
	// Clients have the identity of the migration, because nobody else may write.
	*cli.Clients
	metadata metadata.Interface
	// caller sends requests as the caller, whose writes are refused during a migration.
	caller dynamic.Interface

	to      string
	dryRun  bool
	finish  bool
	stop    []string
	timeout time.Duration

	kinds []*handover.CustomKind
	// left are the ManifestWorks that could not be replaced within patience.
	left     []cli.Finding
	patience time.Duration
}

// New returns the command clusteradm migrate.
func New(env cli.Environment) *cobra.Command {
	m := &migration{Environment: env, stop: slices.Clone(replacedDeployments), timeout: 30 * time.Minute, patience: successorPatience}
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Move a hub from the CustomResourceDefinitions of OCM to the server, or back",
		Long: `Move ManifestWorks, clusters, sets, add-ons, ClusterPermissions and ManagedServiceAccounts from the
CustomResourceDefinitions of OCM to the server, or back. Objects on managed clusters stay as they are. While
objects are copied, writes of these kinds are refused, and reads continue. If the command is interrupted, run
it again.`,
		Example: migrateExample,
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&m.timeout, m.run),
	}
	flags := command.Flags()
	flags.StringVar(&m.to, "to", "", "server or crds.")
	flags.BoolVar(&m.dryRun, "dry-run", false, "Check everything and change nothing.")
	flags.BoolVar(&m.finish, "delete-crds", false, "With --to=server, after the hub is moved, delete the CustomResourceDefinitions of OCM and the objects that they keep. The hub cannot be moved back with its UIDs afterwards.")
	flags.StringSliceVar(&m.stop, "controllers", m.stop, "Deployments (namespace/name) of the controllers of OCM that the server replaces. They are stopped, or started after a migration back. Those that do not exist are ignored.")
	flags.DurationVar(&m.timeout, "timeout", m.timeout, "Maximum duration of the command.")
	return command
}

func (m *migration) run(ctx context.Context, _ []string) error {
	if err := cli.OneOf("to", m.to, toServer, toCRDs); err != nil {
		return err
	}
	if m.finish && (m.to != toServer || m.dryRun) {
		return fmt.Errorf("--delete-crds requires --to=%s, and excludes --dry-run", toServer)
	}
	for _, name := range m.stop {
		if namespace, name, ok := strings.Cut(name, "/"); !ok || namespace == "" || name == "" {
			return fmt.Errorf("--controllers must be names like namespace/name, not %q", name)
		}
	}
	if err := m.connect(); err != nil {
		return err
	}
	findings, err := m.prepare(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(findings) > 0:
		return m.Refuse(findings)
	case m.dryRun:
		return m.check(ctx)
	case m.finish:
		return m.deleteKept(ctx)
	case m.to == toServer:
		return m.moveToServer(ctx)
	}
	return m.moveToCRDs(ctx)
}

func (m *migration) connect() error {
	caller, err := m.Connect()
	if err != nil {
		return err
	}
	m.caller = caller.Dynamic
	config := rest.CopyConfig(caller.Config)
	// A finding reports what a CustomResourceDefinition does not store.
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: migrationv1alpha1.User, Groups: []string{"system:masters"}}
	if m.Clients, err = cli.NewClients(config); err != nil {
		return err
	}
	m.metadata, err = metadata.NewForConfig(config)
	return err
}

// prepare reads what the hub has, and returns what prevents a migration.
func (m *migration) prepare(ctx context.Context) ([]cli.Finding, error) {
	kinds, findings, err := handover.ReadKinds(ctx, m.Dynamic)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("a migration requires permission to impersonate the user %s in the group system:masters, which cluster-admin contains: %w", migrationv1alpha1.User, err)
	}
	if err != nil {
		return nil, err
	}
	m.kinds = kinds
	if len(kinds) == 0 && len(findings) == 0 {
		remedy := map[string]string{toServer: "there is nothing to migrate", toCRDs: "install those of your release of OCM first"}[m.to]
		return nil, errors.New("the hub has no CustomResourceDefinitions of OCM: " + remedy)
	}
	name := cli.APIServiceName(migrationv1alpha1.SchemeGroupVersion)
	service, err := cli.Optional(m.APIServices.Get(ctx, name, metav1.GetOptions{}))
	switch {
	case err != nil:
		return nil, err
	case service == nil:
		findings = append(findings, cli.Bad("server", "it is not installed", "clusteradm init --before-migration --wait"))
	case m.to == toCRDs && !m.anyForwarded(ctx):
		// What is left of the migration does not need the server.
	default:
		if reason := cli.Unavailable(service); reason != "" {
			findings = append(findings, cli.Bad("APIService "+name, reason, "clusteradm doctor"))
		}
	}
	if m.to == toCRDs {
		return findings, nil
	}
	hidden, err := m.hiddenKinds(ctx)
	return append(findings, hidden...), err
}

// anyForwarded reports whether the hub forwards a kind to the server, or that is not known.
func (m *migration) anyForwarded(ctx context.Context) bool {
	pending, err := m.pending(ctx)
	return err != nil || len(pending) < len(m.kinds)
}

// pending returns the kinds that the hub does not forward to the server yet.
func (m *migration) pending(ctx context.Context) ([]*handover.CustomKind, error) {
	var pending []*handover.CustomKind
	for _, kind := range m.kinds {
		forwarded, err := m.Forwards(ctx, kind.Version)
		if err != nil {
			return nil, err
		}
		if !forwarded {
			pending = append(pending, kind)
		}
	}
	return pending, nil
}

// hiddenKinds returns the CustomResourceDefinitions with objects that the server does not serve, in a version that
// would be forwarded to it.
func (m *migration) hiddenKinds(ctx context.Context) ([]cli.Finding, error) {
	crds, err := m.Dynamic.Resource(handover.CustomResourceDefinitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var findings []cli.Finding
	for i := range crds.Items {
		crd := &crds.Items[i]
		if slices.ContainsFunc(handover.Kinds, func(kind handover.Kind) bool {
			return kind.OCM && kind.Resource.GroupResource().String() == crd.GetName()
		}) {
			continue
		}
		versions := handover.SwitchedVersions()
		i := slices.IndexFunc(versions, func(version schema.GroupVersion) bool { return handover.HasVersion(crd, version) })
		if i < 0 {
			continue
		}
		if forwarded, err := m.Forwards(ctx, versions[i]); err != nil {
			return nil, err
		} else if forwarded {
			continue
		}
		resource, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		list, err := m.Dynamic.Resource(versions[i].WithResource(resource)).List(ctx, metav1.ListOptions{Limit: 1})
		if cli.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && len(list.Items) > 0 {
			findings = append(findings, cli.Bad("CustomResourceDefinition "+crd.GetName(), "its objects would be hidden, because the server does not store them", "delete the objects, or do not migrate"))
		}
	}
	return findings, nil
}

// check makes all checks of a migration and changes nothing.
func (m *migration) check(ctx context.Context) error {
	pending, err := m.pending(ctx)
	switch {
	case err != nil:
	case m.to == toCRDs:
		for _, kind := range m.kinds {
			if !handover.HasVersion(kind.CRD, kind.Kept().GroupVersion()) {
				return fmt.Errorf("customresourcedefinitions/%s has no version %s, without which nothing can be checked: it was created or changed after the migration. Run the command without --dry-run, which adds the version first and refuses what cannot be stored", kind.CRD.GetName(), handover.KeptVersion)
			}
		}
		err = m.copied(m.copyFromServer(ctx, metav1.DryRunAll))
	case len(pending) == 0:
		m.Say("the hub already forwards all kinds to the server")
		return nil
	default:
		err = m.copied(m.copyToServer(ctx, pending, metav1.DryRunAll))
	}
	if err == nil {
		m.Say("the migration is possible; nothing was changed")
	}
	return err
}

// copied prints how many objects were copied, and refuses to continue with bad findings.
func (m *migration) copied(counts map[string]int, findings []cli.Finding, err error) error {
	if err != nil {
		return err
	}
	for _, kind := range m.kinds {
		if count, counted := counts[kind.Name]; counted {
			m.Say("%6d %s", count, kind.Resource.GroupResource())
		}
	}
	return m.Refuse(findings)
}

func (m *migration) steps(ctx context.Context, steps []handover.Step) error {
	return handover.RunSteps(ctx, m.Environment, "run the command again to continue, or with the other value of --to to return", steps)
}
