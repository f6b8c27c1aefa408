// Package integration holds the tests of the whole product: a real hub, a real
// managed cluster, our apiserver behind the hub's aggregation layer and our
// agent, each a process of its own. Every test asserts what a user would
// notice, and waits for it by polling; none measures time (test/bench does).
//
// Most tests share one fleet, use names of their own and leave the fleet as they
// found it. Tests that kill at random, or need other flags, start their own.
//
// The public managed-serviceaccount agent is known to fail in eight ways. Ours
// does not, as these tests show; those of TestAccounts are in pkg/agent:
//
//  1. one bad validity stops an agent    TestManagedServiceAccountRefused, TestReplicas (stored long ago), TestAccounts/acc-invalid-spec
//
//  2. what others made is taken over     TestHostileAgent, TestSecretThatIsNoLongerTheAccounts, TestAccounts/acc-not-adopted, acc-agents-own, acc-foreign-secret
//
//  3. bad tokens and bundles stay        TestSecretIsMended, TestAccounts/acc-bad-tokens, acc-secret-repaired, acc-spec-changed
//
//  4. accounts on no cluster say nothing TestManagedServiceAccountRefused, TestManagedServiceAccountIsPendingFirst, TestAccountOfClusterSets
//
//  5. dead tokens are reported           TestExpiredTokenIsSaidToBe, TestAccounts/acc-expired, acc-mint-failure
//
//  6. hubs that share a namespace fight  TestAccounts/acc-two-agents, acc-moved
//
//  7. copies collide or stay behind      TestAccountOfClusterSets (replicas are kept, what is in the way is named), TestOnlyTheServerMarksReplicas
//
//  8. agents read every Secret           TestHostileAgent, TestHostileAgentCannotMintHubTokens, TestAccessFollowsTheAccounts
//
// The public controller of ClusterPermissions is known to fail in nine ways. Ours
// does not:
//
//  1. bad ones are found later, or never  TestRefusedAtAdmission, TestRefusedUpdate, TestWeakness1BadInputsAreRefused, TestServer/work_survives_the_lack_of_a_write
//
//  2. who creates one is administrator    TestWeakness2CreatorsDoNotBecomeAdministrators, TestEscalationIsRefused
//
//  3. one that needs more stops others    TestWeakness3WhatOneNeedsDoesNotStopOthers
//
//  4. old namespaces of accounts return   TestWeakness4AccountThatMovesFast, TestWeakness4AddonThatMovesFast, TestBindingFollowsTheReport, TestHubThatKeepsAccounts
//
//  5. looking at roles spoils the work    TestWeakness5OwnRolesAreNotLookedAtTwice, TestWeakness5MissingRolesAreReportedAsTheyComeAndGo, TestSpellingOfTodaysController
//
//  6. conditions flap, or stay            TestWeakness6ConditionsDoNotFlap, TestWeakness6ValidationClears, TestWeakness5OwnRolesAreNotLookedAtTwice (those of validate go with it)
//
//  7. one object unreported hides all     TestWeakness7OneUnreportedObjectDoesNotHideTheOthers
//
//  8. reports during an outage are lost   TestWeakness8ReportsWhileTheServerIsDown
//
//  9. works are written again and again   TestWeakness9NothingIsWrittenForNothing, TestNothingIsWrittenWhenNothingChanged, TestWeakness9NoNamespaceMatches (no empty work)
//
// The public search service is known to fail in these ways. Ours does not; that both
// engines answer alike is in pkg/search/enginetest, and that decisions are exact in TestVisibilityIsExact:
//
//  1. callers without UID share a cache   TestSearchDoesNotMixCallersUp
//
//  2. what was revoked is found for long  TestSearchFollowsGrants, TestSearchFollowsRolesOfTheHub (in searches and in watches that run)
//
//  3. Secrets of clusters are found       TestSearchNeverFindsSecretsOfManagedClusters
//
//  4. resourceNames are not looked at     TestSearchOnTheHubIsWhatOneMayList/single_names
//
//  5. watch where one may list            TestSearchOnTheHubIsWhatOneMayList/not_listing
//
//  6. keywords must hit one field         TestSearchQueries/keywords_in_several_properties
//
//  7. counts are of fields                TestSearchQueries (every count is that of the items), TestSearchWithGraphQL/search
//
//  8. != drops what lacks the property    TestSearchQueries/!=_keeps_what_lacks_the_property, several_negatives_exclude_all_of_them
//
//  9. a quote in a label is an error      TestSearchQueries/a_quote_in_a_label, quotes_and_wildcards_in_values_are_data
//
// 10. numbers are ordered as texts        TestSearchPages/by_[restarts_desc]
//
// 11. the limit cuts off what is related  TestSearchRelated, TestSearchWithGraphQL/related
//
// 12. labels are completed in part        TestSearchCompletesEveryLabel
//
// 13. unknown properties are silent       TestSearchWarnings
//
// 14. a cluster reports what it likes     TestSearchReportsAreOfOnesOwn
//
// 15. a new caller holds up all others    TestSearchByManyCallersAtOnce (each answer is its caller's own; BenchmarkSearchHTTP prints the times)
//
// 16. one report at a time, in silence    TestSearchReportsOneAtATime (refused with Retry-After), TestSearchReportsThatEndEarly
//
// 17. what decides beside RBAC is missed  TestSearchOnAHubWithAnotherAuthorizer
//
// TestSearchOnPostgres asks the engine postgres the same. TestSearchByClusterPermission is about
// the feature gate, TestSearchIgnoresClusterPermissions about a server without it.
//
// TestRegistrationStories goes through the stories of the proposal "AWS IAM based registration"
// with a fake AWS; the documents of testdata/seed-003 are the proposal's own.
//
// The public registration of clusters by AWS IAM is known to fail in seven ways. Ours does not;
// AWS is package test/fakeaws, which says what it was asked for:
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
// What registered clusters, those who want to become some, and administrators with a part of
// the rights cannot do is in TestHostileCluster, TestBootstrapCannot, TestFinalizerIsNoWayOut and TestWhoMayDecide.
//
// TestPermissionTable puts the golden files of the renderer to the hub.
//
// Some tests are told more by the environment:
//
//	CRASH_CREATES  how many ClusterPermissions the crash test creates
//	CRASH_SEED     the seed of its kills, to repeat a run that failed
//	REGISTRATION_SEQUENCES  how many sequences of decisions the test of registration with faults makes
//	REGISTRATION_SEED       the seed of its choices, to repeat a run that failed
//	KEEP           a directory to keep data and logs in
package integration
