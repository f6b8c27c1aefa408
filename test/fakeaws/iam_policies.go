package fakeaws

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// documentSize is the size of a policy as quotas count it: without white space.
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

// inlinePolicy returns the role and the name of an inline policy that it has.
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

func (s *Server) attachRolePolicy(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, e
	}
	if slices.Contains(role.Attached, p.ARN) {
		return nil, nil
	}
	if len(role.Attached) >= maxAttached {
		return nil, limitExceeded("Cannot exceed quota for PoliciesPerRole: %d", maxAttached)
	}
	role.Attached = append(role.Attached, p.ARN)
	return nil, nil
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

// managedPolicy returns the policy whose ARN is in the request.
func (s *Server) managedPolicy(r *request) (*policyRecord, *apiError) {
	name := r.params["PolicyArn"]
	if a, ok := parseARN(name); !ok || a.Service != "iam" || !strings.HasPrefix(a.Resource, "policy/") {
		return nil, errorf(http.StatusBadRequest, "InvalidInput", "ARN %s is not valid.", name)
	}
	p := s.callersAccount(r).Policies[name]
	if p == nil {
		return nil, noSuchEntity("Policy %s was not found.", name)
	}
	return p, nil
}

func (p *policyRecord) document(version string) string {
	for _, v := range p.Versions {
		if v.ID == version {
			return v.Document
		}
	}
	return ""
}

// attachments returns how many roles have the policy.
func (s *Server) attachments(r *request, p *policyRecord) (n int) {
	for _, role := range s.callersAccount(r).Roles {
		if slices.Contains(role.Attached, p.ARN) {
			n++
		}
	}
	return n
}

// listedPolicy is the policy as ListPolicies has it, without its description and tags.
func (s *Server) listedPolicy(r *request, p *policyRecord) node {
	return element("Policy",
		textElement("PolicyName", p.Name), textElement("PolicyId", p.ID), textElement("Arn", p.ARN), textElement("Path", p.Path),
		textElement("DefaultVersionId", p.Default), textElement("AttachmentCount", strconv.Itoa(s.attachments(r, p))),
		textElement("PermissionsBoundaryUsageCount", "0"),
		textElement("IsAttachable", "true"), timeElement("CreateDate", p.CreatedAt), timeElement("UpdateDate", p.UpdatedAt))
}

func (s *Server) policyNode(r *request, p *policyRecord) node {
	n := s.listedPolicy(r, p)
	if p.Description != "" {
		n.nodes = append(n.nodes, textElement("Description", p.Description))
	}
	if len(p.Tags) > 0 {
		n.nodes = append(n.nodes, tagNodes(p.Tags))
	}
	return n
}

// newDocument reads the document of a managed policy.
func (r *request) newDocument() (string, *apiError) {
	document := r.params["PolicyDocument"]
	if _, err := parsePolicy(document, identityPolicy); err != nil {
		return "", malformedPolicy(err)
	}
	if documentSize(document) > maxManagedPolicy {
		return "", limitExceeded("Cannot exceed quota for PolicySize: %d", maxManagedPolicy)
	}
	return document, nil
}

func (s *Server) createPolicy(r *request) (any, *apiError) {
	if e := r.checkParam("PolicyName", policyNamePattern); e != nil {
		return nil, e
	}
	path, e := r.path()
	if e != nil {
		return nil, e
	}
	description, e := r.description()
	if e != nil {
		return nil, e
	}
	tags, e := r.tags()
	if e != nil {
		return nil, e
	}
	document, e := r.newDocument()
	if e != nil {
		return nil, e
	}
	a, name := s.callersAccount(r), r.params["PolicyName"]
	for _, other := range a.Policies {
		if strings.EqualFold(other.Name, name) {
			return nil, errorf(http.StatusConflict, "EntityAlreadyExists", "A policy called %s already exists. Duplicate names are not allowed.", name)
		}
	}
	now := r.now.UTC()
	p := &policyRecord{
		Name: name, ID: "ANPA" + randomName(17), Path: path, ARN: iamARN(r, "policy", path, name),
		Description: description, CreatedAt: now, UpdatedAt: now, Tags: tags,
		Versions: []policyVersion{{ID: "v1", Document: document, CreatedAt: now}}, Default: "v1", LastVersion: 1,
	}
	a.Policies[p.ARN] = p
	return element("", s.policyNode(r, p)), nil
}

func (s *Server) getPolicy(r *request) (any, *apiError) {
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, e
	}
	return element("", s.policyNode(r, p)), nil
}

