package awsirsa

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
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

// roleList is the content of mapRoles.
type roleList struct {
	// document contains the sequence, which contains a node for each value.
	document, sequence *yaml.Node
	values             []any
	// comments is the text if it contains nothing else.
	comments string
}

func parseRoles(text string) (*roleList, error) {
	empty := &yaml.Node{Kind: yaml.SequenceNode}
	list := &roleList{document: empty, sequence: empty}
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
	if err := document.Decode(&list.values); err != nil {
		return nil, err
	}
	for i, value := range list.values {
		if reflect.ValueOf(value).Kind() != reflect.Map {
			return nil, fmt.Errorf("entry %d is not an object", i+1)
		}
	}
	list.document, list.sequence = document, root
	return list, nil
}

func roleOf(value any) string {
	entry, _ := value.(map[string]any)
	role, _ := entry["rolearn"].(string)
	return role
}

// replaceMapping returns mapRoles with exactly these entries for a role. Other entries and comments stay.
func replaceMapping(text, roleARN string, wanted []mapping) (string, error) {
	list, err := parseRoles(text)
	if err != nil {
		return "", err
	}
	var added yaml.Node
	values := []any{}
	if err := errors.Join(added.Encode(wanted), added.Decode(&values)); err != nil {
		return "", err
	}
	var nodes []*yaml.Node
	present, others := []any{}, []any{}
	for i, value := range list.values {
		if roleOf(value) == roleARN {
			present = append(present, value)
		} else {
			nodes, others = append(nodes, list.sequence.Content[i]), append(others, value)
		}
	}
	if reflect.DeepEqual(present, values) {
		return text, nil
	}
	list.sequence.Content, list.sequence.Style = append(nodes, added.Content...), 0
	list.values = append(others, values...)
	return list.encode()
}

// encode encodes the list with its comments. It returns an error if the text does not contain the entries of the list.
func (l *roleList) encode() (string, error) {
	var out bytes.Buffer
	if comments := strings.TrimSpace(l.comments); comments != "" {
		out.WriteString(comments + "\n")
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent() // as AWS and eksctl write it
	if err := errors.Join(encoder.Encode(l.document), encoder.Close()); err != nil {
		return "", err
	}
	parsed, err := parseRoles(out.String())
	if err != nil || len(parsed.values) != len(l.values) || len(l.values) > 0 && !reflect.DeepEqual(parsed.values, l.values) {
		return "", errors.New("it would mean something else afterwards")
	}
	return out.String(), nil
}
