package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// application applies a report. It determines all changes before the first write.
type application struct {
	engine *Engine
	report *search.Report
	// removed is true if the cluster itself is removed.
	removed bool
	// reported contains the resources of the report by rid. order contains their rids in order.
	reported map[int64]*resource
	order    []int64

	// alone is true if the report needs a transaction of its own.
	alone bool
	// ctx is the context of the caller. done receives true if the report must be applied again, and false when it has been
	// applied, or has failed with err.
	ctx  context.Context
	done chan bool
	err  error

	attempt
}

// attempt is the state of a report in one transaction.
type attempt struct {
	pipeline *pipeline
	cluster  int32
	created  bool
	applied  search.Applied

	existing      map[int64]stored
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
	shape              *classCount
	columns            columns
}

func newApplication(e *Engine, report *search.Report) *application {
	changes := len(report.Put) + len(report.Delete) + len(report.AddEdges) + len(report.DeleteEdges)
	return &application{engine: e, report: report, alone: report.Full || changes > smallReport, done: make(chan bool, 1)}
}

// begin begins an attempt.
func (a *application) begin(p *pipeline) {
	a.attempt = attempt{pipeline: p, facets: newFacets(a.engine.hash), tokens: newTokenCounts(a.engine.hash)}
}

// Apply implements search.Engine. Reports of one cluster are applied one after the other. The
// changes of several reports may be determined concurrently, but resources are written in the order
// of versions.
func (e *Engine) Apply(ctx context.Context, report *search.Report) (_ *search.Applied, err error) {
	defer observe("apply", time.Now(), &err)
	if report.Cluster == "" {
		return nil, errors.New("the report has no cluster")
	}
	a := newApplication(e, report)
	err = a.encode()
	if err == nil {
		err = e.apply(ctx, a)
	}
	if err != nil {
		return nil, fmt.Errorf("report of cluster %s: %w", report.Cluster, err)
	}
	return &a.applied, nil
}

