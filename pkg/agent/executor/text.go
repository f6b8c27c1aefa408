package executor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// plain are the words that need no quotes in YAML, unless they mean something there.
var plain = regexp.MustCompile(`^[A-Za-z/]([A-Za-z0-9/._-]*[A-Za-z0-9/])?$`)

// ruleText writes a rule such that it can be pasted into a role.
func ruleText(rule rbacv1.PolicyRule) string {
	var fields []string
	for _, field := range []struct {
		name  string
		words []string
	}{
		{"apiGroups", rule.APIGroups},
		{"resources", rule.Resources},
		{"resourceNames", rule.ResourceNames},
		{"nonResourceURLs", rule.NonResourceURLs},
		{"verbs", rule.Verbs},
	} {
		if len(field.words) == 0 {
			continue
		}
		words := make([]string, len(field.words))
		for i, word := range field.words {
			words[i] = yamlWord(word)
		}
		fields = append(fields, fmt.Sprintf("%s: [%s]", field.name, strings.Join(words, ", ")))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// yamlWord quotes a word where YAML would read something else, such as a truth value.
func yamlWord(word string) string {
	var read any
	if !plain.MatchString(word) || yaml.Unmarshal([]byte(word), &read) != nil || read != word {
		return strconv.Quote(word)
	}
	return word
}

// rulesText writes as many of the rules as a person reads.
func rulesText(rules []rbacv1.PolicyRule) string {
	var texts []string
	left := maxRulesBytes
	for i, rule := range rules {
		text := ruleText(rule)
		left -= len(text)
		if i == maxRules || i > 0 && left < 0 {
			return strings.Join(texts, ", ") + fmt.Sprintf(" and %d more", len(rules)-i)
		}
		texts = append(texts, clip(text, maxRulesBytes))
	}
	return strings.Join(texts, ", ")
}

func clip(text string, bytes int) string {
	const cut = "..."
	if len(text) <= bytes {
		return text
	}
	end := bytes - len(cut)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}
