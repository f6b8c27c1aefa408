// Package server tests the reliability and the cost of the server, in fleets of test/framework:
// restarts, crashes, outages of the hub and missing permissions (TestServer, TestCrashes,
// TestMissingPermissionAffectsDependentsOnly), certificates
// that two servers renew (TestServingCertificate), hostile tenants (TestQuotas) and many
// ClusterPermissions (TestManyPermissions). TestReplicas is in test/search.
//
// These environment variables change the tests; `make campaign` sets them:
//
//	CRASH_CREATES       number of ClusterPermissions that TestCrashes creates
//	CRASH_ROUNDS        number of times that TestCrashes kills each process
//	CRASH_SEED          seed of the random kills, to repeat a failed run
//	SCALE_CLUSTERS      number of clusters of TestManyPermissions, with ten ClusterPermissions each
//	SCALE_IDLE_SECONDS  seconds in which the idle server must write nothing
package server
