package embedded_test

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
)

func TestEngine(t *testing.T) {
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
	enginetest.Run(t, func(t *testing.T) search.Engine { return openIn(t, t.TempDir()) }, enginetest.Options{
		Reopen: func(t *testing.T, engine search.Engine) search.Engine {
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
			return openIn(t, dirs[engine])
		},
	})
}
