package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// PostgreSQL has no statistics of a partitioned table as a whole unless somebody asks for them. Where
// it would guess, statements go without the methods that only pay off if the guess is right.
var (
	// inOrder has rows read in the order of an index, and only as many as are wanted.
	inOrder = []string{"enable_sort", "enable_hashagg"}
	// oneByOne has rows looked up in an index, and not all of a table read.
	oneByOne = []string{"enable_hashjoin", "enable_mergejoin"}
)

// queryWithout asks without some methods of PostgreSQL's planner, all in one trip.
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
