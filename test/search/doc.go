// Package search tests searches, FleetResources and their watches, the visibility of resources, and reports of
// clusters, in a fleet of test/framework. It also tests the limits per caller, which apply to all requests, and two
// replicas of the server (TestReplicas).
//
// The public search service has the following known defects. These tests show that this server has none of them.
// Package test/enginetest checks that both engines return the same answers. TestVisibilityIsExact checks that
// decisions are exact.
//
//  1. Callers without UID share a cache.     TestSearchSeparatesCallers
//  2. Revocations take effect late.          TestSearchFollowsGrants, TestSearchFollowsRolesOfTheHub (searches and open watches)
//  3. Secrets of clusters are found.         TestSearchNeverFindsSecretsOfManagedClusters
//  4. resourceNames are ignored.             TestSearchOnTheHubFollowsList/single_names
//  5. Permission to list is not required.    TestSearchOnTheHubFollowsList/verbs_other_than_list
//  6. Keywords must match in one field.      TestSearchQueries/keywords_in_several_properties
//  7. Counts count fields, not items.        TestSearchQueries (every count is the number of items), TestSearchWithGraphQL/search
//  8. != excludes missing properties.        TestSearchQueries/!=_matches_resources_without_the_property, several_negatives_exclude_all_of_them
//  9. A quote in a label is an error.        TestSearchQueries/a_quote_in_a_label, quotes_and_wildcards_in_values_are_data
//  10. Numbers are ordered as texts.          TestSearchPages/by_[restarts_desc]
//  11. The limit cuts off related resources.  TestSearchRelated, TestSearchWithGraphQL/related
//  12. Completions of labels are incomplete.  TestSearchCompletesEveryLabel
//  13. Unknown properties cause no warning.   TestSearchWarnings
//  14. Clusters can report for others.        TestSearchReportsOfOtherClusters
//  15. A new caller delays all others.        TestSearchByManyCallersAtOnce (BenchmarkSearchHTTP measures the times)
//  16. Concurrent reports are dropped.        TestSearchReportsOneAtATime (rejected with Retry-After), TestSearchReportsThatEndEarly
//  17. Authorizers except RBAC are ignored.    TestSearchOnAHubWithAnotherAuthorizer
//
// TestSearchOnPostgres sends the same queries to the engine postgres. TestSearchByClusterPermission tests the feature
// gate SearchByClusterPermission, with ClusterPermissions and with bindings of the cluster, and
// TestSearchIgnoresClusterPermissions a server without it.
package search
