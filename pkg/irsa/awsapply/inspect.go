package awsapply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// State is the state of one prerequisite.
type State string

// States of findings.
const (
	// Present means that the prerequisite is met.
	Present State = "ok"
	// Missing means that it does not exist, and Different that it exists with other content.
	Missing   State = "missing"
	Different State = "differs"
	// Unknown means that it could not be read.
	Unknown State = "unknown"
	// Skipped means that it belongs to another account, or to no account.
	Skipped State = "skipped"
)

// Finding is the state of one prerequisite of registration by IAM roles.
type Finding struct {
	State State
	// Subject names the prerequisite. Remedy is empty if it is met.
	Subject, Remedy string
}

// Inspection configures Inspect.
type Inspection struct {
	// Desired contains the hub, the mapping and the managed cluster. The managed cluster is the zero ARN if only the hub is
	// inspected.
	irsa.Desired
	// ServerRole is the server's role, and ServerAccount its ServiceAccount as namespace:name.
	ServerRole    irsa.Role
	ServerAccount string
	// AgentAccount is the ServiceAccount of the agent.
	AgentAccount string
}

// inspector reads AWS, and never writes.
type inspector struct {
	*Applier
	Inspection
	account string
	// noEntries means that the hub does not support access entries.
	noEntries bool
	findings  []Finding
}

// Inspect compares AWS with the prerequisites of registration by IAM roles. It uses the credentials of the AWS SDK's
// default chain, and only reads the account of these credentials.
func Inspect(ctx context.Context, inspection Inspection) ([]Finding, error) {
	cfg, err := loadConfig(ctx, inspection.Hub.Region)
	if err != nil {
		return nil, err
	}
	i := &inspector{
		Applier:    &Applier{iam: iam.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg)},
		Inspection: inspection,
	}
	if i.account, err = callerAccount(ctx, cfg, "your credentials"); err != nil {
		return nil, err
	}
	if i.owns("the hub", i.Hub) {
		i.inspectHub(ctx)
	}
	if i.Managed != (irsa.ARN{}) && i.owns("the managed cluster", i.Managed) {
		i.inspectManaged(ctx)
	}
	return i.findings, nil
}

// owns reports whether the credentials belong to the account of a cluster.
func (i *inspector) owns(what string, cluster irsa.ARN) bool {
	if cluster.AccountID == i.account {
		return true
	}
	i.add(Skipped, fmt.Sprintf("account %s of %s", cluster.AccountID, what), "your credentials are of account "+i.account+"; run the command again with credentials of that account")
	return false
}

func (i *inspector) add(state State, subject, remedy string) {
	i.findings = append(i.findings, Finding{State: state, Subject: subject, Remedy: remedy})
}

// judge adds a finding with the state and its remedy, or one that is Present if ok.
func (i *inspector) judge(ok bool, state State, subject, remedy string) {
	if ok {
		state, remedy = Present, ""
	}
	i.add(state, subject, remedy)
}

func (i *inspector) unread(subject string, err error) {
	i.add(Unknown, subject, err.Error())
}

// serverRoleDocs returns the URL of the section that describes the role of the server and its policies.
func serverRoleDocs() string { return version.Docs("registration-aws.md#create-the-role-of-the-hub") }

func (i *inspector) inspectHub(ctx context.Context) {
	issuer := i.inspectCluster(ctx, "hub", i.Hub, i.Mapping)
	i.inspectProvider(ctx, i.Hub, issuer)
	role := i.inspectRole(ctx, i.ServerRole, "the server", "create it: see "+serverRoleDocs(), "use its ARN as --hub-role-arn of init and of this command")
	desired := i.Desired
	if desired.Managed == (irsa.ARN{}) {
		desired.Managed = i.Hub // the required actions do not depend on the cluster
	}
	if role != nil {
		i.inspectTrust(role, irsa.CreatorTrustPolicy(i.Hub, issuer, i.ServerAccount), issuer)
		i.inspectPermissions(ctx, role, irsa.ServerPermissions(desired))
	}
	if i.Managed != (irsa.ARN{}) {
		i.inspectProvisioned(ctx)
	}
}

