package fakeaws_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/golang-jwt/jwt/v5"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	issuer  = "oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE"
	subject = "system:serviceaccount:open-cluster-management-agent:klusterlet-registration-sa"
)

var principalTags = map[string]string{
	"hub_cluster_account_id": hubAccount, "hub_cluster_name": "hub",
	"managed_cluster_account_id": managedAccount, "managed_cluster_name": "cluster1",
}

func asTags(m map[string]string) []iamtypes.Tag {
	var tags []iamtypes.Tag
	for k, v := range m {
		tags = append(tags, iamtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	return tags
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	succeed(t, err)
	return string(data)
}

type m map[string]any

func document(statements ...m) m { return m{"Version": "2012-10-17", "Statement": statements} }

// hubTrust returns the trust policy of a role on the hub, as in OCM's proposal for registration
// with AWS IRSA.
func hubTrust(t *testing.T, tags map[string]string) string {
	conditions := m{}
	for k, v := range tags {
		conditions["aws:PrincipalTag/"+k] = v
	}
	return toJSON(t, document(m{
		"Effect": "Allow", "Principal": m{"AWS": "arn:aws:iam::" + managedAccount + ":role/ocm-managed-cluster-1"},
		"Action": "sts:AssumeRole", "Condition": m{"StringEquals": conditions},
	}))
}

func webTrust(t *testing.T) string {
	return toJSON(t, document(m{
		"Effect": "Allow", "Principal": m{"Federated": "arn:aws:iam::" + managedAccount + ":oidc-provider/" + issuer},
		"Action": "sts:AssumeRoleWithWebIdentity", "Condition": m{"StringEquals": m{issuer + ":sub": subject, issuer + ":aud": "sts.amazonaws.com"}},
	}))
}

// tokenIssuer is an OIDC provider.
type tokenIssuer struct {
	key    crypto.Signer
	method jwt.SigningMethod
	jwks   []byte
}

func newIssuer(t *testing.T, method jwt.SigningMethod) *tokenIssuer {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	i := &tokenIssuer{method: method}
	var key m
	switch method {
	case jwt.SigningMethodRS256:
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		succeed(t, err)
		i.key, key = k, m{"kty": "RSA", "n": encode(k.N.Bytes()), "e": encode(big.NewInt(int64(k.E)).Bytes())}
	case jwt.SigningMethodES256:
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		succeed(t, err)
		point, err := k.PublicKey.Bytes()
		succeed(t, err)
		i.key, key = k, m{"kty": "EC", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}
	default:
		t.Fatalf("no key for %s", method.Alg())
	}
	key["kid"], key["use"] = "key1", "sig"
	i.jwks = []byte(toJSON(t, m{"keys": []m{key}}))
	return i
}

func (i *tokenIssuer) token(t *testing.T, change func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{
		"iss": "https://" + issuer, "sub": subject, "aud": []string{"sts.amazonaws.com"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	if change != nil {
		change(claims)
	}
	token := jwt.NewWithClaims(i.method, claims)
	token.Header["kid"] = "key1"
	text, err := token.SignedString(i.key)
	succeed(t, err)
	return text
}

// fleet contains the accounts of a hub and of a managed cluster, with the roles of OCM's
// proposal.
type fleet struct {
	server       *fakeaws.Server
	hub, managed clients // administrators
	issuer       *tokenIssuer
	hubRole      string
	managedRole  string
}

func newFleet(t *testing.T, options fakeaws.Options, mode fakeaws.AuthenticationMode) *fleet {
	t.Helper()
	f := &fleet{issuer: newIssuer(t, jwt.SigningMethodRS256)}
	f.server, f.hub = newHub(t, options, mode)
	f.managed = clientsFor(f.server, addUser(t, f.server, managedAccount, "admin", fakeaws.AdminPolicy))
	_, err := f.server.AddStaticOIDCProvider(managedAccount, issuer, f.issuer.jwks)
	succeed(t, err)
	out, err := f.managed.IAM.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String("ocm-managed-cluster-1"), AssumeRolePolicyDocument: aws.String(webTrust(t)), Tags: asTags(principalTags),
	})
	succeed(t, err)
	f.managedRole = *out.Role.Arn
	_, err = f.managed.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName: aws.String("ocm-managed-cluster-1"), PolicyName: aws.String("access"),
		PolicyDocument: aws.String(toJSON(t, document(m{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "arn:aws:iam::" + hubAccount + ":role/ocm-hub-1"}))),
	})
	succeed(t, err)
	f.hubRole = createRole(t, f.hub, "ocm-hub-1", hubTrust(t, principalTags))
	_, err = f.hub.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: aws.String("access"), PolicyDocument: aws.String(readClusters)})
	succeed(t, err)
	return f
}

