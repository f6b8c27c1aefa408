package irsa

import (
	"bytes"
	"encoding/json"
	"strings"
)

const (
	policyVersion = "2012-10-17"
	allow         = "Allow"
	assumeRole    = "sts:AssumeRole"
	webIdentity   = "sts:AssumeRoleWithWebIdentity"

	// tokenAudience is what EKS puts into tokens of ServiceAccounts unless it is told
	// otherwise. It is no host name: it is the same in every partition.
	tokenAudience = "sts.amazonaws.com"

	// OIDCProviderPlaceholder is in documents for which the OIDC provider of the cluster
	// is not known.
	OIDCProviderPlaceholder = "<oidc-provider>"

	// AgentServiceAccount is the ServiceAccount of the agent, as namespace:name.
	AgentServiceAccount = "open-cluster-management-agent:agent"
)

// Policy is a policy document of IAM.
type Policy struct {
	Version   string      `json:"Version"`
	Statement []Statement `json:"Statement"`
}

// Statement is one of a policy document.
type Statement struct {
	Effect    string     `json:"Effect"`
	Principal *Principal `json:"Principal,omitempty"`
	Action    Values     `json:"Action"`
	Resource  Values     `json:"Resource,omitempty"`
	Condition *Condition `json:"Condition,omitempty"`
}

// Principal is who a statement of a trust policy is about.
type Principal struct {
	AWS       string `json:"AWS,omitempty"`
	Federated string `json:"Federated,omitempty"`
}

// Condition is when a statement holds.
type Condition struct {
	StringEquals map[string]string `json:"StringEquals"`
}

// Values is a string in JSON if it is one, and a list else.
type Values []string

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

// JSON returns the document as IAM takes it, without white space.
func (p Policy) JSON() string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	// Placeholders are for people to read and replace.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p); err != nil {
		// Strings, and lists and maps of strings, always have a form in JSON.
		return ""
	}
	return strings.TrimSpace(out.String())
}

func policy(statements ...Statement) Policy {
	return Policy{Version: policyVersion, Statement: statements}
}

// HubTrustPolicy lets the managed cluster's role assume the hub's, if it has the tags
// of this identity.
func (i Identity) HubTrustPolicy() Policy {
	tags := map[string]string{}
	for key, value := range i.Tags() {
		tags["aws:PrincipalTag/"+key] = value
	}
	return policy(Statement{
		Effect:    allow,
		Principal: &Principal{AWS: i.ManagedClusterRoleARN()},
		Action:    Values{assumeRole},
		Condition: &Condition{StringEquals: tags},
	})
}

// HubAccessPolicy lets the hub's role find the hub.
func (i Identity) HubAccessPolicy() Policy {
	return policy(Statement{
		Effect:   allow,
		Action:   Values{"eks:DescribeCluster", "eks:ListClusters"},
		Resource: Values{i.Hub.String()},
	})
}

// ManagedClusterTrustPolicy lets ServiceAccounts of the managed cluster, each given as
// namespace:name, act as its role. The OIDC provider is that of the cluster, as a host
// and path; a placeholder stands for it if it is empty. Without ServiceAccounts it is
// the agent's.
func (i Identity) ManagedClusterTrustPolicy(oidcProvider string, serviceAccounts ...string) Policy {
	if len(serviceAccounts) == 0 {
		serviceAccounts = []string{AgentServiceAccount}
	}
	return federatedTrust(i.Managed, oidcProvider, serviceAccounts)
}

// ManagedClusterAccessPolicy lets the managed cluster's role assume the hub's.
func (i Identity) ManagedClusterAccessPolicy() Policy {
	return policy(Statement{Effect: allow, Action: Values{assumeRole}, Resource: Values{i.HubRoleARN()}})
}

// CreatorTrustPolicy lets ServiceAccounts of the hub, each given as namespace:name,
// act as the role of CreatorRoleName.
func CreatorTrustPolicy(hub ARN, oidcProvider string, serviceAccounts ...string) Policy {
	return federatedTrust(hub, oidcProvider, serviceAccounts)
}

// CreatorAccessPolicy is what the enhancement proposal gives the role of
// CreatorRoleName. It has no right to tags and to access entries, for which there is
// CreatorMappingPolicy.
func CreatorAccessPolicy(hub ARN) Policy {
	return policy(Statement{
		Effect: allow,
		Action: Values{
			"iam:CreateRole",
			"iam:DeleteRole",
			"iam:UpdateAssumeRolePolicy",
			"iam:PutRolePolicy",
			"iam:DeleteRolePolicy",
			"iam:AttachRolePolicy",
			"iam:DetachRolePolicy",
			"iam:CreatePolicy",
			"iam:DeletePolicy",
			"iam:CreatePolicyVersion",
			"iam:DeletePolicyVersion",
			"iam:ListAttachedRolePolicies",
			"iam:ListRolePolicies",
			"iam:ListPolicyVersions",
			"iam:GetRole",
			"iam:GetRolePolicy",
			"iam:GetPolicy",
			"iam:GetPolicyVersion",
			"iam:PassRole",
		},
		Resource: Values{hub.RoleARN(hubRolePrefix + "*"), hub.iam("policy/" + hubRolePrefix + "*")},
	})
}

// CreatorMappingPolicy is what a server needs beside CreatorAccessPolicy, to tag roles
// and to keep access entries of the hub. With roles that somebody else makes it is
// all that a server needs.
func CreatorMappingPolicy(hub ARN) Policy {
	entries := strings.Replace(hub.String(), ":cluster/", ":access-entry/", 1) + "/role/" + hub.AccountID + "/" + hubRolePrefix + "*"
	return policy(
		Statement{Effect: allow, Action: Values{"iam:TagRole"}, Resource: Values{hub.RoleARN(hubRolePrefix + "*")}},
		Statement{
			Effect:   allow,
			Action:   Values{"eks:DescribeCluster", "eks:CreateAccessEntry", "eks:DescribeAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry", "eks:TagResource"},
			Resource: Values{hub.String(), entries},
		},
	)
}

// federatedTrust has one statement for each ServiceAccount, as the proposal has it.
func federatedTrust(cluster ARN, oidcProvider string, serviceAccounts []string) Policy {
	oidcProvider = strings.TrimSuffix(strings.TrimPrefix(oidcProvider, "https://"), "/")
	if oidcProvider == "" {
		oidcProvider = OIDCProviderPlaceholder
	}
	statements := make([]Statement, 0, len(serviceAccounts))
	for _, account := range serviceAccounts {
		statements = append(statements, Statement{
			Effect:    allow,
			Principal: &Principal{Federated: cluster.iam("oidc-provider/" + oidcProvider)},
			Action:    Values{webIdentity},
			Condition: &Condition{StringEquals: map[string]string{
				oidcProvider + ":sub": "system:serviceaccount:" + account,
				oidcProvider + ":aud": tokenAudience,
			}},
		})
	}
	return policy(statements...)
}
