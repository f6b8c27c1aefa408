package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copiedFrom is the number of rows above which COPY is faster than inserts in one round trip.
const copiedFrom = 200

// pipeline collects statements, which are sent in one round trip.
type pipeline struct {
	conn interface {
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
func (p *pipeline) insert(ctx context.Context, what, to string, columns []string, n int, row func(i int) []any) error {
	if n < copiedFrom {
		values := make([]string, len(columns))
		for i := range values {
			values[i] = fmt.Sprintf("$%d", i+1)
		}
		statement := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table(to),
			strings.Join(columns, ", "), strings.Join(values, ", "))
		for i := range n {
			p.add(what, statement, row(i)...)
		}
		return nil
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	_, err := p.conn.CopyFrom(ctx, pgx.Identifier{schema, to}, columns, pgx.CopyFromSlice(n, func(i int) ([]any, error) { return row(i), nil }))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// countTable is a table that counts the resources of each cluster, in the column n.
type countTable struct {
	name string
	// key contains the columns of the primary key besides the cluster.
	key []string
	// types are all columns besides the cluster, with their types.
	types string
}

// countRows is the number of rows that a statement of addCounts changes. It bounds the memory of their JSON, here and in
// the database.
const countRows = 1000

// addCounts adds numbers to those of a table, and deletes rows without resources. The JSON of a row has a field for each
// column. number returns its number, which may be 0. The statements are sent if there are many rows.
func addCounts[R any](ctx context.Context, p *pipeline, to *countTable, cluster int32, rows []R, number func(*R) int64) error {
	from := "json_to_recordset($2) AS r(" + to.types + ")"
	insert := "INSERT INTO " + table(to.name) + " AS t SELECT $1, r.* FROM " + from +
		" ON CONFLICT (cluster, " + strings.Join(to.key, ", ") + ") DO UPDATE SET n = t.n + excluded.n"
	// The condition contains the whole key. Otherwise PostgreSQL reads many rows for each.
	remove := "DELETE FROM " + table(to.name) + " t USING " + from + " WHERE t.cluster = $1 AND t.n <= 0"
	for _, column := range to.key {
		remove += " AND t." + column + " = r." + column
	}
	rows = slices.DeleteFunc(rows, func(row R) bool { return number(&row) == 0 })
	for part := range slices.Chunk(rows, countRows) {
		encoded, err := json.Marshal(part)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", to.name, err)
		}
		p.add("storing "+to.name, insert, cluster, encoded)
		if fewer := slices.DeleteFunc(part, func(row R) bool { return number(&row) >= 0 }); len(fewer) > 0 {
			if encoded, err = json.Marshal(fewer); err != nil {
				return fmt.Errorf("encoding %s: %w", to.name, err)
			}
			p.add("removing "+to.name, remove, cluster, encoded)
		}
		if len(part) == countRows {
			if err := p.send(ctx); err != nil {
				return err
			}
		}
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
