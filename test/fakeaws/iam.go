package fakeaws

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quotas of IAM.
const (
	maxTags         = 50
	maxTrustPolicy  = 2048
	maxInlinePolicy = 10240 // all inline policies of a role together
	maxDescription  = 1000
)

var (
	roleNamePattern    = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)
	userNamePattern    = roleNamePattern
	policyNamePattern  = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	pathPattern        = regexp.MustCompile(`^/([!-~]+/)?$`)
	tagPattern         = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	descriptionPattern = regexp.MustCompile("^[\u0009\u000A\u000D\u0020-\u007E\u00A1-\u00FF]*$")
)

// iamOperations are the operations of IAM.
var iamOperations = map[string]*operation{
	"CreateRole":             {required: []string{"RoleName", "AssumeRolePolicyDocument"}, resource: roleResource, alsoNeeds: tagRoleAction, run: (*Server).createRole, writes: true},
	"GetRole":                {required: []string{"RoleName"}, resource: roleResource, run: (*Server).getRole},
	"DeleteRole":             {required: []string{"RoleName"}, resource: roleResource, run: (*Server).deleteRole, writes: true},
	"UpdateAssumeRolePolicy": {required: []string{"RoleName", "PolicyDocument"}, resource: roleResource, run: (*Server).updateAssumeRolePolicy, writes: true},
	"TagRole":                {required: []string{"RoleName", "Tags"}, resource: roleResource, run: (*Server).tagRole, writes: true},
	"UntagRole":              {required: []string{"RoleName", "TagKeys"}, resource: roleResource, run: (*Server).untagRole, writes: true},

	"PutRolePolicy":            {required: []string{"RoleName", "PolicyName", "PolicyDocument"}, resource: roleResource, run: (*Server).putRolePolicy, writes: true},
	"GetRolePolicy":            {required: []string{"RoleName", "PolicyName"}, resource: roleResource, run: (*Server).getRolePolicy},
	"ListRolePolicies":         {required: []string{"RoleName"}, resource: roleResource, run: (*Server).listRolePolicies},
	"DeleteRolePolicy":         {required: []string{"RoleName", "PolicyName"}, resource: roleResource, run: (*Server).deleteRolePolicy, writes: true},
	"DetachRolePolicy":         {required: []string{"RoleName", "PolicyArn"}, resource: roleResource, run: (*Server).detachRolePolicy, writes: true},
	"ListAttachedRolePolicies": {required: []string{"RoleName"}, resource: roleResource, run: (*Server).listAttachedRolePolicies},

	"GetOpenIDConnectProvider": {required: []string{"OpenIDConnectProviderArn"}, resource: providerResource, run: (*Server).getOpenIDConnectProvider},
	"SimulatePrincipalPolicy":  {required: []string{"PolicySourceArn", "ActionNames"}, resource: simulatedResource, run: (*Server).simulatePrincipalPolicy},
}

// roleResource returns the ARN, with the path, of the role that the request names.
func roleResource(s *Server, r *request) string {
	name, path := r.params["RoleName"], r.params["Path"]
	if role := s.callersAccount(r).Roles[name]; role != nil && r.name != "CreateRole" {
		return role.ARN
	}
	return iamARN(r, path, name)
}

// iamARN returns the ARN of a role of the caller's account.
func iamARN(r *request, path, name string) string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", r.caller.Partition, r.caller.AccountID, cmp.Or(path, "/"), name)
}

// tagRoleAction returns the additional permission that CreateRole requires if the role has
// tags.
func tagRoleAction(r *request) []permission {
	if r.params["Tags.member.1.Key"] == "" {
		return nil
	}
	return []permission{{"iam:TagRole", iamARN(r, r.params["Path"], r.params["RoleName"])}}
}

func (s *Server) callersAccount(r *request) *account { return s.state.Accounts[r.caller.AccountID] }

func validationError(format string, args ...any) *apiError {
	return errorf(http.StatusBadRequest, "ValidationError", "1 validation error detected: "+format, args...)
}

func noSuchEntity(format string, args ...any) *apiError {
	return errorf(http.StatusNotFound, "NoSuchEntity", format, args...)
}

func limitExceeded(format string, args ...any) *apiError {
	return errorf(http.StatusConflict, "LimitExceeded", format, args...)
}

func malformedPolicy(err error) *apiError {
	return errorf(http.StatusBadRequest, "MalformedPolicyDocument", "%v", err)
}

