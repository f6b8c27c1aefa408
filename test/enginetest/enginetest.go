// Package enginetest is the test suite for implementations of search.Engine. Run tests each rule of
// the contract, and compares the engine with an oracle, with random reports and random requests.
package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Run tests an engine. Each call of open returns an engine without data. The engine is closed when
// the test that was passed to open ends. reopen closes an engine and opens it again with the same data;
// it is nil for an engine without persistent data.
func Run(t *testing.T, open func(t *testing.T) search.Engine, reopen func(t *testing.T, engine search.Engine) search.Engine) {
	groups := []struct {
		name string
		test func(t *testing.T, open func(t *testing.T) search.Engine)
	}{
		{"Query", testQueries},
		{"Values", testValues},
		{"Paging", testPaging},
		{"Completion", testCompletion},
		{"Scope", testScopes},
		{"Apply", testApply},
		{"Changes", testChanges},
		{"Internal", testInternal},
		{"Concurrency", testConcurrency},
		{"Differential", testDifferential},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) { group.test(t, open) })
	}
	if reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testReopen(t, open, reopen) })
	}
}
