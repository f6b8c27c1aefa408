package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// hubResource is the property that the public indexer gives to resources of the hub.
const hubResource = "_hubClusterResource"

// Public is a search.Engine that reads a database which the public indexer fills. It writes
// nothing, not even an index.
//
// Questions mean the same as with Engine. The database selects by cluster, and by kind, namespace
// and name, which the indexer writes as texts; the rest is compared in this process, row by
// row. Versions are transactions of the database. Nobody says what has changed in it, so watches see
// no changes.
type Public struct {
	options Options
	pool    *pgxpool.Pool
}

var _ search.Engine = (*Public)(nil)

// errPublic names the engine to those who report to it.
var errPublic = fmt.Errorf("the search engine public-postgres reads what the public indexer writes: %w", search.ErrReadOnly)

// OpenPublic connects to a database of the public indexer, with the tables resources and
// edges in the schema PublicSchema.
func OpenPublic(ctx context.Context, options Options) (*Public, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("search on a public database: %w", err)
	}
	pool, err := connect(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("search on a public database: %w", err)
	}
	p := &Public{options: options, pool: pool}
	for _, name := range []string{"resources", "edges"} {
		var exists bool
		if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", p.table(name)).Scan(&exists); err != nil || !exists {
			pool.Close()
			return nil, errors.Join(fmt.Errorf("search on a public database: table %s is not there", p.table(name)), err)
		}
	}
	return p, nil
}

func (p *Public) table(name string) string {
	return pgx.Identifier{p.options.PublicSchema, name}.Sanitize()
}

// Ping tells whether the database answers.
func (p *Public) Ping(ctx context.Context) error {
	if err := p.pool.Ping(ctx); err != nil {
		return fmt.Errorf("search on a public database: %w", err)
	}
	return nil
}

// Close implements search.Engine. It waits for calls under way.
func (p *Public) Close() error {
	p.pool.Close()
	return nil
}

// Apply implements search.Engine; it returns an error that is search.ErrReadOnly.
func (p *Public) Apply(context.Context, *search.Report) (*search.Applied, error) {
	return nil, errPublic
}

// RemoveCluster implements search.Engine; it returns an error that is search.ErrReadOnly.
func (p *Public) RemoveCluster(context.Context, string) error { return errPublic }

// Changes implements search.Engine. There are none to tell: it waits until ctx ends.
func (p *Public) Changes(ctx context.Context, after uint64, _ int) ([]search.Change, uint64, error) {
	<-ctx.Done()
	return nil, after, nil
}

// Version implements search.Engine: it is the transaction that is next.
func (p *Public) Version(ctx context.Context) (_ uint64, err error) {
	defer observe("version", time.Now(), &err)
	version, err := publicVersion(ctx, p.pool)
	if err != nil {
		return 0, fmt.Errorf("reading the version: %w", err)
	}
	return version, nil
}

func publicVersion(ctx context.Context, db interface {
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}) (uint64, error) {
	var version int64
	err := db.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&version)
	return uint64(version), err
}

// Clusters implements search.Engine. When they have reported is not known.
func (p *Public) Clusters(ctx context.Context) (_ []search.ClusterState, err error) {
	defer observe("clusters", time.Now(), &err)
	rows, err := p.pool.Query(ctx, `SELECT r.cluster, r.hub, r.n, r.secrets, coalesce(e.n, 0)
		FROM (SELECT cluster, bool_or(coalesce(data->>$1 = 'true', false)) AS hub, count(*) AS n,
			count(*) FILTER (WHERE NOT coalesce(data->>$1 = 'true', false) AND (lower(data->>'kind') = 'secret' OR lower(data->>'kind_plural') = 'secrets')) AS secrets
			FROM `+p.table("resources")+` WHERE cluster IS NOT NULL GROUP BY cluster) r
		LEFT JOIN (SELECT cluster, count(*) AS n FROM `+p.table("edges")+` GROUP BY cluster) e ON e.cluster = r.cluster
		ORDER BY r.cluster COLLATE "C"`, hubResource)
	if err != nil {
		return nil, fmt.Errorf("reading the clusters: %w", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (state search.ClusterState, err error) {
		err = row.Scan(&state.Name, &state.Hub, &state.Resources, &state.Secrets, &state.Edges)
		return state, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the clusters: %w", err)
	}
	return states, nil
}

// HubClasses implements search.Engine.
func (p *Public) HubClasses(ctx context.Context) (_ []visibility.Class, _ uint64, err error) {
	defer observe("classes", time.Now(), &err)
	rows, err := p.pool.Query(ctx, `SELECT DISTINCT cluster, coalesce(data->>'apigroup', ''), coalesce(data->>'kind_plural', ''), coalesce(data->>'namespace', '')
		FROM `+p.table("resources")+` WHERE cluster IS NOT NULL AND data ? $1 AND data->>$1 = 'true'`, hubResource)
	if err != nil {
		return nil, 0, fmt.Errorf("classes of the hub: %w", err)
	}
	classes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (visibility.Class, error) {
		class := visibility.Class{Hub: true}
		err := row.Scan(&class.Cluster, &class.Group, &class.Resource, &class.Namespace)
		return class, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("classes of the hub: %w", err)
	}
	slices.SortFunc(classes, compareClasses)
	sum := fnv.New64a()
	for _, class := range classes {
		// A hash takes all that is written.
		_, _ = fmt.Fprintf(sum, "%q %q %q %q\n", class.Cluster, class.Group, class.Resource, class.Namespace)
	}
	return classes, sum.Sum64(), nil
}

func compareClasses(a, b visibility.Class) int {
	return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Group, b.Group),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace))
}