func (s *Server) listPolicies(r *request) (any, *apiError) {
	if e := r.checkEnum("Scope", "All", "AWS", "Local"); e != nil {
		return nil, e
	}
	if e := r.checkEnum("PolicyUsageFilter", "PermissionsPolicy", "PermissionsBoundary"); e != nil {
		return nil, e
	}
	policies := s.callersAccount(r).Policies
	var arns []string
	// The policies of AWS itself are not known here, and no policy is a boundary.
	if r.params["Scope"] != "AWS" && r.params["PolicyUsageFilter"] != "PermissionsBoundary" {
		for name, p := range policies {
			if r.params["OnlyAttached"] == "true" && s.attachments(r, p) == 0 {
				continue
			}
			if strings.HasPrefix(p.Path, r.params["PathPrefix"]) {
				arns = append(arns, name)
			}
		}
	}
	slices.Sort(arns)
	page, more, e := r.paged(arns)
	if e != nil {
		return nil, e
	}
	var members []node
	for _, name := range page {
		members = append(members, s.listedPolicy(r, policies[name]))
	}
	return element("", append(more, listElement("Policies", members...))...), nil
}

func (s *Server) deletePolicy(r *request) (any, *apiError) {
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, e
	}
	a := s.callersAccount(r)
	for _, role := range a.Roles {
		if slices.Contains(role.Attached, p.ARN) {
			return nil, errorf(http.StatusConflict, "DeleteConflict", "Cannot delete a policy attached to entities.")
		}
	}
	if len(p.Versions) > 1 {
		return nil, errorf(http.StatusConflict, "DeleteConflict", "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.")
	}
	delete(a.Policies, p.ARN)
	return nil, nil
}

// node is the version without its document, which only GetPolicyVersion has.
func (v policyVersion) node(isDefault bool) node {
	return element("PolicyVersion", textElement("VersionId", v.ID),
		textElement("IsDefaultVersion", strconv.FormatBool(isDefault)), timeElement("CreateDate", v.CreatedAt))
}

func (s *Server) createPolicyVersion(r *request) (any, *apiError) {
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, e
	}
	document, e := r.newDocument()
	if e != nil {
		return nil, e
	}
	if len(p.Versions) >= maxVersions {
		return nil, limitExceeded("A managed policy can have up to %d versions. Before you create a new version, you must delete an existing version.", maxVersions)
	}
	p.LastVersion++
	v := policyVersion{ID: "v" + strconv.Itoa(p.LastVersion), Document: document, CreatedAt: r.now.UTC()}
	p.Versions = append(p.Versions, v)
	p.UpdatedAt = r.now.UTC()
	if r.params["SetAsDefault"] == "true" {
		p.Default = v.ID
	}
	return element("", v.node(p.Default == v.ID)), nil
}

// version returns the version that the request names, by index.
func (s *Server) version(r *request) (*policyRecord, int, *apiError) {
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, 0, e
	}
	id := r.params["VersionId"]
	i := slices.IndexFunc(p.Versions, func(v policyVersion) bool { return v.ID == id })
	if i < 0 {
		return nil, 0, noSuchEntity("Policy %s version %s does not exist or is not attachable.", p.ARN, id)
	}
	return p, i, nil
}

func (s *Server) getPolicyVersion(r *request) (any, *apiError) {
	p, i, e := s.version(r)
	if e != nil {
		return nil, e
	}
	v := p.Versions[i]
	n := v.node(v.ID == p.Default)
	n.nodes = append(n.nodes, textElement("Document", escape(v.Document)))
	return element("", n), nil
}

func (s *Server) listPolicyVersions(r *request) (any, *apiError) {
	p, e := s.managedPolicy(r)
	if e != nil {
		return nil, e
	}
	var members []node
	for _, v := range p.Versions {
		members = append(members, v.node(v.ID == p.Default))
	}
	return element("", textElement("IsTruncated", "false"), listElement("Versions", members...)), nil
}

func (s *Server) deletePolicyVersion(r *request) (any, *apiError) {
	p, i, e := s.version(r)
	if e != nil {
		return nil, e
	}
	if p.Versions[i].ID == p.Default {
		return nil, errorf(http.StatusConflict, "DeleteConflict", "Cannot delete the default version of a policy.")
	}
	p.Versions = slices.Delete(p.Versions, i, i+1)
	return nil, nil
}

func (s *Server) setDefaultPolicyVersion(r *request) (any, *apiError) {
	p, i, e := s.version(r)
	if e != nil {
		return nil, e
	}
	p.Default = p.Versions[i].ID
	return nil, nil
}
