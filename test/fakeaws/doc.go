// Package fakeaws is an HTTP server on loopback that implements the operations of IAM, STS and EKS
// that this project calls, for unmodified AWS SDKs. It includes the token webhook with which a
// kube-apiserver accepts the tokens that EKS accepts.
//
// The server rejects what AWS rejects in these respects:
//
//   - signatures, which it computes again with the signer of the SDK, their time, and session tokens;
//   - the permissions of the caller;
//   - names, tags, quotas, policy documents and the fields of access entries;
//   - the principals of trust policies, which must exist in the accounts of the server;
//   - a role that was deleted and created again with the same name: trust policies, access entries
//     and sessions of the previous role do not apply to the new one.
//
// It supports only the parameters that this project sets, and the condition StringEquals. It rejects
// all others, so that a policy never allows more than on AWS. All services share one address. For
// EKS, the region of the signature selects the cluster.
//
// Server.SetFaults injects faults. Server.Calls returns the recorded calls.
package fakeaws
