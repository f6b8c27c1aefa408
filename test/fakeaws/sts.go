package fakeaws

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
)

const (
	// minSession and maxSession bound the duration of a session in seconds. Each role has the default maximum.
	minSession, maxSession = 900, 3600

	// TokenAudience is the audience of the tokens that STS accepts.
	TokenAudience = "sts.amazonaws.com"
)

var sessionNamePattern = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)

// stsOperations are the operations of STS.
var stsOperations = map[string]operation{
	"GetCallerIdentity": func(_ *Server, c *call) (any, error) {
		return struct {
			Arn, Account string
			UserID       string `xml:"UserId"`
		}{c.caller.ARN, c.caller.accountID, c.caller.userID()}, nil
	},
	"AssumeRole":    (*Server).assumeRole,
	withWebIdentity: (*Server).assumeRoleWithWebIdentity,
}

// principal is the caller at the time of the call.
type principal struct {
	accountID string
	// ARN is the ARN of the user, or of the session of the role.
	ARN string
	// source is the ARN of the user or role, and sourceID its unique id.
	source, sourceID string
	session, keyID   string
	tags             map[string]string
	policies         []*policy
}

// principalOf returns the current owner of the key. The caller holds s.mu.
func (s *Server) principalOf(key *credential, now time.Time) (*principal, error) {
	invalid := errorf("InvalidClientTokenId", "The security token included in the request is invalid.")
	if key == nil {
		return nil, invalid
	}
	if !key.Expires.IsZero() && now.After(key.Expires) {
		return nil, errorf("ExpiredToken", "The security token included in the request is expired")
	}
	a := s.state.Accounts[key.AccountID]
	if key.Role == "" {
		p := &principal{accountID: a.ID, ARN: a.arn("user/" + key.User), keyID: key.ID, sourceID: a.Users[key.User].ID}
		p.source = p.ARN
		return p, p.add(a.Users[key.User].Policies)
	}
	role := a.Roles[key.Role]
	if role == nil || role.ID != key.RoleID {
		return nil, invalid
	}
	p, err := a.principal(role)
	if err != nil {
		return nil, err
	}
	p.keyID, p.session, p.ARN = key.ID, key.Session, a.sessionARN(role, key.Session)
	return p, nil
}

// principal returns a role as the principal of its sessions.
func (a *account) principal(role *Role) (*principal, error) {
	p := &principal{accountID: a.ID, source: role.ARN, sourceID: role.ID, tags: role.Tags}
	return p, p.add(slices.AppendSeq(slices.Collect(maps.Values(role.InlinePolicies)), maps.Values(role.AttachedPolicies)))
}

func (a *account) sessionARN(role *Role, session string) string {
	return fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/%s", a.Partition, a.ID, role.Name, session)
}

// add parses the documents, which were valid when they were stored.
func (p *principal) add(documents []string) error {
	for _, document := range documents {
		parsed, err := parsePolicy(document, false)
		if err != nil {
			return fmt.Errorf("stored policy: %w", err)
		}
		p.policies = append(p.policies, parsed)
	}
	return nil
}

// userID returns the unique id. For a session, a colon and the name of the session follow.
func (p *principal) userID() string {
	return strings.TrimSuffix(p.sourceID+":"+p.session, ":")
}

// conditions returns the values of the condition keys about the caller.
func (p *principal) conditions() conditionContext {
	c := conditionContext{"aws:principalarn": p.source, "aws:principalaccount": p.accountID, "aws:userid": p.userID()}
	for key, value := range p.tags {
		c[strings.ToLower("aws:PrincipalTag/"+key)] = value
	}
	return c
}

// assumed returns the role that the call names, its account and its trust policy. The role is nil if
// it does not exist.
func (s *Server) assumed(c *call) (*account, *Role, *policy, error) {
	if err := c.supports("RoleArn", "RoleSessionName", "DurationSeconds", "WebIdentityToken"); err != nil {
		return nil, nil, nil, err
	}
	name, session := c.Parameters["RoleArn"], c.Parameters["RoleSessionName"]
	parsed, err := arn.Parse(name)
	if err != nil || !sessionNamePattern.MatchString(session) {
		return nil, nil, nil, validationError("the role %q or the name %q of the session is invalid", name, session)
	}
	a := s.state.Accounts[parsed.AccountID]
	if a == nil || a.Roles[lastElement(name)] == nil || a.Roles[lastElement(name)].ARN != name {
		return nil, nil, nil, nil
	}
	role := a.Roles[lastElement(name)]
	trust, err := parsePolicy(role.TrustPolicy, true)
	return a, role, trust, err
}

// assumeRole returns the same error for a missing role and for a forbidden one.
func (s *Server) assumeRole(c *call) (any, error) {
	refused := errorf("AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", c.caller.ARN, c.Parameters["RoleArn"])
	a, role, trust, err := s.assumed(c)
	if err != nil {
		return nil, err
	}
	if role == nil {
		return nil, refused
	}
	// A trust policy that names a principal of the same account allows the call. If it names an
	// account, or a principal of another account, the caller's own policies must allow the
	// call as well.
	byName := false
	trusted := evaluate([]*policy{trust}, c.caller.conditions(), func(st *statement) bool {
		named, viaAccount := role.names(st, c.caller)
		byName = byName || named && st.Effect == "Allow"
		return st.matchesAction("sts:AssumeRole") && (named || viaAccount)
	})
	own := decide(c.caller.policies, "sts:AssumeRole", role.ARN, c.caller.conditions())
	if trusted != allowed || own == denied || own != allowed && (!byName || c.caller.accountID != a.ID) {
		return nil, refused
	}
	return s.beginSession(c, a, role)
}

