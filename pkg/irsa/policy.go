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

	// TokenAudience is the default audience of ServiceAccount tokens in EKS. It is not a host name, and is the same in
	// every partition.
	TokenAudience = "sts.amazonaws.com"

	// OIDCProviderPlaceholder replaces the OIDC provider in documents if the provider of
	// the cluster is unknown.
	OIDCProviderPlaceholder = "<oidc-provider>"

	// AgentServiceAccount is the ServiceAccount of the agent, as namespace:name.
	AgentServiceAccount = "open-cluster-management-agent:agent"
)

// Policy is a policy document of IAM.
type Policy struct {
	Version   string      `json:"Version"`
	Statement []Statement `json:"Statement"`
}

// Statement is one statement of a policy document.
type Statement struct {
	Effect    string     `json:"Effect"`
	Principal *Principal `json:"Principal,omitempty"`
	Action    Values     `json:"Action"`
	Resource  Values     `json:"Resource,omitempty"`
	Condition *Condition `json:"Condition,omitempty"`
}

// Principal is the principal of a statement of a trust policy.
type Principal struct {
	AWS       string `json:"AWS,omitempty"`
	Federated string `json:"Federated,omitempty"`
}

// Condition is the condition under which a statement applies.
type Condition struct {
	StringEquals map[string]string `json:"StringEquals"`
}

// Values is encoded as a string in JSON if it has one element, and as a list otherwise.
type Values []string

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

// JSON returns the document for IAM, without white space.
func (p Policy) JSON() string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	// Users read and replace placeholders such as <oidc-provider>.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p); err != nil {
		// The encoding of strings, and of lists and maps of strings, cannot fail.
		return ""
	}
	return strings.TrimSpace(out.String())
}

func policy(statements ...Statement) Policy {
	return Policy{Version: policyVersion, Statement: statements}
}

// HubTrustPolicy allows the role of the managed cluster to assume the role of the hub, if
// it has the tags of this identity.
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

// HubAccessPolicy allows the role of the hub to list and describe the EKS cluster of the hub.
func (i Identity) HubAccessPolicy() Policy {
	return policy(Statement{
		Effect:   allow,
		Action:   Values{"eks:DescribeCluster", "eks:ListClusters"},
		Resource: Values{i.Hub.String()},
	})
}

// ManagedClusterTrustPolicy allows ServiceAccounts of the managed cluster, each given as
// namespace:name, to act as its role. oidcProvider is the host and path of the cluster's
// provider. If it is empty, the policy contains OIDCProviderPlaceholder. serviceAccounts
// defaults to AgentServiceAccount.
func (i Identity) ManagedClusterTrustPolicy(oidcProvider string, serviceAccounts ...string) Policy {
	if len(serviceAccounts) == 0 {
		serviceAccounts = []string{AgentServiceAccount}
	}
	return federatedTrust(i.Managed, oidcProvider, serviceAccounts)
}

// ManagedClusterAccessPolicy allows the role of the managed cluster to assume the role of the hub.
func (i Identity) ManagedClusterAccessPolicy() Policy {
	return policy(Statement{Effect: allow, Action: Values{assumeRole}, Resource: Values{i.HubRoleARN()}})
}

// CreatorTrustPolicy allows ServiceAccounts of the hub, each given as namespace:name, to
// act as the role of CreatorRoleName.
func CreatorTrustPolicy(hub ARN, oidcProvider string, serviceAccounts ...string) Policy {
	return federatedTrust(hub, oidcProvider, serviceAccounts)
}

// CreatorAccessPolicy returns the policy of the enhancement proposal for the role of CreatorRoleName. It contains no
// permission for tags and access entries: see CreatorMappingPolicy.
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

// CreatorMappingPolicy returns the policy that the server needs in addition to CreatorAccessPolicy, to tag roles and to
// manage access entries of the hub. If an administrator creates the roles, the server needs only this policy.
func CreatorMappingPolicy(hub ARN) Policy {
	return policy(
		Statement{Effect: allow, Action: Values{"iam:TagRole"}, Resource: Values{hub.RoleARN(hubRolePrefix + "*")}},
		Statement{
			Effect:   allow,
			Action:   Values{"eks:DescribeCluster", "eks:CreateAccessEntry", "eks:DescribeAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry", "eks:TagResource"},
			Resource: Values{hub.String(), hub.accessEntry(hubRolePrefix + "*")},
		},
	)
}

// federatedTrust returns a policy with one statement for each ServiceAccount, as in the enhancement
// proposal.
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
				oidcProvider + ":aud": TokenAudience,
			}},
		})
	}
	return policy(statements...)
}
