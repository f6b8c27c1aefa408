package escalation

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
)

// plain are the words that are read as one without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9/]([A-Za-z0-9/._:-]*[A-Za-z0-9/])?$`)

// ruleText writes a rule such that it can be pasted into a role.
func ruleText(rule rbacv1.PolicyRule) string {
	var fields []string
	add := func(name string, words []string) {
		if len(words) == 0 {
			return
		}
		quoted := make([]string, len(words))
		for i, word := range words {
			quoted[i] = word
			if !plain.MatchString(word) {
				quoted[i] = strconv.Quote(word)
			}
		}
		fields = append(fields, fmt.Sprintf("%s: [%s]", name, strings.Join(quoted, ", ")))
	}
	add("apiGroups", rule.APIGroups)
	add("resources", rule.Resources)
	add("resourceNames", rule.ResourceNames)
	add("nonResourceURLs", rule.NonResourceURLs)
	add("verbs", rule.Verbs)
	return "{" + strings.Join(fields, ", ") + "}"
}

// bounded cuts lines that are too long, and tells how many there are more than a
// reader can use.
func bounded(lines []string, most, bytes int) []string {
	rest := len(lines) - most
	if rest > 0 {
		lines = append(lines[:most:most], fmt.Sprintf("and %d more", rest))
	}
	for i, line := range lines {
		lines[i] = clip(line, bytes)
	}
	return lines
}

func clip(line string, bytes int) string {
	const cut = "..."
	if len(line) <= bytes {
		return line
	}
	end := bytes - len(cut)
	for end > 0 && !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + cut
}