// names reports whether a statement of the role's trust policy names the caller itself, or
// the caller's account.
func (role *Role) names(st *statement, p *principal) (itself, itsAccount bool) {
	for _, name := range st.Principal["AWS"] {
		switch {
		case name == "*", name == p.ARN, name == p.sourceID:
			itself = true
		case name == p.source:
			id, bound := role.TrustedIDs[name]
			itself = itself || !bound || id == p.sourceID
		case name == p.accountID, strings.HasSuffix(name, ":iam::"+p.accountID+":root"):
			itsAccount = true
		}
	}
	return itself, itsAccount
}

// LimitSessions limits the duration of new sessions; 0 means no limit.
func (s *Server) LimitSessions(limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessionLimit = limit
}

// session is the part of a response that describes a new session.
type session struct {
	AssumedRoleUser struct {
		AssumedRoleID string `xml:"AssumedRoleId"`
		Arn           string
	}
	Credentials struct {
		AccessKeyID                   string `xml:"AccessKeyId"`
		SecretAccessKey, SessionToken string
		Expiration                    time.Time
	}
}

// beginSession creates credentials of the role.
func (s *Server) beginSession(c *call, a *account, role *Role) (any, error) {
	seconds := maxSession
	if text := c.Parameters["DurationSeconds"]; text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < minSession || seconds > maxSession {
			return nil, validationError("Value '%s' at 'durationSeconds' failed to satisfy constraint: Member must have value between %d and %d", text, minSession, maxSession)
		}
	}
	// Until an hour after the expiration, a request with the key returns ExpiredToken.
	maps.DeleteFunc(s.state.Keys, func(_ string, key *credential) bool {
		return !key.Expires.IsZero() && c.now.Sub(key.Expires) > time.Hour
	})
	key := &credential{
		ID: "ASIA" + randomName(16), Secret: randomName(40), Token: randomName(50), AccountID: a.ID,
		Role: role.Name, RoleID: role.ID, Session: c.Parameters["RoleSessionName"], Expires: c.now.Add(time.Duration(seconds) * time.Second).UTC(),
	}
	if s.sessionLimit > 0 {
		key.Expires = c.now.Add(s.sessionLimit).UTC()
	}
	s.state.Keys[key.ID] = key
	var out session
	out.AssumedRoleUser.AssumedRoleID, out.AssumedRoleUser.Arn = role.ID+":"+key.Session, a.sessionARN(role, key.Session)
	out.Credentials.AccessKeyID, out.Credentials.SecretAccessKey = key.ID, key.Secret
	out.Credentials.SessionToken, out.Credentials.Expiration = key.Token, key.Expires
	return out, nil
}

// TokenVerifier returns the subject of a valid token for TokenAudience, or an error.
type TokenVerifier func(ctx context.Context, token string) (subject string, err error)

// webIdentity is the identity in a verified token.
type webIdentity struct{ provider, issuer, subject string }

// verifyWebIdentity checks the token of the call, by the provider of the role's account that issued it.
// It runs without s.mu, because the verifier may call this server.
func (s *Server) verifyWebIdentity(c *call) error {
	token := strings.Split(c.Parameters["WebIdentityToken"], ".")
	var claims struct{ Iss string }
	if len(token) == 3 {
		if data, err := base64.RawURLEncoding.DecodeString(token[1]); err == nil {
			_ = json.Unmarshal(data, &claims) // a token without an issuer has no provider
		}
	}
	role, _ := arn.Parse(c.Parameters["RoleArn"])
	issuer := strings.TrimPrefix(claims.Iss, "https://")
	s.mu.Lock()
	provider, found := "", false
	if a := s.state.Accounts[role.AccountID]; a != nil {
		provider = a.arn("oidc-provider/" + issuer)
		_, found = a.Providers[provider]
	}
	verify := s.verifiers[provider]
	s.mu.Unlock()
	if !found || verify == nil {
		return errorf("InvalidIdentityToken", "No OpenIDConnect provider found in your account for %s", claims.Iss)
	}
	subject, err := verify(c.http.Context(), c.Parameters["WebIdentityToken"])
	if err != nil {
		return errorf("InvalidIdentityToken", "Couldn't verify the token: %v", err)
	}
	c.identity = &webIdentity{provider, issuer, subject}
	return nil
}

func (s *Server) assumeRoleWithWebIdentity(c *call) (any, error) {
	a, role, trust, err := s.assumed(c)
	if err != nil {
		return nil, err
	}
	prefix := strings.ToLower(c.identity.issuer)
	claims := conditionContext{prefix + ":sub": c.identity.subject, prefix + ":aud": TokenAudience}
	if role == nil || evaluate([]*policy{trust}, claims, func(st *statement) bool {
		return st.matchesAction("sts:"+withWebIdentity) && slices.Contains(st.Principal["Federated"], c.identity.provider)
	}) != allowed {
		return nil, errorf("AccessDenied", "Not authorized to perform sts:%s", withWebIdentity)
	}
	return s.beginSession(c, a, role)
}

// AddOIDCProvider registers the issuer, a host and a path without https://, as an identity
// provider of the account. The state file does not contain the verifier: add the provider again
// after a restart.
func (s *Server) AddOIDCProvider(accountID, issuer string, verify TokenVerifier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.state.account(accountID, "")
	if err != nil {
		return err
	}
	provider := a.arn("oidc-provider/" + issuer)
	a.Providers[provider], s.verifiers[provider] = issuer, verify
	return s.save()
}

// RemoveOIDCProvider removes an identity provider of an account.
func (s *Server) RemoveOIDCProvider(accountID, issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.state.Accounts[accountID]; a != nil {
		delete(a.Providers, a.arn("oidc-provider/"+issuer))
	}
	return s.save()
}
