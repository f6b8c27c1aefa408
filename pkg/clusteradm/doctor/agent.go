package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/join"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	// fromHere is part of findings about connections: the agent may have another network.
	fromHere           = "hub, as the agent, from this machine"
	permissionsSubject = "permissions of the agent on the managed cluster"
)

type agentDoctor struct {
	report
	namespace string
}

func newAgent(env cli.Environment) *cobra.Command {
	d := &agentDoctor{report: report{Environment: env}}
	command := &cobra.Command{
		Use:   "agent",
		Short: "Report problems of the agent of a managed cluster",
		Long: `Report problems of the agent of a managed cluster: its Deployment, its credentials, its permissions, its connection
to the hub and the clocks. The command prints one line for each subject: its state, the cause and what to do.
It exits with 1 if a check failed. It only reads. To check the connection, it uses the credentials of the agent,
from the machine on which it runs.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), "managed cluster's API server", []check{
				{"Deployment of the agent", d.deployment, ""},
				{permissionsSubject, d.permissions, "complete"},
				{"Secret " + d.namespace + "/" + join.HubSecret, d.identity, ""},
			})
		},
	}
	flags := command.Flags()
	flags.StringVarP(&d.output, "output", "o", cli.OutputTable, "Output format: table or json.")
	flags.StringVar(&d.namespace, "agent-namespace", manifests.AgentNamespace, "Namespace of the agent on the managed cluster.")
	return command
}

// deployment checks the Deployment of the agent, and the version in the tag of its image.
func (d *agentDoctor) deployment(ctx context.Context) ([]cli.Finding, error) {
	const subject = "version of the agent"
	deployment, findings := deploymentFindings(ctx, d.Kube, d.namespace, manifests.AgentName)
	switch {
	case deployment == nil && len(findings) == 0:
		return []cli.Finding{cli.Warning("Deployment "+d.namespace+"/"+manifests.AgentName, "does not exist", "run clusteradm join, unless the agent runs outside of the cluster; if it is in another namespace, set --agent-namespace")}, nil
	case deployment == nil:
		return findings, nil
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if _, tag, _ := program.ReleaseOf(manifests.AgentImage, container.Image); tag != "" {
			return append(findings, skew(subject, tag, version.Short())), nil
		}
	}
	return append(findings, undecided(subject, "its image has no tag", "see the log of the agent")), nil
}

func (d *agentDoctor) permissions(ctx context.Context) ([]cli.Finding, error) {
	objects, err := join.Manifests(join.Managed, d.namespace)
	if err != nil {
		return nil, err
	}
	// An administrator may narrow what a hub may apply.
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetName() == join.AgentClusterRole+":apply" || object.GetName() == join.AgentClusterRole+":executor"
	})
	return d.permissionsOf(ctx, permissionsSubject, d.namespace, manifests.AgentName, objects, nil, "apply artifacts/agent/managed: run clusteradm join --yes, which keeps the settings of the agent")
}

func (d *agentDoctor) identity(ctx context.Context) ([]cli.Finding, error) {
	subject := "Secret " + d.namespace + "/" + join.HubSecret
	credentials, err := join.ReadCredentials(ctx, d.Kube, d.namespace, join.HubSecret)
	var findings []cli.Finding
	switch {
	case err != nil && credentials == nil:
		return nil, errors.Unwrap(err)
	case err != nil:
		return []cli.Finding{cli.Bad(subject, err.Error(), "delete the Secret to register again")}, nil
	case credentials == nil:
		findings = append(findings, cli.Bad(subject, "does not exist: the agent has not registered", "see the log of the agent, and the next lines"))
	case !credentials.Complete():
		findings = append(findings, cli.Bad(subject, "has no kubeconfig: the hub has not accepted the cluster, or not signed its certificate", "on the hub, run clusteradm accept --clusters "+credentials.Cluster+" and clusteradm doctor"))
	default:
		findings = append(findings, cli.Healthy(subject, "identity of "+credentials.Cluster))
		hub, err := credentials.Config(ctx, d.Clients)
		if err != nil {
			return append(findings, undecided(fromHere, err.Error(), "read the log of the agent")), nil
		}
		reached, usable := connect(ctx, hub, fromHere)
		findings = append(findings, reached...)
		if usable {
			return append(findings, membership(ctx, hub, credentials.Cluster)), nil
		}
	}
	// An agent without valid credentials registers again with the bootstrap Secret.
	return append(findings, d.bootstrap(ctx)), nil
}

func membership(ctx context.Context, hub *rest.Config, name string) cli.Finding {
	subject := "ManagedCluster " + name + " on the hub"
	clients, err := cli.NewClients(impatient(hub))
	if err != nil {
		return cli.Unknown(subject, err)
	}
	cluster, err := clients.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if refusal, known := refusals[apierrors.ReasonForError(err)]; known {
		return cli.Bad(subject, refusal.cause+": "+err.Error(), refusal.remedy)
	}
	switch {
	case err != nil:
		return cli.Unknown(subject, err)
	case cluster.Spec.HubAcceptsClient && cluster.DeletionTimestamp != nil:
		return cli.Warning(subject, "is being deleted", "wait until the agent has removed the applied objects")
	}
	renewed, _ := renewals(ctx, clients.Kube, name)
	f := clusterFinding(cluster, renewed[name], time.Now(), "start the agent; read its log")
	if f.Subject = subject; f.State == cli.StateWarning {
		f.State = cli.StateBad // a cluster that waits is normal for the hub, and not for its agent
	}
	return f
}

// refusals are the causes and the remedies if the agent gets no ManagedCluster, by the reason in the response of the hub.
var refusals = map[metav1.StatusReason]struct{ cause, remedy string }{
	metav1.StatusReasonForbidden:          {"the hub denies the agent access to it: the cluster is denied or deleted, or a role is missing", "on the hub, run clusteradm doctor, and clusteradm accept with the name of the cluster"},
	metav1.StatusReasonUnauthorized:       {"the hub rejects the credentials of the agent (401)", "the agent registers again; if the ManagedCluster was deleted, delete the Secret " + join.HubSecret},
	metav1.StatusReasonNotFound:           {"does not exist", "delete the Secret " + join.HubSecret + " to register again"},
	metav1.StatusReasonServiceUnavailable: {"the server on the hub is not available", "on the hub, run clusteradm doctor"},
}

// bootstrap checks the credentials to register. It does not run programs or read files that the Secret names.
func (d *agentDoctor) bootstrap(ctx context.Context) cli.Finding {
	subject := "Secret " + d.namespace + "/" + join.BootstrapSecret
	const remedy = "run clusteradm join --hub-token with a token that clusteradm get token prints on the hub"
	credentials, err := join.ReadCredentials(ctx, d.Kube, d.namespace, join.BootstrapSecret)
	switch {
	case err != nil && credentials == nil:
		return cli.Unknown(subject, errors.Unwrap(err))
	case err == nil && credentials == nil:
		return cli.Bad(subject, "does not exist, so the agent cannot register", remedy)
	case !credentials.Complete():
		return cli.Bad(subject, "contains no valid kubeconfig", remedy)
	}
	client, err := kubernetes.NewForConfig(credentials.Static())
	if err != nil {
		return cli.Bad(subject, err.Error(), remedy)
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return cli.Bad(subject, "its token has expired or is not valid", remedy)
	case err != nil && !apierrors.IsForbidden(err):
		return undecided(subject, err.Error(), "see the line of the connection to the hub")
	}
	return cli.Healthy(subject, "its credentials are valid")
}
