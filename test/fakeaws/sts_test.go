package fakeaws_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/eks"
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

// TestSignatures checks that the server rejects a request if a part of it or of its signature is changed.
func TestSignatures(t *testing.T) {
	c := withRoles(t)
	_, session := c.agent(t)
	creds, err := session.credentials.Retrieve(t.Context())
	succeed(t, err)
	header := func(name, value string) func(*http.Request) {
		return func(hr *http.Request) { hr.Header.Set(name, value) }
	}
	for name, test := range map[string]struct {
		late   time.Duration
		scope  string
		change func(*http.Request)
		code   string
	}{
		"valid":                 {change: func(*http.Request) {}},
		"within the clock skew": {late: 4 * time.Minute, change: func(*http.Request) {}},
		"late":                  {late: 6 * time.Minute, change: func(*http.Request) {}, code: "SignatureDoesNotMatch"},
		"early":                 {late: -6 * time.Minute, change: func(*http.Request) {}, code: "SignatureDoesNotMatch"},
		"other service":         {scope: "iam", change: func(*http.Request) {}, code: "SignatureDoesNotMatch"},
		"other body": {change: func(hr *http.Request) {
			hr.Body = io.NopCloser(strings.NewReader("Version=2011-06-15&Action=GetCallerIdentity"))
		}, code: "SignatureDoesNotMatch"},
		"other parameter":  {change: func(hr *http.Request) { hr.URL.RawQuery = "X=1" }, code: "SignatureDoesNotMatch"},
		"other time":       {change: header("X-Amz-Date", time.Now().UTC().Add(time.Minute).Format("20060102T150405Z")), code: "SignatureDoesNotMatch"},
		"new header":       {change: header("X-Amz-Target", "x"), code: "SignatureDoesNotMatch"},
		"cluster id":       {change: header("X-K8s-Aws-Id", "hub"), code: "SignatureDoesNotMatch"},
		"other host":       {change: func(hr *http.Request) { hr.Host = "iam.amazonaws.com" }, code: "SignatureDoesNotMatch"},
		"no session token": {change: func(hr *http.Request) { hr.Header.Del("X-Amz-Security-Token") }, code: "InvalidClientTokenId"},
		"no signature":     {change: func(hr *http.Request) { hr.Header.Del("Authorization") }, code: "MissingAuthenticationToken"},
		"other scheme":     {change: header("Authorization", "Bearer x"), code: "IncompleteSignature"},
		"unknown key": {change: func(hr *http.Request) {
			hr.Header.Set("Authorization", strings.Replace(hr.Header.Get("Authorization"), "ASIA", "ASIB", 1))
		}, code: "InvalidClientTokenId"},
		"other content type": {change: func(hr *http.Request) { hr.Header.Set("Content-Type", "text/plain") }, code: "SignatureDoesNotMatch"},
	} {
		t.Run(name, func(t *testing.T) {
			hr, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+"/", strings.NewReader(whoAmI))
			succeed(t, err)
			hr.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			sum := sha256.Sum256([]byte(whoAmI))
			if test.scope == "" {
				test.scope = "sts"
			}
			succeed(t, v4.NewSigner().SignHTTP(t.Context(), creds, hr, hex.EncodeToString(sum[:]), test.scope, region, time.Now().Add(-test.late)))
			test.change(hr)
			answer, err := http.DefaultClient.Do(hr)
			succeed(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			succeed(t, err)
			code := ""
			if found := regexp.MustCompile(`<Code>(\w+)</Code>`).FindSubmatch(body); found != nil {
				code = string(found[1])
			}
			if code != test.code || (code == "") != (answer.StatusCode == http.StatusOK) {
				t.Errorf("response = %s with code %q, want code %q", answer.Status, code, test.code)
			}
		})
	}
}

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

// TestMappings checks the use of access entries and of the ConfigMap aws-auth in each mode.
func TestMappings(t *testing.T) {
	const roles = `[{"rolearn":"arn:aws:iam::` + hubAccount + `:role/OCM-hub-1","username":"{{AccountID}}:{{SessionName}}"}]`
	for name, test := range map[string]struct {
		mode  fakeaws.AuthenticationMode
		roles string
		err   error
		entry bool
		user  string
	}{
		"ConfigMap":         {mode: fakeaws.ModeConfigMap, roles: roles, entry: true, user: hubAccount + ":agent"},
		"both, no entry":    {mode: fakeaws.ModeAPIAndConfigMap, roles: roles, user: hubAccount + ":agent"},
		"both, entry":       {mode: fakeaws.ModeAPIAndConfigMap, roles: roles, entry: true, user: "cluster1"},
		"API":               {mode: fakeaws.ModeAPI, roles: roles},
		"no role":           {mode: fakeaws.ModeConfigMap, entry: true},
		"invalid ConfigMap": {mode: fakeaws.ModeConfigMap, roles: "[" + roles},
		"unreadable":        {mode: fakeaws.ModeConfigMap, roles: roles, err: errors.New("no connection")},
	} {
		t.Run(name, func(t *testing.T) {
			c := withRoles(t)
			if !test.entry {
				_, err := c.hub.EKS.DeleteAccessEntry(t.Context(), &eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
				succeed(t, err)
			}
			succeed(t, c.AddCluster(hubARN, test.mode))
			c.SetAWSAuth(hubARN, func() (string, error) { return test.roles, test.err })
			_, onHub := c.agent(t)
			c.wantUser(t, c.presign(t, onHub), test.user)
		})
	}
}
