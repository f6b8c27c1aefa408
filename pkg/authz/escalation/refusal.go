package escalation

import (
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const (
	// Clients print a message whole, and a condition holds 32768 bytes of it.
	maxLines     = 20
	maxLineBytes = 1000
	// Servers drop what of the Warning headers of a response exceeds a few kilobytes.
	maxWarnings     = 5
	maxWarningBytes = 249
)

// Refusal says what of a ClusterPermission its author may not grant.
type Refusal struct {
	// User is the name of the caller.
	User string
	// Namespace and Name are those of the ClusterPermission; the namespace is also
	// the name of the managed cluster.
	Namespace, Name string
	// Missing are the grants that the caller may not make, in the order of the
	// spec, and never none.
	Missing []MissingGrant

	// generated is set if the server has made up the name.
	generated bool
}

// MissingGrant is one part of a ClusterPermission that its author may not grant.
type MissingGrant struct {
	// Path is where in the ClusterPermission it is, for example spec.roles[1].
	Path string
	// Verb is the one on clusterpermissions that would allow it: escalate or bind.
	Verb string
	// Scope says to a person where on the managed cluster it would be granted.
	Scope string
	// Role says to a person which role is bound or referred to; empty if the part
	// defines rules itself.
	Role string
	// Rules are what the caller does not hold; none if what Role grants is not known.
	Rules []rbacv1.PolicyRule
}

// Forbidden is the 403 that lists what is missing and names the rule that would allow it.
func (r *Refusal) Forbidden() error {
	return apierrors.NewForbidden(rbacv1alpha1.Resource(resource), r.Name, errors.New(r.Message()))
}

// Message says the same as Forbidden to a reader who knows already which
// ClusterPermission it is about. It has several lines and less than 32768 bytes.
func (r *Refusal) Message() string {
	var lines []string
	for i := range r.Missing {
		lines = append(lines, r.Missing[i].lines()...)
	}
	lines = bounded(lines, maxLines, maxLineBytes)
	head := clip(fmt.Sprintf("user %q may not grant what it does not hold on managed cluster %q:", r.User, r.Namespace), maxLineBytes)
	return head + "\n" + strings.Join(lines, "\n") + "\n" + fmt.Sprintf("it takes a Role in namespace %q with the rule %s", r.Namespace, r.rule())
}

// Warnings says it in lines that fit Warning headers: one for each missing grant,
// of less than 250 bytes, and not many of them.
func (r *Refusal) Warnings() []string {
	lines := make([]string, len(r.Missing))
	for i := range r.Missing {
		m := &r.Missing[i]
		lines[i] = fmt.Sprintf("%s (%s): takes %s: %s", m.Path, m.Scope, m.Verb, m.what())
	}
	return bounded(lines, maxWarnings, maxWarningBytes)
}

// rule is the narrowest one that would allow all that is missing.
func (r *Refusal) rule() string {
	rule := rbacv1.PolicyRule{
		APIGroups: []string{rbacv1alpha1.GroupName},
		Resources: []string{resource},
	}
	if !r.generated {
		rule.ResourceNames = []string{r.Name}
	}
	for _, verb := range []string{verbBind, verbEscalate} {
		for i := range r.Missing {
			if r.Missing[i].Verb == verb {
				rule.Verbs = append(rule.Verbs, verb)
				break
			}
		}
	}
	return ruleText(rule)
}

// lines are one for each missing rule, each to be understood alone.
func (m *MissingGrant) lines() []string {
	if len(m.Rules) == 0 {
		return []string{fmt.Sprintf("%s, %s: %s", m.Path, m.Scope, m.what())}
	}
	lines := make([]string, len(m.Rules))
	for i, rule := range m.Rules {
		one := MissingGrant{Role: m.Role, Rules: []rbacv1.PolicyRule{rule}}
		lines[i] = fmt.Sprintf("%s, %s: %s", m.Path, m.Scope, one.what())
	}
	return lines
}

func (m *MissingGrant) what() string {
	if len(m.Rules) == 0 {
		return m.Role + ", whose rules are not known or may change"
	}
	rules := make([]string, len(m.Rules))
	for i, rule := range m.Rules {
		rules[i] = ruleText(rule)
	}
	text := strings.Join(rules, ", ")
	if m.Role != "" {
		return m.Role + " with " + text
	}
	return text
}
