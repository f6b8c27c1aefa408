package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	selectionsKept = 128
	// fewClasses is the number of classes up to which they are looked up one by one.
	fewClasses = 1000
	// fewClusters is the number of clusters up to which a statement names the clusters in addition
	// to their classes, so that it skips other partitions.
	fewClusters = 8
)

// selection contains the classes in the scope that match all filters on properties of classes. It is immutable.
type selection struct {
	epoch uint64
	// classes are the classes that are completely in the scope. Of the classes in named, only some
	// names are in the scope.
	classes []*class
	named   []namedClass
	// filtered is true if filters may have excluded classes of a cluster.
	filtered bool
	// clusters contains the clusters with selected classes, in the order of their IDs.
	clusters []clusterSelection
	// names contains the names of the classes in named, by class.
	names map[int64][]string
}

// has reports whether a class is completely selected.
func (s *selection) has(one *class) bool {
	i, found := slices.BinarySearchFunc(s.clusters, one.cluster.id, func(of clusterSelection, id int32) int { return cmp.Compare(of.id, id) })
	return found && (s.clusters[i].whole && one.id > 0 || slices.Contains(s.clusters[i].classes, one))
}

// clusterSelection is the selection in one cluster.
type clusterSelection struct {
	*cluster
	classes []*class
	// whole is true if the selection contains all classes of the cluster, except Secrets of managed clusters.
	whole bool
}

type namedClass struct {
	*class
	names []string
}

// selectionKey identifies a selection of the existing classes.
type selectionKey struct {
	scope uint64
	query string
}

// ofClass reports whether a filter applies to a property of classes.
func ofClass(f *query.Filter) bool { return f.Property == query.Cluster || inShape(f.Property) }

// split separates the filters on properties of classes from other conditions.
func split(q *query.Query) (classes, resources query.Query) {
	for i := range q.Filters {
		if f := q.Filters[i]; ofClass(&f) {
			classes.Filters = append(classes.Filters, f)
		} else {
			resources.Filters = append(resources.Filters, f)
		}
	}
	for _, keyword := range q.Keywords {
		if keyword != "" {
			resources.Keywords = append(resources.Keywords, keyword)
		}
	}
	return classes, resources
}

// selectionKeyOf returns the key of the filters of a query, or false if the query depends on the time because of ages.
func selectionKeyOf(q *query.Query) (string, bool) {
	var key []byte
	for _, f := range q.Filters {
		key = fmt.Appendf(key, "%q:", f.Property)
		for _, c := range f.Comparisons {
			if c.Age != 0 {
				return "", false
			}
			key = fmt.Appendf(key, "%s%q", c.Op, c.Parts)
		}
	}
	return string(key), true
}

// selection returns the selection for a scope and a query on classes. The caller must hold the lock of the catalog.
func (d *database) selection(scope visibility.Scope, q *query.Query, now time.Time) *selection {
	filters, cacheable := selectionKeyOf(q)
	key := selectionKey{scope: scope.ID(), query: filters}
	if cacheable {
		if kept, ok := d.selections.Get(key); ok && kept.(*selection).epoch == d.catalog.epoch {
			return kept.(*selection)
		}
	}
	s := d.catalog.selection(scope, q, now)
	if cacheable {
		d.selections.Add(key, s)
	}
	return s
}

func (c *catalog) selection(scope visibility.Scope, q *query.Query, now time.Time) *selection {
	s := &selection{epoch: c.epoch, names: map[int64][]string{}}
	var byCluster, byShape query.Query
	for _, f := range q.Filters {
		if f.Property == query.Cluster {
			byCluster.Filters = append(byCluster.Filters, f)
		} else {
			byShape.Filters = append(byShape.Filters, f)
		}
	}
	s.filtered = len(byShape.Filters) > 0
	shapes := map[*shape]bool{}
	// The order of the IDs of clusters is the order of items.
	for _, one := range slices.SortedFunc(maps.Values(c.clusters), func(a, b *cluster) int { return cmp.Compare(a.id, b.id) }) {
		if !byCluster.Matches(one.name, nil, now) {
			continue
		}
		of := clusterSelection{cluster: one, whole: len(byShape.Filters) == 0}
		named := len(s.named)
		for _, class := range one.classes {
			matches, known := shapes[class.shape]
			if !known {
				matches = byShape.Matches("", class.shape.properties, now)
				shapes[class.shape] = matches
			}
			if !matches {
				of.whole = false
				continue
			}
			decision := scope.Decide(class.is)
			switch {
			case decision.All:
				of.classes = append(of.classes, class)
			case len(decision.Names) > 0:
				s.named = append(s.named, namedClass{class: class, names: decision.Names})
				s.names[class.id] = decision.Names
				of.whole = false
			case class.id > 0:
				of.whole = false
			}
		}
		s.classes = append(s.classes, of.classes...)
		if len(of.classes) > 0 || len(s.named) > named {
			s.clusters = append(s.clusters, of)
		}
	}
	return s
}

// empty reports whether the selection is empty.
func (s *selection) empty() bool { return len(s.clusters) == 0 }

// condition returns the condition that a resource r is in the selection.
func (s *selection) condition(b *builder) string {
	return orNames(b, s.classCondition(b), s.named)
}

