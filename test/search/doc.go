// Package search tests searches, the objects and watches of them, what callers find and what clusters
// may report, in a fleet of test/framework. It also tests what is about all requests: limits of
// callers, and two replicas of the server (TestReplicas).
//
// The public search service has these known defects. These tests show that ours has none of them.
// Package pkg/search/enginetest tests that both engines return the same, and TestVisibilityIsExact
// that decisions are exact:
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
// TestSearchOnPostgres sends the same queries to the engine postgres. TestSearchByClusterPermission
// tests the feature gate, TestSearchIgnoresClusterPermissions a server without it.
package search
