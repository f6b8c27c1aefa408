package fakeaws

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// Quotas of IAM.
const (
	maxTags         = 50
	maxTrustPolicy  = 2048
	maxInlinePolicy = 10240 // all inline policies of a role together
)

var (
	accountIDPattern  = regexp.MustCompile(`^\d{12}$`)
	namePattern       = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)
	policyNamePattern = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	pathPattern       = regexp.MustCompile(`^/([!-~]{1,510}/)?$`)
	tagPattern        = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
)

// iamOperations are the operations of IAM.
var iamOperations = map[string]operation{
	"CreateRole":               (*Server).createRole,
	"GetRole":                  (*Server).getRole,
	"DeleteRole":               (*Server).deleteRole,
	"UpdateAssumeRolePolicy":   (*Server).updateAssumeRolePolicy,
	"TagRole":                  (*Server).tagRole,
	"UntagRole":                (*Server).untagRole,
	"PutRolePolicy":            (*Server).putRolePolicy,
	"GetRolePolicy":            (*Server).getRolePolicy,
	"ListRolePolicies":         (*Server).listRolePolicies,
	"DeleteRolePolicy":         (*Server).deleteRolePolicy,
	"DetachRolePolicy":         (*Server).detachRolePolicy,
	"ListAttachedRolePolicies": (*Server).listAttachedRolePolicies,
	"GetOpenIDConnectProvider": (*Server).getOpenIDConnectProvider,
	"SimulatePrincipalPolicy":  (*Server).simulatePrincipalPolicy,
}

// named returns the account of the caller and its role that the call names, or nil if the role does not
// exist. The caller must have permission for the operation on the role.
func (s *Server) named(c *call, supported ...string) (*account, *Role, error) {
	if err := c.supports(append(supported, "RoleName", "MaxItems", "Marker")...); err != nil {
		return nil, nil, err
	}
	name := c.Parameters["RoleName"]
	if !namePattern.MatchString(name) {
		return nil, nil, validationError("Value '%s' at 'roleName' failed to satisfy constraint: Member must satisfy regular expression pattern: %s", name, namePattern)
	}
	a := s.state.Accounts[c.caller.accountID]
	role, resource := a.Roles[name], a.arn("role"+cmp.Or(c.Parameters["Path"], "/")+name)
	if role != nil && c.Operation != "CreateRole" {
		resource = role.ARN
	}
	return a, role, c.requires("iam:"+c.Operation, resource)
}

func (s *Server) role(c *call, supported ...string) (*Role, error) {
	_, role, err := s.named(c, supported...)
	if err == nil && role == nil {
		err = errorf("NoSuchEntity", "The role with name %s cannot be found.", c.Parameters["RoleName"])
	}
	return role, err
}

// list returns the members of a list, which are numbered from 1.
func (c *call) list(name, suffix string) (values []string) {
	for {
		value, ok := c.Parameters[fmt.Sprintf("%s.member.%d%s", name, len(values)+1, suffix)]
		if !ok {
			return values
		}
		values = append(values, value)
	}
}

// tagged adds the tags of the call, whose keys are case insensitive.
func (c *call) tagged(old map[string]string) (map[string]string, error) {
	added, values := map[string]string{}, c.list("Tags", ".Value")
	for i, key := range c.list("Tags", ".Key") {
		if hasFold(added, key) {
			return nil, errorf("InvalidInput", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		added[key] = values[i]
	}
	if err := checkTags(added); err != nil {
		return nil, validationError("%v", err)
	}
	merged := maps.Clone(old)
	maps.DeleteFunc(merged, func(key, _ string) bool { return hasFold(added, key) })
	maps.Copy(merged, added)
	if len(merged) > maxTags {
		return nil, errorf("LimitExceeded", "The number of tags has reached the maximum limit of %d.", maxTags)
	}
	return merged, nil
}

func hasFold(tags map[string]string, key string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(tags)), func(other string) bool { return strings.EqualFold(other, key) })
}