// webIdentity assumes the managed cluster's role with a token.
func (f *fleet) webIdentity(t *testing.T, token string) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	t.Helper()
	return clientsFor(f.server, fakeaws.AccessKey{}).STS.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &f.managedRole, RoleSessionName: aws.String("agent"), WebIdentityToken: &token,
	})
}

// agent returns clients of the managed cluster's agent, with a session of its role.
func (f *fleet) agent(t *testing.T) clients {
	t.Helper()
	out, err := f.webIdentity(t, f.issuer.token(t, nil))
	succeed(t, err)
	return clientsFor(f.server, fakeaws.AccessKey{ID: *out.Credentials.AccessKeyId, Secret: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken})
}

func (f *fleet) assume(t *testing.T, c clients) (*sts.AssumeRoleOutput, error) {
	t.Helper()
	return c.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &f.hubRole, RoleSessionName: aws.String("agent")})
}

// onHub returns clients of the agent, with a session of its role in the hub's account.
func (f *fleet) onHub(t *testing.T) clients {
	t.Helper()
	out, err := f.assume(t, f.agent(t))
	succeed(t, err)
	return clientsFor(f.server, fakeaws.AccessKey{ID: *out.Credentials.AccessKeyId, Secret: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken})
}

func TestCallerIdentity(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	nobody := clientsFor(s, addUser(t, s, hubAccount, "nobody"))
	for name, client := range map[string]clients{"admin": c, "nobody": nobody} {
		who, err := client.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
		succeed(t, err)
		if *who.Arn != "arn:aws:iam::"+hubAccount+":user/"+name || *who.Account != hubAccount || !strings.HasPrefix(*who.UserId, "AIDA") {
			t.Errorf("GetCallerIdentity() of %s = %s with id %s, want user/%s with an AIDA id", name, *who.Arn, *who.UserId, name)
		}
	}
}

