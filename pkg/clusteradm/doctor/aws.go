package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/install"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awsapply"
)

type awsDoctor struct {
	cli.Environment

	hubARN, managedARN, clusterName string
	roleARN, eksAuth                string
	manageRoles                     bool
	agentNamespace, agentAccount    string
}

func newAWS(env cli.Environment) *cobra.Command {
	d := &awsDoctor{Environment: env, eksAuth: string(irsa.AccessEntry), manageRoles: true}
	d.agentNamespace, d.agentAccount, _ = strings.Cut(irsa.AgentServiceAccount, ":")
	command := &cobra.Command{
		Use:   "aws",
		Short: "Report missing prerequisites of registration by IAM roles in AWS",
		Long: `Report the prerequisites of registration by IAM roles in AWS: roles, policies, permissions, tags, identity
providers and mappings. The command prints one line for each of them, with the remedy if it is missing.
It exits with 1 if one is missing, differs, or cannot be read.

The command uses the credentials that the AWS SDK finds, and only reads. It inspects the clusters in the
account of these credentials. Run it once for each account.`,
		Example: `  # The account of the managed cluster. In that of the hub, omit AWS_PROFILE
  AWS_PROFILE=managed clusteradm doctor aws --hub-cluster-arn arn:aws:eks:us-west-2:123456789012:cluster/hub \
      --managed-cluster-arn arn:aws:eks:us-west-2:210987654321:cluster/cluster1 --cluster-name cluster1`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&d.hubARN, "hub-cluster-arn", "", "ARN of the hub's EKS cluster, as in the configuration of the server. Required.")
	flags.StringVar(&d.hubARN, "eks-hub-cluster-arn", "", "Same as --hub-cluster-arn.")
	flags.StringVar(&d.managedARN, "managed-cluster-arn", "", "ARN of the EKS cluster of a managed cluster. If empty, only the hub is inspected.")
	flags.StringVar(&d.clusterName, "cluster-name", "", "Name of the ManagedCluster. Defaults to the name in --managed-cluster-arn.")
	flags.StringVar(&d.roleARN, "hub-role-arn", "", "ARN of the IAM role of the server. Defaults to <hub>_managed-cluster-identity-creator in the account of the hub.")
	flags.StringVar(&d.eksAuth, "eks-auth", d.eksAuth, "How the hub maps IAM roles to groups: AccessEntry, or ConfigMap for kube-system/aws-auth, which is read on the cluster of the current context.")
	flags.BoolVar(&d.manageRoles, "irsa-manage-roles", d.manageRoles, "Whether the server creates the IAM role of each cluster in the account of the hub.")
	flags.StringVar(&d.agentNamespace, "agent-namespace", d.agentNamespace, "Namespace of the agent on the managed cluster.")
	return command
}

// inspection returns the inspection that the flags describe, or all errors of the flags.
func (d *awsDoctor) inspection() (awsapply.Inspection, error) {
	inspection := awsapply.Inspection{
		Desired:       irsa.Desired{Mapping: irsa.Mapping(d.eksAuth), ManageRoles: d.manageRoles, ClusterName: d.clusterName},
		ServerAccount: manifests.HubNamespace + ":" + manifests.ServerName, AgentAccount: d.agentNamespace + ":" + d.agentAccount,
	}
	var err, wrong error
	if inspection.Hub, err = irsa.ParseARN(d.hubARN); err != nil {
		return inspection, fmt.Errorf("--hub-cluster-arn: %w", err)
	}
	if d.managedARN != "" {
		if inspection.Managed, wrong = irsa.ParseARN(d.managedARN); wrong != nil {
			wrong = fmt.Errorf("--managed-cluster-arn: %w", wrong)
		} else {
			wrong = inspection.Identity.Validate()
		}
		inspection.ClusterName = cmp.Or(inspection.ClusterName, inspection.Managed.ClusterName)
	}
	inspection.ServerRole, err = install.ServerRole(inspection.Hub, d.roleARN)
	return inspection, errors.Join(install.CheckMapping(d.eksAuth), wrong, err,
		cli.Wrong(d.managedARN == "" && d.clusterName != "", "--cluster-name requires --managed-cluster-arn"))
}

func (d *awsDoctor) run(ctx context.Context) error {
	inspection, err := d.inspection()
	if err != nil {
		return err
	}
	findings, err := awsapply.Inspect(ctx, inspection)
	if err != nil {
		return err
	}
	if inspection.Mapping == irsa.ConfigMap && inspection.Managed != (irsa.ARN{}) {
		findings = append(findings, d.mapped(ctx, inspection.Desired))
	}
	bad := 0
	for _, finding := range findings {
		line := fmt.Sprintf("%-8s %s", finding.State, finding.Subject)
		if finding.Remedy != "" {
			line += ": " + finding.Remedy
		}
		d.Say("%s", cli.Printable(line))
		if finding.State != awsapply.Present && finding.State != awsapply.Skipped {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d prerequisites are missing, differ or cannot be read", bad, len(findings))
	}
	return nil
}

// mapped checks the role of the managed cluster in the ConfigMap aws-auth of the cluster of the current context.
func (d *awsDoctor) mapped(ctx context.Context, desired irsa.Desired) awsapply.Finding {
	finding := awsapply.Finding{State: awsapply.Unknown, Subject: "entry of " + desired.HubRoleARN() + " in ConfigMap kube-system/aws-auth"}
	auth := &corev1.ConfigMap{}
	clients, err := d.Connect()
	if err == nil {
		auth, err = clients.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "aws-auth", metav1.GetOptions{})
	}
	if cli.IgnoreNotFound(err) != nil {
		finding.Remedy = err.Error()
		return finding
	}
	var roles []struct {
		RoleARN  string   `json:"rolearn"`
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(auth.Data["mapRoles"]), &roles); err != nil {
		finding.State, finding.Remedy = awsapply.Different, "mapRoles is not a list of roles; correct it manually: "+err.Error()
		return finding
	}
	const accept = "accept the cluster; the server repairs an accepted cluster within 30 minutes, or when it starts"
	finding.State, finding.Remedy = awsapply.Missing, accept
	for _, role := range roles {
		if role.RoleARN != desired.HubRoleARN() {
			continue
		}
		if role.Username == desired.Username() && slices.Equal(role.Groups, desired.Groups()) {
			return awsapply.Finding{State: awsapply.Present, Subject: finding.Subject}
		}
		finding.State = awsapply.Different
		finding.Remedy = fmt.Sprintf("the user name must be %s and the groups must be %v; %s", desired.Username(), desired.Groups(), accept)
	}
	return finding
}
