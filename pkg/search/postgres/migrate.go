package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// schemaVersion is the version of the tables.
const schemaVersion = 2

// lockKey returns the key of an advisory lock.
func lockKey(purpose, name string) int64 {
	digest := sha256.Sum256([]byte(schema + "\x00" + purpose + "\x00" + name))
	return int64(binary.BigEndian.Uint64(digest[:8]))
}

// migrate creates the tables, or checks their version. Servers that start at the same time do this one after the
// other.
func (e *Engine) migrate(ctx context.Context) error {
	return pgx.BeginFunc(ctx, e.writes, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey("migrate", "")); err != nil {
			return fmt.Errorf("waiting for the lock of the schema: %w", err)
		}
		var encoding string
		if err := tx.QueryRow(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
			return err
		}
		if encoding != "UTF8" {
			return fmt.Errorf("the encoding of the database is %s; it must be UTF8", encoding)
		}
		version, err := e.storedVersion(ctx, tx)
		if err != nil {
			return err
		}
		switch version {
		case schemaVersion:
			return nil
		case 0:
			return e.create(ctx, tx)
		}
		return fmt.Errorf("the tables were created by another version of this server: they have version %d, and this server supports %d; "+
			"run that version, or delete the schema %s, and agents report all resources again", version, schemaVersion, schema)
	})
}

// storedVersion returns the version of the existing tables, or 0 if no tables exist.
func (e *Engine) storedVersion(ctx context.Context, tx pgx.Tx) (int, error) {
	var exists bool
	err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table("migrations")).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	var version int
	err = tx.QueryRow(ctx, "SELECT coalesce(max(version), 0), to_regclass($1) IS NOT NULL FROM "+table("migrations"), table("resources_internal")).
		Scan(&version, &exists)
	// Tables of version 1 with this index have all columns of version 2.
	if version == 1 && exists {
		version = schemaVersion
	}
	return version, err
}

func (e *Engine) create(ctx context.Context, tx pgx.Tx) error {
	trigrams, err := e.trigrams(ctx, tx)
	if err != nil {
		return err
	}
	statements := strings.Split(strings.ReplaceAll(tables, "{schema}", schema), ";\n")
	for i := range partitions {
		for _, name := range []string{"resources", "edges"} {
			partition := table(fmt.Sprintf("%s_%d", name, i))
			statements = append(statements,
				fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES WITH (MODULUS %d, REMAINDER %d)", partition, table(name), partitions, i),
				// Index-only scans require vacuumed pages. During its pauses, a vacuum with cost
				// delay would keep an inverted index locked, and reports would wait.
				fmt.Sprintf("ALTER TABLE %s SET (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)", partition))
		}
		// Rows of up to 8 KB stay whole and uncompressed in their page, because reads are more
		// frequent than writes.
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s SET (toast_tuple_target = 8160)", table(fmt.Sprintf("resources_%d", i))))
	}
	if trigrams != "" {
		statements = append(statements, fmt.Sprintf("CREATE INDEX tokens_token ON %s USING gin (token %s.gin_trgm_ops)", table("tokens"), trigrams))
	}
	for _, statement := range statements {
		if statement = strings.TrimSpace(statement); statement == "" {
			continue
		}
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(statement, "\n", 2)[0], err)
		}
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // It never returns an error.
	if _, err := tx.Exec(ctx, "INSERT INTO "+table("meta")+" (secret) VALUES ($1)", secret); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO "+table("migrations")+" (version) VALUES ($1)", schemaVersion)
	return err
}

// trigrams returns the quoted schema of the extension pg_trgm, or "" if the extension is not
// available. Without it, tokens are searched one by one.
func (e *Engine) trigrams(ctx context.Context, tx pgx.Tx) (string, error) {
	err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		_, err := savepoint.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_trgm")
		return err
	})
	var refused *pgconn.PgError
	if err != nil && !errors.As(err, &refused) {
		return "", err
	}
	var place string
	err = tx.QueryRow(ctx, "SELECT n.nspname FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace WHERE x.extname = 'pg_trgm'").Scan(&place)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return pgx.Identifier{place}.Sanitize(), err
}

// table returns the name of a table with its schema.
func table(name string) string { return schema + "." + name }

