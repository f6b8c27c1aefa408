// Package conformance tests the behaviour that all resources share, as a user of the hub
// sees it: with kubectl and client-go, through the aggregation layer of a real
// kube-apiserver, against the built bin/apiserver.
//
// The tests iterate over the server's table of resources, in every version that serves them.
// A new row is tested without a change here, except for three inputs that the row does not
// contain. The tests fail without them:
//
//   - artifacts/example/<singular>.yaml, a valid object;
//   - a change of that object's spec, in changes_test.go;
//   - testdata/lists/<singular>.yaml, an object with all fields of list elements, if the spec has lists of objects.
//
// TestMain starts one hub without managed clusters. The tests run there in parallel, each in
// its own namespace (see place). A test that breaks the server starts its own hub.
// HUB_KUBE_BIN names a directory with the hub's Kubernetes binaries, to test against another
// version: see make test-skew.
//
// Files by topic: discovery, openapi, read, write, apply, empty (with kubectl); listdefaults, watch, list,
// update, delete (with client-go); authorization, serverowned, serviceaccount, outage.
package conformance
