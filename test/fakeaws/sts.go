package fakeaws

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSessionToken is the maximum size of a session token.
const maxSessionToken = 4096

var sessionNamePattern = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)

// stsOperations are the operations of STS.
var stsOperations = map[string]*operation{
	// Every caller may request its own identity.
	"GetCallerIdentity":         {run: (*Server).getCallerIdentity},
	"AssumeRole":                {required: []string{"RoleArn", "RoleSessionName"}, run: (*Server).assumeRole, writes: true},
	"AssumeRoleWithWebIdentity": {required: []string{"RoleArn", "RoleSessionName", "WebIdentityToken"}, unsigned: true, prepare: (*Server).verifyWebIdentity, run: (*Server).assumeRoleWithWebIdentity, writes: true},
}

// JWKSFunc returns the JSON Web Key Set of an OIDC provider.
type JWKSFunc func(ctx context.Context) ([]byte, error)

func (s *Server) getCallerIdentity(r *request) (any, *apiError) {
	return element("", textElement("Arn", r.caller.ARN), textElement("UserId", r.caller.UserID), textElement("Account", r.caller.AccountID)), nil
}

// duration returns the requested duration of a session.
func (r *request) duration(limit int) (time.Duration, *apiError) {
	seconds := min(3600, limit)
	if text := r.params["DurationSeconds"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 900 || n > maxSession {
			return 0, validationError("Value '%s' at 'durationSeconds' failed to satisfy constraint: Member must have value between 900 and %d", text, maxSession)
		}
		if n > limit {
			return 0, validationError("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
		}
		seconds = n
	}
	return time.Duration(seconds) * time.Second, nil
}

// assumed returns the role that the request names and its account, or nil if the role does not
// exist.
func (s *Server) assumed(r *request) (*account, *roleRecord, *apiError) {
	name, session := r.params["RoleArn"], r.params["RoleSessionName"]
	a, ok := parseARN(name)
	if !ok || a.Service != "iam" || !strings.HasPrefix(a.Resource, "role/") {
		return nil, nil, errorf(http.StatusBadRequest, "ValidationError", "%s is invalid", name)
	}
	for param := range r.params {
		// Ignoring them would give the session more permissions than requested.
		if strings.HasPrefix(param, "Policy") || strings.HasPrefix(param, "Tags.") || strings.HasPrefix(param, "TransitiveTagKeys.") || param == "TokenCode" {
			return nil, nil, validationError("%s is not supported by this server", param)
		}
	}
	if !sessionNamePattern.MatchString(session) {
		return nil, nil, validationError("Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]{2,64}", session)
	}
	owner := s.state.Accounts[a.AccountID]
	if owner == nil || owner.Partition != a.Partition {
		return nil, nil, nil
	}
	role := owner.Roles[a.Resource[strings.LastIndexByte(a.Resource, '/')+1:]]
	if role == nil || role.ARN != name {
		return nil, nil, nil
	}
	return owner, role, nil
}

// assumeRole returns the same error for a missing role and for a forbidden one.
func (s *Server) assumeRole(r *request) (any, *apiError) {
	name := r.params["RoleArn"]
	refused := errorf(http.StatusForbidden, "AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", r.caller.ARN, name)
	owner, role, e := s.assumed(r)
	if e != nil {
		return nil, e
	}
	if role == nil {
		return nil, refused
	}
	trust, err := parsePolicy(role.TrustPolicy, trustPolicy)
	if err != nil {
		return nil, errorf(http.StatusInternalServerError, "InternalFailure", "stored trust policy: %v", err)
	}
	c := r.caller.conditions()
	c["sts:rolesessionname"] = r.params["RoleSessionName"]
	if id, given := r.params["ExternalId"]; given {
		c["sts:externalid"] = id
	}
	// A trust policy that names a principal of the same account allows the call. If it names an
	// account, or a principal of another account, the caller's own policies must allow the
	// call as well.
	byName, byAccount := false, false
	trusted := evaluate([]*policy{trust}, c, func(st *statement) bool {
		if !st.matchesAction("sts:AssumeRole") {
			return false
		}
		named, viaAccount := role.names(st, r.caller)
		if st.Effect == "Allow" {
			byName, byAccount = byName || named, byAccount || viaAccount
		}
		return named || viaAccount
	})
	if trusted != allowed {
		return nil, refused
	}
	own := decide(r.caller.policies, "sts:AssumeRole", role.ARN, c)
	if own == denied || own != allowed && (!byName || r.caller.AccountID != owner.ID) {
		return nil, refused
	}
	limit := role.MaxSession
	if r.caller.chained {
		// AWS limits a session that another session begins to an hour.
		limit = min(limit, 3600)
	}
	lifetime, e := r.duration(limit)
	if e != nil {
		return nil, e
	}
	return element("", s.beginSession(r, owner, role, lifetime)...), nil
}

// names reports whether a statement of the role's trust policy names the caller itself, or
// the caller's account.
func (role *roleRecord) names(st *statement, p *principal) (itself, itsAccount bool) {
	if st.Principal == nil {
		return false, false
	}
	for _, name := range (*st.Principal)["AWS"] {
		switch {
		case name == "*", name == p.ARN, name == p.SourceID:
			itself = true
		case name == p.Source:
			id, bound := role.TrustedIDs[name]
			itself = itself || !bound || id == p.SourceID
		case name == p.AccountID, name == fmt.Sprintf("arn:%s:iam::%s:root", p.Partition, p.AccountID):
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

// beginSession creates credentials of the role, and returns their elements of the response.
func (s *Server) beginSession(r *request, owner *account, role *roleRecord, lifetime time.Duration) []node {
	s.state.dropExpired(r.now)
	key := &credential{
		ID: "ASIA" + randomName(16), Secret: secret(), Token: "FwoGZXIvYXdzE" + rand.Text() + rand.Text() + rand.Text(),
		AccountID: owner.ID, Role: role.Name, RoleID: role.ID, Session: r.params["RoleSessionName"],
		Expires: r.now.Add(lifetime).UTC().Truncate(time.Second),
	}
	if s.sessionLimit > 0 {
		key.Expires = r.now.Add(min(lifetime, s.sessionLimit)).UTC()
	}
	s.state.Keys[key.ID] = key
	return []node{
		element("AssumedRoleUser",
			textElement("AssumedRoleId", role.ID+":"+key.Session),
			textElement("Arn", sessionARN(owner, role, key.Session))),
		element("Credentials",
			textElement("AccessKeyId", key.ID), textElement("SecretAccessKey", key.Secret),
			textElement("SessionToken", key.Token), timeElement("Expiration", key.Expires)),
		textElement("PackedPolicySize", "0"),
		textElement("SessionTokenSize", strconv.Itoa(len(key.Token))),
		textElement("SessionTokenUtilization", strconv.Itoa(len(key.Token)*100/maxSessionToken)),
	}
}

func (s *Server) assumeRoleWithWebIdentity(r *request) (any, *apiError) {
	identity := r.prepared.(*webIdentity)
	refused := errorf(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	owner, role, e := s.assumed(r)
	if e != nil {
		return nil, e
	}
	// The provider must belong to the role's account.
	if role == nil || owner.ID != identity.accountID {
		return nil, refused
	}
	trust, err := parsePolicy(role.TrustPolicy, trustPolicy)
	if err != nil {
		return nil, errorf(http.StatusInternalServerError, "InternalFailure", "stored trust policy: %v", err)
	}
	provider := providerARN(owner, identity.issuer)
	c := conditionContext{"sts:rolesessionname": r.params["RoleSessionName"]}
	prefix := strings.ToLower(identity.issuer)
	c[prefix+":sub"], c[prefix+":aud"] = identity.subject, identity.audience
	trusted := evaluate([]*policy{trust}, c, func(st *statement) bool {
		return st.matchesAction("sts:AssumeRoleWithWebIdentity") && st.Principal != nil &&
			slices.Contains((*st.Principal)["Federated"], provider)
	})
	if trusted != allowed {
		return nil, refused
	}
	lifetime, e := r.duration(role.MaxSession)
	if e != nil {
		return nil, e
	}
	nodes := s.beginSession(r, owner, role, lifetime)
	return element("", append(nodes,
		textElement("SubjectFromWebIdentityToken", identity.subject),
		textElement("Audience", identity.audience),
		textElement("Provider", provider))...), nil
}

func providerARN(a *account, issuer string) string {
	return fmt.Sprintf("arn:%s:iam::%s:oidc-provider/%s", a.Partition, a.ID, issuer)
}

// AddOIDCProvider registers the issuer, a host and a path without https://, as an identity
// provider of the account, and returns its ARN. Tokens must be for one of the audiences;
// sts.amazonaws.com if none is given. The server calls keys for every token. The state file
// does not contain the function: add the provider again after a restart.
func (s *Server) AddOIDCProvider(accountID, issuer string, keys JWKSFunc, audiences ...string) (string, error) {
	return s.addProvider(accountID, &providerRecord{Issuer: issuer, Audiences: audiences, fetch: keys})
}

// AddStaticOIDCProvider is AddOIDCProvider with a key set that does not change.
func (s *Server) AddStaticOIDCProvider(accountID, issuer string, jwks []byte, audiences ...string) (string, error) {
	if _, err := parseJWKS(jwks); err != nil {
		return "", fmt.Errorf("keys of %s: %w", issuer, err)
	}
	return s.addProvider(accountID, &providerRecord{Issuer: issuer, Audiences: audiences, JWKS: slices.Clone(jwks)})
}

// RemoveOIDCProvider removes an identity provider of an account.
func (s *Server) RemoveOIDCProvider(accountID, issuer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.state.Accounts[accountID]; a != nil {
		delete(a.Providers, issuer)
	}
	return s.save()
}

func (s *Server) addProvider(accountID string, p *providerRecord) (string, error) {
	if p.Issuer == "" || strings.Contains(p.Issuer, "://") {
		return "", fmt.Errorf("issuer %q: want a host and a path, without https://", p.Issuer)
	}
	if len(p.Audiences) == 0 {
		p.Audiences = []string{"sts.amazonaws.com"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.state.account(accountID, "")
	if err != nil {
		return "", err
	}
	p.CreatedAt = s.clock.Now().UTC()
	a.Providers[p.Issuer] = p
	return providerARN(a, p.Issuer), s.save()
}

// provider returns a provider of an account, or nil if it does not exist. The fields of a
// provider do not change.
func (s *Server) provider(accountID, issuer string) *providerRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.state.Accounts[accountID]
	if a == nil {
		return nil
	}
	return a.Providers[issuer]
}
