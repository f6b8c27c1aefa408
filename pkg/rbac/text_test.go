package rbac

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

func TestRuleText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule rbacv1.PolicyRule
		want string
	}{
		{rbacv1.PolicyRule{}, `{}`},
		{rule("", "pods", "get", "list"), `{apiGroups: [""], resources: [pods], verbs: [get, list]}`},
		{named(rule("apps", "deployments/scale", "*"), "front-1"), `{apiGroups: [apps], resources: [deployments/scale], resourceNames: [front-1], verbs: ["*"]}`},
		{url("/metrics"), `{nonResourceURLs: [/metrics], verbs: [get]}`},
		{named(rule("", "pods", "get"), "123", "true", "null", "system:node"), `{apiGroups: [""], resources: [pods], resourceNames: ["123", "true", "null", "system:node"], verbs: [get]}`},
	} {
		if got := RuleText(test.rule); got != test.want {
			t.Errorf("RuleText(%+v) = %s, want %s", test.rule, got, test.want)
		}
	}
}

// wordsOfYAML are words that YAML does not read as strings without quotes, or that end a
// word.
var wordsOfYAML = []string{
	"", "a", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "yes", "Yes", "no", "NO", "on", "off", "y", "n", "Y", "N",
	"1", "123", "-1", "+1", "1.5", ".5", "1.", "1e3", "1_000", "0x1f", "0X1F", "0o17", "017", "0b101", "190:20:30", ".inf", "-.Inf", ".nan", ".NaN",
	"2020-01-01", "2020-01-01T10:00:00Z", "2020-01-01 10:00:00", "<<", "=", "*", "*/scale", "&a", "!a", "!!str", "a:b", "a:", ":a", "a-", "-", "- a",
	"?", "? a", "a, b", "[a]", "{a}", "a]", "a}", `"`, `'`, `\`, "`", "@a", "%a", "#a", "a#b", "a #b", "|", ">", "a\nb", "a\tb", " a", "a ", "\u0085", "\u2028",
	"ü", "日本", "\ufeff", "\x00", "\x7f", "🙂", "---", "...", "/healthz", "/metrics/*", "pods/log", "a.b.c", "a_b", "system:node", "e3", "inf", "nan", "0", "00",
}

func checkReadBack(t *testing.T, word string) {
	t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{word}, Resources: []string{word, "b"}, ResourceNames: []string{"a", word}, NonResourceURLs: []string{word}, Verbs: []string{word}}
	text := RuleText(rule)
	// Users paste the text into the rules of a Role.
	for _, document := range []string{"rules:\n- " + text + "\n", "rules: [" + text + "]\n"} {
		var role rbacv1.Role
		if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
			t.Errorf("decoding RuleText() with word %q = %s: %v, want valid YAML", word, text, err)
		} else if len(role.Rules) != 1 || !equality.Semantic.DeepEqual(role.Rules[0], rule) {
			t.Errorf("decoded RuleText() with word %q = %+v, want %+v: %s", word, role.Rules, rule, text)
		}
	}
}

// The YAML of a rule decodes to the same rule for any words.
func TestRuleTextIsReadBack(t *testing.T) {
	t.Parallel()
	for _, word := range wordsOfYAML {
		checkReadBack(t, word)
	}
	random := seed.Rand(t)
	alphabet := []rune("aefnoOxyY01.9:-_+~/*#,[]{}\"' \\\n\té\u2028🙂")
	for range 5_000 {
		word := make([]rune, random.IntN(6))
		for i := range word {
			word[i] = alphabet[random.IntN(len(alphabet))]
		}
		checkReadBack(t, string(word))
		if t.Failed() {
			return
		}
	}
}

func FuzzRuleText(f *testing.F) {
	for _, word := range wordsOfYAML {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if utf8.ValidString(word) {
			checkReadBack(t, word)
		}
	})
}

func TestRuleFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		request authorizationv1.ResourceAttributes
		want    rbacv1.PolicyRule
	}{
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"}, rule("", "namespaces", "list")},
		{authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Version: "*", Resource: "deployments", Subresource: "scale", Namespace: "web", Name: "front"},
			named(rule("apps", "deployments/scale", "update"), "front")},
	} {
		if got := RuleFor(test.request); !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("RuleFor(%+v) = %+v, want %+v", test.request, got, test.want)
		}
	}
}

func TestRoleText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		namespace string
		rules     []rbacv1.PolicyRule
		want      string
	}{
		{"web", []rbacv1.PolicyRule{rule("", "pods", "get")}, `a Role in namespace "web" that contains the rule {apiGroups: [""], resources: [pods], verbs: [get]}`},
		{"", []rbacv1.PolicyRule{rule("", "pods", "get"), url("/a")},
			`a ClusterRole, bound by a ClusterRoleBinding, that contains the rules {apiGroups: [""], resources: [pods], verbs: [get]} and {nonResourceURLs: [/a], verbs: [get]}`},
	} {
		if got := RoleText(test.namespace, test.rules...); got != test.want {
			t.Errorf("RoleText(%q, %v) = %s, want %s", test.namespace, test.rules, got, test.want)
		}
	}
}

func TestRulesTextIsBounded(t *testing.T) {
	t.Parallel()
	const maxRules, maxBytes = 5, 1000
	var rules []rbacv1.PolicyRule
	for i := range 50 {
		rules = append(rules, rule("", fmt.Sprint("r", i), "get"))
	}
	if got := RulesText(rules, maxRules, maxBytes); !strings.HasSuffix(got, " and 45 more") || strings.Count(got, "{") != maxRules {
		t.Errorf("RulesText(50 rules) = %s, want 5 rules and 45 more", got)
	}
	if got, want := RulesText(rules[:2], maxRules, maxBytes), RuleText(rules[0])+", "+RuleText(rules[1]); got != want {
		t.Errorf("RulesText(2 rules) = %s, want %s", got, want)
	}
	rules[0].ResourceNames = []string{strings.Repeat("ä", 100_000)}
	if got := RulesText(rules, maxRules, maxBytes); len(got) > maxBytes+20 || !strings.HasSuffix(got, "... and 49 more") {
		t.Errorf("RulesText(a long rule) = %d bytes %s, want at most %d bytes and 49 more", len(got), got, maxBytes+20)
	}
}

func TestClipLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lines, want []string
	}{
		{nil, nil},
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a", "b", "c", "d"}, []string{"a", "b", "and 2 more"}},
		{[]string{"123456789", "ééééé"}, []string{"12345...", "éé..."}},
	} {
		given := slices.Clone(test.lines)
		if got := ClipLines(test.lines, 2, 8); !slices.Equal(got, test.want) {
			t.Errorf("ClipLines(%q, 2, 8) = %q, want %q", test.lines, got, test.want)
		}
		if !slices.Equal(test.lines, given) {
			t.Errorf("input lines after ClipLines() = %q, want the unchanged lines %q", test.lines, given)
		}
	}
}
