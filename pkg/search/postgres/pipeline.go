package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copiedFrom is the number of rows from which on COPY is faster than inserts in one round trip.
const copiedFrom = 200

// pipeline collects statements, which are sent in one round trip.
type pipeline struct {
	schema string
	conn   interface {
		SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
		CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
	}
	batch pgx.Batch
}

// add adds a statement without rows. what describes it in errors.
func (p *pipeline) add(what, statement string, args ...any) {
	p.batch.Queue(statement, args...).Fn = func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
}

// read adds a statement. Each of its rows is scanned, and then passed to each.
func (p *pipeline) read(what string, scans []any, each func() error, statement string, args ...any) {
	p.batch.Queue(statement, args...).Fn = func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err == nil {
			_, err = pgx.ForEachRow(rows, scans, each)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
}

// insert adds rows to a table. The statements added before are sent if there are many rows.
func (p *pipeline) insert(ctx context.Context, what, table string, columns []string, n int, row func(i int) []any) error {
	if n < copiedFrom {
		values := make([]string, len(columns))
		for i := range values {
			values[i] = fmt.Sprintf("$%d", i+1)
		}
		statement := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", pgx.Identifier{p.schema, table}.Sanitize(),
			strings.Join(columns, ", "), strings.Join(values, ", "))
		for i := range n {
			p.add(what, statement, row(i)...)
		}
		return nil
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	_, err := p.conn.CopyFrom(ctx, pgx.Identifier{p.schema, table}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) { return row(i), nil }))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// send sends the collected statements, and returns the first error.
func (p *pipeline) send(ctx context.Context) error {
	if p.batch.Len() == 0 {
		return nil
	}
	batch := p.batch
	p.batch = pgx.Batch{}
	return p.conn.SendBatch(ctx, &batch).Close()
}