func (i *inspector) inspectManaged(ctx context.Context) {
	issuer := i.inspectCluster(ctx, "managed", i.Managed, "")
	i.inspectProvider(ctx, i.Managed, issuer)
	role := i.inspectRole(ctx, i.Managed.Role(i.ManagedClusterRoleName()), "the managed cluster",
		"run "+strings.Join(i.Commands(issuer, i.AgentAccount), " && "), "create it without a path")
	if role == nil {
		return
	}
	i.inspectTrust(role, i.ManagedClusterTrustPolicy(issuer, i.AgentAccount), issuer)
	i.inspectPermissions(ctx, role, i.ManagedClusterPermissions())
	missing := irsa.MissingTags(i.Identity.Tags(), tagsOf(role))
	i.judge(len(missing) == 0, Missing, "tags of role "+aws.ToString(role.RoleName), "run aws iam tag-role with "+listTags(missing))
}

// inspectCluster returns the OIDC issuer of an EKS cluster, or an empty string if it is unknown.
func (i *inspector) inspectCluster(ctx context.Context, kind string, cluster irsa.ARN, mapping irsa.Mapping) (issuer string) {
	subject := fmt.Sprintf("%s EKS cluster %s", kind, cluster)
	out, err := i.describeCluster(ctx, cluster)
	switch {
	case isNotFound(err) && mapping == irsa.ConfigMap:
		i.add(Skipped, subject, "there is none, as on a hub that is not EKS; its identity provider is not inspected")
		return ""
	case isNotFound(err):
		i.add(Missing, subject, "correct the ARN; on a hub that is not EKS, use --eks-auth=ConfigMap")
		return ""
	case err != nil:
		i.unread(subject, err)
		return ""
	}
	i.add(Present, subject, "")
	if mapping == irsa.AccessEntry {
		problem := entriesProblem(cluster.ClusterName, out.Cluster)
		i.noEntries = problem != ""
		i.judge(problem == "", Different, "authentication mode of EKS cluster "+cluster.ClusterName, problem)
	}
	if out.Cluster.Identity == nil || out.Cluster.Identity.Oidc == nil {
		return ""
	}
	return strings.TrimPrefix(aws.ToString(out.Cluster.Identity.Oidc.Issuer), "https://")
}

