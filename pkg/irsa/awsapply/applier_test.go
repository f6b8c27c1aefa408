package awsapply

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2/ktesting"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	hubAccount     = "111111111111"
	managedAccount = "222222222222"
)

var hub = irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: hubAccount, ClusterName: "hub-1"}

// cloud is a fake AWS of a hub with an Applier. The Applier has only the documented
// permissions.
type cloud struct {
	*fakeaws.Server
	*Applier
	ctx context.Context
	// iam and eks are clients of an administrator who changes resources without the Applier.
	iam *iam.Client
	eks *eks.Client
}

func newCloud(t *testing.T, options fakeaws.Options) *cloud {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	server, err := fakeaws.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.AddCluster(hub.String(), fakeaws.ModeAPIAndConfigMap); err != nil {
		t.Fatal(err)
	}
	setenv(t, server, addUser(t, server, hubAccount, "admin", fakeaws.AdminPolicy))
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(hub.Region))
	if err != nil {
		t.Fatal(err)
	}
	setenv(t, server, addUser(t, server, hubAccount, "server", irsa.CreatorAccessPolicy(hub).JSON(), irsa.CreatorMappingPolicy(hub).JSON()))
	applier, err := New(ctx, hub)
	if err != nil {
		t.Fatal(err)
	}
	server.ResetCalls()
	return &cloud{Server: server, Applier: applier, ctx: ctx, iam: iam.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg)}
}

