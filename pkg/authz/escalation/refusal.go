package escalation

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// The message of a condition has at most 32768 bytes.
	maxLines     = 20
	maxLineBytes = 1000
	// Servers drop the Warning headers of a response beyond a few kilobytes.
	maxWarnings     = 5
	maxWarningBytes = 249
)

// Refusal contains the permissions in a ClusterPermission that its author may not grant.
type Refusal struct {
	// User is the name of the caller.
	User string
	// Namespace and Name identify the ClusterPermission. The namespace is also the name of the managed cluster.
	Namespace, Name string
	// Missing are the grants that the caller may not make, in the order of the spec. There is at least one.
	Missing []MissingGrant

	// generated is set if the server generated the name.
	generated bool
}

// MissingGrant is one part of a ClusterPermission that its author may not grant.
type MissingGrant struct {
	// Path is the field path, for example spec.roles[1].
	Path string
	// Verb is the verb on clusterpermissions that would allow the grant: escalate or bind.
	Verb string
	// Scope describes the part of the managed cluster in which it would be granted.
	Scope string
	// Role describes the role that is bound or referred to. It is empty if the part defines rules itself.
	Role string
	// Rules are the rules that the caller does not hold. Rules is empty if the rules of Role are unknown.
	Rules []rbacv1.PolicyRule
}

// Forbidden returns the 403 error with the Message.
func (r *Refusal) Forbidden() error {
	return apierrors.NewForbidden(rbacv1alpha1.Resource(resource), r.Name, errors.New(r.Message()))
}

// Message lists the missing grants and the rule that would allow them, in several lines
// with less than 32768 bytes. It does not name the ClusterPermission.
func (r *Refusal) Message() string {
	var lines []string
	for i := range r.Missing {
		lines = append(lines, r.Missing[i].lines()...)
	}
	head := fmt.Sprintf("user %q cannot grant permissions that the user does not hold on managed cluster %q:", r.User, r.Namespace)
	lines = append([]string{rbac.Clip(head, maxLineBytes)}, rbac.ClipLines(lines, maxLines, maxLineBytes)...)
	return strings.Join(append(lines, "grant it with "+rbac.RoleText(r.Namespace, r.rule())), "\n")
}

// Warnings returns a line for each missing grant, each fit for a Warning header.
func (r *Refusal) Warnings() []string {
	lines := make([]string, len(r.Missing))
	for i := range r.Missing {
		m := &r.Missing[i]
		lines[i] = fmt.Sprintf("%s (%s): requires %s: %s", m.Path, m.Scope, m.Verb, m.text(m.Rules))
	}
	return rbac.ClipLines(lines, maxWarnings, maxWarningBytes)
}

// rule returns the narrowest rule that would allow all missing grants.
func (r *Refusal) rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{resource}}
	if !r.generated {
		rule.ResourceNames = []string{r.Name}
	}
	for _, verb := range []string{verbBind, verbEscalate} {
		if slices.ContainsFunc(r.Missing, func(m MissingGrant) bool { return m.Verb == verb }) {
			rule.Verbs = append(rule.Verbs, verb)
		}
	}
	return rule
}

// lines returns one line for each missing rule. Each line is complete without the others.
func (m *MissingGrant) lines() []string {
	if len(m.Rules) == 0 {
		return []string{fmt.Sprintf("%s, %s: %s", m.Path, m.Scope, m.text(nil))}
	}
	lines := make([]string, len(m.Rules))
	for i := range m.Rules {
		lines[i] = fmt.Sprintf("%s, %s: %s", m.Path, m.Scope, m.text(m.Rules[i:i+1]))
	}
	return lines
}

func (m *MissingGrant) text(rules []rbacv1.PolicyRule) string {
	if len(rules) == 0 {
		return m.Role + ": its rules are unknown or may change"
	}
	text := rbac.RulesText(rules, len(rules), math.MaxInt)
	if m.Role != "" {
		return m.Role + " with " + text
	}
	return text
}
