// Package framework starts the fleet for tests of the whole product. A fleet is a hub and a managed
// cluster of test/localhub, our server behind the hub's aggregation layer, and our agent. Each of
// them is a separate process. The package also contains the helpers that several test packages use.
//
// These packages are mainly test/permission, test/server, test/executor, test/registration,
// test/search and test/serviceaccount. They run in parallel. Their tests assert behaviour that is
// visible to users, and poll for it. None measures time (test/bench does).
//
// Most tests of a package share one fleet. They use unique names, remove the objects that they
// create, and run in parallel. Tests on the shared fleet are not parallel if they restart its
// servers, delete the namespace of its cluster or compare all stored objects. Tests that kill
// processes at random, or need other flags, start their own fleet.
//
// The environment variable KEEP names a directory that keeps data and logs after the tests. Run only
// one package at a time with it.
package framework
