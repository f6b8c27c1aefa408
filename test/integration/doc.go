// Package integration holds the tests of the whole product: a real hub, a real
// managed cluster, our apiserver behind the hub's aggregation layer and our
// agent, each a process of its own. Every test asserts what a user would
// notice, and waits for it by polling; none measures time (test/bench does).
//
// Most tests share one fleet, use names of their own and leave the fleet as they
// found it. Tests that kill at random, or need other flags, start their own.
//
//	CRASH_CREATES  how many ClusterPermissions the crash test creates
//	CRASH_SEED     the seed of its kills, to repeat a run that failed
//	KEEP           a directory to keep data and logs in
package integration
