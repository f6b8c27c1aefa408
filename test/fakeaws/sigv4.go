package fakeaws

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	sigAlgorithm = "AWS4-HMAC-SHA256"
	sigTime      = "20060102T150405Z"
	// clockSkew is the maximum deviation of the time of a signature.
	clockSkew = 5 * time.Minute
	// presignedSTS is the validity of presigned requests at STS, regardless of X-Amz-Expires.
	presignedSTS = 15 * time.Minute
	// clusterIDHeader binds a token to a cluster. A request that contains it must sign it.
	clusterIDHeader = "x-k8s-aws-id"
)

// jsonCodes maps the error codes of authentication to the codes of services with JSON.
var jsonCodes = map[string]string{
	"SignatureDoesNotMatch":      "InvalidSignatureException",
	"InvalidClientTokenId":       "UnrecognizedClientException",
	"MissingAuthenticationToken": "MissingAuthenticationTokenException",
	"IncompleteSignature":        "IncompleteSignatureException",
	"ExpiredToken":               "ExpiredTokenException",
	"AccessDenied":               "AccessDeniedException",
}

// spell returns an authentication error with the error code of the request's protocol.
func (r *request) spell(e *apiError) *apiError {
	if e == nil || r.service != serviceEKS {
		return e
	}
	if code, ok := jsonCodes[e.Code]; ok {
		return &apiError{Code: code, Message: e.Message, Status: e.Status}
	}
	return e
}

// signature contains the signature of a request and its parameters.
type signature struct {
	keyID, date, region, service string
	signedHeaders                []string
	signature, token             string
	time                         time.Time
	presigned                    bool
	payloadHash                  string
}

func (g *signature) scope() string {
	return strings.Join([]string{g.date, g.region, g.service, "aws4_request"}, "/")
}

