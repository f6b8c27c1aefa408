package fakeaws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// AdminPolicy allows everything.
const AdminPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

// policy is a policy document.
type policy struct {
	Version   string
	Statement list[statement]
}

type statement struct {
	Sid, Effect string
	Principal   principals
	Action      list[string]
	Resource    list[string]
	Condition   struct {
		// StringEquals are values by key. Other operators are not supported.
		StringEquals map[string]list[string]
	}
}

// list is a value, or a list of values.
type list[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); data[0] != '[' {
		data = slices.Concat([]byte("["), data, []byte("]"))
	}
	return decodeStrictly(data, (*[]T)(l))
}

// principals are the principals of a statement, by kind: AWS, Federated, Service. The AWS
// principal "*" matches every caller.
type principals map[string]list[string]

// UnmarshalJSON implements json.Unmarshaler.
func (p *principals) UnmarshalJSON(data []byte) error {
	if string(data) == `"*"` {
		*p = principals{"AWS": {"*"}}
		return nil
	}
	return json.Unmarshal(data, (*map[string]list[string])(p))
}

func decodeStrictly(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

var (
	actionPattern = regexp.MustCompile(`^(\*|[a-z0-9-]+:[A-Za-z0-9*?]+)$`)
	// principalPatterns are the patterns of principals by kind.
	principalPatterns = map[string]*regexp.Regexp{
		"AWS": regexp.MustCompile(`^(\*|\d{12}|A(RO|ID)A[A-Z0-9]{17}|arn:[a-z-]+:iam::\d{12}:(root|(role|user)/[!-~]*[\w+=,.@-]+)|` +
			`arn:[a-z-]+:sts::\d{12}:assumed-role/[\w+=,.@-]+/[\w+=,.@-]+)$`),
		"Federated": regexp.MustCompile(`^arn:[a-z-]+:iam::\d{12}:oidc-provider/\S+$`),
		"Service":   regexp.MustCompile(`\.amazonaws\.com(\.cn)?$`),
	}
)

// parsePolicy parses a trust policy or an identity policy, or returns an error if AWS would reject it.
func parsePolicy(document string, trust bool) (*policy, error) {
	p := &policy{}
	if !json.Valid([]byte(document)) {
		return nil, errors.New("syntax errors in policy")
	}
	if err := decodeStrictly([]byte(document), p); err != nil {
		return nil, fmt.Errorf("syntax errors in policy: %w", err)
	}
	if p.Version != "2012-10-17" || len(p.Statement) == 0 {
		return nil, errors.New("syntax errors in policy: it must have a valid version and a statement")
	}
	for _, st := range p.Statement {
		if err := st.check(trust); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (st *statement) check(trust bool) error {
	if st.Effect != "Allow" && st.Effect != "Deny" || len(st.Action) == 0 {
		return errors.New("policy statement must contain a valid effect and actions")
	}
	for _, action := range st.Action {
		if !actionPattern.MatchString(action) || trust && !strings.HasPrefix(action, "sts:") {
			return fmt.Errorf("invalid action %q", action)
		}
	}
	for key := range st.Condition.StringEquals {
		if !strings.Contains(key, ":") {
			return fmt.Errorf("condition key %q must be prefixed by a vendor", key)
		}
	}
	if trust != (len(st.Principal) > 0) || trust != (len(st.Resource) == 0) {
		return errors.New("trust policies must have principals and no resources, and identity policies the reverse")
	}
	for kind, names := range st.Principal {
		for _, name := range names {
			if pattern := principalPatterns[kind]; pattern == nil || !pattern.MatchString(name) {
				return fmt.Errorf("invalid principal in policy: %q:%q", kind, name)
			}
		}
	}
	for _, resource := range st.Resource {
		if resource != "*" && !arn.IsARN(resource) {
			return fmt.Errorf("resource %s must be in ARN format or \"*\"", resource)
		}
	}
	return nil
}

// conditionContext contains the values of condition keys, by key in lower case.
type conditionContext map[string]string

const (
	allowed    = iamtypes.PolicyEvaluationDecisionTypeAllowed
	denied     = iamtypes.PolicyEvaluationDecisionTypeExplicitDeny
	notAllowed = iamtypes.PolicyEvaluationDecisionTypeImplicitDeny
)

// decide returns the decision of identity policies about an action on a resource.
func decide(policies []*policy, action, resource string, c conditionContext) iamtypes.PolicyEvaluationDecisionType {
	return evaluate(policies, c, func(st *statement) bool { return st.matchesAction(action) && matches(st.Resource, resource) })
}

// evaluate returns the decision of the statements that match the request. A denial takes precedence.
func evaluate(policies []*policy, c conditionContext, about func(*statement) bool) iamtypes.PolicyEvaluationDecisionType {
	result := notAllowed
	for _, p := range policies {
		for i := range p.Statement {
			st := &p.Statement[i]
			switch {
			case !about(st) || !st.holds(c):
			case st.Effect == "Deny":
				return denied
			default:
				result = allowed
			}
		}
	}
	return result
}

// matchesAction compares actions without regard to case.
func (st *statement) matchesAction(action string) bool {
	return slices.ContainsFunc(st.Action, func(p string) bool { return matches([]string{strings.ToLower(p)}, strings.ToLower(action)) })
}

// holds reports whether all conditions of the statement hold.
func (st *statement) holds(c conditionContext) bool {
	for key, want := range st.Condition.StringEquals {
		if got, exists := c[strings.ToLower(key)]; !exists || !slices.Contains(want, got) {
			return false
		}
	}
	return true
}

// matches reports whether a pattern with * and ? matches all of s.
func matches(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		expression := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(p))
		return regexp.MustCompile(`^(?s:` + expression + `)$`).MatchString(s)
	})
}