// tables is the schema. Texts are escaped with escape. Hashes are created by hasher.
const tables = `
CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE {schema}.migrations (
	version integer PRIMARY KEY,
	applied timestamptz NOT NULL DEFAULT now()
);

-- The only row, which every report updates last.
CREATE TABLE {schema}.meta (
	one boolean PRIMARY KEY DEFAULT true CHECK (one),
	secret bytea NOT NULL,
	version bigint NOT NULL DEFAULT 0,
	-- Changes up to this version were removed, and classes that have been empty since.
	trimmed bigint NOT NULL DEFAULT 0,
	-- The version in which the classes of the hub last changed.
	hub_classes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

CREATE TABLE {schema}.clusters (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	hub boolean NOT NULL,
	resources bigint NOT NULL DEFAULT 0,
	edges bigint NOT NULL DEFAULT 0,
	reported timestamptz NOT NULL,
	-- The version in which the cluster was created.
	changed bigint NOT NULL
) WITH (fillfactor = 50);

CREATE SEQUENCE {schema}.class_ids;

-- A class contains the resources of a cluster with the same shape: the properties that decide who
-- may find them, and others that many resources share. The IDs of Secrets
-- of managed clusters are negative.
CREATE TABLE {schema}.classes (
	cluster integer NOT NULL,
	id bigint NOT NULL,
	hub boolean NOT NULL,
	shape text NOT NULL,
	digest bigint NOT NULL,
	n bigint NOT NULL,
	changed bigint NOT NULL,
	PRIMARY KEY (cluster, id)
) WITH (fillfactor = 70);
CREATE INDEX classes_changed ON {schema}.classes (changed);

CREATE TABLE {schema}.resources (
	cluster integer NOT NULL,
	-- The hash of the UID.
	rid bigint NOT NULL,
	class bigint NOT NULL,
	version bigint NOT NULL,
	digest bigint NOT NULL,
	-- Microseconds of the property created, if that is exact.
	created bigint,
	-- True if the property created exists and is not in that column.
	created_other boolean NOT NULL,
	uid text COLLATE "C" NOT NULL,
	-- The property name if it is a scalar; NULL if it is very long.
	name text COLLATE "C",
	-- Not NULL if name is not the property name as a text that is neither a number nor a time.
	name_key text COLLATE "C",
	doc text COLLATE "C" NOT NULL,
	terms bigint[] NOT NULL,
	-- The texts in which keywords are searched, in lower case.
	words text COLLATE "C" NOT NULL,
	-- The JSON of the internal properties, which no search returns.
	internal text COLLATE "C",
	PRIMARY KEY (cluster, rid) INCLUDE (class)
) PARTITION BY HASH (cluster);
CREATE INDEX resources_internal ON {schema}.resources (cluster) WHERE internal IS NOT NULL;
CREATE INDEX resources_class ON {schema}.resources (class, rid) INCLUDE (name);
CREATE INDEX resources_name ON {schema}.resources (name, class) INCLUDE (rid);
CREATE INDEX resources_name_key ON {schema}.resources (cluster) WHERE name_key IS NOT NULL;
CREATE INDEX resources_created_other ON {schema}.resources (cluster) WHERE created_other;
CREATE INDEX resources_terms ON {schema}.resources USING gin (terms);

CREATE TABLE {schema}.edges (
	cluster integer NOT NULL,
	source bigint NOT NULL,
	dest bigint NOT NULL,
	type text COLLATE "C" NOT NULL,
	PRIMARY KEY (cluster, source, dest, type)
) PARTITION BY HASH (cluster);
CREATE INDEX edges_dest ON {schema}.edges (cluster, dest, source);

-- The leaves of a cluster by their terms, with the number of resources that
-- have them. Secrets of managed clusters are counted apart. Pages have space for new counts, so that these do not
-- require new entries in indexes.
CREATE TABLE {schema}.facets (
	cluster integer NOT NULL,
	secret boolean NOT NULL,
	property bigint NOT NULL,
	leaf bigint NOT NULL,
	pair boolean NOT NULL,
	key text COLLATE "C" NOT NULL,
	value text COLLATE "C" NOT NULL,
	n bigint NOT NULL,
	PRIMARY KEY (property, cluster, secret, leaf)
) WITH (fillfactor = 80);

-- The tokens of a cluster, with the number of resources that have them.
CREATE TABLE {schema}.tokens (
	cluster integer NOT NULL,
	secret boolean NOT NULL,
	token text COLLATE "C" NOT NULL,
	term bigint NOT NULL,
	n bigint NOT NULL,
	PRIMARY KEY (term, cluster, secret)
) WITH (fillfactor = 80, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.properties (
	cluster integer NOT NULL,
	secret boolean NOT NULL,
	name text COLLATE "C" NOT NULL,
	property bigint NOT NULL,
	type smallint NOT NULL,
	is_time boolean NOT NULL,
	n bigint NOT NULL,
	PRIMARY KEY (cluster, secret, property, type, is_time)
);

CREATE TABLE {schema}.changes (
	version bigint NOT NULL,
	seq integer NOT NULL,
	cluster text COLLATE "C" NOT NULL,
	hub boolean NOT NULL,
	uid text COLLATE "C" NOT NULL,
	before text COLLATE "C",
	after text COLLATE "C",
	internal text COLLATE "C",
	PRIMARY KEY (version, seq)
);
`
