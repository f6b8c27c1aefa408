package awsapply

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	serverAccount = "open-cluster-management-hub:hub-apiserver"
	inspectedName = "cluster1"
)

// inspected is a fake AWS with all resources of one cluster, and with administrators of both
// accounts.
type inspected struct {
	*cloud
	inspection     Inspection
	admins         map[string]fakeaws.AccessKey
	hubIssuer, own string // OIDC issuers
}

func newInspected(t *testing.T) *inspected {
	t.Helper()
	c := newCloud(t, fakeaws.Options{})
	d := desired(inspectedName)
	i := &inspected{cloud: c, admins: map[string]fakeaws.AccessKey{}, hubIssuer: fakeaws.ClusterIssuer(hub.String()), own: fakeaws.ClusterIssuer(d.Managed.String())}
	creator, err := irsa.CreatorRoleName(hub)
	if err != nil {
		t.Fatal(err)
	}
	i.inspection = Inspection{Desired: d, ServerRole: hub.Role(creator), ServerAccount: serverAccount, AgentAccount: irsa.AgentServiceAccount}
	if err := c.AddCluster(d.Managed.String(), fakeaws.ModeAPI); err != nil {
		t.Fatal(err)
	}
	for account, issuer := range map[string]string{hubAccount: i.hubIssuer, managedAccount: i.own} {
		if err := c.AddOIDCProvider(account, issuer, nil); err != nil {
			t.Fatal(err)
		}
		i.admins[account] = addUser(t, c.Server, account, "inspector", fakeaws.AdminPolicy)
	}
	i.run(t, hubAccount, "aws iam create-role --role-name "+creator+" --assume-role-policy-document '"+irsa.CreatorTrustPolicy(hub, i.hubIssuer, serverAccount).JSON()+"'")
	i.run(t, hubAccount, "aws iam put-role-policy --role-name "+creator+" --policy-name access --policy-document '"+irsa.CreatorAccessPolicy(hub).JSON()+"'")
	i.run(t, hubAccount, "aws iam put-role-policy --role-name "+creator+" --policy-name mapping --policy-document '"+irsa.CreatorMappingPolicy(hub).JSON()+"'")
	for _, line := range d.Commands(i.own) {
		i.run(t, managedAccount, line)
	}
	if err := c.Provision(c.ctx, d, true); err != nil {
		t.Fatal(err)
	}
	c.ResetCalls()
	return i
}

// run runs a line of the aws command line as an administrator of an account.
func (i *inspected) run(t *testing.T, account, line string) {
	t.Helper()
	if err := i.RunCommand(i.ctx, i.admins[account], line); err != nil {
		t.Fatalf("running %s: %v", line, err)
	}
}

// administrator is a client of IAM for an account.
func (i *inspected) administrator(account string) *iam.Client {
	key := i.admins[account]
	return iam.New(iam.Options{
		Region: hub.Region, BaseEndpoint: aws.String(i.URL()), Credentials: credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
	})
}

func (i *inspected) deletePolicies(t *testing.T, account, role string, policies ...string) {
	t.Helper()
	for _, policy := range policies {
		if _, err := i.administrator(account).DeleteRolePolicy(i.ctx, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &policy}); err != nil {
			t.Fatal(err)
		}
	}
}

func (i *inspected) deleteRole(t *testing.T, account, role string) {
	t.Helper()
	if _, err := i.administrator(account).DeleteRole(i.ctx, &iam.DeleteRoleInput{RoleName: &role}); err != nil {
		t.Fatal(err)
	}
}

func (i *inspected) setTrust(t *testing.T, role string, policy irsa.Policy) {
	t.Helper()
	_, err := i.administrator(hubAccount).UpdateAssumeRolePolicy(i.ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &role, PolicyDocument: aws.String(policy.JSON())})
	if err != nil {
		t.Fatal(err)
	}
}

// bad returns the findings that are neither present nor skipped, and checks that Inspect only
// reads.
func (i *inspected) bad(t *testing.T, account string) []string {
	t.Helper()
	setenv(t, i.Server, i.admins[account])
	i.ResetCalls()
	findings, err := Inspect(i.ctx, i.inspection)
	if err != nil {
		t.Fatal(err)
	}
	if made := slices.DeleteFunc(i.made(), func(name string) bool { return name == "SimulatePrincipalPolicy" }); len(made) > 0 {
		t.Errorf("writes of Inspect() = %v, want none", made)
	}
	if len(findings) < 4 {
		t.Errorf("Inspect() = %v, want at least 4 findings", findings)
	}
	var bad []string
	for _, finding := range findings {
		if (finding.State == Present) != (finding.Remedy == "") {
			t.Errorf("finding = %+v, want a remedy unless it is present", finding)
		}
		if finding.State != Present && finding.State != Skipped {
			bad = append(bad, string(finding.State)+" "+finding.Subject+": "+finding.Remedy)
		}
	}
	return bad
}

