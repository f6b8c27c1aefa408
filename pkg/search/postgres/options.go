package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/utils/ptr"
)

// Options say which database to use and how.
type Options struct {
	// DSN is the connection string: a URL, or keywords and values. Required.
	DSN string
	// Schema that the tables are in; hub_search by default. Open makes it.
	Schema string
	// PublicSchema that OpenPublic reads; search by default.
	PublicSchema string
	// MaxConns bounds the connections of this process, beside the one that waits
	// for notifications; 16 by default.
	MaxConns int32
	// Partitions of the tables by cluster, from 1 to 256; 4 by default. Each costs every statement time to
	// plan, and is worth it for the maintenance of large tables. It counts when the
	// tables are made, and is ignored later.
	Partitions int
	// StatementTimeout bounds each statement of a read; a minute by default.
	StatementTimeout time.Duration
	// ApplyTimeout bounds a report as a whole, with the time that it waits for others;
	// five minutes by default.
	ApplyTimeout time.Duration
	// KeepChanges is how many versions Changes can go back at least; 100,000 by default.
	KeepChanges uint64
	// PollInterval is how often Changes looks where no notification comes; 3 s by default.
	PollInterval time.Duration
	// TrimInterval is how often old changes are removed; a minute by default.
	TrimInterval time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.DSN == "" {
		return o, errors.New("a connection string is required")
	}
	o.Schema = defaulted(o.Schema, "hub_search")
	o.PublicSchema = defaulted(o.PublicSchema, "search")
	o.MaxConns = defaulted(o.MaxConns, 16)
	o.Partitions = defaulted(o.Partitions, 4)
	o.StatementTimeout = defaulted(o.StatementTimeout, time.Minute)
	o.ApplyTimeout = defaulted(o.ApplyTimeout, 5*time.Minute)
	o.KeepChanges = defaulted(o.KeepChanges, 100_000)
	o.PollInterval = defaulted(o.PollInterval, 3*time.Second)
	o.TrimInterval = defaulted(o.TrimInterval, time.Minute)
	switch {
	case o.Partitions < 1 || o.Partitions > 256:
		return o, fmt.Errorf("%d partitions: must be from 1 to 256", o.Partitions)
	case o.MaxConns < 1:
		return o, fmt.Errorf("%d connections: must be at least 1", o.MaxConns)
	case o.StatementTimeout < 0 || o.ApplyTimeout < 0 || o.PollInterval < 0 || o.TrimInterval < 0:
		return o, errors.New("times must not be negative")
	case len(o.Schema) > 40 || len(o.PublicSchema) > 63:
		return o, errors.New("the name of the schema is too long")
	}
	return o, nil
}

func defaulted[T comparable](value, fallback T) T {
	return ptr.Deref(nonZero(value), fallback)
}

func nonZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// poolConfig is how connections are made.
func (o Options) poolConfig() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	config.MaxConns = o.MaxConns
	config.MaxConnIdleTime = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	settings := map[string]string{
		"application_name":                    "hub-apiserver",
		"statement_timeout":                   milliseconds(o.StatementTimeout),
		"idle_in_transaction_session_timeout": milliseconds(o.ApplyTimeout),
		// What a statement costs depends on its parameters: a scope may be a class or a fleet.
		"plan_cache_mode": "force_custom_plan",
		"jit":             "off",
		// To start workers takes longer than most statements, and all cores are busy with others'.
		"max_parallel_workers_per_gather": "0",
		"gin_pending_list_limit":          pendingLimit,
		"standard_conforming_strings":     "on",
		"timezone":                        "UTC",
	}
	for name, value := range settings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	return config, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
