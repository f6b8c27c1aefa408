// Package framework starts what the packages of tests against the whole product share: a hub and a
// managed cluster of test/localhub, our server behind the hub's aggregation layer and our agent,
// each a process of its own. It also contains the helpers that more than one of these packages use.
//
// The packages are test/permission, test/server, test/executor, test/registration, test/search and
// test/serviceaccount, which run in parallel. Their tests assert what a user would notice, and poll
// for it; none measures time (test/bench does).
//
// Most tests of a package share one fleet, use names of their own and leave the fleet as they found
// it. Tests that kill processes at random, or need other flags, start their own.
//
// The environment variable KEEP names a directory that keeps data and logs. Run one package at a
// time with it.
package framework
