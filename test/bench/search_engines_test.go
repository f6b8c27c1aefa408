package bench_test

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// BenchmarkSearchPostgres measures the engine on PostgreSQL.
func BenchmarkSearchPostgres(b *testing.B) {
	for range b.N {
		engine, err := postgres.Open(b.Context(), postgres.Options{DSN: postgrestest.Start(b)})
		if err != nil {
			b.Fatal(err)
		}
		benchmarkEngine(b, engine)
		if err := engine.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
