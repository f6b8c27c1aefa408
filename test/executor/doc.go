// Package executor tests the executors of ManifestWorks: who may name one, and what the agent applies
// as it, in both modes of the agent and with the upstream OCM agent, in a fleet of test/framework.
package executor
