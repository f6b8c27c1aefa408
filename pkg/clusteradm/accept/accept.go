// Package accept contains the command that accepts clusters on a hub, or denies them.
package accept

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
)

const acceptExample = `  # Accept two clusters after they have requested to join
  clusteradm accept --clusters cluster1,cluster2 --wait

  # Take all access away from one
  clusteradm accept --clusters cluster1 --deny --reason 'credentials leaked'`

type accepting struct {
	cli.Environment
	*cli.Clients

	clusters     []string
	requesters   []string
	anyRequester bool
	deny         bool
	reason       string
	wait         bool
	timeout      time.Duration
}

// New returns the command clusteradm accept.
func New(env cli.Environment) *cobra.Command {
	a := &accepting{Environment: env, timeout: program.DefaultTimeout}
	command := &cobra.Command{
		Use:   "accept",
		Short: "Accept managed clusters on the hub of the current context, or deny them",
		Long: `Accept managed clusters on the hub of the current context and approve the certificate requests
of their agents. With --deny, deny the clusters, which revokes their access immediately.`,
		Example: acceptExample,
		Args:    cobra.NoArgs,
		RunE:    cli.Within(&a.timeout, a.run),
	}
	flags := command.Flags()
	flags.StringSliceVar(&a.clusters, "clusters", nil, "Names of the clusters. Required.")
	flags.StringArrayVar(&a.requesters, "requesters", nil, "User whose certificate requests are approved. Can be repeated. Defaults to the creator of the ManagedCluster and the bootstrap identities of the hub.")
	flags.BoolVar(&a.anyRequester, "skip-approve-check", false, "Approve certificate requests of the cluster from any requester.")
	flags.BoolVar(&a.deny, "deny", false, "Deny the clusters.")
	flags.StringVar(&a.reason, "reason", "", "Reason of the decision, which the ManagedCluster shows.")
	flags.BoolVar(&a.wait, "wait", false, "Wait until the clusters have requested to join and have access to the hub.")
	flags.DurationVar(&a.timeout, "timeout", a.timeout, "Maximum duration of the command.")
	return command
}

func (a *accepting) complete() error {
	var errs []error
	if len(a.clusters) == 0 {
		errs = append(errs, errors.New("--clusters is required"))
	}
	for _, cluster := range a.clusters {
		errs = append(errs, cli.CheckName("clusters", cluster))
	}
	errs = append(errs, validate.FlagUsers("requesters", a.requesters)...)
	if a.deny && (a.anyRequester || len(a.requesters) > 0) {
		errs = append(errs, errors.New("--requesters and --skip-approve-check cannot be used with --deny"))
	}
	return errors.Join(errs...)
}

func (a *accepting) run(ctx context.Context, _ []string) error {
	if err := a.complete(); err != nil {
		return err
	}
	var err error
	if a.Clients, err = a.Connect(); err != nil {
		return err
	}
	decide := a.decide
	if err := a.attempt(ctx, func(context.Context) error {
		registers, err := servesRegistration(a.Kube.Discovery())
		if err == nil && !registers {
			decide = a.decidePublic
		}
		return err
	}); err != nil {
		return err
	}
	// The error names all clusters that failed, so that the command can be repeated for them.
	return errors.Join(cli.Errors(sets.List(sets.New(a.clusters...)), func(cluster string) error {
		return cli.Prefix(a.one(ctx, cluster, decide), "%s", cluster)
	})...)
}

// servesRegistration reports whether the hub serves the registration API. On a hub
// that runs OCM, a decision is an update of the ManagedCluster.
func servesRegistration(disco discovery.DiscoveryInterface) (bool, error) {
	served, err := cli.Optional(disco.ServerResourcesForGroupVersion(registerv1alpha1.SchemeGroupVersion.String()))
	return served != nil, cli.Prefix(err, "%s on the hub", registerv1alpha1.SchemeGroupVersion)
}

// attempt calls do. With --wait, it calls do again while the hub does not reach the server, such as after its start.
func (a *accepting) attempt(ctx context.Context, do func(context.Context) error) error {
	if !a.wait {
		return do(ctx)
	}
	var failed error
	if err := cli.Poll(ctx, func(ctx context.Context) (string, error) {
		if failed = do(ctx); apierrors.IsServiceUnavailable(failed) {
			return failed.Error(), nil
		}
		return "", nil
	}); err != nil {
		return err
	}
	return failed
}