func TestWebIdentity(t *testing.T) {
	f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
	out, err := f.webIdentity(t, f.issuer.token(t, nil))
	succeed(t, err)
	if *out.AssumedRoleUser.Arn != "arn:aws:sts::"+managedAccount+":assumed-role/ocm-managed-cluster-1/agent" ||
		*out.SubjectFromWebIdentityToken != subject || *out.Audience != "sts.amazonaws.com" || !strings.HasPrefix(*out.Credentials.AccessKeyId, "ASIA") {
		t.Errorf("AssumeRoleWithWebIdentity() = %+v, want a session of ocm-managed-cluster-1 for the subject and audience", out)
	}
	if left := time.Until(*out.Credentials.Expiration); left < 50*time.Minute || left > time.Hour {
		t.Errorf("session ends in %s, want about an hour", left)
	}
	who, err := f.agent(t).STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	succeed(t, err)
	if *who.Arn != *out.AssumedRoleUser.Arn || *who.UserId != *out.AssumedRoleUser.AssumedRoleId {
		t.Errorf("GetCallerIdentity() = %+v, want the user of the session", who)
	}
	other := newIssuer(t, jwt.SigningMethodRS256)
	for name, test := range map[string]struct{ token, code string }{
		"other key":      {other.token(t, nil), "InvalidIdentityToken"},
		"no token":       {"token", "InvalidIdentityToken"},
		"not signed":     {unsigned(t, f.issuer.token(t, nil)), "InvalidIdentityToken"},
		"expired":        {f.issuer.token(t, func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Second).Unix() }), "ExpiredTokenException"},
		"no expiry":      {f.issuer.token(t, func(c jwt.MapClaims) { delete(c, "exp") }), "InvalidIdentityToken"},
		"other issuer":   {f.issuer.token(t, func(c jwt.MapClaims) { c["iss"] = "https://example.com" }), "InvalidIdentityToken"},
		"other audience": {f.issuer.token(t, func(c jwt.MapClaims) { c["aud"] = "kubernetes" }), "InvalidIdentityToken"},
		"other subject":  {f.issuer.token(t, func(c jwt.MapClaims) { c["sub"] = subject + "x" }), "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.webIdentity(t, test.token)
			wantCode(t, err, test.code)
		})
	}
	f.hubRole, f.managedRole = f.managedRole, f.hubRole
	_, err = f.webIdentity(t, f.issuer.token(t, nil))
	wantCode(t, err, "InvalidIdentityToken") // the hub's account does not have the provider
	for _, call := range f.server.Calls() {
		if call.Parameters["WebIdentityToken"] != "" {
			t.Fatalf("recorded call = %+v, want no WebIdentityToken", call)
		}
	}
}

