package fakeaws

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	minSession = 3600
	maxSession = 43200
)

func encodeMarker(name string) string { return base64.URLEncoding.EncodeToString([]byte(name)) }

func decodeMarker(marker string) (string, error) {
	name, err := base64.URLEncoding.DecodeString(marker)
	return string(name), err
}

func (role *roleRecord) node() node {
	n := element("Role",
		textElement("Path", role.Path),
		textElement("RoleName", role.Name),
		textElement("RoleId", role.ID),
		textElement("Arn", role.ARN),
		timeElement("CreateDate", role.CreatedAt),
		textElement("AssumeRolePolicyDocument", escape(role.TrustPolicy)),
		textElement("MaxSessionDuration", strconv.Itoa(role.MaxSession)))
	if role.Description != "" {
		n.nodes = append(n.nodes, textElement("Description", role.Description))
	}
	return n
}

func tagNodes(tags []tag) node {
	var members []node
	for _, t := range tags {
		members = append(members, element("", textElement("Key", t.Key), textElement("Value", t.Value)))
	}
	return listElement("Tags", members...)
}

// trust parses a trust policy, and returns the unique ids of its principals by ARN.
func (s *Server) trust(r *request, document string) (ids map[string]string, e *apiError) {
	if len(document) > maxTrustPolicy {
		return nil, limitExceeded("Cannot exceed quota for ACLSizePerRole: %d", maxTrustPolicy)
	}
	p, err := parsePolicy(document, trustPolicy)
	if err != nil {
		return nil, malformedPolicy(err)
	}
	for _, name := range p.principalARNs() {
		id, known, exists := s.state.principalID(name)
		must := s.options.TrustPrincipals == ExistAlways || s.options.TrustPrincipals == ExistInKnownAccounts && known
		a, _ := parseARN(name)
		if a.Partition != r.caller.Partition || must && !exists {
			return nil, errorf(http.StatusBadRequest, "MalformedPolicyDocument", "Invalid principal in policy: \"AWS\":\"%s\"", name)
		}
		if id != "" {
			if ids == nil {
				ids = map[string]string{}
			}
			ids[name] = id
		}
	}
	return ids, nil
}

// shownTrust returns the role with its trust policy in the form that AWS returns: unique ids
// replace the ARNs of principals that were deleted, or deleted and created again.
func (s *Server) shownTrust(role *roleRecord) *roleRecord {
	document := role.TrustPolicy
	for name, id := range role.TrustedIDs {
		if current, _, _ := s.state.principalID(name); current != id {
			document = strings.ReplaceAll(document, strconv.Quote(name), strconv.Quote(id))
		}
	}
	if document == role.TrustPolicy {
		return role
	}
	shown := *role
	shown.TrustPolicy = document
	return &shown
}

func (s *Server) createRole(r *request) (any, *apiError) {
	if e := r.checkParam("RoleName", roleNamePattern); e != nil {
		return nil, e
	}
	if boundary := r.params["PermissionsBoundary"]; boundary != "" {
		return nil, validationError("PermissionsBoundary is not supported by this server")
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
	session, e := r.maxSession()
	if e != nil {
		return nil, e
	}
	document := r.params["AssumeRolePolicyDocument"]
	ids, e := s.trust(r, document)
	if e != nil {
		return nil, e
	}
	a, name := s.callersAccount(r), r.params["RoleName"]
	for other := range a.Roles {
		// Names are case insensitive.
		if strings.EqualFold(other, name) {
			return nil, errorf(http.StatusConflict, "EntityAlreadyExists", "Role with name %s already exists.", name)
		}
	}
	role := &roleRecord{
		Name: name, ID: "AROA" + randomName(17), Path: path, ARN: iamARN(r, path, name),
		TrustPolicy: document, TrustedIDs: ids, Description: description, MaxSession: session,
		CreatedAt: r.now.UTC(), Tags: tags, Inline: map[string]string{}, UnseenByEKS: s.options.UnseenByEKS,
	}
	a.Roles[name] = role
	n := role.node()
	if len(tags) > 0 {
		n.nodes = append(n.nodes, tagNodes(tags))
	}
	return element("", n), nil
}

// maxSession returns the requested maximum session duration of a role in seconds.
func (r *request) maxSession() (int, *apiError) {
	text := r.params["MaxSessionDuration"]
	if text == "" {
		return minSession, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < minSession || n > maxSession {
		return 0, validationError("Value '%s' at 'maxSessionDuration' failed to satisfy constraint: Member must have value between %d and %d", text, minSession, maxSession)
	}
	return n, nil
}

func (s *Server) getRole(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	n := s.shownTrust(role).node()
	if len(role.Tags) > 0 {
		n.nodes = append(n.nodes, tagNodes(role.Tags))
	}
	n.nodes = append(n.nodes, element("RoleLastUsed"))
	return element("", n), nil
}

func (s *Server) deleteRole(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	switch {
	case len(role.Attached) > 0:
		return nil, errorf(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must detach all policies first.")
	case len(role.Inline) > 0:
		return nil, errorf(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must delete policies first.")
	}
	delete(s.callersAccount(r).Roles, role.Name)
	return nil, nil
}

func (s *Server) updateAssumeRolePolicy(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	document := r.params["PolicyDocument"]
	ids, e := s.trust(r, document)
	if e != nil {
		return nil, e
	}
	role.TrustPolicy, role.TrustedIDs = document, ids
	return nil, nil
}

func (s *Server) tagRole(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	tags, e := r.tags()
	if e != nil {
		return nil, e
	}
	merged, e := mergeTags(role.Tags, tags)
	if e != nil {
		return nil, e
	}
	role.Tags = merged
	return nil, nil
}

func (s *Server) untagRole(r *request) (any, *apiError) {
	role, e := s.role(r)
	if e != nil {
		return nil, e
	}
	for _, key := range r.list("TagKeys") {
		role.Tags = slices.DeleteFunc(role.Tags, func(t tag) bool { return strings.EqualFold(t.Key, key) })
	}
	return nil, nil
}