// encode encodes the resources of the report. If a UID occurs twice, the last occurrence takes
// effect.
func (a *application) encode() error {
	put := a.report.Put
	a.reported = make(map[int64]*resource, len(put))
	a.order = make([]int64, 0, len(put))
	for i := range put {
		r, err := a.engine.hash.newResource(a.report.Cluster, &put[i])
		if err != nil {
			return fmt.Errorf("resource %s: %w", put[i].UID, err)
		}
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

// stored contains the columns of a stored resource that are compared with the report.
type stored struct{ digest, class int64 }

// readExisting reads the stored resources that the report may change.
func (a *application) readExisting(context.Context) error {
	a.existing = map[int64]stored{}
	if a.created {
		return nil
	}
	statement := "SELECT rid, digest, class FROM " + table("resources") + " WHERE cluster = $1"
	args := []any{a.cluster}
	if !a.report.Full {
		rids := make([]int64, 0, len(a.order)+len(a.report.Delete))
		rids = append(rids, a.order...)
		for _, uid := range a.report.Delete {
			rids = append(rids, a.engine.hash.resource(a.report.Cluster, uid))
		}
		if len(rids) == 0 {
			return nil
		}
		statement += " AND rid = ANY($2)"
		args = append(args, rids)
	}
	var rid int64
	var one stored
	a.pipeline.read("reading stored resources", []any{&rid, &one.digest, &one.class}, func() error {
		a.existing[rid] = one
		return nil
	}, statement, args...)
	return nil
}

// compare determines the new, changed and deleted resources, and reads what depends on them.
func (a *application) compare(context.Context) error {
	for _, rid := range a.order {
		r := a.reported[rid]
		if r == nil {
			continue
		}
		old, had := a.existing[rid]
		switch {
		case !had:
			a.applied.Added++
			a.changed = append(a.changed, change{rid: rid, uid: r.uid, after: r})
		case old.digest != r.digest:
			a.applied.Updated++
			a.changed = append(a.changed, change{rid: rid, uid: r.uid, after: r, beforeClass: old.class})
		}
	}
	gone := a.gone()
	for _, rid := range gone {
		a.changed = append(a.changed, change{rid: rid, beforeClass: a.existing[rid].class})
	}
	a.applied.Deleted = len(gone)
	a.applied.Resources += a.applied.Added - a.applied.Deleted
	a.readBefore()
	a.readEdges()
	a.readFormer()
	for i := range a.changed {
		if c := &a.changed[i]; c.after != nil {
			c.columns = a.engine.hash.columns(c.after)
		}
	}
	return nil
}

// gone returns the stored resources that the report deletes, in a deterministic order.
func (a *application) gone() []int64 {
	var gone []int64
	if a.report.Full {
		keep := a.engine.hash.resource(a.report.Cluster, a.report.Keep)
		for rid := range a.existing {
			if _, reported := a.reported[rid]; !reported && rid != keep {
				gone = append(gone, rid)
			}
		}
	} else {
		for _, uid := range a.report.Delete {
			rid := a.engine.hash.resource(a.report.Cluster, uid)
			if _, exists := a.existing[rid]; exists {
				gone = append(gone, rid)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// readBefore reads the previous properties of changed and deleted resources.
func (a *application) readBefore() {
	positions := map[int64]int{}
	for i := range a.changed {
		if a.changed[i].beforeClass != 0 {
			positions[a.changed[i].rid] = i
		}
	}
	if len(positions) == 0 {
		return
	}
	var rid int64
	var uid, doc string
	a.pipeline.read("reading stored resources", []any{&rid, &uid, &doc}, func() error {
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
	}, "SELECT rid, uid, doc FROM "+table("resources")+" WHERE cluster = $1 AND rid = ANY($2)", a.cluster, slices.Collect(maps.Keys(positions)))
}

// store writes what does not contain the version.
func (a *application) store(ctx context.Context) error {
	if err := a.count(); err != nil {
		return err
	}
	if err := a.facets.store(ctx, a.pipeline, a.cluster); err != nil {
		return err
	}
	if err := a.tokens.store(ctx, a.pipeline, a.cluster); err != nil {
		return err
	}
	if err := a.storeEdges(ctx); err != nil {
		return err
	}
	a.removeOld()
	return nil
}

// removeOld deletes the rows of changed and deleted resources.
func (a *application) removeOld() {
	var rids []int64
	for i := range a.changed {
		if a.changed[i].before != nil {
			rids = append(rids, a.changed[i].rid)
		}
	}
	if len(rids) > 0 {
		a.pipeline.add("removing resources", "DELETE FROM "+table("resources")+" WHERE cluster = $1 AND rid = ANY($2)", a.cluster, rids)
	}
}

// publish writes the rows that contain the version.
func (a *application) publish(ctx context.Context) error {
	version := int64(a.applied.Version)
	if err := a.insertResources(ctx, version); err != nil {
		return err
	}
	if err := a.insertChanges(ctx, version); err != nil {
		return err
	}
	a.classes.store(a, version)
	if a.removed {
		a.pipeline.add("removing the cluster", "DELETE FROM "+table("clusters")+" WHERE id = $1", a.cluster)
		return nil
	}
	a.pipeline.add("storing the cluster", "UPDATE "+table("clusters")+` SET hub = $2, resources = $3, edges = $4, reported = CASE WHEN $7 THEN $5 ELSE reported END,
		changed = CASE WHEN changed = 0 OR hub <> $2 THEN $6 ELSE changed END WHERE id = $1`,
		a.cluster, a.report.Hub, a.applied.Resources, a.applied.Edges, a.report.Time, version, !a.report.Time.IsZero())
	return nil
}

func (a *application) insertResources(ctx context.Context, version int64) error {
	var put []*change
	for i := range a.changed {
		if a.changed[i].after != nil {
			put = append(put, &a.changed[i])
		}
	}
	// Resources of one class are usually read together.
	slices.SortFunc(put, func(x, y *change) int { return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.rid, y.rid)) })
	columns := []string{"cluster", "rid", "class", "version", "digest", "created", "created_other", "uid", "name", "name_key", "doc", "terms", "words", "internal"}
	return a.pipeline.insert(ctx, "storing resources", "resources", columns, len(put), func(i int) []any {
		c := put[i]
		return []any{
			a.cluster, c.rid, c.class, version, c.after.digest, c.columns.created, c.columns.createdOther, escape(c.uid),
			c.columns.name, c.columns.nameKey, c.after.doc, c.columns.terms, c.columns.words, c.after.storedInternal(),
		}
	})
}

func (a *application) insertChanges(ctx context.Context, version int64) error {
	doc := func(r *resource) *string {
		if r == nil {
			return nil
		}
		return &r.doc
	}
	columns := []string{"version", "seq", "cluster", "hub", "uid", "before", "after", "internal"}
	return a.pipeline.insert(ctx, "storing changes", "changes", columns, len(a.changed), func(i int) []any {
		c := &a.changed[i]
		return []any{version, int32(i), escape(a.report.Cluster), a.report.Hub, escape(c.uid), doc(c.before), doc(c.after), c.after.storedInternal()}
	})
}

// RemoveCluster implements search.Engine.
func (e *Engine) RemoveCluster(ctx context.Context, cluster string) (err error) {
	defer observe("remove", time.Now(), &err)
	a := newApplication(e, &search.Report{Cluster: cluster, Full: true})
	a.removed = true
	if err := e.apply(ctx, a); err != nil {
		return fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	return nil
}