func TestInspect(t *testing.T) {
	d := desired(inspectedName)
	hubRole, creator, managedRole := d.HubRoleName(), "hub-1_managed-cluster-identity-creator", d.ManagedClusterRoleName()
	for name, test := range map[string]struct {
		account string
		change  func(t *testing.T, i *inspected)
		// want contains a prefix of each expected finding.
		want []string
	}{
		"the hub":             {hubAccount, nil, nil},
		"the managed cluster": {managedAccount, nil, nil},
		"no hub": {hubAccount, func(_ *testing.T, i *inspected) {
			i.inspection.Hub.ClusterName = "other"
		}, []string{"missing hub EKS cluster"}},
		"no access entries": {hubAccount, func(t *testing.T, i *inspected) {
			if err := i.AddCluster(hub.String(), fakeaws.ModeConfigMap); err != nil {
				t.Fatal(err)
			}
		}, []string{"differs authentication mode of EKS cluster hub-1: "}},
		"no OIDC provider": {hubAccount, func(t *testing.T, i *inspected) {
			if err := i.RemoveOIDCProvider(hubAccount, i.hubIssuer); err != nil {
				t.Fatal(err)
			}
		}, []string{"missing OIDC provider arn:aws:iam::" + hubAccount + ":oidc-provider/"}},
		"no role of the server": {hubAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, hubAccount, creator, "access", "mapping")
			i.deleteRole(t, hubAccount, creator)
		}, []string{"missing role " + creator + " of the server"}},
		"a path of the server's role": {hubAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, hubAccount, creator, "access", "mapping")
			i.deleteRole(t, hubAccount, creator)
			trust := irsa.CreatorTrustPolicy(hub, i.hubIssuer, serverAccount).JSON()
			if _, err := i.iam.CreateRole(i.ctx, &iam.CreateRoleInput{Path: aws.String("/platform/"), RoleName: &creator, AssumeRolePolicyDocument: &trust}); err != nil {
				t.Fatal(err)
			}
			i.run(t, hubAccount, "aws iam put-role-policy --role-name "+creator+" --policy-name access --policy-document '"+irsa.CreatorAccessPolicy(hub).JSON()+"'")
			i.run(t, hubAccount, "aws iam put-role-policy --role-name "+creator+" --policy-name mapping --policy-document '"+irsa.CreatorMappingPolicy(hub).JSON()+"'")
		}, []string{"differs role " + creator + " of the server: its ARN is arn:aws:iam::" + hubAccount + ":role/platform/" + creator + " instead of arn:aws:iam::" + hubAccount + ":role/" + creator + "; use its ARN as --hub-role-arn"}},
		"another trust policy of the server": {hubAccount, func(t *testing.T, i *inspected) {
			i.setTrust(t, creator, irsa.CreatorTrustPolicy(hub, i.hubIssuer, "default:other"))
		}, []string{"differs trust policy of role " + creator}},
		"a further statement in the trust policy": {hubAccount, func(t *testing.T, i *inspected) {
			i.setTrust(t, creator, irsa.CreatorTrustPolicy(hub, i.hubIssuer, "default:other", serverAccount))
		}, nil},
		"no permission to tag": {hubAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, hubAccount, creator, "mapping")
		}, []string{
			"missing permission iam:TagRole", "missing permission eks:DescribeCluster", "missing permission eks:CreateAccessEntry", "missing permission eks:DescribeAccessEntry",
			"missing permission eks:UpdateAccessEntry", "missing permission eks:DeleteAccessEntry", "missing permission eks:TagResource",
		}},
		"no role of the cluster on the hub": {hubAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, hubAccount, hubRole, hubRole)
			i.deleteRole(t, hubAccount, hubRole)
		}, []string{"missing role " + hubRole}},
		"no access policy of the role on the hub": {hubAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, hubAccount, hubRole, hubRole)
		}, []string{"differs access policy " + hubRole}},
		"a missing tag of the role on the hub": {hubAccount, func(t *testing.T, i *inspected) {
			_, err := i.iam.UntagRole(i.ctx, &iam.UntagRoleInput{RoleName: &hubRole, TagKeys: []string{"hub_cluster_name"}})
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"missing tags of role " + hubRole}},
		"no access entry": {hubAccount, func(t *testing.T, i *inspected) {
			_, err := i.eks.DeleteAccessEntry(i.ctx, &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: aws.String(d.HubRoleARN())})
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"missing access entry of role " + hubRole}},
		"another access entry": {hubAccount, func(t *testing.T, i *inspected) {
			_, err := i.eks.UpdateAccessEntry(i.ctx, &eks.UpdateAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: aws.String(d.HubRoleARN()), KubernetesGroups: []string{"other"}})
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"differs access entry of role " + hubRole}},
		"no role of the cluster": {managedAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, managedAccount, managedRole, managedRole)
			i.deleteRole(t, managedAccount, managedRole)
		}, []string{"missing role " + managedRole}},
		"no access policy of the cluster": {managedAccount, func(t *testing.T, i *inspected) {
			i.deletePolicies(t, managedAccount, managedRole, managedRole)
		}, []string{"missing permission sts:AssumeRole of role " + managedRole}},
		"another agent": {managedAccount, func(_ *testing.T, i *inspected) { i.inspection.AgentAccount = "other:agent" },
			[]string{"differs trust policy of role " + managedRole}},
		"no permission to simulate": {managedAccount, func(t *testing.T, i *inspected) {
			i.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
				if call.Operation == "SimulatePrincipalPolicy" {
					return fakeaws.Error("AccessDenied")
				}
				return fakeaws.Fault{}
			})
		}, []string{"unknown permissions of role " + managedRole}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInspected(t)
			if test.change != nil {
				test.change(t, i)
			}
			bad := i.bad(t, test.account)
			for _, text := range test.want {
				if !slices.ContainsFunc(bad, func(line string) bool { return strings.HasPrefix(line, text) }) {
					t.Errorf("findings of Inspect() = %q, want %q", bad, text)
				}
			}
			if name != "no hub" && len(bad) != len(test.want) {
				t.Errorf("findings of Inspect() = %q, want %q", bad, test.want)
			}
		})
	}
}
