// Package rbac contains the functions for Kubernetes RBAC that the server and the agent
// share. They compare rules, format rules for messages, and determine the rules that a
// binding grants to a subject.
//
// The package is pure: it has no clients, no clock and no state of its own.
package rbac
