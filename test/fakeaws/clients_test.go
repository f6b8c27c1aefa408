package fakeaws_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	hubAccount     = "111122223333"
	managedAccount = "444455556666"
	unknownAccount = "999900001111"
	region         = "us-west-2"
	hubARN         = "arn:aws:eks:us-west-2:111122223333:cluster/hub"

	trustManaged = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + managedAccount + `:role/managed"},"Action":"sts:AssumeRole"}]}`
	trustUnknown = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + unknownAccount + `:role/managed"},"Action":"sts:AssumeRole"}]}`
	readClusters = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["eks:DescribeCluster","eks:ListClusters"],"Resource":"` + hubARN + `"}]}`
)

// clients contains unmodified SDK clients of one access key.
type clients struct {
	IAM *iam.Client
	STS *sts.Client
	EKS *eks.Client
	// Config is the configuration of the clients.
	Config aws.Config
}

func newServer(t *testing.T, options fakeaws.Options) *fakeaws.Server {
	t.Helper()
	s, err := fakeaws.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func clientsFor(s *fakeaws.Server, key fakeaws.AccessKey) clients {
	cfg := aws.Config{
		Region:       region,
		BaseEndpoint: aws.String(s.URL()),
		Credentials:  credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
		// The tests count each attempt.
		RetryMaxAttempts: 1,
	}
	return clients{IAM: iam.NewFromConfig(cfg), STS: sts.NewFromConfig(cfg), EKS: eks.NewFromConfig(cfg), Config: cfg}
}

func addUser(t *testing.T, s *fakeaws.Server, account, name string, policies ...string) fakeaws.AccessKey {
	t.Helper()
	key, err := s.AddUser(account, name, policies...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newHub returns a server with the hub's cluster, and an administrator of its account.
func newHub(t *testing.T, options fakeaws.Options, mode fakeaws.AuthenticationMode) (*fakeaws.Server, clients) {
	t.Helper()
	s := newServer(t, options)
	if err := s.AddCluster(hubARN, mode); err != nil {
		t.Fatal(err)
	}
	return s, clientsFor(s, addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy))
}

func createRole(t *testing.T, c clients, name, trust string) string {
	t.Helper()
	out, err := c.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust})
	if err != nil {
		t.Fatal(err)
	}
	return *out.Role.Arn
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails the test unless err is an AWS API error with that code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if got := codeOf(err); got != code {
		t.Fatalf("error = %v (code %q), want code %q", err, got, code)
	}
}

func codeOf(err error) string {
	var apiErr smithy.APIError
	if errors.As(err, &apiErr) {
		return apiErr.ErrorCode()
	}
	return ""
}

// decoded decodes a policy document, which IAM returns URL-encoded.
func decoded(t *testing.T, document *string) string {
	t.Helper()
	text, err := url.PathUnescape(aws.ToString(document))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func stateFile(t *testing.T) string { return filepath.Join(t.TempDir(), "state.json") }

// within returns a channel that receives a value after 30 seconds.
func within(t *testing.T) <-chan time.Time {
	t.Helper()
	return time.After(30 * time.Second)
}
