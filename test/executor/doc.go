// Package executor tests the executors of ManifestWorks in a fleet of test/framework. The tests
// cover the permission to name an executor on the hub, the writes of our agent in both of its
// modes, and the requests of the upstream OCM agent.
package executor
