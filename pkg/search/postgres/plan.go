package postgres

import "context"

// PostgreSQL has no statistics of a partitioned table as a whole without an explicit ANALYZE.
// Therefore some statements exclude plans that are good only if the estimates of PostgreSQL are
// correct.
var (
	// inOrder makes PostgreSQL read rows in the order of an index, up to the limit.
	inOrder = []string{"enable_sort", "enable_hashagg"}
	// oneByOne makes PostgreSQL look up rows in an index instead of reading a whole table.
	oneByOne = []string{"enable_hashjoin", "enable_mergejoin"}
)

// rows executes a statement, in one round trip. Each of its rows is scanned, and then passed to each.
func (v *view) rows(ctx context.Context, statement string, args, scans []any, each func() error) error {
	return v.rowsWithout(ctx, nil, statement, args, scans, each)
}

// rowsWithout is rows with some methods of PostgreSQL's planner disabled.
func (v *view) rowsWithout(ctx context.Context, methods []string, statement string, args, scans []any, each func() error) error {
	p := pipeline{conn: v.tx}
	for _, method := range methods {
		p.add("planning", "SET LOCAL "+method+" = off")
	}
	p.read("reading", scans, each, statement, args...)
	for _, method := range methods {
		p.add("planning", "SET LOCAL "+method+" = on")
	}
	return p.send(ctx)
}
