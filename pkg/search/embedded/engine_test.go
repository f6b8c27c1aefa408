package embedded_test

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
)

func TestEngine(t *testing.T) { testEngine(t, func(*testing.T, *embedded.Engine) {}) }

// TestEngineFromCheckpoints opens the engine from checkpoints.
func TestEngineFromCheckpoints(t *testing.T) { testEngine(t, checkpoint) }

// testEngine tests the engine. It calls closing before the engine is closed and opened again.
func testEngine(t *testing.T, closing func(*testing.T, *embedded.Engine)) {
	dirs := map[search.Engine]string{}
	openIn := func(t *testing.T, dir string) search.Engine {
		t.Helper()
		engine, err := embedded.Open(dir, embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
		})
		dirs[engine] = dir
		return engine
	}
	enginetest.Run(t, func(t *testing.T) search.Engine { return openIn(t, t.TempDir()) }, func(t *testing.T, engine search.Engine) search.Engine {
		closing(t, engine.(*embedded.Engine))
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
		return openIn(t, dirs[engine])
	})
}
