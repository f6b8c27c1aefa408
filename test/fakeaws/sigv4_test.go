package fakeaws_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const whoAmI = "Action=GetCallerIdentity&Version=2011-06-15"

// signedAt returns a request that the SDK's signer has signed.
func signedAt(t *testing.T, s *fakeaws.Server, c clients, at time.Time, method, path, body, service, region string) *http.Request {
	t.Helper()
	hr, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
	succeed(t, err)
	hr.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	creds, err := c.Config.Credentials.Retrieve(t.Context())
	succeed(t, err)
	sum := sha256.Sum256([]byte(body))
	succeed(t, v4.NewSigner().SignHTTP(t.Context(), creds, hr, hex.EncodeToString(sum[:]), service, region, at))
	return hr
}

var codePattern = regexp.MustCompile(`<Code>(\w+)</Code>`)

// send sends a request and returns the status and the error code of the response.
func send(t *testing.T, hr *http.Request) (status int, code string) {
	t.Helper()
	answer, err := http.DefaultClient.Do(hr)
	succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	succeed(t, err)
	if code = answer.Header.Get("X-Amzn-ErrorType"); code != "" {
		return answer.StatusCode, code
	}
	if found := codePattern.FindSubmatch(body); found != nil {
		code = string(found[1])
	}
	return answer.StatusCode, code
}

// TestSignatures checks that the server rejects a request if any part of it or of its signature
// is changed.
func TestSignatures(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	now := time.Now()
	form := func(at time.Time, service, region string) func() *http.Request {
		return func() *http.Request { return signedAt(t, s, c, at, "POST", "/", whoAmI, service, region) }
	}
	good := form(now, "sts", region)
	describe := func() *http.Request {
		return signedAt(t, s, c, now, "GET", "/clusters/hub?maxResults=5", "", "eks", region)
	}
	header := func(name, value string) func(*http.Request) {
		return func(hr *http.Request) { hr.Header.Set(name, value) }
	}
	for name, test := range map[string]struct {
		request func() *http.Request
		change  func(*http.Request)
		code    string
	}{
		"good":              {good, nil, ""},
		"good GET":          {describe, nil, ""},
		"changed body":      {good, func(hr *http.Request) { *hr = *withBody(t, hr, whoAmI+"&X=1") }, "SignatureDoesNotMatch"},
		"other time":        {good, header("X-Amz-Date", now.UTC().Add(time.Second).Format("20060102T150405Z")), "SignatureDoesNotMatch"},
		"new header":        {good, header("X-Amz-Target", "x"), "SignatureDoesNotMatch"},
		"cluster id":        {good, header("X-K8s-Aws-Id", "hub"), "SignatureDoesNotMatch"},
		"other host":        {good, func(hr *http.Request) { hr.Host = "iam.amazonaws.com" }, "SignatureDoesNotMatch"},
		"content type":      {good, func(hr *http.Request) { hr.Header.Set("Content-Type", "text/plain") }, "SignatureDoesNotMatch"},
		"no signature":      {good, func(hr *http.Request) { hr.Header.Del("Authorization") }, "MissingAuthenticationToken"},
		"incomplete header": {good, header("Authorization", "AWS4-HMAC-SHA256 Credential=x"), "IncompleteSignature"},
		"other scheme":      {good, header("Authorization", "Bearer x"), "IncompleteSignature"},
		"other key": {good, func(hr *http.Request) {
			hr.Header.Set("Authorization", regexp.MustCompile(`Credential=\w+`).ReplaceAllString(hr.Header.Get("Authorization"), "Credential=AKIAEXAMPLE"))
		}, "InvalidClientTokenId"},
		"session token": {func() *http.Request { return signedAt(t, s, withToken(c), now, "POST", "/", whoAmI, "sts", region) }, nil, "InvalidClientTokenId"},
		"other query":   {describe, func(hr *http.Request) { hr.URL.RawQuery = "maxResults=6" }, "InvalidSignatureException"},
		"other path":    {describe, func(hr *http.Request) { hr.URL.Path = "/clusters/hub2" }, "InvalidSignatureException"},
		"other method": {func() *http.Request {
			return signedAt(t, s, c, now, "POST", "/clusters/hub", "", "eks", region)
		}, func(hr *http.Request) { hr.Method = "GET" }, "InvalidSignatureException"},
		"EKS without signature": {describe, func(hr *http.Request) { hr.Header.Del("Authorization") }, "MissingAuthenticationTokenException"},
		"other service":         {form(now, "iam", region), nil, "SignatureDoesNotMatch"},
		"no such region":        {form(now, "sts", "us-nowhere-1"), nil, "SignatureDoesNotMatch"},
		"other partition":       {form(now, "sts", "cn-north-1"), nil, "InvalidClientTokenId"},
		"within the clock skew": {form(now.Add(-4*time.Minute), "sts", region), nil, ""},
		"too late":              {form(now.Add(-6*time.Minute), "sts", region), nil, "SignatureDoesNotMatch"},
		"too early":             {form(now.Add(6*time.Minute), "sts", region), nil, "SignatureDoesNotMatch"},
		"EKS too late": {func() *http.Request {
			return signedAt(t, s, c, now.Add(-6*time.Minute), "GET", "/clusters/hub", "", "eks", region)
		}, nil, "InvalidSignatureException"},
		"parameter repeated": {func() *http.Request {
			return signedAt(t, s, c, now, "POST", "/", whoAmI+"&Version=2010-05-08", "sts", region)
		}, nil, "ValidationError"},
	} {
		t.Run(name, func(t *testing.T) {
			hr := test.request()
			if test.change != nil {
				test.change(hr)
			}
			status, code := send(t, hr)
			if code != test.code || (code == "") != (status == http.StatusOK) {
				t.Errorf("response = %d with code %q, want code %q", status, code, test.code)
			}
		})
	}
}

