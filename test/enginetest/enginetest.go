// Package enginetest is the test suite for implementations of search.Engine. Run tests each rule of
// the contract, and compares the engine with an oracle, with random reports and random requests.
package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Options of Run.
type Options struct {
	// Reopen closes an engine and opens it again with the same data. It is nil for an engine without
	// persistent data.
	Reopen func(t *testing.T, engine search.Engine) search.Engine
}

// Run tests an engine. Each call of open returns an engine without data. The engine is closed when
// the test that was passed to open ends.
func Run(t *testing.T, open func(t *testing.T) search.Engine, options Options) {
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
	if options.Reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testReopen(t, open, options.Reopen) })
	}
}
