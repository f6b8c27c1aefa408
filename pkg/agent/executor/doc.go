// Package executor checks the permissions of executors. A ManifestWork acts with the permissions of
// the ServiceAccount that it names, and with no others.
//
// Before a ManifestWork reads or writes an object, the agent asks the managed cluster whether the
// executor is allowed every request that the lifecycle of each manifest requires. If one request is
// denied, the agent applies none of the manifests. Then it impersonates the executor, so the API
// server authorizes every request again and audits it for the executor. Therefore an outdated
// answer can delay the message of a refusal, but it permits nothing.
//
//	executors.go   Admit: is the ManifestWork applied, and with which client
//	requests.go    the requests that an object requires
//	reviews.go     SubjectAccessReviews, and how long their answers are kept
//	check.go       the permissions that are missing
//	grants.go      roles and bindings: the executor must hold what they grant
//	message.go     what the author of the ManifestWork reads
package executor
