package awsirsa

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	ours   = "arn:aws:iam::111122223333:role/ocm-hub-79e99112993014816615711cbd35a9bc"
	nodes  = "- rolearn: arn:aws:iam::111122223333:role/nodes # of the node group\n  username: system:node:{{EC2PrivateDNSName}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
	people = "# Who is on call.\n- groups: [\"system:masters\"]\n  rolearn: 'arn:aws:iam::111122223333:role/admin'\n  username: admin\n"
	entry  = "- rolearn: " + ours + "\n  username: cluster1\n  groups:\n  - system:open-cluster-management:cluster1\n"
)

var cluster1 = mapping{RoleARN: ours, Username: "cluster1", Groups: []string{"system:open-cluster-management:cluster1"}}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

func addMapping(text string, wanted mapping) (string, error) {
	return replaceMapping(text, wanted.RoleARN, []mapping{wanted})
}

func removeMapping(text, roleARN string) (string, error) { return replaceMapping(text, roleARN, nil) }

func TestAddMapping(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"empty text":                 {"", entry},
		"an empty list":              {"[]\n", entry},
		"null":                       {"null\n", entry},
		"only comments":              {"# none\n", "# none\n" + entry},
		"comments without a newline": {"# managed by\n  # terraform", "# managed by\n  # terraform\n" + entry},
		"only spaces":                {"  ", entry},
		"after others":               {nodes + people, nodes + people + entry},
		"without an end of line":     {strings.TrimSuffix(nodes, "\n"), nodes + entry},
		"indented":                   {indented(nodes), nodes + entry},
		"existing":                   {nodes + entry + people, nodes + entry + people},
		"existing in another layout": {"- {rolearn: '" + ours + "', groups: ['system:open-cluster-management:cluster1'], username: cluster1}\n" + nodes, "- {rolearn: '" + ours + "', groups: ['system:open-cluster-management:cluster1'], username: cluster1}\n" + nodes},
		"another user":               {strings.Replace(entry, "username: cluster1", "username: mallory", 1) + people, people + entry},
		"an additional group":        {nodes + entry + "    - system:masters\n" + people, nodes + people + entry},
		"twice":                      {entry + nodes + entry, nodes + entry},
		"an additional key":          {entry + "  userarn: x\n", entry},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := addMapping(test.before, cluster1)
			if err != nil {
				t.Fatal(err)
			}
			if after != test.after {
				t.Errorf("addMapping() =\n%s\nwant\n%s", after, test.after)
			}
			again, err := addMapping(after, cluster1)
			if err != nil || again != after {
				t.Errorf("second addMapping() = %v\n%s\nwant the unchanged text", err, again)
			}
		})
	}
}

// A list in another layout is encoded with the same meaning.
func TestAddMappingToOtherLayouts(t *testing.T) {
	for name, before := range map[string]string{
		"in one line":   `[{"rolearn":"arn:aws:iam::1:role/a","username":"a","groups":["g"]}]`,
		"with anchors":  "- &a\n  rolearn: arn:aws:iam::1:role/a\n  username: a\n  groups: &g\n  - g\n- rolearn: arn:aws:iam::1:role/b\n  username: b\n  groups: *g\n",
		"ended":         nodes + "...\n",
		"unknown keys":  "- rolearn: arn:aws:iam::1:role/a\n  sessionName: x\n  username: |-\n    a\n",
		"JSON in lines": "[\n  {\"rolearn\": \"arn:aws:iam::1:role/a\"}\n]\n",
	} {
		t.Run(name, func(t *testing.T) {
			after, err := addMapping(before, cluster1)
			if err != nil {
				t.Fatal(err)
			}
			var was, is []any
			if err := yaml.Unmarshal([]byte(strings.TrimSuffix(before, "...\n")), &was); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(after), &is); err != nil {
				t.Fatalf("decoding addMapping(): %v\n%s", err, after)
			}
			if len(is) != len(was)+1 || roleOf(is[len(is)-1]) != ours {
				t.Fatalf("addMapping() =\n%s\nwant %d entries with the role last", after, len(was)+1)
			}
			rest, err := removeMapping(after, ours)
			if err != nil {
				t.Fatal(err)
			}
			var left []any
			if err := yaml.Unmarshal([]byte(rest), &left); err != nil || len(left) != len(was) {
				t.Errorf("removeMapping() = %v\n%s\nwant %d entries", err, rest, len(was))
			}
			for i := range was {
				if roleOf(left[i]) != roleOf(was[i]) {
					t.Errorf("entry %d = %v, want %v", i, left[i], was[i])
				}
			}
		})
	}
}

func TestRemoveMapping(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"empty text":       {"", ""},
		"no entry":         {nodes + people, nodes + people},
		"between others":   {nodes + entry + people, nodes + people},
		"at the end":       {nodes + people + entry, nodes + people},
		"twice":            {entry + nodes + entry, nodes},
		"indented":         {indented(nodes + entry + people), nodes + people},
		"the only one":     {entry, "[]\n"},
		"before a comment": {entry + people, people},
	} {
		t.Run(name, func(t *testing.T) {
			after, err := removeMapping(test.before, ours)
			if err != nil {
				t.Fatal(err)
			}
			if after != test.after {
				t.Errorf("removeMapping() =\n%s\nwant\n%s", after, test.after)
			}
		})
	}
}

// Text that cannot be parsed reliably is not changed.
func TestMalformed(t *testing.T) {
	for name, text := range map[string]string{
		"invalid YAML":     "- rolearn: [",
		"not a list":       "rolearn: x\n",
		"text":             "mapRoles",
		"an entry of text": nodes + "- admin\n",
		"a duplicate key":  "- rolearn: a\n  rolearn: b\n",
		"two documents":    nodes + "---\n" + people,
		"tabs":             "-\trolearn: a\n\tusername: b\n",
	} {
		t.Run(name, func(t *testing.T) {
			if after, err := addMapping(text, cluster1); err == nil {
				t.Errorf("addMapping() =\n%s\nwant an error", after)
			}
			if after, err := removeMapping(text, ours); err == nil {
				t.Errorf("removeMapping() =\n%s\nwant an error", after)
			}
		})
	}
}
