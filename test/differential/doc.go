// Package differential compares the agent's decisions about executors with those of a real
// kube-apiserver.
//
// A triple is a random RBAC policy, an executor and a ManifestWork with one or two manifests.
// The test uses the agent's check as a library, in mode Impersonate. It compares the decision
// with the responses to the requests that apply the ManifestWork. The test impersonates the
// executor in these requests. Requests that write are dry runs, because the API server
// authorizes a dry run, and checks it for escalation, like any other write.
//
// A wrong allow is an admitted ManifestWork although one of its requests is forbidden. Each
// wrong allow fails the test. A wrong deny is a denied ManifestWork although all requests that
// its update strategy sends would pass. The variable costs lists the accepted causes of a wrong
// deny. Any other cause fails the test.
//
// The policy of an executor changes between triples, so the agent must drop cached decisions
// that are no longer correct.
//
//	EXECUTOR_TRIPLES  number of triples; the default is 1000, and 5000 in `make campaign`
//	EXECUTOR_SEED     seed of the random values; the default is 1
package differential