func addUser(t *testing.T, server *fakeaws.Server, account, name string, policies ...string) fakeaws.AccessKey {
	t.Helper()
	key, err := server.AddUser(account, name, policies...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func setenv(t *testing.T, server *fakeaws.Server, key fakeaws.AccessKey) {
	t.Helper()
	for _, variable := range server.Env(key) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

func desired(name string) irsa.Desired {
	return irsa.Desired{
		Identity: irsa.Identity{
			Hub:     hub,
			Managed: irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: managedAccount, ClusterName: "eks-" + name},
		},
		ManageRoles: true, Mapping: irsa.AccessEntry, ClusterName: name, ResourceTags: map[string]string{"team": "fleet"},
	}
}

// made returns the operations since the last call of made, except for reads.
func (c *cloud) made() []string {
	var names []string
	for _, call := range c.Calls() {
		if !strings.HasPrefix(call.Operation, "Get") && !strings.HasPrefix(call.Operation, "List") && !strings.HasPrefix(call.Operation, "Describe") {
			names = append(names, call.Operation)
		}
	}
	c.ResetCalls()
	return names
}

// wantProvisioned checks that AWS contains exactly the desired resources of these clusters.
func (c *cloud) wantProvisioned(t *testing.T, all ...irsa.Desired) {
	t.Helper()
	roles, entries := map[string]fakeaws.Role{}, map[string]fakeaws.AccessEntry{}
	for _, role := range c.Roles(hubAccount) {
		roles[role.Name] = role
	}
	for _, entry := range c.AccessEntries(hub.String()) {
		entries[entry.PrincipalARN] = entry
	}
	wantRoles, wantEntries := 0, 0
	for _, d := range all {
		if d.ManageRoles {
			wantRoles++
			role := roles[d.HubRoleName()]
			if !sameJSON(role.TrustPolicy, d.HubTrustPolicy().JSON()) || !sameJSON(role.InlinePolicies[d.HubRoleName()], d.HubAccessPolicy().JSON()) {
				t.Errorf("policies of the role of %s = %s and %v, want %s and %s", d.ClusterName, role.TrustPolicy, role.InlinePolicies, d.HubTrustPolicy().JSON(), d.HubAccessPolicy().JSON())
			}
			if !containsAll(role.Tags, d.Tags()) {
				t.Errorf("tags of the role of %s = %v, want %v", d.ClusterName, role.Tags, d.Tags())
			}
		}
		if d.Mapping == irsa.AccessEntry {
			wantEntries++
			entry := entries[d.HubRoleARN()]
			if entry.Username != d.Username() || !slices.Equal(entry.Groups, d.Groups()) || entry.Type != "STANDARD" || !containsAll(entry.Tags, d.Tags()) {
				t.Errorf("access entry of %s = %+v, want user %s, groups %v, type STANDARD and tags %v", d.ClusterName, entry, d.Username(), d.Groups(), d.Tags())
			}
		}
	}
	if len(roles) != wantRoles || len(entries) != wantEntries {
		t.Errorf("number of roles, access entries = %d, %d, want %d, %d", len(roles), len(entries), wantRoles, wantEntries)
	}
}

func sameJSON(a, b string) bool {
	var first, second any
	return json.Unmarshal([]byte(a), &first) == nil && json.Unmarshal([]byte(b), &second) == nil && reflect.DeepEqual(first, second)
}

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

func TestProvisionAndRemove(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d, other := desired("cluster1"), desired("cluster2")
	before := counted(t, "iam", "CreateRole", resultSuccess)

	for _, d := range []irsa.Desired{d, other} {
		if err := c.Provision(c.ctx, d, true); err != nil {
			t.Fatal(err)
		}
		if got := c.made(); !slices.Equal(got, []string{"CreateRole", "PutRolePolicy", "CreateAccessEntry"}) {
			t.Errorf("calls of Provision() = %v, want CreateRole, PutRolePolicy, CreateAccessEntry", got)
		}
	}
	c.wantProvisioned(t, d, other)
	if after := counted(t, "iam", "CreateRole", resultSuccess); after-before != 2 {
		t.Errorf("counted calls of CreateRole = %v, want 2", after-before)
	}

	if err := c.Provision(c.ctx, d, false); err != nil {
		t.Fatal(err)
	}
	if got := c.made(); len(got) > 0 {
		t.Errorf("calls of Provision() without differences = %v, want none", got)
	}

	if err := c.Remove(c.ctx, d); err != nil {
		t.Fatal(err)
	}
	if got := c.made(); !slices.Equal(got, []string{"DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole"}) {
		t.Errorf("calls of Remove() = %v, want DeleteAccessEntry, DeleteRolePolicy, DeleteRole", got)
	}
	c.wantProvisioned(t, other)
	if err := c.Remove(c.ctx, d); err != nil {
		t.Errorf("Remove() of removed resources = %v, want no error", err)
	}
	c.wantProvisioned(t, other)
}

func TestProvisionWithRolesOfOthers(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	d.ManageRoles = false
	if err := c.Provision(c.ctx, d, true); awserror.Code(err) != "InvalidParameterException" {
		t.Errorf("Provision() without the role = %v, want InvalidParameterException", err)
	}
	_, err := c.iam.CreateRole(c.ctx, &iam.CreateRoleInput{RoleName: aws.String(d.HubRoleName()), AssumeRolePolicyDocument: aws.String(d.HubTrustPolicy().JSON())})
	if err != nil {
		t.Fatal(err)
	}
	c.ResetCalls()
	if err := c.Provision(c.ctx, d, false); err != nil {
		t.Fatal(err)
	}
	c.wantIAM(t, 0)
	c.wantEntries(t, 1)
	if err := c.Remove(c.ctx, d); err != nil {
		t.Fatal(err)
	}
	c.wantIAM(t, 0)
	c.wantEntries(t, 0)
	if roles := c.Roles(hubAccount); len(roles) != 1 {
		t.Errorf("roles after Remove() = %v, want the role of others", roles)
	}
}

func TestProvisionWithConfigMap(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	d.Mapping = irsa.ConfigMap
	for _, fresh := range []bool{true, false} {
		if err := c.Provision(c.ctx, d, fresh); err != nil {
			t.Fatal(err)
		}
	}
	c.wantProvisioned(t, d)
	if err := c.Remove(c.ctx, d); err != nil {
		t.Fatal(err)
	}
	c.wantProvisioned(t)
	for _, call := range c.Calls() {
		if call.Service != serviceIAM {
			t.Errorf("call = %s %s, want calls of %s only", call.Service, call.Operation, serviceIAM)
		}
	}
}

func (c *cloud) wantIAM(t *testing.T, want int) {
	t.Helper()
	got := 0
	for _, call := range c.Calls() {
		if call.Service == serviceIAM {
			got++
		}
	}
	if got != want {
		t.Errorf("calls of IAM = %d, want %d", got, want)
	}
}

func (c *cloud) wantEntries(t *testing.T, want int) {
	t.Helper()
	if entries := c.AccessEntries(hub.String()); len(entries) != want {
		t.Errorf("access entries = %+v, want %d entries", entries, want)
	}
}

// Provision repairs each drift with the necessary calls only, and keeps the additions of
// others.
func TestDrift(t *testing.T) {
	foreign := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"}]}`
	d := desired("cluster1")
	role, principal := aws.String(d.HubRoleName()), aws.String(d.HubRoleARN())
	for name, test := range map[string]struct {
		change func(*cloud) error
		want   []string
	}{
		"trust policy": {func(c *cloud) error {
			everybody := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`
			_, err := c.iam.UpdateAssumeRolePolicy(c.ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: aws.String(everybody)})
			return err
		}, []string{"UpdateAssumeRolePolicy"}},
		"access policy": {func(c *cloud) error {
			_, err := c.iam.PutRolePolicy(c.ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: role, PolicyDocument: aws.String(foreign)})
			return err
		}, []string{"PutRolePolicy"}},
		"no access policy": {func(c *cloud) error {
			_, err := c.iam.DeleteRolePolicy(c.ctx, &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: role})
			return err
		}, []string{"PutRolePolicy"}},
		"tags": {func(c *cloud) error {
			_, err := c.iam.TagRole(c.ctx, &iam.TagRoleInput{RoleName: role, Tags: []iamtypes.Tag{
				{Key: aws.String("team"), Value: aws.String("x")}, {Key: aws.String("foreign"), Value: aws.String("stays")}}})
			return err
		}, []string{"TagRole"}},
		"groups": {func(c *cloud) error {
			_, err := c.eks.UpdateAccessEntry(c.ctx, &eks.UpdateAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: principal, KubernetesGroups: []string{"admins"}})
			return err
		}, []string{"UpdateAccessEntry"}},
		"username": {func(c *cloud) error {
			_, err := c.eks.UpdateAccessEntry(c.ctx, &eks.UpdateAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: principal, Username: aws.String("cluster2")})
			return err
		}, []string{"UpdateAccessEntry"}},
		"tags of the entry": {func(c *cloud) error {
			arn := c.AccessEntries(hub.String())[0].ARN
			_, err := c.eks.TagResource(c.ctx, &eks.TagResourceInput{ResourceArn: aws.String(arn), Tags: map[string]string{"team": "x", "foreign": "stays"}})
			return err
		}, []string{"TagResource"}},
		"type": {func(c *cloud) error {
			key := &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: principal}
			if _, err := c.eks.DeleteAccessEntry(c.ctx, key); err != nil {
				return err
			}
			_, err := c.eks.CreateAccessEntry(c.ctx, &eks.CreateAccessEntryInput{ClusterName: key.ClusterName, PrincipalArn: principal, Type: aws.String("EC2_LINUX")})
			return err
		}, []string{"DeleteAccessEntry", "CreateAccessEntry"}},
		"no entry": {func(c *cloud) error {
			_, err := c.eks.DeleteAccessEntry(c.ctx, &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub-1"), PrincipalArn: principal})
			return err
		}, []string{"CreateAccessEntry"}},
		"no role": {func(c *cloud) error {
			if _, err := c.iam.DeleteRolePolicy(c.ctx, &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: role}); err != nil {
				return err
			}
			_, err := c.iam.DeleteRole(c.ctx, &iam.DeleteRoleInput{RoleName: role})
			return err
		}, []string{"DeleteAccessEntry", "CreateRole", "PutRolePolicy", "CreateAccessEntry"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, fakeaws.Options{})
			if err := c.Provision(c.ctx, d, true); err != nil {
				t.Fatal(err)
			}
			if err := test.change(c); err != nil {
				t.Fatal(err)
			}
			c.ResetCalls()
			if err := c.Provision(c.ctx, d, false); err != nil {
				t.Fatal(err)
			}
			if got := c.made(); !slices.Equal(got, test.want) {
				t.Errorf("calls of Provision() = %v, want %v", got, test.want)
			}
			c.wantProvisioned(t, d)
			if name == "tags" && c.Roles(hubAccount)[0].Tags["foreign"] != "stays" {
				t.Errorf("tags of the role = %v, want foreign=stays", c.Roles(hubAccount)[0].Tags)
			}
			if name == "tags of the entry" && c.AccessEntries(hub.String())[0].Tags["foreign"] != "stays" {
				t.Errorf("tags of the access entry = %v, want foreign=stays", c.AccessEntries(hub.String())[0].Tags)
			}
		})
	}
}

// A role of a managed cluster that was deleted and recreated is a different role. A trust
// policy does not refer to it until the policy is written again.
func TestRecreatedManagedClusterRole(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	setenv(t, c.Server, addUser(t, c.Server, managedAccount, "admin", fakeaws.AdminPolicy))
	cfg, err := config.LoadDefaultConfig(c.ctx, config.WithRegion(hub.Region))
	if err != nil {
		t.Fatal(err)
	}
	client := iam.NewFromConfig(cfg)
	name := aws.String(d.ManagedClusterRoleName())
	create := &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + managedAccount + `"},"Action":"sts:AssumeRole"}]}`)}

	if err := c.Provision(c.ctx, d, true); awserror.Code(err) != "MalformedPolicyDocument" {
		t.Errorf("Provision() without the role of the managed cluster = %v, want MalformedPolicyDocument", err)
	}
	if _, err := client.CreateRole(c.ctx, create); err != nil {
		t.Fatal(err)
	}
	if err := c.Provision(c.ctx, d, false); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteRole(c.ctx, &iam.DeleteRoleInput{RoleName: name}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateRole(c.ctx, create); err != nil {
		t.Fatal(err)
	}
	c.ResetCalls()
	if err := c.Provision(c.ctx, d, false); err != nil {
		t.Fatal(err)
	}
	if got := c.made(); !slices.Equal(got, []string{"UpdateAssumeRolePolicy"}) {
		t.Errorf("calls of Provision() = %v, want UpdateAssumeRolePolicy", got)
	}
	c.wantProvisioned(t, d)
}

// Provision takes over existing resources. Remove deletes the role together with the policies of
// others.
func TestForeignRole(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	role := aws.String(d.HubRoleName())
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	if _, err := c.iam.CreateRole(c.ctx, &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: aws.String(trust)}); err != nil {
		t.Fatal(err)
	}
	c.ResetCalls()
	if err := c.Provision(c.ctx, d, true); err != nil {
		t.Fatal(err)
	}
	if got := c.made(); !slices.Equal(got, []string{"CreateRole", "UpdateAssumeRolePolicy", "PutRolePolicy", "TagRole", "CreateAccessEntry"}) {
		t.Errorf("calls of Provision() = %v, want CreateRole, UpdateAssumeRolePolicy, PutRolePolicy, TagRole, CreateAccessEntry", got)
	}
	c.wantProvisioned(t, d)

	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
	if _, err := c.iam.PutRolePolicy(c.ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: aws.String("foreign"), PolicyDocument: aws.String(policy)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AttachPolicy(hub.AccountID, *role, "foreign", policy); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(c.ctx, d); err != nil {
		t.Fatal(err)
	}
	c.wantProvisioned(t)
}

func TestRoleWithAnotherPath(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	_, err := c.iam.CreateRole(c.ctx, &iam.CreateRoleInput{RoleName: aws.String(d.HubRoleName()), Path: aws.String("/teams/"), AssumeRolePolicyDocument: aws.String(d.HubTrustPolicy().JSON())})
	if err != nil {
		t.Fatal(err)
	}
	c.ResetCalls()
	if err := c.Provision(c.ctx, d, true); err == nil || !strings.Contains(err.Error(), "role/teams/"+d.HubRoleName()) {
		t.Errorf("Provision() with a role of another path = %v, want an error that contains the path", err)
	}
	if got := c.made(); !slices.Equal(got, []string{"CreateRole"}) {
		t.Errorf("calls of Provision() = %v, want CreateRole", got)
	}
}

func TestNewRefusesOtherAccounts(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	setenv(t, c.Server, addUser(t, c.Server, "333333333333", "admin", fakeaws.AdminPolicy))
	if _, err := New(c.ctx, hub); err == nil || !strings.Contains(err.Error(), "333333333333") {
		t.Errorf("New() with credentials of another account = %v, want an error that contains the account", err)
	}
}

// The credentials change to credentials of another account after the start.
func TestRoleInAnotherAccountIsNotKept(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	setenv(t, c.Server, addUser(t, c.Server, "333333333333", "admin", fakeaws.AdminPolicy))
	c.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
		if call.Operation == "GetCallerIdentity" {
			return fakeaws.Error("AccessDenied")
		}
		return fakeaws.Fault{}
	})
	applier, err := New(c.ctx, hub)
	if err != nil {
		t.Fatalf("New() with a failing STS = %v, want no error", err)
	}
	for _, mapping := range []irsa.Mapping{irsa.AccessEntry, irsa.ConfigMap} {
		d := desired("cluster1")
		d.Mapping = mapping
		if err := applier.Provision(c.ctx, d, true); err == nil || !strings.Contains(err.Error(), "333333333333") {
			t.Errorf("Provision() in another account with %s = %v, want an error that contains the account", mapping, err)
		}
		if got := c.made(); !slices.Equal(got, []string{"CreateRole", "DeleteRole"}) {
			t.Errorf("calls of Provision() in another account with %s = %v, want CreateRole, DeleteRole", mapping, got)
		}
	}
	if roles := c.Roles("333333333333"); len(roles) > 0 {
		t.Errorf("roles in another account = %v, want none", roles)
	}
	c.wantProvisioned(t)
}

func TestDeniedCallsAreReported(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	d := desired("cluster1")
	setenv(t, c.Server, addUser(t, c.Server, hubAccount, "nobody"))
	applier, err := New(c.ctx, hub)
	if err != nil {
		t.Fatal(err)
	}
	before := counted(t, "iam", "CreateRole", resultDenied)
	err = applier.Provision(c.ctx, d, true)
	if awserror.Code(err) != "AccessDenied" || !strings.Contains(err.Error(), "iam CreateRole for role "+d.HubRoleName()) {
		t.Errorf("Provision() without permissions = %v, want AccessDenied for CreateRole", err)
	}
	if after := counted(t, "iam", "CreateRole", resultDenied); after-before != 1 {
		t.Errorf("counted denied calls = %v, want 1", after-before)
	}
}

func counted(t *testing.T, labels ...string) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(calls.WithLabelValues(labels...))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestCallsEndWithTheirContext(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	never := make(chan struct{})
	defer close(never)
	called := make(chan struct{}, 10)
	c.SetFaults(func(fakeaws.Call) fakeaws.Fault {
		called <- struct{}{}
		return fakeaws.Delay(never)
	})
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Provision(ctx, desired("cluster1"), true) }()
	<-called
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Provision() with a canceled context = nil, want an error")
		}
	case <-time.After(await.Patience):
		t.Fatal("Provision() did not return after its context was canceled")
	}
}

func TestErrorsAreTheSameForEveryAttempt(t *testing.T) {
	c := newCloud(t, fakeaws.Options{})
	c.SetFaults(func(fakeaws.Call) fakeaws.Fault { return fakeaws.Error("ServiceQuotaExceeded") })
	texts := map[string]bool{}
	for range 3 {
		err := c.Provision(c.ctx, desired("cluster1"), true)
		if err == nil {
			t.Fatal("Provision() = nil, want ServiceQuotaExceeded")
		}
		texts[err.Error()] = true
	}
	if len(texts) != 1 {
		t.Errorf("errors of three attempts = %q, want the same error", slices.Collect(maps.Keys(texts)))
	}
}
