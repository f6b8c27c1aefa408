// Package differential compares decisions with those of a real kube-apiserver: the decisions
// of the agent about executors, and those of the index of fleet access.
//
// # Executors
//
// A triple is a random RBAC policy, an executor and a ManifestWork with one or two manifests.
// The test uses the agent's check as a library. It compares the decision
// with the responses to the requests that apply the ManifestWork. The test impersonates the
// executor in these requests. Requests that write are dry runs, because the API server
// authorizes a dry run, and checks it for escalation, like any other write.
//
// A wrong allow is an admitted ManifestWork although one of its requests is forbidden. Each
// wrong allow fails the test. A wrong deny is a denied ManifestWork although all requests that
// its update strategy sends would pass. The variable costs lists the accepted causes of a wrong
// deny. Any other cause fails the test.
//
// The policy of an executor changes between triples. The first check after a change asks the
// cluster again, and the second one uses the answers that the agent has kept.
//
//	EXECUTOR_TRIPLES  number of triples; the default is 1000, and 5000 in `make campaign`
//
// # Fleet access
//
// The RBAC of a cluster changes at random, with aggregated ClusterRoles, and is reported to
// the index in full or as a difference. For random subjects and attributes, the index must give
// the answer of a SubjectAccessReview. If the request is allowed, the binding in the reason of
// the API server must be in one of the chains.
//
//	ACCESS_REVIEWS  number of reviews; the default is 20000, and 200000 in `make campaign`
//
// # Escalation paths
//
// A model tries all requests that are escalation paths, for all names and namespaces, under random
// RBAC of two clusters. The index must mark exactly the rules that allow one of these requests, if
// its result is allowed the request in question. This test needs no API server.
package differential