// authenticate checks the signature and fills in the key, the region and the caller.
func (s *Server) authenticate(r *request) *apiError {
	g, e := readSignature(r.http, r.body)
	if e == nil {
		e = s.verify(r.http, g, r.service, r.now)
	}
	if e != nil {
		return r.spell(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.key, r.region = s.state.Keys[g.keyID], g.region
	r.caller, e = s.principalOf(r.key, r.now)
	return r.spell(e)
}

// verify checks the signature, its scope and its time, and that the key exists and has the
// session token.
func (s *Server) verify(hr *http.Request, g *signature, service string, now time.Time) *apiError {
	if e := g.checkHeaders(hr); e != nil {
		return e
	}
	if g.service != service {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Credential should be scoped to correct service: '%s'.", service)
	}
	if g.date != g.time.Format("20060102") {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP")
	}
	lifetime := clockSkew
	if g.presigned {
		lifetime = presignedSTS
	}
	if now.Sub(g.time) > lifetime {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Signature expired: %s is now earlier than %s", g.time.Format(sigTime), now.UTC().Add(-lifetime).Format(sigTime))
	}
	if g.time.Sub(now) > clockSkew {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Signature not yet current: %s is still later than %s", g.time.Format(sigTime), now.UTC().Add(clockSkew).Format(sigTime))
	}
	s.mu.Lock()
	key := s.state.Keys[g.keyID]
	partition := ""
	if key != nil {
		partition = s.state.Accounts[key.AccountID].Partition
	}
	s.mu.Unlock()
	// A key is valid in its own partition only.
	regionPartition := partitionOf(g.region)
	if regionPartition == "" {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "Credential should be scoped to a valid region.")
	}
	if key == nil || partition != regionPartition || subtle.ConstantTimeCompare([]byte(key.Token), []byte(g.token)) != 1 {
		return errorf(http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	if subtle.ConstantTimeCompare([]byte(g.sign(hr, key.Secret)), []byte(g.signature)) != 1 {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	}
	return nil
}

// readSignature reads the signature from the Authorization header, or the query.
func readSignature(hr *http.Request, body []byte) (*signature, *apiError) {
	g := &signature{}
	var credential, signed, date, algorithm string
	query := hr.URL.Query()
	header := hr.Header.Get("Authorization")
	switch {
	case header != "":
		var rest string
		algorithm, rest, _ = strings.Cut(header, " ")
		for part := range strings.SplitSeq(rest, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			switch name {
			case "Credential":
				credential = value
			case "SignedHeaders":
				signed = value
			case "Signature":
				g.signature = value
			}
		}
		date, g.token = hr.Header.Get("X-Amz-Date"), hr.Header.Get("X-Amz-Security-Token")
		sum := sha256.Sum256(body)
		g.payloadHash = hex.EncodeToString(sum[:])
		if given := hr.Header.Get("X-Amz-Content-Sha256"); given != "" && given != g.payloadHash {
			return nil, errorf(http.StatusForbidden, "SignatureDoesNotMatch", "The value of x-amz-content-sha256 is not the hash of the payload.")
		}
	case query.Has("X-Amz-Signature"):
		g.presigned = true
		algorithm, credential, signed = query.Get("X-Amz-Algorithm"), query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders")
		g.signature, date, g.token = query.Get("X-Amz-Signature"), query.Get("X-Amz-Date"), query.Get("X-Amz-Security-Token")
		if expires := query.Get("X-Amz-Expires"); expires != "" {
			if n, err := strconv.Atoi(expires); err != nil || n < 0 || n > 7*24*3600 {
				return nil, incomplete("X-Amz-Expires %q is not a number of seconds up to a week", expires)
			}
		}
		sum := sha256.Sum256(body)
		g.payloadHash = hex.EncodeToString(sum[:])
	default:
		return nil, errorf(http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	if algorithm != sigAlgorithm {
		return nil, incomplete("unsupported algorithm %q", algorithm)
	}
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[4] != "aws4_request" {
		return nil, incomplete("credential %q does not have the form key/date/region/service/aws4_request", credential)
	}
	g.keyID, g.date, g.region, g.service = parts[0], parts[1], parts[2], parts[3]
	if g.signature == "" || signed == "" {
		return nil, incomplete("signature or signed headers are missing")
	}
	g.signedHeaders = strings.Split(signed, ";")
	t, err := time.Parse(sigTime, date)
	if err != nil {
		return nil, incomplete("X-Amz-Date %q is not a date", date)
	}
	g.time = t
	return g, nil
}

func incomplete(format string, args ...any) *apiError {
	e := errorf(http.StatusBadRequest, "IncompleteSignature", format, args...)
	e.Message = "The request signature does not conform to AWS standards: " + e.Message
	return e
}

// checkHeaders returns an error if the signature does not cover a required header.
func (g *signature) checkHeaders(hr *http.Request) *apiError {
	if !slices.IsSorted(g.signedHeaders) {
		return incomplete("signed headers are not sorted")
	}
	if !slices.Contains(g.signedHeaders, "host") {
		return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")
	}
	for name := range hr.Header {
		lower := strings.ToLower(name)
		if (strings.HasPrefix(lower, "x-amz-") || lower == clusterIDHeader) && !slices.Contains(g.signedHeaders, lower) {
			return errorf(http.StatusForbidden, "SignatureDoesNotMatch", "'%s' must be a 'SignedHeader' in the AWS Authorization.", lower)
		}
	}
	return nil
}

// sign returns the signature that the request must have.
func (g *signature) sign(hr *http.Request, secret string) string {
	var canonical strings.Builder
	canonical.WriteString(hr.Method + "\n" + canonicalPath(hr.URL) + "\n" + canonicalQuery(hr.URL) + "\n")
	for _, name := range g.signedHeaders {
		canonical.WriteString(name + ":" + headerValue(hr, name) + "\n")
	}
	canonical.WriteString("\n" + strings.Join(g.signedHeaders, ";") + "\n" + g.payloadHash)
	sum := sha256.Sum256([]byte(canonical.String()))
	toSign := strings.Join([]string{sigAlgorithm, g.time.Format(sigTime), g.scope(), hex.EncodeToString(sum[:])}, "\n")

	key := []byte("AWS4" + secret)
	for _, part := range []string{g.date, g.region, g.service, "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, toSign))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// headerValue returns a header in canonical form, including the headers that net/http keeps
// outside of Header.
func headerValue(hr *http.Request, name string) string {
	switch name {
	case "host":
		return hr.Host
	case "content-length":
		return strconv.FormatInt(hr.ContentLength, 10)
	}
	values := slices.Clone(hr.Header.Values(name))
	for i, v := range values {
		values[i] = strings.Join(strings.FieldsFunc(v, func(c rune) bool { return c == ' ' }), " ")
	}
	return strings.Join(values, ",")
}

// canonicalPath returns the path as it was sent, encoded once more.
func canonicalPath(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		return "/"
	}
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i] = escape(segments[i])
	}
	return strings.Join(segments, "/")
}

// canonicalQuery returns the query, sorted, without the signature.
func canonicalQuery(u *url.URL) string {
	var pairs []string
	for name, values := range u.Query() {
		if name == "X-Amz-Signature" {
			continue
		}
		for _, value := range values {
			pairs = append(pairs, escape(name)+"="+escape(value))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape escapes all but the unreserved characters of RFC 3986.
func escape(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}
