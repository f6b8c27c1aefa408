// Package serviceaccount tests ManagedServiceAccounts, the tokens that agents report for them, and
// the ManagedClusterSets that they are replicated to, in a fleet of test/framework.
//
// The public managed-serviceaccount agent has eight known defects. These tests show that ours has
// none of them. The tests of TestAccounts are in pkg/agent; TestReplicas is in test/search:
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
package serviceaccount