// checkTags returns an error if AWS would reject tags.
func checkTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return fmt.Errorf("%d tags are more than %d", len(tags), maxTags)
	}
	for key, value := range tags {
		if key == "" || utf8.RuneCountInString(key) > 128 || utf8.RuneCountInString(value) > 256 ||
			!tagPattern.MatchString(key) || !tagPattern.MatchString(value) || strings.HasPrefix(strings.ToLower(key), "aws:") {
			return fmt.Errorf("the tag %q is invalid", key)
		}
	}
	return nil
}

// setTrust sets the trust policy of a role to a document, whose principals must exist in known accounts.
func (s *Server) setTrust(role *Role, document string) error {
	if len(document) > maxTrustPolicy {
		return errorf("LimitExceeded", "Cannot exceed quota for ACLSizePerRole: %d", maxTrustPolicy)
	}
	p, err := parsePolicy(document, true)
	if err != nil {
		return errorf("MalformedPolicyDocument", "%v", err)
	}
	ids := map[string]string{}
	for _, st := range p.Statement {
		for _, name := range st.Principal["AWS"] {
			a, err := arn.Parse(name)
			if err != nil || a.Service != serviceIAM {
				continue
			}
			id, exists := s.state.principalID(name)
			own, _ := arn.Parse(role.ARN)
			if a.Partition != own.Partition || !exists && s.state.Accounts[a.AccountID] != nil {
				return errorf("MalformedPolicyDocument", "Invalid principal in policy: \"AWS\":\"%s\"", name)
			}
			if id != "" {
				ids[name] = id
			}
		}
	}
	role.TrustPolicy, role.TrustedIDs = document, ids
	return nil
}

// shown is a role in a response.
type shown struct {
	Path                     string
	RoleName                 string
	RoleID                   string `xml:"RoleId"`
	Arn                      string
	CreateDate               time.Time
	AssumeRolePolicyDocument string
	MaxSessionDuration       int
	Tags                     []iamtypes.Tag `xml:"Tags>member"`
}

// show returns a role as AWS returns it. Unique ids replace the ARNs of trusted principals that were
// deleted, or deleted and created again.
func (s *Server) show(role *Role) any {
	document := role.TrustPolicy
	for name, id := range role.TrustedIDs {
		if current, _ := s.state.principalID(name); current != id {
			document = strings.ReplaceAll(document, `"`+name+`"`, `"`+id+`"`)
		}
	}
	var tags []iamtypes.Tag
	for _, key := range slices.Sorted(maps.Keys(role.Tags)) {
		value := role.Tags[key]
		tags = append(tags, iamtypes.Tag{Key: &key, Value: &value})
	}
	return struct{ Role shown }{shown{role.Path, role.Name, role.ID, role.ARN, role.CreatedAt, encoded(document), maxSession, tags}}
}

// encoded returns a document in the encoding of RFC 3986.
func encoded(document string) string {
	return strings.ReplaceAll(url.QueryEscape(document), "+", "%20")
}

func (s *Server) createRole(c *call) (any, error) {
	a, old, err := s.named(c, "AssumeRolePolicyDocument", "Path", "Tags")
	if err != nil {
		return nil, err
	}
	path, name := cmp.Or(c.Parameters["Path"], "/"), c.Parameters["RoleName"]
	if !pathPattern.MatchString(path) {
		return nil, validationError("The specified value for path is invalid.")
	}
	role := &Role{
		Name: name, ID: "AROA" + randomName(17), Path: path, ARN: a.arn("role" + path + name),
		InlinePolicies: map[string]string{}, AttachedPolicies: map[string]string{}, CreatedAt: c.now.UTC().Truncate(time.Second), UnseenByEKS: s.options.UnseenByEKS,
	}
	if role.Tags, err = c.tagged(map[string]string{}); err != nil {
		return nil, err
	}
	if len(role.Tags) > 0 {
		if err := c.requires("iam:TagRole", role.ARN); err != nil {
			return nil, err
		}
	}
	if err := s.setTrust(role, c.Parameters["AssumeRolePolicyDocument"]); err != nil {
		return nil, err
	}
	if old != nil {
		return nil, errorf("EntityAlreadyExists", "Role with name %s already exists.", name)
	}
	a.Roles[name] = role
	return s.show(role), nil
}