// checkParam returns an error if a parameter does not match the pattern.
func (r *request) checkParam(name string, pattern *regexp.Regexp) *apiError {
	if value := r.params[name]; !pattern.MatchString(value) {
		return validationError("Value '%s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: %s", value, lowerFirst(name), pattern)
	}
	return nil
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// role returns the role that the request names.
func (s *Server) role(r *request) (*roleRecord, *apiError) {
	if e := r.checkParam("RoleName", roleNamePattern); e != nil {
		return nil, e
	}
	name := r.params["RoleName"]
	role := s.callersAccount(r).Roles[name]
	if role == nil {
		return nil, noSuchEntity("The role with name %s cannot be found.", name)
	}
	return role, nil
}

// path returns the path of the object that the request creates.
func (r *request) path() (string, *apiError) {
	path := r.params["Path"]
	if path == "" {
		return "/", nil
	}
	if len(path) > 512 || !pathPattern.MatchString(path) {
		return "", validationError("The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	}
	return path, nil
}

// description returns the description in the request.
func (r *request) description() (string, *apiError) {
	d := r.params["Description"]
	if utf8.RuneCountInString(d) > maxDescription || !descriptionPattern.MatchString(d) {
		return "", validationError("Value at 'description' failed to satisfy constraint: Member must have length less than or equal to %d", maxDescription)
	}
	return d, nil
}

// list returns the members of a list, which are numbered from 1.
func (r *request) list(name string) []string {
	var values []string
	for i := 1; ; i++ {
		value, ok := r.params[name+".member."+strconv.Itoa(i)]
		if !ok {
			return values
		}
		values = append(values, value)
	}
}

// tags returns the tags of the request, or an error if IAM would reject them.
func (r *request) tags() ([]tag, *apiError) {
	var tags []tag
	for i := 1; ; i++ {
		prefix := "Tags.member." + strconv.Itoa(i)
		key, hasKey := r.params[prefix+".Key"]
		value, hasValue := r.params[prefix+".Value"]
		if !hasKey && !hasValue {
			break
		}
		if !hasValue {
			return nil, validationError("Value null at 'tags.%d.member.value' failed to satisfy constraint: Member must not be null", i)
		}
		tags = append(tags, tag{Key: key, Value: value})
	}
	if len(tags) > maxTags {
		return nil, validationError("Value at 'tags' failed to satisfy constraint: Member must have length less than or equal to %d", maxTags)
	}
	seen := map[string]bool{}
	for i, t := range tags {
		switch key := strings.ToLower(t.Key); {
		case t.Key == "" || utf8.RuneCountInString(t.Key) > 128 || !tagPattern.MatchString(t.Key):
			return nil, validationError("Value '%s' at 'tags.%d.member.key' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]{1,128}", t.Key, i+1)
		case utf8.RuneCountInString(t.Value) > 256 || !tagPattern.MatchString(t.Value):
			return nil, validationError("Value '%s' at 'tags.%d.member.value' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]{0,256}", t.Value, i+1)
		case strings.HasPrefix(key, "aws:"):
			return nil, errorf(http.StatusBadRequest, "InvalidInput", "Tag keys cannot begin with aws: as that is reserved for system tags.")
		case seen[key]:
			return nil, errorf(http.StatusBadRequest, "InvalidInput", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		default:
			seen[key] = true
		}
	}
	return tags, nil
}

// mergeTags returns old with the tags of changed added or replaced. Keys are case insensitive.
func mergeTags(old, changed []tag) ([]tag, *apiError) {
	merged := slices.Clone(old)
	for _, t := range changed {
		i := slices.IndexFunc(merged, func(o tag) bool { return strings.EqualFold(o.Key, t.Key) })
		if i < 0 {
			merged = append(merged, t)
		} else {
			merged[i] = t
		}
	}
	if len(merged) > maxTags {
		return nil, limitExceeded("The number of tags has reached the maximum limit of %d.", maxTags)
	}
	return merged, nil
}

// paged returns the requested page of sorted names, and the elements with the continuation
// marker.
func (r *request) paged(names []string) (page []string, more []node, e *apiError) {
	limit := 100
	if text := r.params["MaxItems"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return nil, nil, validationError("Value '%s' at 'maxItems' failed to satisfy constraint: Member must have value between 1 and 1000", text)
		}
		limit = n
	}
	if marker := r.params["Marker"]; marker != "" {
		after, err := decodeMarker(marker)
		if err != nil {
			return nil, nil, validationError("Invalid Marker.")
		}
		i, found := slices.BinarySearch(names, after)
		if found {
			i++
		}
		names = names[i:]
	}
	if len(names) <= limit {
		return names, []node{textElement("IsTruncated", "false")}, nil
	}
	page = names[:limit]
	return page, []node{textElement("IsTruncated", "true"), textElement("Marker", encodeMarker(page[limit-1]))}, nil
}
