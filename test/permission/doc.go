// Package permission tests ClusterPermissions, from admission and the approval of escalations to the
// objects on the managed cluster, in a fleet of test/framework.
//
// The public controller of ClusterPermissions has nine known defects. These tests show that ours has
// none of them. TestServer, TestWeakness3WhatOneNeedsDoesNotStopOthers and
// TestWeakness8ReportsWhileTheServerIsDown are in test/server:
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
// TestPermissionTable applies the golden files of the renderer to the hub.
package permission
