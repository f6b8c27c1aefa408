package fakeaws

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// state is the state of the server. It is guarded by Server.mu. The state file is its JSON
// form.
type state struct {
	Accounts map[string]*account       `json:"accounts"`
	Keys     map[string]*credential    `json:"keys"`
	Clusters map[string]*clusterRecord `json:"clusters"`
}

type account struct {
	ID        string                     `json:"id"`
	Partition string                     `json:"partition"`
	Users     map[string]*userRecord     `json:"users,omitempty"`
	Roles     map[string]*roleRecord     `json:"roles,omitempty"`
	Policies  map[string]string          `json:"policies,omitempty"` // documents of managed policies by ARN
	Providers map[string]*providerRecord `json:"providers,omitempty"`
}

type userRecord struct {
	Name     string   `json:"name"`
	ID       string   `json:"id"`
	Policies []string `json:"policies,omitempty"`
}

type roleRecord struct {
	Name        string            `json:"name"`
	ID          string            `json:"id"`
	Path        string            `json:"path"`
	ARN         string            `json:"arn"`
	TrustPolicy string            `json:"trustPolicy"`
	Description string            `json:"description,omitempty"`
	MaxSession  int               `json:"maxSession"`
	CreatedAt   time.Time         `json:"createdAt"`
	Tags        []tag             `json:"tags,omitempty"`
	Inline      map[string]string `json:"inline,omitempty"`
	Attached    []string          `json:"attached,omitempty"` // ARNs
	// TrustedIDs are the unique ids of the principals of the trust policy, by ARN: AWS
	// trusts the principal that had the ARN when the policy was written.
	TrustedIDs map[string]string `json:"trustedIDs,omitempty"`
	// UnseenByEKS is the number of further calls in which EKS does not find the role.
	UnseenByEKS int `json:"unseenByEKS,omitempty"`
}

type providerRecord struct {
	Issuer    string          `json:"issuer"` // without https://
	Audiences []string        `json:"audiences"`
	CreatedAt time.Time       `json:"createdAt,omitzero"`
	JWKS      json.RawMessage `json:"jwks,omitempty"`
	fetch     JWKSFunc
}