// inspectProvider checks the identity provider by which ServiceAccounts assume roles.
func (i *inspector) inspectProvider(ctx context.Context, cluster irsa.ARN, issuer string) {
	if issuer == "" {
		return
	}
	arn := cluster.OIDCProviderARN(issuer)
	subject := "OIDC provider " + arn
	provider, err := invoke(ctx, serviceIAM, "GetOpenIDConnectProvider", arn, i.iam.GetOpenIDConnectProvider,
		&iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	switch {
	case isNotFound(err):
		i.add(Missing, subject, fmt.Sprintf("run aws iam create-open-id-connect-provider --url https://%s --client-id-list %s", issuer, irsa.TokenAudience))
	case err != nil:
		i.unread(subject, err)
	default:
		i.judge(slices.Contains(provider.ClientIDList, irsa.TokenAudience), Missing, "audience "+irsa.TokenAudience+" of "+subject,
			fmt.Sprintf("run aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s", arn, irsa.TokenAudience))
	}
}

// inspectRole returns a role, or nil if it cannot be read. The remedies are for a role that does not exist, and for one
// with another path.
func (i *inspector) inspectRole(ctx context.Context, wanted irsa.Role, whose, missing, moved string) *iamtypes.Role {
	subject := fmt.Sprintf("role %s of %s", wanted.Name, whose)
	role, err := i.getRole(ctx, wanted.Name)
	switch {
	case isNotFound(err):
		i.add(Missing, subject, missing)
		return nil
	case err != nil:
		i.unread(subject, err)
		return nil
	}
	arn := aws.ToString(role.Arn)
	i.judge(arn == wanted.String(), Different, subject, fmt.Sprintf("its ARN is %s instead of %s; %s", arn, wanted, moved))
	return role
}

// inspectTrust compares the trust policy of a role, if the issuer is known.
func (i *inspector) inspectTrust(role *iamtypes.Role, wanted irsa.Policy, issuer string) {
	subject := "trust policy of role " + aws.ToString(role.RoleName)
	if issuer == "" {
		i.add(Skipped, subject, "the OIDC issuer of the cluster is not known")
		return
	}
	i.judge(wanted.ContainedIn(aws.ToString(role.AssumeRolePolicyDocument)), Different, subject, "it must contain the statement of "+wanted.JSON())
}

// inspectPermissions simulates with IAM whether the policies of a role allow the required actions.
func (i *inspector) inspectPermissions(ctx context.Context, role *iamtypes.Role, wanted []irsa.Permission) {
	byResource := map[string][]string{}
	for _, permission := range wanted {
		byResource[permission.Resource] = append(byResource[permission.Resource], permission.Action)
	}
	for _, resource := range slices.Sorted(maps.Keys(byResource)) {
		// All actions of a resource fit into one page.
		simulated, err := invoke(ctx, serviceIAM, "SimulatePrincipalPolicy", "role "+aws.ToString(role.RoleName), i.iam.SimulatePrincipalPolicy,
			&iam.SimulatePrincipalPolicyInput{PolicySourceArn: role.Arn, ActionNames: byResource[resource], ResourceArns: []string{resource}})
		if err != nil {
			i.unread(fmt.Sprintf("permissions of role %s on %s", aws.ToString(role.RoleName), resource), err)
			continue
		}
		decisions := map[string]iamtypes.PolicyEvaluationDecisionType{}
		for _, result := range simulated.EvaluationResults {
			decisions[aws.ToString(result.EvalActionName)] = result.EvalDecision
		}
		for _, action := range byResource[resource] {
			subject := fmt.Sprintf("permission %s of role %s on %s", action, aws.ToString(role.RoleName), resource)
			i.judge(decisions[action] == iamtypes.PolicyEvaluationDecisionTypeAllowed, Missing, subject, "allow it in a policy of the role: see "+serverRoleDocs())
		}
	}
}

// inspectProvisioned compares the resources that the server creates for an accepted cluster. An administrator may have
// created the role.
func (i *inspector) inspectProvisioned(ctx context.Context) {
	const accept = "accept the cluster; the server repairs an accepted cluster within 30 minutes, or when it starts"
	remedy := accept
	if !i.ManageRoles {
		remedy = "make the role by the commands and documents of managedclusters/irsa"
	}
	subject := "role " + i.HubRoleName() + " of the managed cluster on the hub"
	switch role, err := i.observeRole(ctx, i.Desired); {
	case err != nil:
		i.unread(subject, err)
	case role == nil:
		i.add(Missing, subject, remedy)
	default:
		trust, access := i.HubTrustPolicy().JSON(), i.HubAccessPolicy().JSON()
		i.judge(irsa.SamePolicy(role.trustPolicy, trust), Different, "trust policy of "+subject, "it must be "+trust+"; "+remedy)
		i.judge(irsa.SamePolicy(role.accessPolicy, access), Different, "access policy "+i.HubRoleName()+" of "+subject, "it must be "+access+"; "+remedy)
		missing := irsa.MissingTags(i.Tags(), role.tags)
		i.judge(len(missing) == 0, Missing, "tags of "+subject, "they must contain "+listTags(missing)+"; "+remedy)
	}
	if i.Mapping != irsa.AccessEntry || i.noEntries {
		return
	}
	subject = "access entry of role " + i.HubRoleName()
	switch entry, err := i.observeEntry(ctx, i.Desired); {
	case err != nil:
		i.unread(subject, err)
	case entry == nil:
		i.add(Missing, subject, accept)
	default:
		i.judge(aws.ToString(entry.Type) == entryType && sameSubject(i.Desired, entry), Different, subject,
			fmt.Sprintf("its type must be %s, its user name %s and its groups %v; %s", entryType, i.Username(), i.Groups(), accept))
		missing := irsa.MissingTags(i.Tags(), entry.Tags)
		i.judge(len(missing) == 0, Missing, "tags of "+subject, "they must contain "+listTags(missing)+"; "+accept)
	}
}

func listTags(tags map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, "Key="+key+",Value="+tags[key])
	}
	return strings.Join(list, " ")
}
