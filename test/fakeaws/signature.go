package fakeaws

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	sigTime = "20060102T150405Z"
	// clockSkew is the maximum deviation of the time of a signature.
	clockSkew = 5 * time.Minute
	// presignedSTS is the validity of presigned requests at STS, regardless of X-Amz-Expires.
	presignedSTS = 15 * time.Minute
	// clusterIDHeader binds a token to a cluster. A request that contains it must sign it.
	clusterIDHeader = "X-K8s-Aws-Id"
)

// authorization matches the header Authorization: key, region, service and signed headers.
var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=(\w+)/\d{8}/([a-z0-9-]+)/(\w+)/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`)

// authenticate checks the signature, and fills in the key, the region and the caller.
func (s *Server) authenticate(c *call) (err error) {
	if c.key, c.region, err = s.verify(c.http, c.body, c.Service, c.now); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.caller, err = s.principalOf(c.key, c.now); err != nil {
		return err
	}
	c.Caller = c.caller.ARN
	return nil
}

// verify signs a request again with the secret of its key, and compares the signatures. It returns
// the key and the region.
func (s *Server) verify(hr *http.Request, body []byte, service string, now time.Time) (*credential, string, error) {
	query, header := hr.URL.Query(), hr.Header.Get("Authorization")
	date, token, lifetime := hr.Header.Get("X-Amz-Date"), hr.Header.Get("X-Amz-Security-Token"), clockSkew
	presigned := header == "" && query.Has("X-Amz-Signature")
	if presigned {
		header = fmt.Sprintf("%s Credential=%s, SignedHeaders=%s, Signature=%s",
			query.Get("X-Amz-Algorithm"), query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders"), query.Get("X-Amz-Signature"))
		date, token, lifetime = query.Get("X-Amz-Date"), query.Get("X-Amz-Security-Token"), presignedSTS
	}
	if header == "" {
		return nil, "", errorf("MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	parts := authorization.FindStringSubmatch(header)
	at, err := time.Parse(sigTime, date)
	if parts == nil || err != nil {
		return nil, "", errorf("IncompleteSignature", "The request signature does not conform to AWS standards")
	}
	keyID, region, signed := parts[1], parts[2], strings.Split(parts[4], ";")
	if parts[3] != service {
		return nil, "", errorf("SignatureDoesNotMatch", "Credential should be scoped to correct service: '%s'.", service)
	}
	if age := now.Sub(at); age > lifetime || age < -clockSkew {
		return nil, "", errorf("SignatureDoesNotMatch", "Signature expired or not yet current: it is of %s, and now is %s", date, now.UTC().Format(sigTime))
	}
	s.mu.Lock()
	key := s.state.Keys[keyID]
	s.mu.Unlock()
	if key == nil || key.Token != token {
		return nil, "", errorf("InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	again := hr.Clone(hr.Context())
	again.Header = http.Header{}
	for name, values := range hr.Header {
		// Headers of AWS must be signed. The signer itself adds the date and the session token.
		if slices.Contains(signed, strings.ToLower(name)) || strings.HasPrefix(name, "X-Amz-") || name == clusterIDHeader {
			again.Header[name] = values
		}
	}
	for _, name := range []string{"X-Amz-Date", "X-Amz-Security-Token"} {
		again.Header.Del(name)
	}
	creds := aws.Credentials{AccessKeyID: key.ID, SecretAccessKey: key.Secret, SessionToken: key.Token}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	var got, want string
	if presigned {
		for _, name := range []string{"Algorithm", "Credential", "Date", "Security-Token", "SignedHeaders", "Signature"} {
			query.Del("X-Amz-" + name)
		}
		again.URL.RawQuery = query.Encode()
		var text string
		if text, _, err = v4.NewSigner().PresignHTTP(hr.Context(), creds, again, hash, service, region, at); err == nil {
			var u *url.URL
			if u, err = url.Parse(text); err == nil {
				got, want = hr.URL.Query().Encode(), u.Query().Encode()
			}
		}
	} else {
		err = v4.NewSigner().SignHTTP(hr.Context(), creds, again, hash, service, region, at)
		got, want = header, again.Header.Get("Authorization")
	}
	if err != nil || got != want {
		return nil, "", errorf("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return key, region, nil
}
