package awstoken

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awsapply"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

var identity = irsa.Identity{
	Hub:     irsa.ARN{Partition: "aws", Region: "us-west-2", AccountID: "111111111111", ClusterName: "hub-1"},
	Managed: irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: "222222222222", ClusterName: "managed-1"},
}

func setenv(t *testing.T, server *fakeaws.Server, key fakeaws.AccessKey) {
	t.Helper()
	for _, variable := range server.Env(key) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

func start(t *testing.T) *fakeaws.Server {
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
	if err := server.AddCluster(identity.Hub.String(), fakeaws.ModeAPIAndConfigMap); err != nil {
		t.Fatal(err)
	}
	return server
}

func user(t *testing.T, server *fakeaws.Server, account, name string, policies ...string) fakeaws.AccessKey {
	t.Helper()
	key, err := server.AddUser(account, name, policies...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// review sends a TokenReview of a token to the hub.
func review(t *testing.T, server *fakeaws.Server, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	body, err := json.Marshal(authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(server.WebhookURL(identity.Hub.String()), "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var out authenticationv1.TokenReview
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		t.Fatalf("decoding the TokenReview: %v", err)
	}
	return out.Status
}

// A session of the managed cluster's role creates a token that authenticates the cluster
// to the hub. The token works only while the hub has a role for the cluster.
func TestTokenAuthenticatesTheCluster(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	server := start(t)

	// The administrator of the managed cluster creates its role.
	setenv(t, server, user(t, server, identity.Managed.AccountID, "admin", fakeaws.AdminPolicy))
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, name := iam.NewFromConfig(cfg), aws.String(identity.ManagedClusterRoleName())
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + identity.Managed.AccountID + `"},"Action":"sts:AssumeRole"}]}`
	if _, err := client.CreateRole(ctx, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: aws.String(trust)}); err != nil {
		t.Fatal(err)
	}
	_, err = client.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: name, PolicyName: name, PolicyDocument: aws.String(identity.ManagedClusterAccessPolicy().JSON())})
	if err != nil {
		t.Fatal(err)
	}
	session, err := sts.NewFromConfig(cfg).AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: aws.String(identity.ManagedClusterRoleARN()), RoleSessionName: aws.String("agent")})
	if err != nil {
		t.Fatal(err)
	}

	// The hub provisions the cluster.
	setenv(t, server, user(t, server, identity.Hub.AccountID, "server", fakeaws.AdminPolicy))
	applier, err := awsapply.New(ctx, identity.Hub)
	if err != nil {
		t.Fatal(err)
	}
	desired := irsa.Desired{Identity: identity, ManageRoles: true, Mapping: irsa.AccessEntry, ClusterName: "cluster1"}
	if err := applier.Provision(ctx, desired, true); err != nil {
		t.Fatal(err)
	}

	// The agent uses a session of its role.
	setenv(t, server, fakeaws.AccessKey{
		ID: *session.Credentials.AccessKeyId, Secret: *session.Credentials.SecretAccessKey, SessionToken: *session.Credentials.SessionToken,
		AccountID: identity.Managed.AccountID,
	})
	options := Options{Region: identity.Hub.Region, ClusterName: identity.Hub.ClusterName, RoleARN: identity.HubRoleARN()}
	if _, _, err := Token(ctx, options); awserror.Code(err) != "AccessDenied" || !strings.Contains(err.Error(), identity.HubRoleARN()) {
		t.Errorf("Token() of a role without tags = %v, want AccessDenied for the role of the hub", err)
	}
	tag := &iam.TagRoleInput{RoleName: name, Tags: tags(identity.Tags())}
	if _, err := client.TagRole(ctx, tag); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	token, expires, err := Token(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	if life := expires.Sub(before); life < 13*time.Minute || life > 15*time.Minute {
		t.Errorf("lifetime of the token = %v, want about 14 minutes", life)
	}
	status := review(t, server, token)
	if !status.Authenticated || status.User.Username != "open-cluster-management:cluster1" || !slices.Contains(status.User.Groups, "open-cluster-management:cluster1") {
		t.Errorf("review of the token = authenticated %v, %+v, %s, want user and group of cluster1", status.Authenticated, status.User, status.Error)
	}
	wantURL(t, server, token)

	other, _, err := Token(ctx, Options{Region: options.Region, ClusterName: "hub-2", RoleARN: options.RoleARN})
	if err != nil {
		t.Fatal(err)
	}
	if status := review(t, server, other); status.Authenticated {
		t.Error("review of a token for another hub = authenticated, want unauthenticated")
	}

	// After the removal, neither an old token nor a new token works.
	if err := applier.Remove(ctx, desired); err != nil {
		t.Fatal(err)
	}
	if status := review(t, server, token); status.Authenticated {
		t.Error("review of the token after the removal = authenticated, want unauthenticated")
	}
	if _, _, err := Token(ctx, options); awserror.Code(err) != "AccessDenied" {
		t.Errorf("Token() after the removal = %v, want AccessDenied", err)
	}
}

