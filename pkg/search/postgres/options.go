package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// schema is the schema of the tables. Open creates it.
	schema = "hub_search"
	// readConns bounds the connections of this process for reads of each database.
	readConns = 12
	// writeConns is the number of connections for groups of reports, for the removal of old changes, and for checks of
	// replicas.
	writeConns = smallGroups + largeGroups + 2
	// partitions is the number of partitions of large tables. Each adds planning time to every statement, and simplifies
	// the maintenance of large tables. It takes effect when the tables are created.
	partitions = 4
	// applyTimeout bounds a report, including the time that it waits for other reports.
	applyTimeout = 5 * time.Minute
	// pendingLimit is the size in kB from which PostgreSQL merges the new entries of a partition into its inverted index.
	// Every search reads all entries that are not merged, and one large merge costs less than many small ones.
	pendingLimit = "256"
)

// Options configures the engine.
type Options struct {
	// DSN is the connection string, as a URL or as keywords and values. It is required.
	DSN string
	// ReplicaDSNs are the connection strings of streaming replicas, which answer searches that may be stale.
	ReplicaDSNs []string
	// MaxStaleness is the maximum age of the state in which a replica answers; five seconds by default.
	MaxStaleness time.Duration
	// Reach knows whether the database answers. Without it, the engine has one of its own.
	Reach *Reach
	// StatementTimeout bounds each statement of a read; one minute by default.
	StatementTimeout time.Duration
	// MaxCost bounds the estimated processor time for the related items of one request; search.DefaultCost by default.
	MaxCost time.Duration
	// KeepChanges is the minimum number of versions that Changes can go back; 100,000 by default.
	KeepChanges uint64
	// PollInterval is the interval at which Changes polls without notifications; 3 s by default.
	PollInterval time.Duration
	// TrimInterval is the interval at which old changes are removed; one minute by default.
	TrimInterval time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.DSN == "" {
		return o, errors.New("a connection string is required")
	}
	if o.Reach == nil {
		o.Reach = NewReach()
	}
	o.MaxStaleness = cmp.Or(o.MaxStaleness, 5*time.Second)
	o.StatementTimeout = cmp.Or(o.StatementTimeout, time.Minute)
	o.KeepChanges = cmp.Or(o.KeepChanges, 100_000)
	o.PollInterval = cmp.Or(o.PollInterval, 3*time.Second)
	o.TrimInterval = cmp.Or(o.TrimInterval, time.Minute)
	return o, nil
}

// readConfig returns the configuration of connections for reads.
func (o Options) readConfig() (*pgxpool.Config, error) {
	config, err := o.poolConfig(readConns, o.StatementTimeout, map[string]string{
		// The best plan depends on the arguments, because a scope may contain one class or the
		// whole fleet.
		"plan_cache_mode": "force_custom_plan",
	})
	if err != nil || o.Reach == nil {
		// A replica that does not respond would not end a statement either.
		return config, err
	}
	// PostgreSQL does not notice that a connection is closed before it has executed the statement. Consoles end a search
	// with each keystroke.
	config.ConnConfig.BuildContextWatcherHandler = func(connection *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: connection, DeadlineDelay: cancelTimeout}
	}
	return config, nil
}

// cancelTimeout is the time after which the connection of a cancelled statement is closed if PostgreSQL has not ended the
// statement.
const cancelTimeout = time.Second

// writeConfig returns the configuration of connections for reports and maintenance.
func (o Options) writeConfig() (*pgxpool.Config, error) {
	return o.poolConfig(writeConns, applyTimeout, map[string]string{"gin_pending_list_limit": pendingLimit})
}

// poolConfig returns the configuration of connections.
func (o Options) poolConfig(connections int32, statementTimeout time.Duration, settings map[string]string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	config.MaxConns = connections
	config.MaxConnIdleTime = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	if o.Reach != nil {
		config.ConnConfig.DialFunc = o.Reach.dial
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
		"application_name":                    "hub-apiserver",
		"statement_timeout":                   milliseconds(statementTimeout),
		"idle_in_transaction_session_timeout": milliseconds(applyTimeout),
		"jit":                                 "off",
		// The start of parallel workers takes longer than most statements.
		"max_parallel_workers_per_gather": "0",
		"standard_conforming_strings":     "on",
		"timezone":                        "UTC",
	})
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	return config, nil
}

// connect connects to a database.
func (o Options) connect(ctx context.Context, configure func() (*pgxpool.Config, error)) (*pgxpool.Pool, error) {
	config, err := configure()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
