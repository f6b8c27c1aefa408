package fakeaws

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
)

// state is the state of the server. It is guarded by Server.mu. The state file is its JSON form.
type state struct {
	Accounts map[string]*account
	Keys     map[string]*credential
	Clusters map[string]*cluster
}

type account struct {
	ID, Partition string
	Users         map[string]*user
	Roles         map[string]*Role
	// Providers are issuers, without https://, by ARN.
	Providers map[string]string
}

// arn returns the ARN of a resource of IAM.
func (a *account) arn(resource string) string {
	return fmt.Sprintf("arn:%s:iam::%s:%s", a.Partition, a.ID, resource)
}

type user struct {
	ID       string
	Policies []string
	Key      AccessKey
}

// Role is an IAM role of an account.
type Role struct {
	Name, ID, ARN, Path string
	// TrustPolicy is the last written document.
	TrustPolicy string
	Tags        map[string]string
	// InlinePolicies are documents by policy name, and AttachedPolicies those by ARN.
	InlinePolicies, AttachedPolicies map[string]string
	CreatedAt                        time.Time
	// TrustedIDs are the unique ids of the principals of the trust policy, by ARN: AWS
	// trusts the principal that had the ARN when the policy was written.
	TrustedIDs map[string]string
	// UnseenByEKS is the number of further calls in which EKS does not find the role.
	UnseenByEKS int
}

// AccessEntry is an access entry of an EKS cluster.
type AccessEntry struct {
	ARN, PrincipalARN, Username, Type string
	Groups                            []string
	Tags                              map[string]string
	CreatedAt, ModifiedAt             time.Time
	// PrincipalID is the unique id that the principal had at the creation.
	PrincipalID string
	// Request is the body of the creating request, which a client may repeat.
	Request string
}

// credential is an access key of a user, or of a session of a role.
type credential struct {
	ID, Secret, Token, AccountID string
	// User, or RoleID with the name of the role and of the session, is the owner.
	User, Role, RoleID, Session string
	Expires                     time.Time
}

type cluster struct {
	ARN     arn.ARN
	Name    string
	Mode    AuthenticationMode
	Entries map[string]*AccessEntry // by principal ARN
}

// loadState reads the state file. If the file does not exist, the state is empty.
func loadState(file string) (*state, error) {
	st := &state{Accounts: map[string]*account{}, Keys: map[string]*credential{}, Clusters: map[string]*cluster{}}
	if file == "" {
		return st, nil
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err == nil {
		err = json.Unmarshal(data, st)
	}
	if err != nil {
		return nil, fmt.Errorf("reading state from %s: %w", file, err)
	}
	return st, nil
}

// save replaces the state file, if one is configured. The replacement is atomic: a crash leaves
// the previous file or the new one. The caller holds s.mu.
func (s *Server) save() error {
	file := s.options.StateFile
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(s.state, "", "  ")
	if err == nil {
		err = os.WriteFile(file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	return nil
}

// account returns the account, and creates it if it does not exist. An empty partition stands
// for the partition of the account, or for aws if the account is new.
func (st *state) account(id, partition string) (*account, error) {
	if !accountIDPattern.MatchString(id) {
		return nil, fmt.Errorf("account %q: want 12 digits", id)
	}
	a, ok := st.Accounts[id]
	if !ok {
		if partition == "" {
			partition = "aws"
		}
		a = &account{ID: id, Partition: partition, Users: map[string]*user{}, Roles: map[string]*Role{}, Providers: map[string]string{}}
		st.Accounts[id] = a
	}
	return a, nil
}

// principalID returns the unique id of the user or role with an ARN, and whether it exists. The id
// of an account is empty.
func (st *state) principalID(name string) (id string, exists bool) {
	p, err := arn.Parse(name)
	a := st.Accounts[p.AccountID]
	if err != nil || a == nil || a.Partition != p.Partition || p.Service != serviceIAM {
		return "", false
	}
	if role := a.Roles[lastElement(p.Resource)]; role != nil && role.ARN == name {
		return role.ID, true
	}
	if userName, isUser := strings.CutPrefix(p.Resource, "user/"); isUser && a.Users[userName] != nil {
		return a.Users[userName].ID, true
	}
	return "", p.Resource == "root"
}

// Roles returns the roles of an account, by name.
func (s *Server) Roles(accountID string) []Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.state.Accounts[accountID]
	if a == nil {
		return nil
	}
	var roles []Role
	for _, name := range slices.Sorted(maps.Keys(a.Roles)) {
		role := *a.Roles[name]
		role.Tags, role.InlinePolicies, role.AttachedPolicies = maps.Clone(role.Tags), maps.Clone(role.InlinePolicies), maps.Clone(role.AttachedPolicies)
		roles = append(roles, role)
	}
	return roles
}

// AccessEntries returns the access entries of a cluster, by the ARN of the principal.
func (s *Server) AccessEntries(clusterARN string) []AccessEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.Clusters[clusterARN]
	if c == nil {
		return nil
	}
	var entries []AccessEntry
	for _, principal := range slices.Sorted(maps.Keys(c.Entries)) {
		entry := *c.Entries[principal]
		entry.Tags = maps.Clone(entry.Tags)
		entries = append(entries, entry)
	}
	return entries
}

// AccessKey signs requests. SessionToken is empty for the key of a user.
type AccessKey struct {
	ID, Secret, SessionToken string
	// AccountID is the account that the key belongs to.
	AccountID string
}

// AddUser creates an IAM user with identity policies, and returns its access key. If the user
// exists, AddUser replaces the policies and keeps the key.
func (s *Server) AddUser(accountID, name string, policies ...string) (AccessKey, error) {
	for _, document := range policies {
		if _, err := parsePolicy(document, false); err != nil {
			return AccessKey{}, fmt.Errorf("policy of user %s: %w", name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.state.account(accountID, "")
	if err != nil {
		return AccessKey{}, err
	}
	u := a.Users[name]
	if u == nil {
		u = &user{ID: "AIDA" + randomName(17), Key: AccessKey{ID: "AKIA" + randomName(16), Secret: randomName(40), AccountID: accountID}}
		a.Users[name] = u
		s.state.Keys[u.Key.ID] = &credential{ID: u.Key.ID, Secret: u.Key.Secret, AccountID: accountID, User: name}
	}
	u.Policies = policies
	return u.Key, s.save()
}

// randomName returns n random upper case letters and digits, as in the ids of AWS.
func randomName(n int) string { return (rand.Text() + rand.Text())[:n] }
