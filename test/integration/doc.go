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
//     CRASH_CREATES  how many ClusterPermissions the crash test creates
//     CRASH_SEED     the seed of its kills, to repeat a run that failed
//     KEEP           a directory to keep data and logs in
package integration
