package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// PostgreSQL has no statistics of a partitioned table as a whole without an explicit ANALYZE.
// Therefore some statements exclude plans that are good only if the estimates of PostgreSQL are
// correct.
var (
	// inOrder makes PostgreSQL read rows in the order of an index, up to the limit.
	inOrder = []string{"enable_sort", "enable_hashagg"}
	// oneByOne makes PostgreSQL look up rows in an index instead of reading a whole table.
	oneByOne = []string{"enable_hashjoin", "enable_mergejoin"}
)

// queryWithout executes a statement with some methods of PostgreSQL's planner disabled, in one
// round trip.
func (v *view) queryWithout(ctx context.Context, methods []string, statement string, args []any, read func(pgx.Rows) error) (err error) {
	batch := &pgx.Batch{}
	for _, method := range methods {
		batch.Queue("SET LOCAL " + method + " = off")
	}
	batch.Queue(statement, args...)
	for _, method := range methods {
		batch.Queue("SET LOCAL " + method + " = on")
	}
	results := v.tx.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	for range methods {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	return read(rows)
}
