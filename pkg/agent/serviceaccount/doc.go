// Package serviceaccount maintains the ServiceAccounts of ManagedServiceAccounts on one managed
// cluster, and stores their tokens in Secrets on the hub.
//
// # One pass
//
// A pass over a ManagedServiceAccount collects facts, makes decisions in pure functions, and acts
// (reconcile.go, task.go):
//
//	account   create or adopt the ServiceAccount           account.go, decide.go
//	look      decide whether to read the Secret            decide.go
//	judge     decide whether its token is valid            decide.go, token.go
//	mint      request a token if necessary                 token.go
//	store     write the Secret on the hub                  secret.go
//	report    write conditions and references              status.go
//
// A new account costs four requests: ServiceAccount, token, Secret, status. An account that is up
// to date costs two reads in each VerifyInterval and no write.
//
// # Ownership
//
// A ServiceAccount belongs to this agent if the value of its label ManagedServiceAccountLabel is
// the identity of the agent. The identity stands for one cluster of one hub. The agent does not
// change or delete other ServiceAccounts, and requests no tokens for them. A Secret belongs to the
// agent if it has the label and refers to the ManagedServiceAccount by UID.
//
// # Crashes
//
// Every step can be repeated. After a crash, the labels identify the objects that the agent has
// created. Only a token that was not stored yet is lost.
package serviceaccount
