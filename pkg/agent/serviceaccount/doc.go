// Package serviceaccount keeps the ServiceAccounts of ManagedServiceAccounts on
// one managed cluster, and their tokens in Secrets of the hub.
//
// # One pass
//
// The unit of work is one ManagedServiceAccount, by name. A pass gathers facts,
// lets pure functions decide, and acts (reconcile.go, task.go):
//
//	account   the ServiceAccount is there and ours      account.go, decide.go
//	look      does the Secret have to be read?          decide.go
//	judge     is its token good, is it complete?        decide.go, token.go
//	mint      TokenRequest, only if judged necessary    token.go
//	store     Secret on the hub                         secret.go
//	report    conditions and references                 status.go
//
// A new account costs four requests: ServiceAccount, token, Secret, status. An
// account that is as it should be costs two reads in every VerifyInterval, and
// no write.
//
// # What is ours
//
// A ServiceAccount is ours if its label ManagedServiceAccountLabel has the
// identity of this agent, which stands for one cluster of one hub. Nothing else
// is ever changed, given a token or deleted. A Secret is ours if it is labelled
// and refers to the ManagedServiceAccount by UID.
//
// # Crashes
//
// Every step can be repeated: what the last agent had done is found by what is
// ours, and only a token that it had not stored yet is lost, which nobody has seen.
package serviceaccount
