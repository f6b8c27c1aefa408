// Package server tests what the server survives and what it costs, in fleets of test/framework:
// restarts, crashes, outages of the hub and missing permissions (TestServer, TestCrashes,
// TestWeakness3WhatOneNeedsDoesNotStopOthers, TestWeakness8ReportsWhileTheServerIsDown), hostile
// tenants (TestQuotas) and a thousand ClusterPermissions (TestThousandPermissions). TestReplicas, of
// two servers, is in test/search.
//
// These environment variables change TestCrashes:
//
//	CRASH_CREATES  how many ClusterPermissions it creates
//	CRASH_SEED     the seed of its kills, to repeat a run that failed
package server