// credential is an access key of a user, or of a session of a role.
type credential struct {
	ID        string    `json:"id"`
	Secret    string    `json:"secret"`
	Token     string    `json:"token,omitempty"`
	AccountID string    `json:"accountID"`
	User      string    `json:"user,omitempty"`
	Role      string    `json:"role,omitempty"`
	RoleID    string    `json:"roleID,omitempty"`
	Session   string    `json:"session,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
}

type clusterRecord struct {
	ARN       string                  `json:"arn"`
	Name      string                  `json:"name"`
	AccountID string                  `json:"accountID"`
	Region    string                  `json:"region"`
	Mode      AuthenticationMode      `json:"mode"`
	Endpoint  string                  `json:"endpoint,omitempty"`
	CA        []byte                  `json:"ca,omitempty"`
	CreatedAt time.Time               `json:"createdAt"`
	Tags      map[string]string       `json:"tags,omitempty"`
	Entries   map[string]*entryRecord `json:"entries,omitempty"` // by principal ARN
}

type entryRecord struct {
	ARN         string            `json:"arn"`
	Principal   string            `json:"principal"`
	PrincipalID string            `json:"principalID"`
	Username    string            `json:"username"`
	Groups      []string          `json:"groups,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Type        string            `json:"type"`
	CreatedAt   time.Time         `json:"createdAt"`
	ModifiedAt  time.Time         `json:"modifiedAt"`
	// Token and Request identify the creating request, which a client may retry.
	Token   string `json:"token,omitempty"`
	Request string `json:"request,omitempty"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// loadState reads the state file. If the file does not exist, the state is empty.
func loadState(file string) (*state, error) {
	st := &state{}
	if file != "" {
		data, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("reading state: %w", err)
		default:
			if err := json.Unmarshal(data, st); err != nil {
				return nil, fmt.Errorf("reading state from %s: %w", file, err)
			}
		}
	}
	if st.Accounts == nil {
		st.Accounts = map[string]*account{}
	}
	if st.Keys == nil {
		st.Keys = map[string]*credential{}
	}
	if st.Clusters == nil {
		st.Clusters = map[string]*clusterRecord{}
	}
	for _, a := range st.Accounts {
		a.init()
	}
	for _, c := range st.Clusters {
		if c.Entries == nil {
			c.Entries = map[string]*entryRecord{}
		}
	}
	return st, nil
}

func (a *account) init() {
	if a.Users == nil {
		a.Users = map[string]*userRecord{}
	}
	if a.Roles == nil {
		a.Roles = map[string]*roleRecord{}
	}
	if a.Policies == nil {
		a.Policies = map[string]string{}
	}
	if a.Providers == nil {
		a.Providers = map[string]*providerRecord{}
	}
}

// save replaces the state file, if one is configured. The replacement is atomic: a crash leaves
// the previous file or the new one. The caller holds s.mu.
func (s *Server) save() error {
	if s.options.StateFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding state: %w", err)
	}
	dir, name := filepath.Split(s.options.StateFile)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return fmt.Errorf("writing state: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.options.StateFile)
	}
	if err != nil {
		return fmt.Errorf("writing state: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// dropExpired deletes the sessions that expired more than an hour ago. Until then, a request
// with the session's key returns ExpiredToken.
func (st *state) dropExpired(now time.Time) {
	maps.DeleteFunc(st.Keys, func(_ string, c *credential) bool {
		return !c.Expires.IsZero() && now.Sub(c.Expires) > time.Hour
	})
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
		if _, known := globalRegions[partition]; !known {
			return nil, fmt.Errorf("account %s: unknown partition %q", id, partition)
		}
		a = &account{ID: id, Partition: partition}
		a.init()
		st.Accounts[id] = a
	}
	if partition != "" && a.Partition != partition {
		return nil, fmt.Errorf("account %s belongs to partition %s, not %s", id, a.Partition, partition)
	}
	return a, nil
}

// principalID returns the unique id of the user or role with an ARN. known reports whether
// the server has its account; exists reports whether the principal exists.
func (st *state) principalID(arn string) (id string, known, exists bool) {
	p, ok := parseARN(arn)
	if !ok || p.Service != "iam" {
		return "", false, false
	}
	a := st.Accounts[p.AccountID]
	if a == nil || a.Partition != p.Partition {
		return "", false, false
	}
	kind, rest, _ := strings.Cut(p.Resource, "/")
	name := rest[strings.LastIndexByte(rest, '/')+1:]
	switch kind {
	case "role":
		if r := a.Roles[name]; r != nil && r.ARN == arn {
			return r.ID, true, true
		}
	case "user":
		if u := a.Users[name]; u != nil && a.userARN(name) == arn {
			return u.ID, true, true
		}
	case "root":
		return "", true, true
	}
	return "", true, false
}

func (a *account) userARN(name string) string {
	return fmt.Sprintf("arn:%s:iam::%s:user/%s", a.Partition, a.ID, name)
}

// Role is an IAM role of an account.
type Role struct {
	Name, ID, ARN, Path, Description string
	// TrustPolicy is the last written document.
	TrustPolicy string
	Tags        map[string]string
	// InlinePolicies are documents by policy name.
	InlinePolicies map[string]string
	// AttachedPolicies are ARNs.
	AttachedPolicies []string
	// MaxSessionDuration is in seconds.
	MaxSessionDuration int
	CreatedAt          time.Time
}

// Roles returns the roles of an account, by name.
func (s *Server) Roles(accountID string) []Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.state.Accounts[accountID]
	if a == nil {
		return nil
	}
	roles := make([]Role, 0, len(a.Roles))
	for _, name := range slices.Sorted(maps.Keys(a.Roles)) {
		r := a.Roles[name]
		tags := make(map[string]string, len(r.Tags))
		for _, t := range r.Tags {
			tags[t.Key] = t.Value
		}
		roles = append(roles, Role{
			Name: r.Name, ID: r.ID, ARN: r.ARN, Path: r.Path, Description: r.Description,
			TrustPolicy: r.TrustPolicy, Tags: tags, InlinePolicies: maps.Clone(r.Inline),
			AttachedPolicies: slices.Clone(r.Attached), MaxSessionDuration: r.MaxSession, CreatedAt: r.CreatedAt,
		})
	}
	return roles
}

// AccessEntry is an access entry of an EKS cluster.
type AccessEntry struct {
	ARN, PrincipalARN, Username, Type string
	Groups                            []string
	Tags                              map[string]string
	CreatedAt, ModifiedAt             time.Time
}

// AccessEntries returns the access entries of a cluster, by the ARN of the principal.
func (s *Server) AccessEntries(clusterARN string) []AccessEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.Clusters[clusterARN]
	if c == nil {
		return nil
	}
	entries := make([]AccessEntry, 0, len(c.Entries))
	for _, principal := range slices.Sorted(maps.Keys(c.Entries)) {
		e := c.Entries[principal]
		entries = append(entries, AccessEntry{
			ARN: e.ARN, PrincipalARN: e.Principal, Username: e.Username, Type: e.Type,
			Groups: slices.Clone(e.Groups), Tags: maps.Clone(e.Tags), CreatedAt: e.CreatedAt, ModifiedAt: e.ModifiedAt,
		})
	}
	return entries
}
