// Package enginetest is the one suite that every search.Engine passes: Run for what the
// contract says rule by rule, Differential for random fleets, reports and questions.
package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Options tell what of an engine is tested.
type Options struct {
	// Reopen closes an engine and opens it again on the same data. Nil for an engine that
	// keeps nothing.
	Reopen func(t *testing.T, engine search.Engine) search.Engine
}

// Run tests an engine. Open returns a writable one without data each time, and closes it
// when the test that it is given ends.
func Run(t *testing.T, open func(t *testing.T) search.Engine, options Options) {
	groups := []struct {
		name string
		test func(t *testing.T, open func(t *testing.T) search.Engine)
	}{
		{"Query", testQueries},
		{"Values", testValues},
		{"Order", testOrder},
		{"Paging", testPaging},
		{"Related", testRelated},
		{"Completion", testCompletion},
		{"Schema", testSchema},
		{"Scope", testScopes},
		{"Apply", testApply},
		{"Changes", testChanges},
		{"Concurrency", testConcurrency},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) { group.test(t, open) })
	}
	if options.Reopen != nil {
		t.Run("Reopen", func(t *testing.T) { testReopen(t, open, options.Reopen) })
	}
	t.Run("Differential", func(t *testing.T) {
		Differential(t, Seed(t), open(t), newOracle())
	})
}