func (a *accepting) one(ctx context.Context, name string, decide func(context.Context, *clusterv1.ManagedCluster) error) error {
	cluster, err := a.cluster(ctx, name)
	if err != nil {
		return err
	}
	if err := decide(ctx, cluster); err != nil {
		return err
	}
	if !a.wait {
		return nil
	}
	return a.settled(ctx, cluster)
}

// cluster returns the ManagedCluster. With --wait, it waits until the ManagedCluster exists.
func (a *accepting) cluster(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	var cluster *clusterv1.ManagedCluster
	err := a.attempt(ctx, func(ctx context.Context) (err error) {
		cluster, err = a.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if !cli.Missing(err) {
		return cluster, err
	}
	if !a.wait {
		return nil, errors.New("the ManagedCluster does not exist: the cluster has not requested to join; --wait waits for the request")
	}
	a.Say("%s: waiting for the cluster to request to join", name)
	err = cli.Poll(ctx, func(ctx context.Context) (string, error) {
		var err error
		cluster, err = a.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if cli.Missing(err) {
			return "the cluster has not requested to join", nil
		}
		return "", err
	})
	return cluster, err
}

// decide accepts or denies a cluster by a request to the accept subresource.
func (a *accepting) decide(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	requesters := slices.Clone(a.requesters)
	if a.anyRequester {
		requests, err := a.requests(ctx, cluster.Name)
		if err != nil {
			return err
		}
		for i := range requests {
			if pending(&requests[i]) {
				requesters = append(requesters, requests[i].Spec.Username)
			}
		}
	}
	var decided *registerv1alpha1.ManagedClusterAcceptance
	if err := a.attempt(ctx, func(ctx context.Context) (err error) {
		decided, err = a.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Accept(ctx, cluster.Name, &registerv1alpha1.ManagedClusterAcceptance{
			// The UID prevents a decision about a different cluster that was created with the same name.
			ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, UID: cluster.UID},
			Spec:       registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: !a.deny, Reason: a.reason, Requesters: sets.List(sets.New(requesters...))},
		}, metav1.UpdateOptions{FieldManager: cli.FieldManager})
		return err
	}); err != nil {
		return err
	}
	if a.deny {
		a.Say("%s: denied; its access to the hub is revoked", cluster.Name)
		return nil
	}
	text := cluster.Name + ": accepted"
	if driver := decided.Status.Driver; driver != "" {
		text += " by " + cli.Printable(string(driver))
	}
	if approved := decided.Status.ApprovedRequests; len(approved) > 0 {
		text += "; approved " + cli.Printable(strings.Join(approved, ", "))
	}
	a.Say("%s", text)
	a.next(cluster.Name)
	return nil
}

// next prints how to observe the result of an acceptance if the command does not wait for it.
func (a *accepting) next(cluster string) {
	if !a.wait {
		a.Say("%[1]s: show the result with: kubectl get managedclusters.cluster.open-cluster-management.io %[1]s", cluster)
	}
}

// settled waits until the hub has applied the decision: the cluster has access, or has lost it.
func (a *accepting) settled(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	err := cli.Poll(ctx, func(ctx context.Context) (string, error) {
		current, err := a.OCM.ClusterV1().ManagedClusters().Get(ctx, cluster.Name, metav1.GetOptions{})
		if a.deny && cli.Missing(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		condition := meta.FindStatusCondition(current.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
		accepted := condition != nil && condition.Status == metav1.ConditionTrue
		switch {
		case current.UID != cluster.UID:
			return "", errors.New("the ManagedCluster was deleted and created again")
		case accepted != a.deny:
			return "", nil
		case condition == nil:
			return "the hub has not processed the decision yet", nil
		}
		return cli.Printable(condition.Reason + ": " + condition.Message), nil
	})
	if err != nil {
		return err
	}
	access := "access"
	if a.deny {
		access = "no access"
	}
	a.Say("%s: the cluster has %s to the hub", cluster.Name, access)
	return nil
}