func (s *Server) getRole(c *call) (any, error) {
	role, err := s.role(c)
	if err != nil {
		return nil, err
	}
	return s.show(role), nil
}

func (s *Server) deleteRole(c *call) (any, error) {
	role, err := s.role(c)
	if err != nil {
		return nil, err
	}
	if len(role.AttachedPolicies)+len(role.InlinePolicies) > 0 {
		return nil, errorf("DeleteConflict", "Cannot delete entity, must detach all policies first.")
	}
	delete(s.state.Accounts[c.caller.accountID].Roles, role.Name)
	return nil, nil
}

func (s *Server) updateAssumeRolePolicy(c *call) (any, error) {
	role, err := s.role(c, "PolicyDocument")
	if err != nil {
		return nil, err
	}
	return nil, s.setTrust(role, c.Parameters["PolicyDocument"])
}

func (s *Server) tagRole(c *call) (any, error) {
	role, err := s.role(c, "Tags")
	if err != nil {
		return nil, err
	}
	tags, err := c.tagged(role.Tags)
	if err == nil {
		role.Tags = tags
	}
	return nil, err
}

func (s *Server) untagRole(c *call) (any, error) {
	role, err := s.role(c, "TagKeys")
	if err != nil {
		return nil, err
	}
	for _, key := range c.list("TagKeys", "") {
		maps.DeleteFunc(role.Tags, func(other, _ string) bool { return strings.EqualFold(other, key) })
	}
	return nil, nil
}

// inline returns the role and the name of the inline policy that the call names.
func (s *Server) inline(c *call, supported ...string) (*Role, string, error) {
	role, err := s.role(c, append(supported, "PolicyName")...)
	name := c.Parameters["PolicyName"]
	if err == nil && !policyNamePattern.MatchString(name) {
		err = validationError("Value '%s' at 'policyName' failed to satisfy constraint: Member must satisfy regular expression pattern: %s", name, policyNamePattern)
	}
	if err == nil && c.Operation != "PutRolePolicy" && role.InlinePolicies[name] == "" {
		err = errorf("NoSuchEntity", "The role policy with name %s cannot be found.", name)
	}
	return role, name, err
}

func (s *Server) putRolePolicy(c *call) (any, error) {
	role, name, err := s.inline(c, "PolicyDocument")
	if err != nil {
		return nil, err
	}
	document := c.Parameters["PolicyDocument"]
	if _, err := parsePolicy(document, false); err != nil {
		return nil, errorf("MalformedPolicyDocument", "%v", err)
	}
	policies := maps.Clone(role.InlinePolicies)
	policies[name] = document
	all := strings.Join(slices.Collect(maps.Values(policies)), "")
	if len(strings.Join(strings.FieldsFunc(all, unicode.IsSpace), "")) > maxInlinePolicy {
		return nil, errorf("LimitExceeded", "Maximum policy size of %d bytes exceeded for role %s", maxInlinePolicy, role.Name)
	}
	role.InlinePolicies = policies
	return nil, nil
}

func (s *Server) getRolePolicy(c *call) (any, error) {
	role, name, err := s.inline(c)
	if err != nil {
		return nil, err
	}
	return struct{ RoleName, PolicyName, PolicyDocument string }{role.Name, name, encoded(role.InlinePolicies[name])}, nil
}

func (s *Server) deleteRolePolicy(c *call) (any, error) {
	role, name, err := s.inline(c)
	if err != nil {
		return nil, err
	}
	delete(role.InlinePolicies, name)
	return nil, nil
}

