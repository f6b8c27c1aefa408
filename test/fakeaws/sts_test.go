package fakeaws_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	authenticationv1 "k8s.io/api/authentication/v1"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

// tokenOf returns a token of the issuer with a subject.
func tokenOf(subject string) string {
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://`+issuer+`"}`)) + "." + subject
}

// TestWebIdentity checks which tokens begin a session of the managed cluster's role.
func TestWebIdentity(t *testing.T) {
	c := withRoles(t)
	for name, test := range map[string]struct{ role, token, code string }{
		"valid":         {managedRole, tokenOf(subject), ""},
		"not verified":  {managedRole, tokenOf("invalid"), "InvalidIdentityToken"},
		"no token":      {managedRole, "token", "InvalidIdentityToken"},
		"other issuer":  {managedRole, strings.Replace(tokenOf(subject), ".", ".e30", 1), "InvalidIdentityToken"},
		"other subject": {managedRole, tokenOf("other"), "AccessDenied"},
		"other account": {hubRole, tokenOf(subject), "InvalidIdentityToken"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.session(t, test.role, test.token)
			wantCode(t, err, test.code)
		})
	}
	if calls := c.Calls(); slices.ContainsFunc(calls, func(call fakeaws.Call) bool { return call.Parameters["WebIdentityToken"] != "" }) {
		t.Errorf("Calls() = %+v, want no WebIdentityToken", calls)
	}
}

// TestAssumeRole checks which sessions of the managed cluster's role can assume the role on the hub.
func TestAssumeRole(t *testing.T) {
	name := aws.String("managed")
	for what, test := range map[string]struct {
		change func(t *testing.T, c *cloud) error
		code   string
	}{
		"valid":           {func(*testing.T, *cloud) error { return nil }, ""},
		"other tag value": {func(t *testing.T, c *cloud) error { c.tag(t, "cluster", "Cluster1"); return nil }, "AccessDenied"},
		"missing tag": {func(t *testing.T, c *cloud) error {
			_, err := c.managed.IAM.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: name, TagKeys: []string{"cluster"}})
			return err
		}, "AccessDenied"},
		"no permission": {func(t *testing.T, c *cloud) error {
			_, err := c.managed.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: aws.String("access")})
			return err
		}, "AccessDenied"},
		"trust in another role": {func(t *testing.T, c *cloud) error {
			_, err := c.hub.IAM.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyDocument: aws.String(trustUnknown)})
			return err
		}, "AccessDenied"},
		"trust in the account": {func(t *testing.T, c *cloud) error {
			trust := strings.Replace(trustUnknown, unknownAccount+":role/managed", managedAccount+":root", 1)
			_, err := c.hub.IAM.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyDocument: &trust})
			return err
		}, ""},
		"administrators": {func(t *testing.T, c *cloud) error {
			for _, administrator := range []clients{c.hub, c.managed} {
				_, err := c.assume(t, administrator)
				wantCode(t, err, "AccessDenied")
			}
			return nil
		}, ""},
		"no role on the hub": {func(t *testing.T, c *cloud) error { c.hub.deleteRole(t, "ocm-hub-1"); return nil }, "AccessDenied"},
	} {
		t.Run(what, func(t *testing.T) {
			c := withRoles(t)
			succeed(t, test.change(t, c))
			own, err := c.session(t, managedRole, tokenOf(subject))
			succeed(t, err)
			_, err = c.assume(t, own)
			wantCode(t, err, test.code)
		})
	}
}

// TestRecreatedRoles checks that the session, the access entry and the trust of a role do not apply to
// a role of the same name that replaces it.
func TestRecreatedRoles(t *testing.T) {
	c := withRoles(t)
	own, onHub := c.agent(t)
	c.hub.deleteRole(t, "ocm-hub-1")
	c.hub.createRole(t, "ocm-hub-1", trustManaged)
	_, err := onHub.STS.GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	wantCode(t, err, "InvalidClientTokenId")
	onHub, err = c.assume(t, own)
	succeed(t, err)
	c.wantUser(t, c.presign(t, onHub), "")

	_, err = c.managed.IAM.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: aws.String("managed"), PolicyName: aws.String("access")})
	succeed(t, err)
	c.managed.deleteRole(t, "managed")
	c.managed.createRole(t, "managed", trustToken)
	_, err = c.managed.IAM.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("managed"), PolicyName: aws.String("access"), PolicyDocument: aws.String(assumeHub)})
	succeed(t, err)
	c.tag(t, "cluster", "cluster1")
	own, err = c.session(t, managedRole, tokenOf(subject))
	succeed(t, err)
	_, err = c.assume(t, own)
	wantCode(t, err, "AccessDenied")
	role, err := c.hub.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})
	succeed(t, err)
	if trust := *role.Role.AssumeRolePolicyDocument; strings.Contains(trust, "role%2Fmanaged") || !strings.Contains(trust, "%22AROA") {
		t.Errorf("trust policy = %s, want the unique id of the deleted role instead of its ARN", trust)
	}
}

const whoAmI = "Action=GetCallerIdentity&Version=2011-06-15"

var emptyHash = func() string { sum := sha256.Sum256(nil); return hex.EncodeToString(sum[:]) }()

// presign returns the URL in a token for the hub.
func (c *cloud) presign(t *testing.T, as clients) string {
	t.Helper()
	creds, err := as.credentials.Retrieve(t.Context())
	succeed(t, err)
	hr, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL()+"/?"+whoAmI+"&X-Amz-Expires=60", nil)
	succeed(t, err)
	hr.Header.Set("X-K8s-Aws-Id", "hub")
	signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), creds, hr, emptyHash, "sts", region, time.Now())
	succeed(t, err)
	return signed
}

// review returns the status of a TokenReview.
func (c *cloud) review(t *testing.T, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	body, err := json.Marshal(authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	succeed(t, err)
	answer, err := http.Post(c.WebhookURL(hubARN), "application/json", bytes.NewReader(body))
	succeed(t, err)
	defer answer.Body.Close()
	var review authenticationv1.TokenReview
	succeed(t, json.NewDecoder(answer.Body).Decode(&review))
	return review.Status
}

// wantUser checks the user of a token with a URL. An empty user is a rejected token.
func (c *cloud) wantUser(t *testing.T, signed, user string) {
	t.Helper()
	status := c.review(t, "k8s-aws-v1."+base64.RawURLEncoding.EncodeToString([]byte(signed)))
	if status.User.Username != user || status.Authenticated != (user != "") {
		t.Errorf("status = %+v, want user %q", status, user)
	}
}
