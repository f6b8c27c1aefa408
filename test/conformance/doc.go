// Package conformance tests what every resource has in common, as a user of a
// hub notices it: with kubectl and client-go, through the aggregation layer of
// a real kube-apiserver, against the built bin/apiserver.
//
// The tests iterate the server's table of resources, in every version that
// serves them, so a new row is tested without a line here, but for two things
// that a row cannot tell and without which the tests fail:
//
//   - artifacts/example/<singular>.yaml, a valid object;
//   - a change of that object's spec, in changes_test.go.
//
// TestMain starts one hub without managed clusters, and every test works in a
// namespace of its own there (see place), beside the others. What breaks the
// server starts another hub. HUB_KUBE_BIN names a directory with the hub's
// Kubernetes binaries, to test against another version: see make test-skew.
//
// Files by topic: discovery, openapi, read, write, apply, empty (with kubectl);
// watch, list, update, status, delete (with client-go); authorization; outage.
package conformance