// wantURL makes the checks that EKS makes before it sends a token to STS.
func wantURL(t *testing.T, server *fakeaws.Server, token string) {
	t.Helper()
	encoded, found := strings.CutPrefix(token, "k8s-aws-v1.")
	if !found {
		t.Fatalf("token = %.12s..., want prefix k8s-aws-v1.", token)
	}
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	request, err := url.Parse(string(decoded))
	if err != nil {
		t.Fatal(err)
	}
	if got := request.Scheme + "://" + request.Host; got != server.URL() {
		t.Errorf("URL of the token = %s, want %s", got, server.URL())
	}
	query := request.Query()
	if query.Get("Action") != "GetCallerIdentity" || query.Get("X-Amz-Expires") != "60" || query.Get("X-Amz-SignedHeaders") != "host;x-k8s-aws-id" {
		t.Errorf("Action, X-Amz-Expires, X-Amz-SignedHeaders = %q, %q, %q, want GetCallerIdentity, 60, host;x-k8s-aws-id", query.Get("Action"), query.Get("X-Amz-Expires"), query.Get("X-Amz-SignedHeaders"))
	}
	if !strings.Contains(query.Get("X-Amz-Credential"), "/us-west-2/sts/") {
		t.Errorf("X-Amz-Credential = %s, want STS in us-west-2", query.Get("X-Amz-Credential"))
	}
	for parameter := range query {
		if !slices.Contains([]string{"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-Signature", "X-Amz-SignedHeaders"}, parameter) {
			t.Errorf("parameter of the token = %s, want only parameters that EKS accepts", parameter)
		}
	}
}

func TestTokenWithoutRole(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	server := start(t)
	setenv(t, server, user(t, server, identity.Hub.AccountID, "someone"))
	token, _, err := Token(ctx, Options{Region: "us-west-2", ClusterName: "hub-1"})
	if err != nil {
		t.Fatal(err)
	}
	wantURL(t, server, token)
	if calls := server.Calls(); len(calls) > 0 {
		t.Errorf("calls of AWS = %v, want none", calls)
	}
}

// Without a configured endpoint, the token is for the STS endpoint of the region, in every
// partition.
func TestTokenIsForTheRegion(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	server := start(t)
	setenv(t, server, user(t, server, identity.Hub.AccountID, "someone"))
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ENDPOINT_URL_STS", "")
	for region, host := range map[string]string{
		"us-east-1": "sts.us-east-1.amazonaws.com", "eu-west-1": "sts.eu-west-1.amazonaws.com",
		"cn-north-1": "sts.cn-north-1.amazonaws.com.cn", "us-gov-west-1": "sts.us-gov-west-1.amazonaws.com",
	} {
		token, _, err := Token(ctx, Options{Region: region, ClusterName: "hub-1"})
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, prefix))
		if err != nil {
			t.Fatal(err)
		}
		if request, err := url.Parse(string(decoded)); err != nil || request.Host != host || request.Scheme != "https" {
			t.Errorf("URL of the token in region %s = %s, %v, want host %s with https", region, decoded, err, host)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	for want, options := range map[string]Options{
		"region":          {ClusterName: "hub-1"},
		"name of the EKS": {Region: "us-west-2"},
		"the role to assume: \"ocm-hub-x\" is not the ARN of an IAM role": {Region: "us-west-2", ClusterName: "hub-1", RoleARN: "ocm-hub-x"},
		"user/x\" is not the ARN of an IAM role":                          {Region: "us-west-2", ClusterName: "hub-1", RoleARN: "arn:aws:iam::111111111111:user/x"},
	} {
		if token, _, err := Token(ctx, options); err == nil || !strings.Contains(err.Error(), want) || token != "" {
			t.Errorf("Token(%+v) = %q, %v, want an error that contains %q", options, token, err, want)
		}
	}
}

func TestSessionName(t *testing.T) {
	for cluster, want := range map[string]string{
		"hub-1_A":                "ocm-hub-1_A",
		"a b/c":                  "ocm-a-b-c",
		strings.Repeat("n", 100): "ocm-" + strings.Repeat("n", 60),
	} {
		if got := sessionName(cluster); got != want {
			t.Errorf("sessionName(%s) = %s, want %s", cluster, got, want)
		}
	}
}

func tags(m map[string]string) (list []iamtypes.Tag) {
	for key, value := range m {
		list = append(list, iamtypes.Tag{Key: aws.String(key), Value: aws.String(value)})
	}
	return list
}
