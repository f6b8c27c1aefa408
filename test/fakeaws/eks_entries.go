package fakeaws

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// entries returns the cluster that the request names, if it has access entries.
func (s *Server) entries(r *request) (*clusterRecord, *apiError) {
	c, e := s.cluster(r)
	if e != nil {
		return nil, e
	}
	if c.Mode == ModeConfigMap {
		return nil, c.fail(http.StatusBadRequest, "InvalidRequestException", "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")
	}
	return c, nil
}

// entry returns the access entry that the request names.
func (s *Server) entry(r *request) (*clusterRecord, *entryRecord, *apiError) {
	c, e := s.entries(r)
	if e != nil {
		return nil, nil, e
	}
	entry := c.Entries[r.params["principalArn"]]
	if entry == nil {
		return nil, nil, c.fail(http.StatusNotFound, "ResourceNotFoundException", "The specified principalArn could not be found: %s", r.params["principalArn"])
	}
	return c, entry, nil
}

// entryInput is the body of CreateAccessEntry and UpdateAccessEntry.
type entryInput struct {
	PrincipalArn       string
	KubernetesGroups   *[]string
	Username           *string
	Tags               map[string]string
	Type               string
	ClientRequestToken string
}

func (c *clusterRecord) decodeEntry(r *request) (*entryInput, *apiError) {
	in := &entryInput{}
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, in); err != nil {
			return nil, errorf(http.StatusBadRequest, "SerializationException", "%v", err)
		}
	}
	if in.KubernetesGroups != nil {
		for _, group := range *in.KubernetesGroups {
			if group == "" {
				return nil, c.invalid("The kubernetes group name is empty.")
			}
			if prefix := reservedPrefix(group); prefix != "" {
				return nil, c.invalid("The kubernetes group name %s is invalid, it cannot start with %s", group, prefix)
			}
		}
	}
	if in.Username != nil {
		if prefix := reservedPrefix(*in.Username); prefix != "" {
			return nil, c.invalid("The username %s is invalid, it cannot start with %s", *in.Username, prefix)
		}
		for _, template := range []string{"{{SessionName}}", "{{SessionNameRaw}}"} {
			// Otherwise a session could have the name of another user.
			if before, _, found := strings.Cut(*in.Username, template); found && !strings.Contains(before, ":") {
				return nil, c.invalid("The username %s is invalid, it must have a colon before %s", *in.Username, template)
			}
		}
	}
	return in, nil
}

