// Package registration tests how clusters join a hub, by certificates and by AWS IAM, and how they
// leave it, in fleets of test/framework. AWS is package test/fakeaws, which records its calls.
//
// TestRegistrationStories follows the stories of the proposal "AWS IAM based registration". The
// documents of testdata/seed-003 are from the proposal.
//
// The public registration of clusters by AWS IAM has seven known defects. These tests show that ours
// has none of them:
//
//	A1  annotations of a member revoke others  TestWeaknessA1AnnotationsOfAMemberAreNoIdentity, TestHostileCluster/its_own_ManagedCluster
//
//	A2  so do those of one never accepted      TestWeaknessA2NobodyCreatesWithAnIdentityOfOthers, TestBootstrapCannot/claim_what_is_not_its_own
//
//	A3  a malformed ARN is a panic             TestWeaknessA3MalformedARNs
//
//	A4  what half failed cannot be denied      TestWeaknessA4DenyAfterFailedAcceptance
//
//	A5  works hold a denial up                 TestWeaknessA5DenyWhileThereAreWorks, TestRevocationIsInTheRequest
//
//	A6  every event asks AWS again             TestWeaknessA6OneAcceptanceIsOnePlan, TestCallsPerAcceptance
//
//	A7  wrong groups stay                      TestWeaknessA7WrongGroupsAreCorrected
//
// TestHostileCluster, TestBootstrapCannot, TestFinalizerIsNoWayOut and TestWhoMayDecide test what
// registered clusters, clusters that want to join, and administrators with some of the permissions
// cannot do.
//
// These environment variables change TestRegistrationFaults:
//
//	REGISTRATION_SEQUENCES  how many sequences of decisions it makes
//	REGISTRATION_SEED       the seed of its choices, to repeat a run that failed
package registration
