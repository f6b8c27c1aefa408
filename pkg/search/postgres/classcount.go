package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// classCounts contains the classes of a cluster that a report changes, with the changes of their
// counts.
type classCounts struct {
	byShape map[string]*classCount
	byID    map[int64]*classCount
}

type classCount struct {
	id, digest int64
	shape      string
	hub        bool
	secret     bool
	stored     int64
	more       int64
}

// classify assigns a class to each changed resource and counts classes, values and tokens.
func (a *application) classify(ctx context.Context) (*classCounts, error) {
	counts := &classCounts{byShape: map[string]*classCount{}, byID: map[int64]*classCount{}}
	shapes := make([]string, len(a.changed))
	var scratch []byte
	for i := range a.changed {
		c := &a.changed[i]
		if c.after == nil {
			continue
		}
		properties := shapeOf(c.after.properties)
		scratch = properties.AppendJSON(scratch[:0])
		one := counts.byShape[string(scratch)]
		if one == nil {
			class := search.ClassOf(a.report.Cluster, a.report.Hub, properties)
			one = &classCount{shape: string(scratch), hub: a.report.Hub, secret: !a.report.Hub && class.Secret()}
			one.digest = a.engine.hash.sum(hashDocument, one.shape)
			counts.byShape[one.shape] = one
		}
		shapes[i] = one.shape
	}
	if err := a.readClasses(ctx, counts); err != nil {
		return nil, fmt.Errorf("reading classes: %w", err)
	}
	if err := a.makeClasses(ctx, counts); err != nil {
		return nil, fmt.Errorf("creating classes: %w", err)
	}
	for i := range a.changed {
		c := &a.changed[i]
		if c.before != nil {
			counts.byID[c.beforeClass].more--
			a.facets.add(c.beforeClass < 0, c.before.properties, a.engine.hash.leafTerms(c.before.properties), -1)
			a.tokens.add(c.beforeClass < 0, words(c.before.properties), -1, nil)
		}
		if c.after != nil {
			one := counts.byShape[shapes[i]]
			one.more++
			c.class = one.id
			a.facets.add(c.class < 0, c.after.properties, c.columns.leaves, 1)
			terms := a.tokens.add(c.class < 0, c.columns.words, 1, c.columns.terms)
			slices.Sort(terms)
			c.columns.terms = slices.Compact(terms)
		}
	}
	return counts, nil
}

// readClasses reads the stored classes of new shapes and of the previous resources.
func (a *application) readClasses(ctx context.Context, counts *classCounts) error {
	var digests, former []int64
	for _, one := range counts.byShape {
		digests = append(digests, one.digest)
	}
	seen := map[int64]bool{}
	for i := range a.changed {
		if id := a.changed[i].beforeClass; id != 0 && !seen[id] {
			seen[id] = true
			former = append(former, id)
		}
	}
	if a.created || len(digests)+len(former) == 0 {
		return nil
	}
	rows, err := a.tx.Query(ctx, "SELECT id, hub, shape, digest, n FROM "+a.engine.table("classes")+
		" WHERE cluster = $1 AND (digest = ANY($2) OR id = ANY($3))", a.cluster, digests, former)
	if err != nil {
		return err
	}
	var found classCount
	_, err = pgx.ForEachRow(rows, []any{&found.id, &found.hub, &found.shape, &found.digest, &found.stored}, func() error {
		one := counts.byShape[found.shape]
		if one == nil || one.hub != found.hub {
			kept := found
			one = &kept
		} else {
			one.id, one.stored = found.id, found.stored
		}
		counts.byID[one.id] = one
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range former {
		if counts.byID[id] == nil {
			return fmt.Errorf("class %d has resources, but does not exist", id)
		}
	}
	return nil
}

// makeClasses assigns IDs to new classes.
func (a *application) makeClasses(ctx context.Context, counts *classCounts) error {
	var fresh []*classCount
	for _, one := range counts.byShape {
		if one.id == 0 {
			fresh = append(fresh, one)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	rows, err := a.tx.Query(ctx, "SELECT nextval($1::regclass) FROM generate_series(1, $2)", a.engine.table("class_ids"), len(fresh))
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for i, one := range fresh {
		one.id = ids[i]
		if one.secret {
			one.id = -ids[i]
		}
		counts.byID[one.id] = one
	}
	return nil
}

// store writes the counts with a version.
func (c *classCounts) store(ctx context.Context, a *application, version int64) error {
	var ids, digests, more []int64
	var hubs []bool
	var shapes []string
	hubClasses := false
	for id, one := range c.byID {
		if one.more == 0 {
			continue
		}
		ids, digests, more = append(ids, id), append(digests, one.digest), append(more, one.more)
		hubs, shapes = append(hubs, one.hub), append(shapes, one.shape)
		hubClasses = hubClasses || one.hub && (one.stored == 0 || one.stored+one.more == 0)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := a.tx.Exec(ctx, "INSERT INTO "+a.engine.table("classes")+` AS c (cluster, changed, id, hub, shape, digest, n)
		SELECT $1, $2, * FROM unnest($3::bigint[], $4::boolean[], $5::text[], $6::bigint[], $7::bigint[])
		ON CONFLICT (cluster, id) DO UPDATE SET n = c.n + excluded.n, changed = excluded.changed`,
		a.cluster, version, ids, hubs, shapes, digests, more)
	if err != nil || !hubClasses {
		return err
	}
	_, err = a.tx.Exec(ctx, "UPDATE "+a.engine.table("meta")+" SET hub_classes = $1", version)
	return err
}
