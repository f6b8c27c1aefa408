// Package registration tests how clusters join a hub, with certificates or with AWS IAM, and how they
// leave it, in fleets of test/framework. Package test/fakeaws replaces AWS and records all calls.
//
// TestRegistrationByIAMRoles follows the user stories of the proposal "AWS IAM based registration".
// The documents of testdata/proposal are from the proposal.
//
// The upstream registration of clusters by AWS IAM has seven known defects. These tests show that
// this server has none of them:
//
//	A1  a member's annotations revoke others    TestAnnotationsOfMemberClaimNothing, TestHostileCluster/its_own_ManagedCluster
//
//	A2  so do those of a cluster never accepted TestForeignIdentityCannotBeClaimed, TestBootstrapCannot/claim_a_foreign_cluster_or_identity
//
//	A3  a malformed ARN causes a panic          TestMalformedARNs
//
//	A4  a partial acceptance cannot be denied   TestDenyAfterFailedAcceptance
//
//	A5  ManifestWorks delay a denial            TestDenyWithManifestWorks, TestRevocationIsImmediate
//
//	A6  every event causes calls to AWS         TestAcceptanceRunsItsPlanOnce, TestCallsPerAcceptance
//
//	A7  wrong groups are not corrected          TestWrongGroupsAreCorrected
//
// TestHostileCluster, TestBootstrapCannot, TestCleanupDespiteRemovedFinalizer and
// TestDecisionsRequirePermission test the limits of registered clusters, of clusters that request to
// join, and of administrators with some of the permissions.
//
// The environment variable REGISTRATION_SEQUENCES is the number of sequences of decisions in TestRegistrationFaults.
package registration
