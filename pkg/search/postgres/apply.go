package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// application applies a report. It determines all changes before the first write.
type application struct {
	engine *Engine
	tx     pgx.Tx
	report *search.Report
	// reported contains the resources of the report by rid. order contains their rids in order.
	reported map[int64]*resource
	order    []int64

	cluster int32
	created bool
	applied search.Applied

	before, after edgeSet
	changed       []change
	classes       *classCounts
	facets        *facets
	tokens        *tokenCounts
}

// change is a new, changed or deleted resource.
type change struct {
	rid           int64
	uid           string
	before, after *resource
	// class is the class after the change. beforeClass is the class before the change.
	class, beforeClass int64
	columns            columns
}

func newApplication(e *Engine, report *search.Report) *application {
	return &application{
		engine: e, report: report, facets: newFacets(e.hash), tokens: newTokenCounts(e.hash),
	}
}

// Apply implements search.Engine. Reports of one cluster are applied one after the other. The
// changes of several reports may be determined concurrently, but resources are written in the order
// of versions.
func (e *Engine) Apply(ctx context.Context, report *search.Report) (_ *search.Applied, err error) {
	defer observe("apply", time.Now(), &err)
	if report.Cluster == "" {
		return nil, errors.New("the report has no cluster")
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.ApplyTimeout)
	defer cancel()
	a := newApplication(e, report)
	if err := a.encode(); err != nil {
		return nil, fmt.Errorf("report of cluster %s: %w", report.Cluster, err)
	}
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		a.tx = tx
		return a.run(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("report of cluster %s: %w", report.Cluster, err)
	}
	e.merges.add(ctx, len(a.changed))
	return &a.applied, nil
}

