package fakeaws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// policyKind is the kind of a policy document.
type policyKind int

const (
	// identityPolicy grants permissions to its owner.
	identityPolicy policyKind = iota
	// trustPolicy names the principals that may assume a role.
	trustPolicy
)

// policy is a policy document.
type policy struct {
	Version   string
	ID        string `json:"Id,omitempty"`
	Statement statements
}

type statement struct {
	Sid          string
	Effect       string
	Principal    *principals
	NotPrincipal *principals
	Action       texts
	NotAction    texts
	Resource     texts
	NotResource  texts
	// Condition is values by operator and key.
	Condition map[string]map[string]texts
}

// texts is a string, or a list of strings.
type texts []string

// UnmarshalJSON reads either form. Conditions may have numbers and booleans as well.
func (t *texts) UnmarshalJSON(data []byte) error {
	var list []any
	if err := json.Unmarshal(data, &list); err != nil {
		var one any
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		list = []any{one}
	}
	*t = make(texts, 0, len(list))
	for _, v := range list {
		switch v := v.(type) {
		case string:
			*t = append(*t, v)
		case bool, float64:
			*t = append(*t, fmt.Sprint(v))
		default:
			return errors.New("must be a string or a list of strings")
		}
	}
	return nil
}

// statements is a statement, or a list of them.
type statements []statement

// UnmarshalJSON reads either form.
func (s *statements) UnmarshalJSON(data []byte) error {
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		data = slices.Concat([]byte("["), trimmed, []byte("]"))
	}
	var list []statement
	if err := decodeStrictly(data, &list); err != nil {
		return err
	}
	*s = list
	return nil
}

// principals are the principals of a statement, by kind: AWS, Federated, Service. The AWS
// principal "*" matches every caller.
type principals map[string]texts

// UnmarshalJSON reads "*" or the map.
func (p *principals) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		if text != "*" {
			return fmt.Errorf("invalid principal %q", text)
		}
		*p = principals{"AWS": {"*"}}
		return nil
	}
	var kinds map[string]texts
	if err := json.Unmarshal(data, &kinds); err != nil {
		return err
	}
	*p = kinds
	return nil
}

