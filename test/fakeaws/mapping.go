package fakeaws

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// mapping is who a caller is in a cluster.
type mapping struct {
	username string
	groups   []string
}

// mapCaller finds the access entry of the caller, and where the cluster's mode has it
// the entry of aws-auth.
func (s *Server) mapCaller(p *principal, clusterARN string, data *ConfigMapData) (*mapping, error) {
	s.mu.Lock()
	c := s.state.Clusters[clusterARN]
	var mode AuthenticationMode
	var found *mapping
	if c != nil {
		mode = c.Mode
		// An entry is for the principal that had the ARN when the entry was made.
		if e := c.Entries[p.Source]; e != nil && e.PrincipalID == p.SourceID {
			found = &mapping{username: e.Username, groups: e.Groups}
		}
	}
	s.mu.Unlock()
	if mode != ModeConfigMap && found != nil {
		return found, nil
	}
	if mode != ModeAPI && data != nil {
		found, err := data.lookup(p)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, fmt.Errorf("%s is not mapped", p.canonicalARN())
}

// lookup finds the caller in aws-auth. A ConfigMap that cannot be read maps nobody.
func (d *ConfigMapData) lookup(p *principal) (*mapping, error) {
	var roles, users []struct {
		RoleARN  string   `json:"rolearn"`
		UserARN  string   `json:"userarn"`
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	}
	if err := errors.Join(yaml.Unmarshal([]byte(d.MapRoles), &roles), yaml.Unmarshal([]byte(d.MapUsers), &users)); err != nil {
		return nil, fmt.Errorf("aws-auth: %w", err)
	}
	canonical := p.canonicalARN()
	for _, r := range roles {
		if r.RoleARN != "" && strings.EqualFold(r.RoleARN, canonical) {
			return &mapping{username: r.Username, groups: r.Groups}, nil
		}
	}
	for _, u := range users {
		if u.UserARN != "" && strings.EqualFold(u.UserARN, canonical) {
			return &mapping{username: u.Username, groups: u.Groups}, nil
		}
	}
	return nil, nil
}

// canonicalARN is that of the user, or of the role without its path: a session does not
// tell the path.
func (p *principal) canonicalARN() string {
	if !p.chained {
		return p.Source
	}
	name := p.Source[strings.LastIndexByte(p.Source, '/')+1:]
	return fmt.Sprintf("arn:%s:iam::%s:role/%s", p.Partition, p.AccountID, name)
}

// expand fills in a template of a username or a group.
func (p *principal) expand(template string) string {
	return strings.NewReplacer(
		"{{AccountID}}", p.AccountID,
		"{{SessionName}}", strings.ReplaceAll(p.Session, "@", "-"),
		"{{SessionNameRaw}}", p.Session,
		"{{AccessKeyID}}", p.KeyID,
	).Replace(template)
}

func (m *mapping) expandedGroups(p *principal) []string {
	groups := make([]string, 0, len(m.groups))
	for _, g := range m.groups {
		groups = append(groups, p.expand(g))
	}
	return groups
}