// publicRow is a resource as read, in the scope.
type publicRow struct {
	search.Item
	properties query.Properties
}

// publicRead is a read in one snapshot.
type publicRead struct {
	*Public
	tx    pgx.Tx
	scope visibility.Scope
	// decisions are those of the scope.
	decisions map[visibility.Class]visibility.Decision
}

// read calls for a snapshot.
func (p *Public) read(ctx context.Context, scope visibility.Scope, use func(*publicRead) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, p.pool, options, func(tx pgx.Tx) error {
		return use(&publicRead{Public: p, tx: tx, scope: scope, decisions: map[visibility.Class]visibility.Decision{}})
	})
}

// each calls for each resource in the scope that fulfils a condition.
func (r *publicRead) each(ctx context.Context, where string, args []any, call func(*publicRow) error) error {
	rows, err := r.tx.Query(ctx, "SELECT uid, cluster, xmin::text::bigint, data::text FROM "+r.table("resources")+" WHERE cluster IS NOT NULL AND jsonb_typeof(data) = 'object' AND "+where, args...)
	if err != nil {
		return err
	}
	var one publicRow
	var version int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&one.UID, &one.Cluster, &version, &data}, func() error {
		if one.properties, err = query.DecodeProperties(data); err != nil {
			return fmt.Errorf("resource %s: %w", one.UID, err)
		}
		one.Version, one.Hub = uint64(version), isHub(one.properties)
		class := search.ClassOf(one.Cluster, one.Hub, one.properties)
		decision, known := r.decisions[class]
		if !known {
			decision = r.scope.Decide(class)
			r.decisions[class] = decision
		}
		if !decision.All {
			if _, found := slices.BinarySearch(decision.Names, search.Text(one.properties, query.Name)); !found {
				return nil
			}
		}
		return call(&one)
	})
	return err
}

func isHub(properties query.Properties) bool { return search.Text(properties, hubResource) == "true" }

// matches calls for each resource in the scope that matches.
func (r *publicRead) matches(ctx context.Context, q *query.Query, now time.Time, call func(*publicRow) error) error {
	if r.scope == (visibility.Scope{}) {
		return nil
	}
	where, args := publicCondition(q)
	return r.each(ctx, where, args, func(one *publicRow) error {
		if !q.Matches(one.Cluster, one.properties, now) {
			return nil
		}
		return call(one)
	})
}

// publicCondition is fulfilled by all that matches, and more.
func publicCondition(q *query.Query) (string, []any) {
	parts := []string{"true"}
	var args []any
	for i := range q.Filters {
		f := &q.Filters[i]
		values, exact := equalTo(f)
		if !exact {
			continue
		}
		args = append(args, values)
		switch f.Property {
		case query.Cluster:
			parts = append(parts, fmt.Sprintf("cluster = ANY($%d::text[])", len(args)))
		case query.Kind, query.Namespace, query.Name:
			// This is how the indexes of the public schema are made. The property is one of three constants.
			parts = append(parts, fmt.Sprintf("data->'%s' ?| $%d::text[]", f.Property, len(args)))
		default:
			args = args[:len(args)-1]
		}
	}
	return strings.Join(parts, " AND "), args
}

// equalTo are the texts that a filter compares with, if it does nothing else.
func equalTo(f *query.Filter) ([]string, bool) {
	var values []string
	for i := range f.Comparisons {
		c := &f.Comparisons[i]
		folded := f.Property == query.Kind && c.Text != "" && 'a' <= c.Text[0] && c.Text[0] <= 'z'
		if c.Op != query.Equal || len(c.Parts) != 1 || c.Number != nil || c.Age != 0 || folded {
			return nil, false
		}
		if strings.IndexByte(c.Parts[0], 0) >= 0 {
			// PostgreSQL has no such text.
			continue
		}
		values = append(values, strings.ToValidUTF8(c.Parts[0], "\uFFFD"))
	}
	return values, true
}