// conditionOn returns the condition that a resource r is in some classes of the selection.
func (s *selection) conditionOn(b *builder, classes []*class) string {
	var whole []*class
	var named []namedClass
	for _, one := range classes {
		if names, is := s.names[one.id]; is {
			named = append(named, namedClass{class: one, names: names})
		} else {
			whole = append(whole, one)
		}
	}
	return orNames(b, oneOf(b, whole), named)
}

// oneOf returns the condition that a resource r is in one of some classes.
func oneOf(b *builder, classes []*class) string {
	if len(classes) > fewClasses {
		return among(b, classes)
	}
	return fmt.Sprintf("r.class = ANY(%s::bigint[])", b.arg(ids(classes)))
}

// orNames adds the classes of which only some names are in the scope to a condition.
func orNames(b *builder, condition string, named []namedClass) string {
	if len(named) == 0 {
		return condition
	}
	return "(" + condition + " OR " + namesCondition(b, named) + ")"
}

func namesCondition(b *builder, named []namedClass) string {
	var classes []int64
	var names []string
	for _, one := range named {
		for _, name := range one.names {
			classes, names = append(classes, one.id), append(names, escape(name))
		}
	}
	return fmt.Sprintf("(r.class, coalesce(r.name, '')) IN (SELECT * FROM unnest(%s::bigint[], %s::text[]))", b.arg(classes), b.arg(names))
}

func (s *selection) classCondition(b *builder) string {
	if len(s.classes) <= fewClasses {
		condition := oneOf(b, s.classes)
		if len(s.named) == 0 {
			condition = inClusters(b, s.clusterIDs()) + condition
		}
		return "(" + condition + ")"
	}
	if s.filtered {
		condition := among(b, s.classes)
		if kinds := s.kinds(); len(kinds) > 0 && len(s.named) == 0 {
			// The class implies the kind. The index of terms finds the kind faster.
			terms := mapped(kinds, func(kind string) int64 { return b.engine.hash.leaf(query.Kind, false, "", kind) })
			condition = fmt.Sprintf("(r.terms && %s::bigint[] AND %s)", b.arg(terms), condition)
		}
		return condition
	}
	whole, rest := s.withoutWhole()
	condition := "r.class > 0"
	if len(whole) < b.clusters {
		condition = fmt.Sprintf("(r.cluster = ANY(%s::integer[]) AND r.class > 0)", b.arg(idsOf(whole)))
	}
	if len(rest.classes) == 0 {
		return condition
	}
	return fmt.Sprintf("(%s OR %s)", condition, oneOf(b, rest.classes))
}

// inClusters returns the first part of a condition on classes of some clusters.
func inClusters(b *builder, clusters []int32) string {
	if len(clusters) > fewClusters {
		return ""
	}
	return fmt.Sprintf("r.cluster = ANY(%s::integer[]) AND ", b.arg(clusters))
}

// indexed returns the condition to be in the selection, for a scan of an index that contains the
// class but not the cluster.
func (s *selection) indexed(b *builder) string {
	condition := "r.class > 0"
	if s.filtered || len(s.clusters) < b.clusters || slices.ContainsFunc(s.clusters, func(of clusterSelection) bool { return !of.whole }) {
		condition = among(b, s.classes)
	} else if _, secrets := s.withoutWhole(); len(secrets.classes) > 0 {
		condition = "(" + condition + " OR " + among(b, secrets.classes) + ")"
	}
	return orNames(b, condition, s.named)
}

// among returns the condition that a resource r is in one of many classes. PostgreSQL looks up the
// class of each row in a hash table, without a join, so that the order of an index is kept.
func among(b *builder, classes []*class) string {
	return fmt.Sprintf("(r.class IN (SELECT unnest(%s::bigint[]))) IS TRUE", b.arg(ids(classes)))
}

// kinds returns the kinds of the selection, or nil if there are many.
func (s *selection) kinds() []string {
	const most = 16
	seen := map[string]bool{}
	var kinds []string
	for _, one := range s.classes {
		if kind := one.shape.kind; !seen[kind] {
			if p := one.shape.properties.Get(query.Kind); p == nil || p.Type >= query.Map || len(kinds) == most {
				return nil
			}
			seen[kind] = true
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (s *selection) clusterIDs() []int32 {
	return mapped(s.clusters, func(of clusterSelection) int32 { return of.id })
}

// withoutWhole separates the clusters in which all resources except Secrets are selected.
func (s *selection) withoutWhole() ([]*cluster, *selection) {
	var whole []*cluster
	rest := &selection{epoch: s.epoch, filtered: s.filtered, named: s.named, names: s.names}
	for _, of := range s.clusters {
		if of.whole {
			whole = append(whole, of.cluster)
			of.whole = false
			of.classes = slices.DeleteFunc(slices.Clone(of.classes), func(one *class) bool { return one.id > 0 })
			if len(of.classes) == 0 && !slices.ContainsFunc(s.named, func(one namedClass) bool { return one.cluster == of.cluster }) {
				continue
			}
		}
		rest.clusters = append(rest.clusters, of)
		rest.classes = append(rest.classes, of.classes...)
	}
	return whole, rest
}

func idsOf(clusters []*cluster) []int32 {
	return mapped(clusters, func(one *cluster) int32 { return one.id })
}

func ids(classes []*class) []int64 {
	return mapped(classes, func(one *class) int64 { return one.id })
}

// mapped returns the results of a function for all elements.
func mapped[T, R any](elements []T, call func(T) R) []R {
	results := make([]R, len(elements))
	for i := range elements {
		results[i] = call(elements[i])
	}
	return results
}
