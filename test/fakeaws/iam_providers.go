package fakeaws

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// thumbprint is the certificate thumbprint of every provider.
const thumbprint = "9e99a48a9960b14926bb7f3b02e22da2b0ab7280"

func providerResource(_ *Server, r *request) string { return r.params["OpenIDConnectProviderArn"] }

func simulatedResource(_ *Server, r *request) string { return r.params["PolicySourceArn"] }

func (s *Server) getOpenIDConnectProvider(r *request) (any, *apiError) {
	name := r.params["OpenIDConnectProviderArn"]
	arn, ok := parseARN(name)
	issuer, isProvider := strings.CutPrefix(arn.Resource, "oidc-provider/")
	if !ok || arn.Service != serviceIAM || !isProvider {
		return nil, errorf(http.StatusBadRequest, "InvalidInput", "ARN %s is not valid.", name)
	}
	provider := s.callersAccount(r).Providers[issuer]
	if arn.AccountID != r.caller.AccountID || provider == nil {
		return nil, noSuchEntity("OpenIDConnect Provider not found for arn %s", name)
	}
	var clients []node
	for _, audience := range provider.Audiences {
		clients = append(clients, textElement("", audience))
	}
	return element("", textElement("Url", provider.Issuer), timeElement("CreateDate", provider.CreatedAt),
		listElement("ClientIDList", clients...), listElement("ThumbprintList", textElement("", thumbprint)), tagNodes(nil)), nil
}

// simulatePrincipalPolicy returns the decisions about actions of a role on one resource, or on
// all resources if the request names none. It rejects several resources, additional policies
// and context entries.
func (s *Server) simulatePrincipalPolicy(r *request) (any, *apiError) {
	source := r.params["PolicySourceArn"]
	arn, ok := parseARN(source)
	name, isRole := strings.CutPrefix(arn.Resource, "role/")
	if !ok || arn.Service != serviceIAM || !isRole {
		return nil, errorf(http.StatusBadRequest, "InvalidInput", "Invalid Entity Arn: %s", source)
	}
	resources := r.list("ResourceArns")
	if len(resources) > 1 {
		return nil, errorf(http.StatusBadRequest, "InvalidInput", "This server simulates one resource only.")
	}
	for _, unsupported := range []string{"PolicyInputList", "PermissionsBoundaryPolicyInputList", "ContextEntries", "ResourcePolicy", "CallerArn", "PolicyExclusionList"} {
		if r.has(unsupported) {
			return nil, errorf(http.StatusBadRequest, "InvalidInput", "%s is not supported by this server.", unsupported)
		}
	}
	a := s.callersAccount(r)
	role := a.Roles[name[strings.LastIndexByte(name, '/')+1:]]
	if arn.AccountID != a.ID || role == nil || role.ARN != source {
		return nil, noSuchEntity("The role with name %s cannot be found.", name)
	}
	p := &principal{AccountID: a.ID, Partition: a.Partition, Source: role.ARN, SourceID: role.ID, Tags: map[string]string{}}
	for _, t := range role.Tags {
		p.Tags[t.Key] = t.Value
	}
	if e := p.add(a.documentsOf(role)); e != nil {
		return nil, e
	}
	resource := "*"
	if len(resources) == 1 {
		resource = resources[0]
	}
	var results []node
	for _, action := range r.list("ActionNames") {
		if !actionPattern.MatchString(action) || strings.Contains(action, "*") {
			return nil, errorf(http.StatusBadRequest, "InvalidInput", "Invalid Action: %s", action)
		}
		decision := map[decision]string{allowed: "allowed", denied: "explicitDeny"}[decide(p.policies, action, resource, p.conditions())]
		if decision == "" {
			decision = "implicitDeny"
		}
		results = append(results, element("",
			textElement("EvalActionName", action), textElement("EvalResourceName", resource), textElement("EvalDecision", decision)))
	}
	return element("", textElement("IsTruncated", "false"), listElement("EvaluationResults", results...)), nil
}

// documentsOf returns the policies of a role, inline and attached.
func (a *account) documentsOf(role *roleRecord) []string {
	documents := slices.Collect(maps.Values(role.Inline))
	for _, arn := range role.Attached {
		documents = append(documents, a.Policies[arn])
	}
	return documents
}
