package fakeaws_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	hubAccount     = "111122223333"
	managedAccount = "444455556666"
	unknownAccount = "999900001111"
	region         = "us-west-2"
	hubARN         = "arn:aws:eks:us-west-2:111122223333:cluster/hub"

	issuer      = "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE"
	subject     = "system:serviceaccount:open-cluster-management-agent:agent"
	managedRole = "arn:aws:iam::" + managedAccount + ":role/managed"
	hubRole     = "arn:aws:iam::" + hubAccount + ":role/ocm-hub-1"

	trustUnknown = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + unknownAccount + `:role/managed"},"Action":"sts:AssumeRole"}]}`
	trustManaged = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + managedRole + `"},"Action":"sts:AssumeRole",
		"Condition":{"StringEquals":{"aws:PrincipalTag/cluster":"cluster1"}}}]}`
	trustToken = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::` + managedAccount + `:oidc-provider/` + issuer + `"},
		"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"` + issuer + `:sub":"` + subject + `","` + issuer + `:aud":"sts.amazonaws.com"}}}]}`
	readClusters = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["eks:DescribeCluster","eks:ListClusters"],"Resource":"` + hubARN + `"}]}`
	assumeHub    = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"` + hubRole + `"}}`
)

// clients are unmodified clients of the SDK with one access key.
type clients struct {
	IAM *iam.Client
	STS *sts.Client
	EKS *eks.Client
	// credentials are those of the clients.
	credentials aws.CredentialsProvider
}

func clientsFor(s *fakeaws.Server, key fakeaws.AccessKey) clients {
	cfg := aws.Config{
		Region: region, BaseEndpoint: aws.String(s.URL()), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
	}
	return clients{iam.NewFromConfig(cfg), sts.NewFromConfig(cfg), eks.NewFromConfig(cfg), cfg.Credentials}
}

// cloud has a hub's cluster with an administrator, and an administrator of the account of a managed cluster.
type cloud struct {
	*fakeaws.Server
	hub, managed clients
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	s, err := fakeaws.New(fakeaws.Options{})
	succeed(t, err)
	t.Cleanup(func() { succeed(t, s.Close()) })
	succeed(t, s.AddCluster(hubARN, fakeaws.ModeAPI))
	// The tests have no issuer of tokens: the last part of a token is its subject.
	succeed(t, s.AddOIDCProvider(managedAccount, issuer, func(_ context.Context, token string) (string, error) {
		if filepath.Ext(token) == ".invalid" {
			return "", errors.New("invalid")
		}
		return filepath.Ext(token)[1:], nil
	}))
	return &cloud{s, clientsFor(s, addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy)), clientsFor(s, addUser(t, s, managedAccount, "admin", fakeaws.AdminPolicy))}
}

// withRoles adds the roles of a managed cluster and of the hub, and an access entry.
func withRoles(t *testing.T) *cloud {
	t.Helper()
	c := newCloud(t)
	c.managed.createRole(t, "managed", trustToken)
	c.tag(t, "cluster", "cluster1")
	_, err := c.managed.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("managed"), PolicyName: aws.String("access"), PolicyDocument: aws.String(assumeHub)})
	succeed(t, err)
	c.hub.createRole(t, "ocm-hub-1", trustManaged)
	succeed(t, c.hub.createEntry(t, nil))
	return c
}

// tag sets a tag of the role of the managed cluster.
func (c *cloud) tag(t *testing.T, key, value string) {
	t.Helper()
	_, err := c.managed.IAM.TagRole(t.Context(), &iam.TagRoleInput{RoleName: aws.String("managed"), Tags: []iamtypes.Tag{{Key: &key, Value: &value}}})
	succeed(t, err)
}

func (c clients) createRole(t *testing.T, name, trust string) {
	t.Helper()
	_, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust})
	succeed(t, err)
}

func (c clients) deleteRole(t *testing.T, name string) {
	t.Helper()
	_, err := c.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: &name})
	succeed(t, err)
}

// createEntry creates an access entry of the role on the hub.
func (c clients) createEntry(t *testing.T, change func(*eks.CreateAccessEntryInput)) error {
	t.Helper()
	in := &eks.CreateAccessEntryInput{
		ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole), Username: aws.String("cluster1"),
		KubernetesGroups: []string{"open-cluster-management:cluster1"}, Tags: map[string]string{"team": "fleet"},
	}
	if change != nil {
		change(in)
	}
	_, err := c.EKS.CreateAccessEntry(t.Context(), in)
	return err
}

// session assumes the role of the managed cluster with a token, whose last part is its subject.
func (c *cloud) session(t *testing.T, role, token string) (clients, error) {
	t.Helper()
	out, err := clientsFor(c.Server, fakeaws.AccessKey{}).STS.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, RoleSessionName: aws.String("agent"), WebIdentityToken: &token,
	})
	if err != nil {
		return clients{}, err
	}
	return c.with(out.Credentials), nil
}

func (c *cloud) with(key *ststypes.Credentials) clients {
	return clientsFor(c.Server, fakeaws.AccessKey{ID: *key.AccessKeyId, Secret: *key.SecretAccessKey, SessionToken: *key.SessionToken})
}

// assume assumes the role on the hub.
func (c *cloud) assume(t *testing.T, as clients) (clients, error) {
	t.Helper()
	out, err := as.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: aws.String(hubRole), RoleSessionName: aws.String("agent")})
	if err != nil {
		return clients{}, err
	}
	return c.with(out.Credentials), nil
}

// agent returns a session of the managed cluster's role, and one of its role on the hub.
func (c *cloud) agent(t *testing.T) (own, onHub clients) {
	t.Helper()
	own, err := c.session(t, managedRole, tokenOf(subject))
	succeed(t, err)
	onHub, err = c.assume(t, own)
	succeed(t, err)
	return own, onHub
}

func addUser(t *testing.T, s *fakeaws.Server, account, name string, policies ...string) fakeaws.AccessKey {
	t.Helper()
	key, err := s.AddUser(account, name, policies...)
	succeed(t, err)
	return key
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails the test unless err is an error of AWS with that code. An empty code is no error.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var apiErr smithy.APIError
	if errors.As(err, &apiErr) && apiErr.ErrorCode() == code || err == nil && code == "" {
		return
	}
	t.Errorf("error = %v, want code %q", err, code)
}