func reservedPrefix(name string) string {
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

func (s *Server) createAccessEntry(r *request) (any, *apiError) {
	c, e := s.entries(r)
	if e != nil {
		return nil, e
	}
	in, e := c.decodeEntry(r)
	if e != nil {
		return nil, e
	}
	if in.Type == "" {
		in.Type = standardEntry
	}
	if !slices.Contains(entryTypes, in.Type) {
		return nil, c.invalid("The type %s is invalid.", in.Type)
	}
	if in.Type != standardEntry && (in.KubernetesGroups != nil && len(*in.KubernetesGroups) > 0 || in.Username != nil) {
		return nil, c.invalid("Access entries of type %s have no groups and no username.", in.Type)
	}
	if e := checkEKSTags(in.Tags); e != nil {
		return nil, e
	}
	principal, id, e := s.eksPrincipal(c, in.PrincipalArn)
	if e != nil {
		return nil, e
	}
	request := string(r.body)
	if old := c.Entries[in.PrincipalArn]; old != nil {
		// A request with the same token and body as the creating request is a retry.
		if old.Token != "" && old.Token == in.ClientRequestToken && old.Request == request {
			return map[string]any{"accessEntry": c.show(old)}, nil
		}
		return nil, c.fail(http.StatusConflict, "ResourceInUseException", "The specified access entry resource is already in use on this cluster.")
	}
	entry := &entryRecord{
		ARN:       entryARN(r.caller.Partition, c.Region, c.AccountID, c.Name, in.PrincipalArn, requestID()),
		Principal: in.PrincipalArn, PrincipalID: id, Username: defaultUsername(principal, in.PrincipalArn),
		Tags: in.Tags, Type: in.Type, CreatedAt: r.now.UTC(), ModifiedAt: r.now.UTC(),
		Token: in.ClientRequestToken, Request: request,
	}
	if in.KubernetesGroups != nil {
		entry.Groups = *in.KubernetesGroups
	}
	if in.Username != nil && *in.Username != "" {
		entry.Username = *in.Username
	}
	c.Entries[in.PrincipalArn] = entry
	return map[string]any{"accessEntry": c.show(entry)}, nil
}

// eksPrincipal returns the user or role that an access entry is for.
func (s *Server) eksPrincipal(c *clusterRecord, name string) (parsedARN, string, *apiError) {
	principal, ok := parseARN(name)
	invalid := c.invalid("The specified principalArn is invalid: invalid principal.")
	if !ok || principal.Service != "iam" || !strings.HasPrefix(principal.Resource, "role/") && !strings.HasPrefix(principal.Resource, "user/") {
		return parsedARN{}, "", c.invalid("The specified principalArn is invalid: invalid value.")
	}
	id, _, exists := s.state.principalID(name)
	if !exists {
		return parsedARN{}, "", invalid
	}
	if roleName, isRole := strings.CutPrefix(principal.Resource, "role/"); isRole {
		role := s.state.Accounts[principal.AccountID].Roles[roleName[strings.LastIndexByte(roleName, '/')+1:]]
		if role.UnseenByEKS > 0 {
			role.UnseenByEKS--
			return parsedARN{}, "", invalid
		}
	}
	return principal, id, nil
}

func defaultUsername(principal parsedARN, name string) string {
	role, isRole := strings.CutPrefix(principal.Resource, "role/")
	if !isRole {
		return name
	}
	return fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/{{SessionName}}", principal.Partition, principal.AccountID, role[strings.LastIndexByte(role, '/')+1:])
}

func (c *clusterRecord) show(e *entryRecord) map[string]any {
	return map[string]any{
		"clusterName": c.Name, "principalArn": e.Principal, "accessEntryArn": e.ARN, "username": e.Username,
		"kubernetesGroups": slices.Concat([]string{}, e.Groups), "type": e.Type, "tags": orEmpty(e.Tags),
		"createdAt": epoch(e.CreatedAt), "modifiedAt": epoch(e.ModifiedAt),
	}
}

func (s *Server) describeAccessEntry(r *request) (any, *apiError) {
	c, entry, e := s.entry(r)
	if e != nil {
		return nil, e
	}
	return map[string]any{"accessEntry": c.show(entry)}, nil
}

func (s *Server) updateAccessEntry(r *request) (any, *apiError) {
	c, entry, e := s.entry(r)
	if e != nil {
		return nil, e
	}
	in, e := c.decodeEntry(r)
	if e != nil {
		return nil, e
	}
	if entry.Type != standardEntry {
		return nil, c.fail(http.StatusBadRequest, "InvalidRequestException", "Access entries of type %s cannot be updated.", entry.Type)
	}
	if in.KubernetesGroups != nil {
		entry.Groups = *in.KubernetesGroups
	}
	if in.Username != nil && *in.Username != "" {
		entry.Username = *in.Username
	}
	entry.ModifiedAt = r.now.UTC()
	return map[string]any{"accessEntry": c.show(entry)}, nil
}

func (s *Server) deleteAccessEntry(r *request) (any, *apiError) {
	c, entry, e := s.entry(r)
	if e != nil {
		return nil, e
	}
	delete(c.Entries, entry.Principal)
	return map[string]any{}, nil
}

func checkEKSTags(tags map[string]string) *apiError {
	if len(tags) > maxTags {
		return errorf(http.StatusBadRequest, "InvalidParameterException", "A resource can have up to %d tags.", maxTags)
	}
	for key, value := range tags {
		if key == "" || utf8.RuneCountInString(key) > 128 || utf8.RuneCountInString(value) > 256 ||
			!tagPattern.MatchString(key) || !tagPattern.MatchString(value) || strings.HasPrefix(strings.ToLower(key), "aws:") {
			return errorf(http.StatusBadRequest, "InvalidParameterException", "The tag %q is invalid.", key)
		}
	}
	return nil
}

// tagged returns the tags of the cluster or access entry that the request names.
func (s *Server) tagged(r *request) (*map[string]string, *apiError) {
	name := r.params["resourceArn"]
	a, ok := parseARN(name)
	if !ok || a.Service != serviceEKS {
		return nil, errorf(http.StatusBadRequest, "BadRequestException", "Invalid ARN: %s", name)
	}
	if a.AccountID == r.caller.AccountID && a.Region == r.region {
		for _, c := range s.state.Clusters {
			if c.ARN == name {
				return &c.Tags, nil
			}
			for _, e := range c.Entries {
				if e.ARN == name {
					return &e.Tags, nil
				}
			}
		}
	}
	return nil, errorf(http.StatusNotFound, "NotFoundException", "Resource not found: %s", name)
}

func (s *Server) tagResource(r *request) (any, *apiError) {
	tags, e := s.tagged(r)
	if e != nil {
		return nil, e
	}
	var in struct{ Tags map[string]string }
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, errorf(http.StatusBadRequest, "SerializationException", "%v", err)
	}
	merged := maps.Clone(orEmpty(*tags))
	maps.Copy(merged, in.Tags)
	if e := checkEKSTags(merged); e != nil || len(in.Tags) == 0 {
		return nil, errorf(http.StatusBadRequest, "BadRequestException", "The tags are invalid.")
	}
	*tags = merged
	return map[string]any{}, nil
}
