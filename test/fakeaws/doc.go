// Package fakeaws is an HTTP server on loopback that speaks the protocols of IAM, STS
// and EKS to the unmodified AWS SDKs and the aws command line, keeps state, and refuses
// what AWS refuses. It also has the token webhook by which a kube-apiserver accepts the
// tokens that EKS accepts.
//
// Supported operations; every other one is answered with InvalidAction (IAM, STS) or
// UnknownOperationException (EKS):
//
//   - IAM (Query protocol, 2010-05-08): CreateRole, GetRole, ListRoles, UpdateRole,
//     UpdateRoleDescription, DeleteRole, UpdateAssumeRolePolicy, TagRole, UntagRole,
//     ListRoleTags, PutRolePolicy, GetRolePolicy, ListRolePolicies, DeleteRolePolicy,
//     AttachRolePolicy, DetachRolePolicy, ListAttachedRolePolicies, CreatePolicy,
//     GetPolicy, ListPolicies, DeletePolicy, CreatePolicyVersion, GetPolicyVersion,
//     ListPolicyVersions, DeletePolicyVersion, SetDefaultPolicyVersion,
//     GetOpenIDConnectProvider, SimulatePrincipalPolicy.
//   - STS (Query protocol, 2011-06-15): GetCallerIdentity (also presigned), AssumeRole,
//     AssumeRoleWithWebIdentity.
//   - EKS (REST/JSON): CreateAccessEntry, DescribeAccessEntry, UpdateAccessEntry,
//     DeleteAccessEntry, ListAccessEntries, TagResource, UntagResource,
//     ListTagsForResource, DescribeCluster, ListClusters.
//
// What it is strict about, as AWS is: SigV4 signatures, the scope and time of them, and
// session tokens; permissions of the caller, by identity policies; names, tags, quotas
// and the syntax of policy documents; principals of trust policies; that a role which
// was deleted and made again under its old name is another one, for trust policies and
// for access entries; that a session ends with its role.
//
// What it leaves out: permissions boundaries, session policies and session tags, which
// are refused; policy variables and conditions on numbers, dates and addresses, which
// allow nothing; service-linked roles; access policies of EKS. One address is every
// endpoint, so that a signature may be for any region of the account's partition: for
// EKS it says which region's clusters are meant.
//
// Faults are injected by Server.SetFaults, and what was called is in Server.Calls.
package fakeaws