func withBody(t *testing.T, hr *http.Request, body string) *http.Request {
	t.Helper()
	changed, err := http.NewRequestWithContext(hr.Context(), hr.Method, hr.URL.String(), strings.NewReader(body))
	succeed(t, err)
	changed.Header = hr.Header
	return changed
}

// withToken adds a session token to a key that has none.
func withToken(c clients) clients {
	inner := c.Config.Credentials
	c.Config.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		key, err := inner.Retrieve(ctx)
		key.SessionToken = "token"
		return key, err
	})
	return c
}

// TestWrongSecret checks the errors that SDK clients receive for a wrong secret and for an
// unknown key.
func TestWrongSecret(t *testing.T) {
	s, _ := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	key := addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy)
	key.Secret += "x"
	c := clientsFor(s, key)
	_, err := c.IAM.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("role")})
	wantCode(t, err, "SignatureDoesNotMatch")
	_, err = c.EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
	wantCode(t, err, "InvalidSignatureException")
	key.ID = "AKIAEXAMPLE"
	_, err = clientsFor(s, key).EKS.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
	wantCode(t, err, "UnrecognizedClientException")
	calls := s.Calls()
	if len(calls) != 3 || calls[0].ErrorCode != "SignatureDoesNotMatch" || calls[0].Caller != "" || calls[0].Operation != "GetRole" {
		t.Errorf("Calls() = %+v, want 3 without a caller, the first GetRole with SignatureDoesNotMatch", calls)
	}
}

// TestPresigned checks requests with the signature in the URL.
func TestPresigned(t *testing.T) {
	s, c := newHub(t, fakeaws.Options{}, fakeaws.ModeAPI)
	get := func(t *testing.T, at time.Time, change func(string) string) string {
		creds, err := c.Config.Credentials.Retrieve(t.Context())
		succeed(t, err)
		hr, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/?"+whoAmI+"&X-Amz-Expires=60", nil)
		succeed(t, err)
		empty := sha256.Sum256(nil)
		signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), creds, hr, hex.EncodeToString(empty[:]), "sts", region, at)
		succeed(t, err)
		if change != nil {
			signed = change(signed)
		}
		hr, err = http.NewRequestWithContext(t.Context(), http.MethodGet, signed, nil)
		succeed(t, err)
		_, code := send(t, hr)
		return code
	}
	now := time.Now()
	for name, test := range map[string]struct {
		at     time.Time
		change func(string) string
		code   string
	}{
		"good": {at: now},
		// STS accepts presigned requests for 15 minutes, regardless of X-Amz-Expires.
		"after a while":   {at: now.Add(-14 * time.Minute)},
		"too late":        {at: now.Add(-16 * time.Minute), code: "SignatureDoesNotMatch"},
		"other expiry":    {at: now, change: func(u string) string { return strings.Replace(u, "Expires=60", "Expires=61", 1) }, code: "SignatureDoesNotMatch"},
		"bad expiry":      {at: now, change: func(u string) string { return strings.Replace(u, "Expires=60", "Expires=x", 1) }, code: "IncompleteSignature"},
		"added parameter": {at: now, change: func(u string) string { return u + "&More=1" }, code: "SignatureDoesNotMatch"},
	} {
		t.Run(name, func(t *testing.T) {
			if code := get(t, test.at, test.change); code != test.code {
				t.Errorf("code = %q, want %q", code, test.code)
			}
		})
	}
}

// TestEnv checks that the SDK, configured by Env only, sends its calls to this server.
func TestEnv(t *testing.T) {
	s, _ := newHub(t, fakeaws.Options{Region: region}, fakeaws.ModeAPI)
	t.Setenv("AWS_ENDPOINT_URL_IAM", "http://127.0.0.1:1")
	t.Setenv("AWS_PROFILE", "none")
	for _, entry := range s.Env(addUser(t, s, hubAccount, "admin", fakeaws.AdminPolicy)) {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context())
	succeed(t, err)
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	succeed(t, err)
	if *who.Account != hubAccount {
		t.Errorf("GetCallerIdentity() = %s, want account %s", *who.Arn, hubAccount)
	}
	_, err = iam.NewFromConfig(cfg).GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("role")})
	wantCode(t, err, "NoSuchEntity")
	_, err = eks.NewFromConfig(cfg).DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("hub")})
	succeed(t, err)
}

// TestPartitions checks an account in a partition other than aws.
func TestPartitions(t *testing.T) {
	s := newServer(t, fakeaws.Options{})
	const arn = "arn:aws-cn:eks:cn-north-1:222233334444:cluster/hub"
	succeed(t, s.AddCluster(arn, fakeaws.ModeAPI))
	key := addUser(t, s, "222233334444", "admin", fakeaws.AdminPolicy)
	if err := s.AddAccount("222233334444", "aws"); err == nil {
		t.Error("AddAccount(222233334444, aws) of an account in aws-cn = nil, want an error")
	}
	for _, entry := range s.Env(key) {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	cfg, err := config.LoadDefaultConfig(t.Context())
	succeed(t, err)
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	succeed(t, err)
	if *who.Arn != "arn:aws-cn:iam::222233334444:user/admin" || cfg.Region != "cn-north-1" {
		t.Errorf("caller = %s in %s, want arn:aws-cn:iam::222233334444:user/admin in cn-north-1", *who.Arn, cfg.Region)
	}
}
