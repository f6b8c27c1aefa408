// Package fakeaws is an HTTP server on loopback that implements the protocols of IAM, STS
// and EKS for unmodified AWS SDKs and the aws command line. It keeps state and rejects the
// requests that AWS rejects. It includes the token webhook with which a kube-apiserver
// accepts the tokens that EKS accepts.
//
// Supported operations (any other operation returns InvalidAction for IAM and STS, or
// UnknownOperationException for EKS):
//
//   - IAM (Query protocol, 2010-05-08): CreateRole, GetRole, DeleteRole,
//     UpdateAssumeRolePolicy, TagRole, UntagRole, PutRolePolicy, GetRolePolicy,
//     ListRolePolicies, DeleteRolePolicy, DetachRolePolicy, ListAttachedRolePolicies,
//     GetOpenIDConnectProvider, SimulatePrincipalPolicy.
//   - STS (Query protocol, 2011-06-15): GetCallerIdentity (also presigned), AssumeRole,
//     AssumeRoleWithWebIdentity.
//   - EKS (REST/JSON): DescribeCluster, CreateAccessEntry, DescribeAccessEntry,
//     UpdateAccessEntry, DeleteAccessEntry, TagResource.
//
// The server is as strict as AWS about:
//
//   - SigV4 signatures, their scope and time, and session tokens;
//   - the permissions of the caller, by identity policies;
//   - names, tags, quotas and the syntax of policy documents;
//   - the principals of trust policies;
//   - a role that was deleted and created again with the same name: trust policies and
//     access entries for the previous role do not apply to the new one;
//   - sessions: a session ends when its role is deleted.
//
// The server rejects permissions boundaries, session policies and session tags. Policy
// variables, and conditions on numbers, dates and addresses, allow nothing. Service-linked
// roles and EKS access policies are not supported.
//
// All services share one address. A signature may name any region of the account's
// partition. For EKS, the region selects the clusters.
//
// Server.SetFaults injects faults. Server.Calls returns the recorded calls.
package fakeaws
