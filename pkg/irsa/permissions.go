package irsa

import "strings"

// Permission is an action that a role must be allowed to take, on one resource.
type Permission struct {
	Action, Resource string
}

// ServerPermissions returns the permissions that the role of the server needs for one cluster:
// to create, repair and remove its resources. The mapping ConfigMap requires permissions for roles only.
func ServerPermissions(desired Desired) []Permission {
	var all []Permission
	add := func(resource string, actions ...string) {
		for _, action := range actions {
			all = append(all, Permission{Action: action, Resource: resource})
		}
	}
	if desired.ManageRoles {
		add(desired.HubRoleARN(),
			"iam:GetRole", "iam:GetRolePolicy", "iam:CreateRole", "iam:TagRole", "iam:UpdateAssumeRolePolicy", "iam:PutRolePolicy",
			"iam:ListRolePolicies", "iam:ListAttachedRolePolicies", "iam:DeleteRolePolicy", "iam:DetachRolePolicy", "iam:DeleteRole")
	}
	if desired.Mapping == AccessEntry {
		add(desired.Hub.String(), "eks:DescribeCluster", "eks:CreateAccessEntry")
		add(desired.Hub.accessEntry(desired.HubRoleName()+"/entry"), "eks:DescribeAccessEntry", "eks:UpdateAccessEntry", "eks:DeleteAccessEntry", "eks:TagResource")
	}
	return all
}

// ManagedClusterPermissions returns the permissions that the role of the managed cluster needs.
func (i Identity) ManagedClusterPermissions() []Permission {
	return []Permission{{Action: assumeRole, Resource: i.HubRoleARN()}}
}

// OIDCProviderARN returns the ARN of the identity provider of an OIDC issuer in the
// account of the cluster. The issuer is a host and path, with or without https://.
func (a ARN) OIDCProviderARN(issuer string) string {
	return a.iam("oidc-provider/" + strings.TrimPrefix(issuer, "https://"))
}
