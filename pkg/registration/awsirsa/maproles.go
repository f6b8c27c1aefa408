package awsirsa

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// mapping is an entry of mapRoles.
type mapping struct {
	RoleARN  string   `yaml:"rolearn"`
	Username string   `yaml:"username"`
	Groups   []string `yaml:"groups"`
}

func entryOf(desired irsa.Desired) mapping {
	return mapping{RoleARN: desired.HubRoleARN(), Username: desired.Username(), Groups: desired.Groups()}
}

// value returns the entry in the form in which YAML decodes it.
func (m mapping) value() any {
	groups := make([]any, len(m.Groups))
	for i, group := range m.Groups {
		groups[i] = group
	}
	return map[string]any{"rolearn": m.RoleARN, "username": m.Username, "groups": groups}
}

// roleList is the content of mapRoles.
type roleList struct {
	document *yaml.Node
	// sequence is the list in the document. It is nil if there are no entries.
	sequence *yaml.Node
	values   []any
	// comments is the text if it contains nothing else.
	comments string
}

func parseRoles(text string) (*roleList, error) {
	list := &roleList{}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	document := &yaml.Node{}
	if err := decoder.Decode(document); errors.Is(err, io.EOF) {
		list.comments = text
		return list, nil
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); err == nil {
		return nil, errors.New("it has more than one document")
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return list, nil
	}
	if root.Kind != yaml.SequenceNode {
		return nil, errors.New("it is not a list")
	}
	for i, item := range root.Content {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("entry %d is not an object", i+1)
		}
	}
	if err := document.Decode(&list.values); err != nil {
		return nil, err
	}
	list.document, list.sequence = document, root
	return list, nil
}

func roleOf(value any) string {
	entry, _ := value.(map[string]any)
	role, _ := entry["rolearn"].(string)
	return role
}

// addMapping returns mapRoles with one entry for the role. Other entries and comments stay.
func addMapping(text string, wanted mapping) (string, error) {
	list, err := parseRoles(text)
	if err != nil {
		return "", err
	}
	var present []any
	for _, value := range list.values {
		if roleOf(value) == wanted.RoleARN {
			present = append(present, value)
		}
	}
	if len(present) == 1 && reflect.DeepEqual(present[0], wanted.value()) {
		return text, nil
	}
	block, err := encode([]mapping{wanted})
	if err != nil {
		return "", err
	}
	if list.sequence == nil {
		list.values = []any{wanted.value()}
		comments := strings.TrimSpace(list.comments)
		if comments != "" {
			comments += "\n"
		}
		return list.checked(comments + block)
	}
	list.remove(wanted.RoleARN)
	added := &yaml.Node{}
	if err := yaml.Unmarshal([]byte(block), added); err != nil {
		return "", err
	}
	list.sequence.Content = append(list.sequence.Content, added.Content[0].Content...)
	list.values = append(list.values, wanted.value())
	return list.encode()
}

// removeMapping returns mapRoles without the entries of a role.
func removeMapping(text, roleARN string) (string, error) {
	list, err := parseRoles(text)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(list.values, func(value any) bool { return roleOf(value) == roleARN }) {
		return text, nil
	}
	list.remove(roleARN)
	return list.encode()
}

// remove removes the entries of a role.
func (l *roleList) remove(roleARN string) {
	var nodes []*yaml.Node
	var values []any
	for i, value := range l.values {
		if roleOf(value) != roleARN {
			nodes, values = append(nodes, l.sequence.Content[i]), append(values, value)
		}
	}
	l.sequence.Content, l.values = nodes, values
}

// encode encodes the list with its comments.
func (l *roleList) encode() (string, error) {
	l.sequence.Style = 0
	text, err := encode(l.document)
	if err != nil {
		return "", err
	}
	return l.checked(text)
}

// encode returns YAML in the layout of AWS and eksctl.
func encode(value any) (string, error) {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	err := errors.Join(encoder.Encode(value), encoder.Close())
	return out.String(), err
}

// checked returns a text, or an error if it does not contain the entries of the list.
func (l *roleList) checked(text string) (string, error) {
	parsed, err := parseRoles(text)
	if err != nil || len(parsed.values) != len(l.values) || len(l.values) > 0 && !reflect.DeepEqual(parsed.values, l.values) {
		return "", errors.New("it would mean something else afterwards")
	}
	return text, nil
}
