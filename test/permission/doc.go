// Package permission tests ClusterPermissions, from admission and the approval of escalations to the
// objects on the managed cluster, in a fleet of test/framework.
//
// The upstream controller of ClusterPermissions has nine known defects. These tests check that our
// controller has none of them. TestServer and TestMissingPermissionAffectsDependentsOnly are in test/server:
//
//  1. invalid objects are rejected late or never  TestRefusedAtAdmission, TestRefusedUpdate, TestBadInputsAreRefused, TestServer/ManifestWork_is_created_after_failed_writes
//
//  2. creators become administrators              TestCreatorsDoNotBecomeAdministrators, TestEscalationIsRefused
//
//  3. missing inputs of one object stop others    TestMissingPermissionAffectsDependentsOnly
//
//  4. previous namespaces of accounts return      TestAccountThatMovesFast, TestBindingFollowsTheReport, TestHubThatRunsOCM
//
//  5. validation of roles breaks the delivery     TestOwnRolesAreReportedOnce, TestMissingRolesAreReported, TestUpstreamSpelling
//
//  6. conditions flap, or are never removed       TestConditionsDoNotFlap, TestHubThatRunsOCM, TestOwnRolesAreReportedOnce (the conditions of validate)
//
//  7. one object without status hides all others  TestUnreportedObjectDoesNotHideOthers
//
//  8. reports during an outage are lost           TestHubThatRunsOCM
//
//  9. ManifestWorks are written repeatedly        TestIrrelevantChangesWriteNothing, TestNothingIsWrittenWhenNothingChanged, TestNoNamespaceMatches (no empty ManifestWork)
//
// TestPermissionTable creates the inputs of the renderer's golden files on the hub.
package permission
