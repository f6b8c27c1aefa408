package awsirsa

import (
	"bytes"
	"errors"
	"fmt"
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
	text string
	// sequence is nil if there are no entries.
	sequence *yaml.Node
	document *yaml.Node
	values   []any
}

func parseRoles(text string) (*roleList, error) {
	list := &roleList{text: text}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	document := &yaml.Node{}
	if err := decoder.Decode(document); err != nil {
		if strings.TrimSpace(withoutComments(text)) == "" {
			return list, nil
		}
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

// withoutComments drops the lines of a text that are comments or markers of YAML.
func withoutComments(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "#") || line == "---"
	}), "\n")
}

func roleOf(value any) string {
	entry, _ := value.(map[string]any)
	role, _ := entry["rolearn"].(string)
	return role
}

// addMapping returns mapRoles with one entry for the role. The text of other entries is
// unchanged.
func addMapping(text string, wanted mapping) (string, error) {
	list, err := parseRoles(text)
	if err != nil {
		return "", err
	}
	present, right := 0, 0
	for _, value := range list.values {
		if roleOf(value) == wanted.RoleARN {
			present++
			if reflect.DeepEqual(value, wanted.value()) {
				right++
			}
		}
	}
	if present == 1 && right == 1 {
		return text, nil
	}
	if present > 0 {
		if list, err = list.without(wanted.RoleARN); err != nil {
			return "", err
		}
	}
	return list.with(wanted)
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
	rest, err := list.without(roleARN)
	if err != nil {
		return "", err
	}
	return rest.text, nil
}

// with returns the text with a further entry. If an edit by lines would change the
// meaning, for example of a list on one line, it encodes the whole list.
func (l *roleList) with(entry mapping) (string, error) {
	expected := append(slices.Clone(l.values), entry.value())
	indent := ""
	if l.sequence != nil && len(l.sequence.Content) > 0 {
		indent = strings.Repeat(" ", max(l.sequence.Column-1, 0))
	}
	block, err := yaml.Marshal([]mapping{entry})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if len(l.values) > 0 || l.sequence == nil {
		text.WriteString(l.text)
		if l.text != "" && !strings.HasSuffix(l.text, "\n") {
			text.WriteString("\n")
		}
		for line := range strings.Lines(string(block)) {
			text.WriteString(indent + line)
		}
		if means(text.String(), expected) {
			return text.String(), nil
		}
	}
	if l.sequence == nil {
		return string(block), nil
	}
	added := &yaml.Node{}
	if err := yaml.Unmarshal(block, added); err != nil {
		return "", err
	}
	l.sequence.Style = 0
	l.sequence.Content = append(l.sequence.Content, added.Content[0].Content...)
	return l.encode(expected)
}

// without returns the list without the entries of a role.
func (l *roleList) without(roleARN string) (*roleList, error) {
	expected := []any{}
	var kept []*yaml.Node
	lines := strings.SplitAfter(l.text, "\n")
	drop := make([]bool, len(lines))
	for i, value := range l.values {
		node := l.sequence.Content[i]
		if roleOf(value) != roleARN {
			expected, kept = append(expected, value), append(kept, node)
			continue
		}
		for line := node.Line; line <= lastLine(node) && line <= len(lines); line++ {
			drop[line-1] = true
		}
	}
	var text strings.Builder
	for i, line := range lines {
		if !drop[i] {
			text.WriteString(line)
		}
	}
	if means(text.String(), expected) {
		return parseRoles(text.String())
	}
	l.sequence.Content = kept
	whole, err := l.encode(expected)
	if err != nil {
		return nil, err
	}
	return parseRoles(whole)
}

// lastLine returns the last line on which a part of a node begins.
func lastLine(node *yaml.Node) int {
	last := node.Line
	for _, part := range node.Content {
		last = max(last, lastLine(part))
	}
	return last
}

// means reports whether a text contains exactly these entries.
func means(text string, expected []any) bool {
	list, err := parseRoles(text)
	return err == nil && len(list.values) == len(expected) && (len(expected) == 0 || reflect.DeepEqual(list.values, expected))
}

// encode encodes the whole list with its comments. It returns an error if that would
// change the meaning of the entries.
func (l *roleList) encode(expected []any) (string, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(l.document); err != nil {
		return "", err
	}
	if err := encoder.Close(); err != nil {
		return "", err
	}
	if !means(out.String(), expected) {
		return "", errors.New("it would mean something else afterwards")
	}
	return out.String(), nil
}
