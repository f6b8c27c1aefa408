// Package serviceaccount tests ManagedServiceAccounts, the tokens that agents report for them, and
// the ManagedClusterSets that they are replicated to, in a fleet of test/framework.
//
// The upstream managed-serviceaccount agent has eight known defects. These tests show that this agent
// has none of them. TestAccounts is in test/agent, and TestReplicas is in test/search:
//
//  1. one bad validity stops an agent    TestManagedServiceAccountRefused, TestReplicas (stored invalid ManagedServiceAccounts), TestAccounts/acc-invalid-spec
//
//  2. foreign objects are taken over     TestHostileAgent, TestSecretDetachedFromAccount, TestAccounts/acc-not-adopted, acc-agents-own, acc-foreign-secret
//
//  3. bad tokens and bundles stay        TestSecretIsRepaired, TestAccounts/acc-bad-tokens, acc-secret-repaired, acc-spec-changed
//
//  4. unused accounts have no conditions TestManagedServiceAccountRefused, TestManagedServiceAccountIsPendingFirst, TestAccountOfClusterSets
//
//  5. expired tokens stay reported       TestExpiredTokenIsReported, TestAccounts/acc-expired, acc-mint-failure
//
//  6. hubs in one namespace conflict     TestAccounts/acc-two-agents, acc-moved
//
//  7. replicas collide or stay behind    TestAccountOfClusterSets (replicas are kept, obstacles are reported), TestOnlyTheServerMarksReplicas
//
//  8. agents read every Secret           TestHostileAgent, TestHostileAgentCannotMintHubTokens, TestAccessFollowsTheAccounts
package serviceaccount