// encode encodes the resources of the report. If a UID occurs twice, the last occurrence takes
// effect.
func (a *application) encode() error {
	put := a.report.Put
	resources := make([]resource, len(put))
	err := inParallel(len(put), func(i int) (err error) {
		if resources[i], err = a.engine.hash.newResource(a.report.Cluster, &put[i]); err != nil {
			return fmt.Errorf("resource %s: %w", put[i].UID, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.reported = make(map[int64]*resource, len(put))
	a.order = make([]int64, 0, len(put))
	for i := range resources {
		r := &resources[i]
		if _, twice := a.reported[r.rid]; !twice {
			a.order = append(a.order, r.rid)
		}
		a.reported[r.rid] = r
	}
	for _, uid := range a.report.Delete {
		delete(a.reported, a.engine.hash.resource(a.report.Cluster, uid))
	}
	return nil
}

func (a *application) run(ctx context.Context) error {
	if err := a.lock(ctx); err != nil {
		return err
	}
	if err := a.compare(ctx); err != nil {
		return err
	}
	if err := a.compareEdges(ctx); err != nil {
		return err
	}
	classes, err := a.classify(ctx)
	if err != nil {
		return err
	}
	a.classes = classes
	if err := a.facets.store(ctx, a.engine, a.tx, a.cluster, a.created); err != nil {
		return err
	}
	if err := a.tokens.store(ctx, a.engine, a.tx, a.cluster, a.created); err != nil {
		return err
	}
	if err := a.storeEdges(ctx); err != nil {
		return err
	}
	if err := a.removeOld(ctx); err != nil {
		return err
	}
	return a.publish(ctx)
}

// lock acquires the lock of the cluster, and reads or creates its row.
func (a *application) lock(ctx context.Context) error {
	e, report := a.engine, a.report
	if _, err := a.tx.Exec(ctx, "SET LOCAL statement_timeout = "+milliseconds(e.options.ApplyTimeout)); err != nil {
		return err
	}
	if _, err := a.tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(e.options.Schema, "cluster", report.Cluster)); err != nil {
		return fmt.Errorf("waiting for another report of the cluster: %w", err)
	}
	name := escape(report.Cluster)
	err := a.tx.QueryRow(ctx, "SELECT id, resources, edges FROM "+e.table("clusters")+" WHERE name = $1", name).
		Scan(&a.cluster, &a.applied.Resources, &a.applied.Edges)
	if errors.Is(err, pgx.ErrNoRows) {
		a.created = true
		err = a.tx.QueryRow(ctx, "INSERT INTO "+e.table("clusters")+" (name, hub, reported, changed) VALUES ($1, $2, $3, 0) RETURNING id",
			name, report.Hub, report.Time).Scan(&a.cluster)
	}
	return err
}

// stored contains the columns of a stored resource that are compared with the report.
type stored struct{ digest, class int64 }

// compare determines the new, changed and deleted resources.
func (a *application) compare(ctx context.Context) error {
	existing, err := a.existing(ctx)
	if err != nil {
		return fmt.Errorf("reading stored resources: %w", err)
	}
	for _, rid := range a.order {
		r := a.reported[rid]
		if r == nil {
			continue
		}
		old, had := existing[rid]
		switch {
		case !had:
			a.applied.Added++
			a.changed = append(a.changed, change{rid: rid, uid: r.uid, after: r})
		case old.digest != r.digest:
			a.applied.Updated++
			a.changed = append(a.changed, change{rid: rid, uid: r.uid, after: r, beforeClass: old.class})
		}
	}
	gone := a.gone(existing)
	for _, rid := range gone {
		a.changed = append(a.changed, change{rid: rid, beforeClass: existing[rid].class})
	}
	a.applied.Deleted = len(gone)
	a.applied.Resources += a.applied.Added - a.applied.Deleted
	if err := a.readBefore(ctx); err != nil {
		return fmt.Errorf("reading stored resources: %w", err)
	}
	return inParallel(len(a.changed), func(i int) error {
		if c := &a.changed[i]; c.after != nil {
			c.columns = a.engine.hash.columns(c.after)
		}
		return nil
	})
}

// gone returns the stored resources that the report deletes, in a deterministic order.
func (a *application) gone(existing map[int64]stored) []int64 {
	var gone []int64
	if a.report.Full {
		keep := a.engine.hash.resource(a.report.Cluster, a.report.Keep)
		for rid := range existing {
			if _, reported := a.reported[rid]; !reported && rid != keep {
				gone = append(gone, rid)
			}
		}
	} else {
		for _, uid := range a.report.Delete {
			rid := a.engine.hash.resource(a.report.Cluster, uid)
			if _, exists := existing[rid]; exists {
				gone = append(gone, rid)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// existing returns the stored resources that the report may change.
func (a *application) existing(ctx context.Context) (map[int64]stored, error) {
	existing := map[int64]stored{}
	if a.created {
		return existing, nil
	}
	statement := "SELECT rid, digest, class FROM " + a.engine.table("resources") + " WHERE cluster = $1"
	args := []any{a.cluster}
	if !a.report.Full {
		rids := make([]int64, 0, len(a.order)+len(a.report.Delete))
		rids = append(rids, a.order...)
		for _, uid := range a.report.Delete {
			rids = append(rids, a.engine.hash.resource(a.report.Cluster, uid))
		}
		if len(rids) == 0 {
			return existing, nil
		}
		statement += " AND rid = ANY($2)"
		args = append(args, rids)
	}
	rows, err := a.tx.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	var rid int64
	var one stored
	_, err = pgx.ForEachRow(rows, []any{&rid, &one.digest, &one.class}, func() error {
		existing[rid] = one
		return nil
	})
	return existing, err
}

// readBefore reads the previous properties of changed and deleted resources.
func (a *application) readBefore(ctx context.Context) error {
	positions := map[int64]int{}
	var rids []int64
	for i := range a.changed {
		if a.changed[i].beforeClass != 0 {
			positions[a.changed[i].rid] = i
			rids = append(rids, a.changed[i].rid)
		}
	}
	if len(rids) == 0 {
		return nil
	}
	rows, err := a.tx.Query(ctx, "SELECT rid, uid, doc FROM "+a.engine.table("resources")+" WHERE cluster = $1 AND rid = ANY($2)", a.cluster, rids)
	if err != nil {
		return err
	}
	var rid int64
	var uid, doc string
	_, err = pgx.ForEachRow(rows, []any{&rid, &uid, &doc}, func() error {
		properties, err := query.DecodeProperties([]byte(doc))
		if err != nil {
			return err
		}
		c := &a.changed[positions[rid]]
		if c.uid == "" {
			c.uid = unescape(uid)
		}
		c.before = &resource{uid: c.uid, rid: rid, properties: properties, doc: doc}
		return nil
	})
	return err
}

// removeOld deletes the rows of changed and deleted resources.
func (a *application) removeOld(ctx context.Context) error {
	var rids []int64
	for i := range a.changed {
		if a.changed[i].before != nil {
			rids = append(rids, a.changed[i].rid)
		}
	}
	if len(rids) == 0 {
		return nil
	}
	_, err := a.tx.Exec(ctx, "DELETE FROM "+a.engine.table("resources")+" WHERE cluster = $1 AND rid = ANY($2)", a.cluster, rids)
	if err != nil {
		return fmt.Errorf("removing resources: %w", err)
	}
	return nil
}

// publish writes the rows that contain the version. It holds the lock of versions until the end of
// the transaction, so that a version becomes visible only after all lower versions.
func (a *application) publish(ctx context.Context) error {
	e := a.engine
	version, err := e.nextVersion(ctx, a.tx)
	if err != nil {
		return err
	}
	a.applied.Version = uint64(version)
	if err := a.copyResources(ctx, version); err != nil {
		return fmt.Errorf("storing resources: %w", err)
	}
	if err := a.copyChanges(ctx, version); err != nil {
		return fmt.Errorf("storing changes: %w", err)
	}
	if err := a.classes.store(ctx, a, version); err != nil {
		return fmt.Errorf("storing classes: %w", err)
	}
	_, err = a.tx.Exec(ctx, "UPDATE "+e.table("clusters")+` SET hub = $2, resources = $3, edges = $4, reported = CASE WHEN $7 THEN $5 ELSE reported END,
		changed = CASE WHEN changed = 0 OR hub <> $2 THEN $6 ELSE changed END WHERE id = $1`,
		a.cluster, a.report.Hub, a.applied.Resources, a.applied.Edges, a.report.Time, version, !a.report.Time.IsZero())
	if err != nil {
		return fmt.Errorf("storing the cluster: %w", err)
	}
	return e.notify(ctx, a.tx, version)
}

// nextVersion acquires the lock of versions until the transaction ends.
func (e *Engine) nextVersion(ctx context.Context, tx pgx.Tx) (int64, error) {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(e.options.Schema, "version", "")); err != nil {
		return 0, fmt.Errorf("waiting for the lock of versions: %w", err)
	}
	var version int64
	if err := tx.QueryRow(ctx, "UPDATE "+e.table("meta")+" SET version = version + 1 RETURNING version").Scan(&version); err != nil {
		return 0, fmt.Errorf("incrementing the version: %w", err)
	}
	return version, nil
}

func (e *Engine) notify(ctx context.Context, tx pgx.Tx, version int64) error {
	if _, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", e.channel(), strconv.FormatInt(version, 10)); err != nil {
		return fmt.Errorf("notifying: %w", err)
	}
	return nil
}

func (a *application) copyResources(ctx context.Context, version int64) error {
	var put []*change
	for i := range a.changed {
		if a.changed[i].after != nil {
			put = append(put, &a.changed[i])
		}
	}
	if len(put) == 0 {
		return nil
	}
	// Resources of one class are usually read together.
	slices.SortFunc(put, func(x, y *change) int { return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.rid, y.rid)) })
	names := []string{"cluster", "rid", "class", "version", "digest", "created", "created_other", "uid", "name", "name_key", "doc", "terms", "words"}
	_, err := a.tx.CopyFrom(ctx, pgx.Identifier{a.engine.options.Schema, "resources"}, names,
		pgx.CopyFromSlice(len(put), func(i int) ([]any, error) {
			c := put[i]
			return []any{
				a.cluster, c.rid, c.class, version, c.after.digest, c.columns.created, c.columns.createdOther, escape(c.uid),
				c.columns.name, c.columns.nameKey, c.after.doc, c.columns.terms, c.columns.words,
			}, nil
		}))
	return err
}

func (a *application) copyChanges(ctx context.Context, version int64) error {
	if len(a.changed) == 0 {
		return nil
	}
	doc := func(r *resource) *string {
		if r == nil {
			return nil
		}
		return &r.doc
	}
	names := []string{"version", "seq", "cluster", "hub", "uid", "before", "after"}
	_, err := a.tx.CopyFrom(ctx, pgx.Identifier{a.engine.options.Schema, "changes"}, names,
		pgx.CopyFromSlice(len(a.changed), func(i int) ([]any, error) {
			c := &a.changed[i]
			return []any{version, int32(i), escape(a.report.Cluster), a.report.Hub, escape(c.uid), doc(c.before), doc(c.after)}, nil
		}))
	return err
}

// RemoveCluster implements search.Engine.
func (e *Engine) RemoveCluster(ctx context.Context, cluster string) (err error) {
	defer observe("remove", time.Now(), &err)
	ctx, cancel := context.WithTimeout(ctx, e.options.ApplyTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(e.options.Schema, "cluster", cluster)); err != nil {
			return fmt.Errorf("waiting for a report of the cluster: %w", err)
		}
		var hub bool
		var reported time.Time
		err := tx.QueryRow(ctx, "SELECT hub, reported FROM "+e.table("clusters")+" WHERE name = $1", escape(cluster)).Scan(&hub, &reported)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		a := newApplication(e, &search.Report{Cluster: cluster, Hub: hub, Full: true, Time: reported})
		a.tx = tx
		if err := a.run(ctx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM "+e.table("clusters")+" WHERE id = $1", a.cluster)
		return err
	})
	if err != nil {
		return fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	return nil
}
