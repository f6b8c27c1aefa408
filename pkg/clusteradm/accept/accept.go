// Package accept contains the command that accepts clusters on a hub, or denies them.
package accept

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
)

const acceptExample = `  # Accept two clusters after they have requested to join
  clusteradm accept --clusters cluster1,cluster2 --wait

  # Revoke all access of a cluster to the hub
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
of their agents. With --deny, deny the clusters, which revokes the access of their agents to the hub immediately.
Tokens of ManagedServiceAccounts stay valid on the clusters.`,
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
	errs := append(validate.FlagUsers("requesters", a.requesters),
		cli.Wrong(len(a.clusters) == 0, "--clusters is required"),
		cli.Wrong(a.deny && (a.anyRequester || len(a.requesters) > 0), "--requesters and --skip-approve-check cannot be used with --deny"))
	for _, cluster := range a.clusters {
		errs = append(errs, cli.CheckName("clusters", cluster))
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
	// The error names all clusters that failed, so that the command can be repeated for them.
	return errors.Join(cli.Errors(sets.List(sets.New(a.clusters...)), func(cluster string) error {
		return cli.Prefix(a.one(ctx, cluster), "%s", cluster)
	})...)
}

func (a *accepting) one(ctx context.Context, name string) error {
	cluster, err := a.cluster(ctx, name)
	if err != nil {
		return err
	}
	if err := a.decide(ctx, cluster); err != nil || !a.wait {
		return err
	}
	return a.settled(ctx, cluster)
}

// cluster returns the ManagedCluster. With --wait, it waits for it, and for the hub to reach the server.
func (a *accepting) cluster(ctx context.Context, name string) (cluster *clusterv1.ManagedCluster, err error) {
	get := func(ctx context.Context) (reason string, err error) {
		if cluster, err = a.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{}); cli.Missing(err) {
			return "the cluster has not requested to join", nil
		}
		return "", err
	}
	reason, err := get(ctx)
	switch {
	case reason == "" && !(a.wait && cli.Temporary(err)):
		return cluster, err
	case !a.wait:
		return nil, fmt.Errorf("the ManagedCluster does not exist: %s; --wait waits for the request", reason)
	case err != nil:
		a.Say("%s: waiting for the hub: %s", name, cli.Printable(err.Error()))
	default:
		a.Say("%s: waiting for the cluster to request to join", name)
	}
	err = cli.Poll(ctx, get)
	return cluster, err
}

// decide accepts or denies a cluster by a request to the accept subresource.
func (a *accepting) decide(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	requesters := a.requesters
	if a.anyRequester {
		all, err := a.allRequesters(ctx, cluster.Name)
		if err != nil {
			return err
		}
		requesters = append(all, requesters...)
	}
	if a.deny && cluster.DeletionTimestamp != nil {
		a.Warn("%s: the ManagedCluster is being deleted: after the denial, its agent removes all applied objects at once", cluster.Name)
	}
	var decided *registerv1alpha1.ManagedClusterAcceptance
	err := cli.Persist(ctx, func(ctx context.Context) (err error) {
		decided, err = a.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Accept(ctx, cluster.Name, &registerv1alpha1.ManagedClusterAcceptance{
			// The UID prevents a decision about a different cluster that was created with the same name.
			ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, UID: cluster.UID},
			Spec:       registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: !a.deny, Reason: a.reason, Requesters: sets.List(sets.New(requesters...))},
		}, metav1.UpdateOptions{FieldManager: cli.FieldManager})
		return err
	})
	switch {
	case apierrors.IsNotFound(err) && !cli.Missing(err):
		return fmt.Errorf("this hub runs OCM, which decides about clusters itself, or has no APIService of %s. On a hub that runs OCM, use the clusteradm of OCM; or set spec.hubAcceptsClient of the ManagedCluster, and approve the CertificateSigningRequest of its agent if its common name begins with system:open-cluster-management:%[2]s:, and its only organizations are system:open-cluster-management:%[2]s and %[3]s", registerv1alpha1.GroupName, cluster.Name, clusterv1.AllAgentsGroup)
	case err != nil:
		return err
	case a.deny:
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
	if !a.wait {
		a.Say("%[1]s: show the result with: kubectl get managedclusters.cluster.open-cluster-management.io %[1]s", cluster.Name)
	}
	return nil
}

// allRequesters returns the users whose certificate requests for a cluster nobody has decided about.
func (a *accepting) allRequesters(ctx context.Context, cluster string) (users []string, err error) {
	list, err := a.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + cluster})
	if err != nil {
		return nil, fmt.Errorf("listing CertificateSigningRequests: %w", err)
	}
	for _, request := range list.Items {
		if request.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName && len(request.Status.Conditions)+len(request.Status.Certificate) == 0 {
			users = append(users, request.Spec.Username)
		}
	}
	return users, nil
}

// settled waits until the hub has applied the decision: the cluster has access, or has lost it.
func (a *accepting) settled(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	err := cli.Poll(ctx, func(ctx context.Context) (string, error) {
		current, err := a.OCM.ClusterV1().ManagedClusters().Get(ctx, cluster.Name, metav1.GetOptions{})
		switch {
		case a.deny && cli.Missing(err):
			return "", nil
		case err != nil:
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
