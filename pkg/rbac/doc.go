// Package rbac contains the functions for Kubernetes RBAC that the server and the agent share. A RuleSet decides
// requests. Others compare rules, format rules for messages, and notify of changes of permissions.
//
// The package is pure: it has no clients, no clock and no state of its own.
package rbac
