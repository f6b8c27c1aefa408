package fakeaws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// documentSize returns the size of a policy without white space, which quotas limit.
func documentSize(document string) int {
	n := 0
	for _, c := range document {
		if !unicode.IsSpace(c) {
			n++
		}
	}
	return n
}

func (s *Server) putRolePolicy(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	if e := r.checkParam("PolicyName", policyNamePattern); e != nil {
		return nil, e
	}
	name, document := r.params["PolicyName"], r.params["PolicyDocument"]
	if _, err := parsePolicy(document, identityPolicy); err != nil {
		return nil, malformedPolicy(err)
	}
	size := documentSize(document)
	for other, d := range role.Inline {
		if other != name {
			size += documentSize(d)
		}
	}
	if size > maxInlinePolicy {
		return nil, limitExceeded("Maximum policy size of %d bytes exceeded for role %s", maxInlinePolicy, role.Name)
	}
	if role.Inline == nil {
		role.Inline = map[string]string{}
	}
	role.Inline[name] = document
	return nil, nil
}

// inlinePolicy returns the role and the name of the inline policy in the request, or an error
// if the role does not have the policy.
func (s *Server) inlinePolicy(r *request) (*roleRecord, string, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, "", e
	}
	if e := r.checkParam("PolicyName", policyNamePattern); e != nil {
		return nil, "", e
	}
	name := r.params["PolicyName"]
	if _, ok := role.Inline[name]; !ok {
		return nil, "", noSuchEntity("The role policy with name %s cannot be found.", name)
	}
	return role, name, nil
}

func (s *Server) getRolePolicy(r *request) (any, *apiError) {
	role, name, e := s.inlinePolicy(r)
	if e != nil {
		return nil, e
	}
	return element("", textElement("RoleName", role.Name), textElement("PolicyName", name),
		textElement("PolicyDocument", escape(role.Inline[name]))), nil
}

func (s *Server) deleteRolePolicy(r *request) (any, *apiError) {
	role, name, e := s.inlinePolicy(r)
	if e != nil {
		return nil, e
	}
	delete(role.Inline, name)
	return nil, nil
}

func (s *Server) listRolePolicies(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	page, more, e := r.paged(slices.Sorted(maps.Keys(role.Inline)))
	if e != nil {
		return nil, e
	}
	var members []node
	for _, name := range page {
		members = append(members, textElement("", name))
	}
	return element("", append(more, listElement("PolicyNames", members...))...), nil
}

// AttachPolicy attaches a managed policy to a role, and returns the policy's ARN.
func (s *Server) AttachPolicy(accountID, roleName, name, document string) (string, error) {
	if _, err := parsePolicy(document, identityPolicy); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.state.account(accountID, "")
	if err != nil {
		return "", err
	}
	role := a.Roles[roleName]
	if role == nil {
		return "", fmt.Errorf("account %s has no role %s", accountID, roleName)
	}
	arn := fmt.Sprintf("arn:%s:iam::%s:policy/%s", a.Partition, a.ID, name)
	a.Policies[arn] = document
	role.Attached = append(role.Attached, arn)
	return arn, s.save()
}

func (s *Server) detachRolePolicy(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	name := r.params["PolicyArn"]
	i := slices.Index(role.Attached, name)
	if i < 0 {
		return nil, noSuchEntity("Policy %s was not found.", name)
	}
	role.Attached = slices.Delete(role.Attached, i, i+1)
	return nil, nil
}

func (s *Server) listAttachedRolePolicies(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	page, more, e := r.paged(slices.Sorted(slices.Values(role.Attached)))
	if e != nil {
		return nil, e
	}
	var members []node
	for _, name := range page {
		members = append(members, element("", textElement("PolicyName", name[strings.LastIndexByte(name, '/')+1:]), textElement("PolicyArn", name)))
	}
	return element("", append(more, listElement("AttachedPolicies", members...))...), nil
}