// unsigned returns the token with the algorithm "none".
func unsigned(t *testing.T, token string) string {
	t.Helper()
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"key1"}`))
	return header + "." + strings.Split(token, ".")[1] + "."
}

// TestFetchedKeys checks a provider with a JWKSFunc and a key on an elliptic curve.
func TestFetchedKeys(t *testing.T) {
	f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
	ec := newIssuer(t, jwt.SigningMethodES256)
	fail := true
	_, err := f.server.AddOIDCProvider(managedAccount, issuer, func(context.Context) ([]byte, error) {
		if fail {
			return nil, errors.New("no connection")
		}
		return ec.jwks, nil
	})
	succeed(t, err)
	_, err = f.webIdentity(t, ec.token(t, nil))
	wantCode(t, err, "IDPCommunicationError")
	fail = false
	_, err = f.webIdentity(t, ec.token(t, nil))
	succeed(t, err)
	_, err = f.webIdentity(t, f.issuer.token(t, nil))
	wantCode(t, err, "InvalidIdentityToken")
}

// TestAssumeRole checks which callers can assume the role on the hub: it requires the managed
// cluster's role, its tags and its own permission.
func TestAssumeRole(t *testing.T) {
	managedName := aws.String("ocm-managed-cluster-1")
	for name, test := range map[string]struct {
		change func(t *testing.T, f *fleet)
		code   string
	}{
		"valid": {func(*testing.T, *fleet) {}, ""},
		"missing tag": {func(t *testing.T, f *fleet) {
			_, err := f.managed.IAM.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: managedName, TagKeys: []string{"hub_cluster_name"}})
			succeed(t, err)
		}, "AccessDenied"},
		"other tag value": {func(t *testing.T, f *fleet) {
			_, err := f.managed.IAM.TagRole(t.Context(), &iam.TagRoleInput{RoleName: managedName, Tags: asTags(map[string]string{"managed_cluster_name": "Cluster1"})})
			succeed(t, err)
		}, "AccessDenied"},
		"caller without permission": {func(t *testing.T, f *fleet) {
			_, err := f.managed.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: managedName, PolicyName: aws.String("access")})
			succeed(t, err)
		}, "AccessDenied"},
		"permission for another role": {func(t *testing.T, f *fleet) {
			_, err := f.managed.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: managedName, PolicyName: aws.String("access"),
				PolicyDocument: aws.String(toJSON(t, document(m{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "arn:aws:iam::" + hubAccount + ":role/ocm-hub-2"})))})
			succeed(t, err)
		}, "AccessDenied"},
		"trust policy for another role": {func(t *testing.T, f *fleet) {
			createRole(t, f.managed, "managed", webTrust(t))
			_, err := f.hub.IAM.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyDocument: aws.String(trustManaged)})
			succeed(t, err)
		}, "AccessDenied"},
		"trust policy for the account": {func(t *testing.T, f *fleet) {
			_, err := f.hub.IAM.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"),
				PolicyDocument: aws.String(strings.Replace(trustManaged, "role/managed", "root", 1))})
			succeed(t, err)
		}, ""},
		"unknown role": {func(_ *testing.T, f *fleet) { f.hubRole += "x" }, "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
			test.change(t, f)
			_, err := f.assume(t, f.agent(t))
			if codeOf(err) != test.code {
				t.Errorf("AssumeRole() = %v, want code %q", err, test.code)
			}
		})
	}
	t.Run("another user", func(t *testing.T) {
		f := newFleet(t, fakeaws.Options{}, fakeaws.ModeAPI)
		for _, c := range []clients{f.managed, f.hub} {
			_, err := f.assume(t, c)
			wantCode(t, err, "AccessDenied")
		}
	})
}

// TestSessions checks the permissions of a session, and that it ends with its role.
func TestSessions(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	f := newFleet(t, fakeaws.Options{Clock: clock}, fakeaws.ModeAPI)
	c := f.onHub(t)
	who, err := c.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	succeed(t, err)
	if *who.Arn != "arn:aws:sts::"+hubAccount+":assumed-role/ocm-hub-1/agent" {
		t.Errorf("GetCallerIdentity() = %s, want the session agent of ocm-hub-1", *who.Arn)
	}
	_, err = c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})
	wantCode(t, err, "AccessDenied")

	// A role that was deleted and created again is another role, so the session is invalid.
	_, err = f.hub.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: aws.String("access")})
	succeed(t, err)
	_, err = f.hub.IAM.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: aws.String("ocm-hub-1")})
	succeed(t, err)
	createRole(t, f.hub, "ocm-hub-1", hubTrust(t, principalTags))
	_, err = c.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	wantCode(t, err, "InvalidClientTokenId")

	c = f.onHub(t)
	_, err = c.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &f.hubRole, RoleSessionName: aws.String("a b")})
	wantCode(t, err, "ValidationError")
	_, err = f.agent(t).STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &f.hubRole, RoleSessionName: aws.String("agent"), DurationSeconds: aws.Int32(7200)})
	wantCode(t, err, "ValidationError")
	_, err = f.agent(t).STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &f.hubRole, RoleSessionName: aws.String("agent"), Policy: aws.String(fakeaws.AdminPolicy)})
	wantCode(t, err, "ValidationError")
}

func TestSessionExpires(t *testing.T) {
	start := time.Now()
	clock := clocktesting.NewFakePassiveClock(start)
	f := newFleet(t, fakeaws.Options{Clock: clock}, fakeaws.ModeAPI)
	c := f.onHub(t)
	whoAt := func(at time.Time) string {
		clock.SetTime(at)
		_, code := send(t, signedAt(t, f.server, c, at, "POST", "/", "Action=GetCallerIdentity&Version=2011-06-15", "sts", region))
		return code
	}
	if code := whoAt(start.Add(59 * time.Minute)); code != "" {
		t.Errorf("code after 59 minutes = %q, want none", code)
	}
	if code := whoAt(start.Add(61 * time.Minute)); code != "ExpiredToken" {
		t.Errorf("code after 61 minutes = %q, want ExpiredToken", code)
	}
	if code := whoAt(start.Add(24 * time.Hour)); code != "ExpiredToken" {
		t.Errorf("code after 24 hours = %q, want ExpiredToken", code)
	}
}
