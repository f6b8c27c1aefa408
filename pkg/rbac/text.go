package rbac

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

var (
	// plain matches the words that YAML reads as strings without quotes, except the reserved words.
	plain = regexp.MustCompile(`^[A-Za-z/]([A-Za-z0-9/._-]*[A-Za-z0-9/])?$`)
	// reserved are the words that YAML 1.1 reads as a boolean or null, in lower case.
	reserved = sets.New("false", "n", "no", "null", "off", "on", "true", "y", "yes")
)

// RuleFor returns the rule that allows one request and nothing else.
func RuleFor(request authorizationv1.ResourceAttributes) rbacv1.PolicyRule {
	resource := request.Resource
	if request.Subresource != "" {
		resource += "/" + request.Subresource
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{request.Group}, Resources: []string{resource}, Verbs: []string{request.Verb}}
	if request.Name != "" {
		rule.ResourceNames = []string{request.Name}
	}
	return rule
}

// RuleText returns a rule as one line of YAML that can be pasted into a Role.
func RuleText(rule rbacv1.PolicyRule) string {
	var fields []string
	add := func(name string, words []string) {
		if len(words) == 0 {
			return
		}
		texts := make([]string, len(words))
		for i, word := range words {
			texts[i] = yamlText(word)
		}
		fields = append(fields, fmt.Sprintf("%s: [%s]", name, strings.Join(texts, ", ")))
	}
	add("apiGroups", rule.APIGroups)
	add("resources", rule.Resources)
	add("resourceNames", rule.ResourceNames)
	add("nonResourceURLs", rule.NonResourceURLs)
	add("verbs", rule.Verbs)
	return "{" + strings.Join(fields, ", ") + "}"
}

// yamlText quotes a word that YAML would otherwise not read as this string.
func yamlText(word string) string {
	if plain.MatchString(word) && !reserved.Has(strings.ToLower(word)) {
		return word
	}
	return strconv.Quote(word)
}

// RoleText returns the remedy of a message: a Role that contains the rules, or a ClusterRole if the namespace is empty.
func RoleText(namespace string, rules ...rbacv1.PolicyRule) string {
	role := "a ClusterRole, bound by a ClusterRoleBinding,"
	if namespace != "" {
		role = fmt.Sprintf("a Role in namespace %q", namespace)
	}
	noun := "rule"
	if len(rules) > 1 {
		noun = "rules"
	}
	texts := make([]string, len(rules))
	for i, rule := range rules {
		texts[i] = RuleText(rule)
	}
	return fmt.Sprintf("%s that contains the %s %s", role, noun, strings.Join(texts, " and "))
}

// RulesText returns at most maxRules rules with at most maxBytes in total, but at least
// one rule, and the number of omitted rules.
func RulesText(rules []rbacv1.PolicyRule, maxRules, maxBytes int) string {
	var texts []string
	left := maxBytes
	for i, rule := range rules {
		text := RuleText(rule)
		left -= len(text)
		if i == maxRules || i > 0 && left < 0 {
			return fmt.Sprintf("%s and %d more", strings.Join(texts, ", "), len(rules)-i)
		}
		texts = append(texts, Clip(text, maxBytes))
	}
	return strings.Join(texts, ", ")
}

// ClipLines returns at most maxLines of the lines, each clipped to maxBytes, and a line
// with the number of omitted lines.
func ClipLines(lines []string, maxLines, maxBytes int) []string {
	var clipped []string
	for _, line := range lines[:min(len(lines), maxLines)] {
		clipped = append(clipped, Clip(line, maxBytes))
	}
	if rest := len(lines) - maxLines; rest > 0 {
		clipped = append(clipped, fmt.Sprintf("and %d more", rest))
	}
	return clipped
}

// Clip cuts a text to a number of bytes, between characters. "..." marks the cut.
func Clip(text string, maxBytes int) string {
	const cut = "..."
	if len(text) <= maxBytes {
		return text
	}
	end := maxBytes - len(cut)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}
