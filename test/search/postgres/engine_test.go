package postgres_test

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/enginetest"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

func open(t testing.TB, options postgres.Options) *postgres.Engine {
	t.Helper()
	engine, err := postgres.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine
}

func TestEngine(t *testing.T) {
	dsns := map[search.Engine]string{}
	fresh := func(t *testing.T) search.Engine {
		options := postgres.Options{DSN: postgrestest.Start(t)}
		engine := open(t, options)
		dsns[engine] = options.DSN
		return engine
	}
	reopen := func(t *testing.T, engine search.Engine) search.Engine {
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
		return open(t, postgres.Options{DSN: dsns[engine]})
	}
	enginetest.Run(t, fresh, reopen)
}