func decodeStrictly(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

var (
	actionPattern      = regexp.MustCompile(`^(\*|[a-z0-9-]+:[A-Za-z0-9*?]+)$`)
	conditionOperators = regexp.MustCompile(`^(ForAllValues:|ForAnyValue:)?(String(Not)?(Equals|Like|EqualsIgnoreCase)|Numeric(Not)?Equals|Numeric(Less|Greater)Than(Equals)?|Date(Not)?Equals|Date(Less|Greater)Than(Equals)?|Bool|BinaryEquals|(Not)?IpAddress|Arn(Not)?(Equals|Like)|Null)(IfExists)?$`)
)

// parsePolicy parses a document, or returns an error if AWS would reject it.
func parsePolicy(document string, kind policyKind) (*policy, error) {
	if strings.TrimSpace(document) == "" {
		return nil, errors.New("the policy document is empty")
	}
	p := &policy{}
	if err := decodeStrictly([]byte(document), p); err != nil {
		return nil, fmt.Errorf("syntax errors in policy: %w", err)
	}
	if p.Version != "2012-10-17" && p.Version != "2008-10-17" {
		return nil, fmt.Errorf("the policy must contain a valid version string, not %q", p.Version)
	}
	if len(p.Statement) == 0 {
		return nil, errors.New("syntax errors in policy: no statement")
	}
	ids := map[string]bool{}
	for _, st := range p.Statement {
		if st.Sid != "" && ids[st.Sid] {
			return nil, fmt.Errorf("statement ids (SID) in a single policy must be unique: %q", st.Sid)
		}
		ids[st.Sid] = true
		if err := st.check(kind); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (st *statement) check(kind policyKind) error {
	if st.Effect != "Allow" && st.Effect != "Deny" {
		return fmt.Errorf("invalid effect %q", st.Effect)
	}
	if (len(st.Action) == 0) == (len(st.NotAction) == 0) {
		return errors.New("policy statement must contain either actions or not-actions")
	}
	for _, action := range slices.Concat(st.Action, st.NotAction) {
		if !actionPattern.MatchString(action) {
			return fmt.Errorf("actions/conditions must be prefixed by a vendor, e.g., iam, sdb, ec2, etc.: %q", action)
		}
		if kind == trustPolicy && !strings.HasPrefix(action, "sts:") {
			return fmt.Errorf("AssumeRole policy may only specify STS AssumeRole actions, not %q", action)
		}
	}
	for operator, keys := range st.Condition {
		if !conditionOperators.MatchString(operator) {
			return fmt.Errorf("invalid condition type: %s", operator)
		}
		for key := range keys {
			if !strings.Contains(key, ":") {
				return fmt.Errorf("actions/conditions must be prefixed by a vendor, e.g., iam, sdb, ec2, etc.: %q", key)
			}
		}
	}
	switch kind {
	case trustPolicy:
		if len(st.Resource)+len(st.NotResource) > 0 {
			return errors.New("has prohibited field Resource")
		}
		if st.NotPrincipal != nil {
			return errors.New("has prohibited field NotPrincipal")
		}
		if st.Principal == nil || len(*st.Principal) == 0 {
			return errors.New("missing required field Principal")
		}
		return st.Principal.check()
	default:
		if st.Principal != nil || st.NotPrincipal != nil {
			return errors.New("policy document should not specify a principal")
		}
		if (len(st.Resource) == 0) == (len(st.NotResource) == 0) {
			return errors.New("policy statement must contain resources")
		}
		for _, resource := range slices.Concat(st.Resource, st.NotResource) {
			if resource != "*" && strings.Count(resource, ":") < 5 {
				return fmt.Errorf("resource %s must be in ARN format or \"*\"", resource)
			}
		}
	}
	return nil
}

func (p principals) check() error {
	for kind, names := range p {
		if len(names) == 0 {
			return fmt.Errorf("invalid principal in policy: no %s principal", kind)
		}
		for _, name := range names {
			var ok bool
			switch kind {
			case "AWS":
				a, isARN := parseARN(name)
				ok = name == "*" || accountIDPattern.MatchString(name) || principalIDPattern.MatchString(name) ||
					isARN && accountIDPattern.MatchString(a.AccountID) && principalResource.MatchString(a.Service+":"+a.Resource)
			case "Federated":
				ok = federatedPattern.MatchString(name)
			case "Service":
				ok = strings.HasSuffix(name, ".amazonaws.com") || strings.HasSuffix(name, ".amazonaws.com.cn")
			}
			if !ok {
				return fmt.Errorf("invalid principal in policy: %q:%q", kind, name)
			}
		}
	}
	return nil
}

var (
	principalIDPattern = regexp.MustCompile(`^A(RO|ID)A[A-Z0-9]{17}$`)
	principalResource  = regexp.MustCompile(`^(iam:(root|(role|user)/[!-~]*[\w+=,.@-]+)|sts:assumed-role/[\w+=,.@-]+/[\w+=,.@-]+)$`)
	federatedPattern   = regexp.MustCompile(`^(arn:[a-z-]+:iam::\d{12}:(oidc-provider|saml-provider)/\S+|[a-z0-9.-]+\.[a-z]+)$`)
)

// principalARNs returns the users and roles that the policy names.
func (p *policy) principalARNs() []string {
	var arns []string
	for _, st := range p.Statement {
		if st.Principal == nil {
			continue
		}
		for _, name := range (*st.Principal)["AWS"] {
			if a, ok := parseARN(name); ok && a.Service == "iam" {
				arns = append(arns, name)
			}
		}
	}
	return arns
}

// conditionContext contains the values of condition keys, by key in lower case.
type conditionContext map[string]string

// decision is the result of policies for a request.
type decision int

const (
	notAllowed decision = iota
	allowed
	denied
)

// decide returns the decision of identity policies about an action on a resource.
func decide(policies []*policy, action, resource string, c conditionContext) decision {
	return evaluate(policies, c, func(st *statement) bool {
		return st.matchesAction(action) &&
			(len(st.Resource) > 0 && anyMatches(st.Resource, resource) ||
				len(st.NotResource) > 0 && !anyMatches(st.NotResource, resource))
	})
}

// evaluate returns the decision of the statements that match the request. A denial takes precedence.
func evaluate(policies []*policy, c conditionContext, about func(*statement) bool) decision {
	result := notAllowed
	for _, p := range policies {
		for i := range p.Statement {
			st := &p.Statement[i]
			if !about(st) {
				continue
			}
			holds, known := st.conditionsHold(c)
			if st.Effect == "Deny" && (holds || !known) {
				return denied
			}
			if st.Effect == "Allow" && holds && known {
				result = allowed
			}
		}
	}
	return result
}

func (st *statement) matchesAction(action string) bool {
	// Actions are compared without regard to case.
	lower := func(ts texts) texts {
		out := make(texts, len(ts))
		for i, t := range ts {
			out[i] = strings.ToLower(t)
		}
		return out
	}
	action = strings.ToLower(action)
	return len(st.Action) > 0 && anyMatches(lower(st.Action), action) ||
		len(st.NotAction) > 0 && !anyMatches(lower(st.NotAction), action)
}

// conditionsHold reports whether all conditions hold, and whether the server can evaluate all
// of them. A condition that it cannot evaluate must allow nothing.
func (st *statement) conditionsHold(c conditionContext) (holds, known bool) {
	holds, known = true, true
	for operator, keys := range st.Condition {
		base, ifExists := strings.CutSuffix(operator, "IfExists")
		for key, want := range keys {
			got, exists := c[strings.ToLower(key)]
			if base == "Null" {
				holds = holds && slices.Contains(want, fmt.Sprint(!exists))
				continue
			}
			match, negated, ok := comparison(base)
			if !ok {
				known = false
				continue
			}
			if !exists {
				holds = holds && (ifExists || negated)
				continue
			}
			any := slices.ContainsFunc(want, func(w string) bool { return match(w, got) })
			holds = holds && any != negated
		}
	}
	return holds, known
}

func comparison(operator string) (match func(want, got string) bool, negated, ok bool) {
	negated = strings.Contains(operator, "Not")
	switch strings.Replace(operator, "Not", "", 1) {
	case "StringEquals":
		match = func(want, got string) bool { return want == got }
	case "StringEqualsIgnoreCase", "Bool":
		match = strings.EqualFold
	case "StringLike", "ArnEquals", "ArnLike":
		match = wildcardMatch
	}
	return match, negated, match != nil
}

func anyMatches(patterns texts, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return wildcardMatch(p, s) })
}

// wildcardMatch matches all of s against a pattern with * and ?.
func wildcardMatch(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
