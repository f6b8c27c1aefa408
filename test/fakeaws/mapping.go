package fakeaws

import (
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// mapping is the identity of a caller in a cluster.
type mapping struct {
	username string
	groups   []string
}

// mapCaller returns the identity of the caller from an access entry or from aws-auth,
// depending on the cluster's mode.
func (s *Server) mapCaller(p *principal, clusterARN string, data *ConfigMapData) (*mapping, error) {
	s.mu.Lock()
	c := s.state.Clusters[clusterARN]
	var mode AuthenticationMode
	var found *mapping
	if c != nil {
		mode = c.Mode
		// An entry applies to the principal that had the ARN when the entry was created.
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
	return nil, fmt.Errorf("%s has no mapping", p.canonicalARN())
}

// lookup finds the caller in aws-auth. If the ConfigMap cannot be parsed, lookup returns an
// error for every caller.
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

// canonicalARN returns the ARN of the user, or of the role without its path: the ARN of a
// session does not contain the path.
func (p *principal) canonicalARN() string {
	if !p.chained {
		return p.Source
	}
	name := p.Source[strings.LastIndexByte(p.Source, '/')+1:]
	return fmt.Sprintf("arn:%s:iam::%s:role/%s", p.Partition, p.AccountID, name)
}

// expand replaces the placeholders in a template of a username or a group.
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