func (s *Server) listRolePolicies(c *call) (any, error) {
	role, err := s.role(c)
	if err != nil {
		return nil, err
	}
	return struct {
		PolicyNames []string `xml:"PolicyNames>member"`
		IsTruncated bool
	}{PolicyNames: slices.Sorted(maps.Keys(role.InlinePolicies))}, nil
}

// AttachPolicy attaches a managed policy to a role, and returns the policy's ARN.
func (s *Server) AttachPolicy(accountID, roleName, name, document string) (string, error) {
	if _, err := parsePolicy(document, false); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.state.Accounts[accountID]
	if a == nil || a.Roles[roleName] == nil {
		return "", fmt.Errorf("account %s has no role %s", accountID, roleName)
	}
	policy := a.arn("policy/" + name)
	a.Roles[roleName].AttachedPolicies[policy] = document
	return policy, s.save()
}

func (s *Server) detachRolePolicy(c *call) (any, error) {
	role, err := s.role(c, "PolicyArn")
	if err != nil {
		return nil, err
	}
	name := c.Parameters["PolicyArn"]
	if role.AttachedPolicies[name] == "" {
		return nil, errorf("NoSuchEntity", "Policy %s was not found.", name)
	}
	delete(role.AttachedPolicies, name)
	return nil, nil
}

func (s *Server) listAttachedRolePolicies(c *call) (any, error) {
	role, err := s.role(c)
	if err != nil {
		return nil, err
	}
	var policies []iamtypes.AttachedPolicy
	for _, policy := range slices.Sorted(maps.Keys(role.AttachedPolicies)) {
		name := lastElement(policy)
		policies = append(policies, iamtypes.AttachedPolicy{PolicyArn: &policy, PolicyName: &name})
	}
	return struct {
		AttachedPolicies []iamtypes.AttachedPolicy `xml:"AttachedPolicies>member"`
		IsTruncated      bool
	}{AttachedPolicies: policies}, nil
}

func (s *Server) getOpenIDConnectProvider(c *call) (any, error) {
	name := c.Parameters["OpenIDConnectProviderArn"]
	if err := c.requires("iam:"+c.Operation, name); err != nil {
		return nil, err
	}
	issuer := s.state.Accounts[c.caller.accountID].Providers[name]
	if issuer == "" {
		return nil, errorf("NoSuchEntity", "OpenIDConnect Provider not found for arn %s", name)
	}
	return struct {
		URL          string   `xml:"Url"`
		ClientIDList []string `xml:"ClientIDList>member"`
	}{issuer, []string{TokenAudience}}, nil
}

// simulatePrincipalPolicy returns the decisions about actions of a role on one resource.
func (s *Server) simulatePrincipalPolicy(c *call) (any, error) {
	source, resources := c.Parameters["PolicySourceArn"], c.list("ResourceArns", "")
	if err := c.supports("PolicySourceArn", "ActionNames", "ResourceArns"); err != nil {
		return nil, err
	}
	if err := c.requires("iam:"+c.Operation, source); err != nil {
		return nil, err
	}
	a := s.state.Accounts[c.caller.accountID]
	role := a.Roles[lastElement(source)]
	if len(resources) != 1 || role == nil || role.ARN != source {
		return nil, errorf("NoSuchEntity", "There is no role %s, or the call has not exactly one resource.", source)
	}
	p, err := a.principal(role)
	if err != nil {
		return nil, err
	}
	type evaluation struct {
		EvalActionName, EvalResourceName string
		EvalDecision                     iamtypes.PolicyEvaluationDecisionType
	}
	var results []evaluation
	for _, action := range c.list("ActionNames", "") {
		results = append(results, evaluation{action, resources[0], decide(p.policies, action, resources[0], p.conditions())})
	}
	return struct {
		IsTruncated       bool
		EvaluationResults []evaluation `xml:"EvaluationResults>member"`
	}{EvaluationResults: results}, nil
}

// lastElement returns the last element of a path.
func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
