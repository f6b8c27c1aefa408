package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

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

// readFormer determines the shapes of the changed resources, and reads the classes of the previous resources, which
// most changes keep.
func (a *application) readFormer() {
	counts := &classCounts{byShape: map[string]*classCount{}, byID: map[int64]*classCount{}}
	a.classes = counts
	var scratch []byte
	former := sets.Set[int64]{}
	for i := range a.changed {
		c := &a.changed[i]
		if c.beforeClass != 0 {
			former.Insert(c.beforeClass)
		}
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
		c.shape = one
	}
	if len(former) > 0 {
		a.readClasses("id", former.UnsortedList())
	}
}

// readClasses reads the stored classes of the cluster with one of the values in a column.
func (a *application) readClasses(column string, values []int64) {
	var found classCount
	a.pipeline.read("reading classes", []any{&found.id, &found.hub, &found.shape, &found.digest, &found.stored}, func() error {
		one := a.classes.byShape[found.shape]
		if one == nil || one.hub != found.hub || one.id != 0 && one.id != found.id {
			kept := found
			one = &kept
		} else {
			one.id, one.stored = found.id, found.stored
		}
		a.classes.byID[one.id] = one
		return nil
	}, "SELECT id, hub, shape, digest, n FROM "+table("classes")+" WHERE cluster = $1 AND "+column+" = ANY($2)", a.cluster, values)
}

// findClasses reads the classes of the shapes that no previous resource has.
func (a *application) findClasses(context.Context) error {
	a.compareEdges()
	if unknown := a.classes.unknown(); len(unknown) > 0 && !a.created {
		a.readClasses("digest", mapped(unknown, func(one *classCount) int64 { return one.digest }))
	}
	return nil
}

// unknown returns the shapes without a class.
func (c *classCounts) unknown() []*classCount {
	return slices.DeleteFunc(slices.Collect(maps.Values(c.byShape)), func(one *classCount) bool { return one.id != 0 })
}

// createClasses creates the classes of new shapes.
func (a *application) createClasses(context.Context) error {
	fresh := a.classes.unknown()
	if len(fresh) == 0 {
		return nil
	}
	var id int64
	a.pipeline.read("creating classes", []any{&id}, func() error {
		one := fresh[0]
		fresh = fresh[1:]
		if one.id = id; one.secret {
			one.id = -id
		}
		a.classes.byID[one.id] = one
		return nil
	}, "SELECT nextval($1::regclass) FROM generate_series(1, $2)", table("class_ids"), len(fresh))
	return nil
}

// count assigns a class to each changed resource and counts classes, values and tokens.
func (a *application) count() error {
	for i := range a.changed {
		c := &a.changed[i]
		if c.before != nil {
			former := a.classes.byID[c.beforeClass]
			if former == nil {
				return fmt.Errorf("class %d has resources, but does not exist", c.beforeClass)
			}
			former.more--
			a.facets.add(c.beforeClass < 0, c.before.properties, a.engine.hash.leafTerms(c.before.properties), -1)
			a.tokens.add(c.beforeClass < 0, words(c.before.properties), -1, nil)
		}
		if c.after != nil {
			c.shape.more++
			c.class = c.shape.id
			a.facets.add(c.class < 0, c.after.properties, c.columns.leaves, 1)
			terms := a.tokens.add(c.class < 0, c.columns.words, 1, c.columns.terms)
			slices.Sort(terms)
			c.columns.terms = slices.Compact(terms)
		}
	}
	return nil
}

// store writes the counts with a version.
func (c *classCounts) store(a *application, version int64) {
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
		return
	}
	a.pipeline.add("storing classes", "INSERT INTO "+table("classes")+` AS c (cluster, changed, id, hub, shape, digest, n)
		SELECT $1, $2, * FROM unnest($3::bigint[], $4::boolean[], $5::text[], $6::bigint[], $7::bigint[])
		ON CONFLICT (cluster, id) DO UPDATE SET n = c.n + excluded.n, changed = excluded.changed`,
		a.cluster, version, ids, hubs, shapes, digests, more)
	if hubClasses {
		a.pipeline.add("storing classes", "UPDATE "+table("meta")+" SET hub_classes = $1", version)
	}
}
