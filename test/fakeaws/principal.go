package fakeaws

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// AdminPolicy allows everything.
const AdminPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

// AccessKey signs requests. SessionToken is empty for the key of a user.
type AccessKey struct {
	ID, Secret, SessionToken string
	// AccountID is the account that the key belongs to.
	AccountID string
}

// AddAccount adds an account in a partition: aws, aws-cn or aws-us-gov. The other functions
// add the accounts that they need, in the partition aws unless an ARN names another one.
func (s *Server) AddAccount(accountID, partition string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.state.account(accountID, partition); err != nil {
		return err
	}
	return s.save()
}

// AddUser creates an IAM user with identity policies, and returns its access key. If the user
// exists, AddUser replaces the policies and keeps the key.
func (s *Server) AddUser(accountID, name string, policies ...string) (AccessKey, error) {
	for _, document := range policies {
		if _, err := parsePolicy(document, identityPolicy); err != nil {
			return AccessKey{}, fmt.Errorf("policy of user %s: %w", name, err)
		}
	}
	if !userNamePattern.MatchString(name) {
		return AccessKey{}, fmt.Errorf("user %q: invalid name", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.state.account(accountID, "")
	if err != nil {
		return AccessKey{}, err
	}
	u := a.Users[name]
	if u == nil {
		u = &userRecord{Name: name, ID: "AIDA" + randomName(17)}
		a.Users[name] = u
		key := &credential{ID: "AKIA" + randomName(16), Secret: secret(), AccountID: accountID, User: name}
		s.state.Keys[key.ID] = key
	}
	u.Policies = policies
	if err := s.save(); err != nil {
		return AccessKey{}, err
	}
	for _, key := range s.state.Keys {
		if key.AccountID == accountID && key.User == name {
			return AccessKey{ID: key.ID, Secret: key.Secret, AccountID: accountID}, nil
		}
	}
	return AccessKey{}, errors.New("the user has no key")
}

// secret returns a new secret of 40 characters.
func secret() string { return (requestID() + randomName(40))[:40] }

// principal is the caller at the time of the call.
type principal struct {
	AccountID, Partition string
	// ARN is the ARN of the user, or of the session of the role.
	ARN string
	// UserID is the unique id. For a session, a colon and the session's name follow.
	UserID string
	// Source is the ARN of the user or role, and SourceID its unique id.
	Source, SourceID string
	Session, KeyID   string
	Tags             map[string]string
	policies         []*policy
	// chained is set if the caller is a session of a role.
	chained bool
}

// principalOf returns the current owner of the key. The caller holds s.mu.
func (s *Server) principalOf(key *credential, now time.Time) (*principal, *apiError) {
	invalid := errorf(http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid.")
	if key == nil {
		return nil, invalid
	}
	a := s.state.Accounts[key.AccountID]
	if !key.Expires.IsZero() && now.After(key.Expires) {
		return nil, errorf(http.StatusForbidden, "ExpiredToken", "The security token included in the request is expired")
	}
	p := &principal{AccountID: a.ID, Partition: a.Partition, KeyID: key.ID, Session: key.Session, Tags: map[string]string{}}
	if key.Role == "" {
		u := a.Users[key.User]
		if u == nil {
			return nil, invalid
		}
		p.ARN, p.UserID = a.userARN(u.Name), u.ID
		p.Source, p.SourceID = p.ARN, u.ID
		return p, p.add(u.Policies)
	}
	role := a.Roles[key.Role]
	if role == nil || role.ID != key.RoleID {
		return nil, invalid
	}
	p.chained = true
	p.ARN = sessionARN(a, role, key.Session)
	p.UserID = role.ID + ":" + key.Session
	p.Source, p.SourceID = role.ARN, role.ID
	for _, t := range role.Tags {
		p.Tags[t.Key] = t.Value
	}
	return p, p.add(a.documentsOf(role))
}

func sessionARN(a *account, role *roleRecord, session string) string {
	return fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/%s", a.Partition, a.ID, role.Name, session)
}

// add parses the documents, which were valid when they were stored.
func (p *principal) add(documents []string) *apiError {
	for _, document := range documents {
		parsed, err := parsePolicy(document, identityPolicy)
		if err != nil {
			return errorf(http.StatusInternalServerError, "InternalFailure", "stored policy: %v", err)
		}
		p.policies = append(p.policies, parsed)
	}
	return nil
}

// conditions returns the values of the condition keys about the caller.
func (p *principal) conditions() conditionContext {
	c := conditionContext{
		"aws:principalarn":     p.Source,
		"aws:principalaccount": p.AccountID,
		"aws:userid":           p.UserID,
	}
	for key, value := range p.Tags {
		c[strings.ToLower("aws:PrincipalTag/"+key)] = value
	}
	return c
}

// authorize returns an error if the caller lacks permission for the request.
func (s *Server) authorize(r *request) *apiError {
	if r.op.resource == nil {
		return nil
	}
	needs := []permission{{r.service + ":" + r.name, r.op.resource(s, r)}}
	if r.op.alsoNeeds != nil {
		needs = append(needs, r.op.alsoNeeds(r)...)
	}
	for _, n := range needs {
		if decide(r.caller.policies, n.action, n.resource, r.caller.conditions()) != allowed {
			return r.spell(errorf(http.StatusForbidden, "AccessDenied",
				"User: %s is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action",
				r.caller.ARN, n.action, n.resource, n.action))
		}
	}
	return nil
}
