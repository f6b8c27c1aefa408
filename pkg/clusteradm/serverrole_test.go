package clusteradm

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// The role of the server may have a path. It is part of the ARN, and no part of the name by which IAM finds the role.
func TestServerRoleWithPath(t *testing.T) {
	const account = "123456789012"
	longName, longPath := strings.Repeat("n", 64), "/"+strings.Repeat("p", 510)+"/"
	for _, test := range []struct {
		hub, partition, path, name string
		// byDefault means that --hub-role-arn is not set.
		byDefault bool
	}{
		{"arn:aws:eks:us-west-2:" + account + ":cluster/hub", "aws", "/platform/eks/", "hub-creator", false},
		{"arn:aws:eks:us-west-2:" + account + ":cluster/hub", "aws", "/", "hub_managed-cluster-identity-creator", true},
		{"arn:aws:eks:us-west-2:" + account + ":cluster/" + strings.Repeat("h", 100), "aws", "/", longName, false},
		{"arn:aws-cn:eks:cn-northwest-1:" + account + ":cluster/hub", "aws-cn", "/a:b,c/", "hub", false},
		{"arn:aws-us-gov:eks:us-gov-west-1:" + account + ":cluster/hub", "aws-us-gov", longPath, longName, false},
	} {
		role := "arn:" + test.partition + ":iam::" + account + ":role" + test.path + test.name
		t.Run(role[:min(len(role), 80)], func(t *testing.T) {
			server := fakeHubAccount(t, test.hub, account)
			hub, err := irsa.ParseARN(test.hub)
			if err != nil {
				t.Fatal(err)
			}
			createServerRole(t, hub, test.path, test.name)
			args := []string{"--hub-cluster-arn=" + test.hub, "--eks-auth=ConfigMap"}
			if !test.byDefault {
				args = append(args, "--hub-role-arn="+role)
			}
			runCommand(t, append([]string{"init", "--output-manifests", "--image=registry.example.com/hub:v1", "--registration-auth=aws-irsa"}, args...)...).done(t).
				shows(t, program.RoleARNAnnotation+": "+role)

			server.ResetCalls()
			runCommand(t, append([]string{"doctor", "aws"}, args...)...).done(t).shows(t, "ok       role "+test.name+" of the server")
			asked := 0
			for _, call := range server.Calls() {
				if call.Operation != "GetRole" {
					continue
				}
				asked++
				if got := call.Parameters["RoleName"]; got != test.name {
					t.Errorf("RoleName of GetRole = %q, want %q", got, test.name)
				}
			}
			if asked == 0 {
				t.Error("calls of GetRole = 0, want at least 1")
			}
		})
	}
}

// fakeHubAccount starts a fake AWS with the EKS cluster of a hub, and makes the commands of the test use it.
func fakeHubAccount(t *testing.T, hub, account string) *fakeaws.Server {
	t.Helper()
	server, err := fakeaws.New(fakeaws.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.AddCluster(hub, fakeaws.ModeConfigMap); err != nil {
		t.Fatal(err)
	}
	if err := server.AddOIDCProvider(account, fakeaws.ClusterIssuer(hub), nil); err != nil {
		t.Fatal(err)
	}
	key, err := server.AddUser(account, "admin", fakeaws.AdminPolicy)
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range server.Env(key) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	return server
}

// createServerRole creates the role of the server as docs/registration-aws.md says.
func createServerRole(t *testing.T, hub irsa.ARN, path, name string) {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := iam.NewFromConfig(cfg)
	trust := irsa.CreatorTrustPolicy(hub, fakeaws.ClusterIssuer(hub.String()), manifests.HubNamespace+":"+manifests.ServerName)
	if _, err := client.CreateRole(t.Context(), &iam.CreateRoleInput{Path: aws.String(path), RoleName: aws.String(name), AssumeRolePolicyDocument: aws.String(trust.JSON())}); err != nil {
		t.Fatal(err)
	}
	for policy, document := range map[string]irsa.Policy{"access": irsa.CreatorAccessPolicy(hub), "mapping": irsa.CreatorMappingPolicy(hub)} {
		if _, err := client.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String(name), PolicyName: aws.String(policy), PolicyDocument: aws.String(document.JSON())}); err != nil {
			t.Fatal(err)
		}
	}
}
