// Package postgres is a search.Engine on PostgreSQL, for several servers and for fleets that exceed one machine.
//
// Several servers may use one database. Rows begin with their cluster, so that tables are
// partitioned by cluster and could be distributed by cluster with Citus.
//
// Visibility depends on the class of a resource: cluster, API group, plural name, namespace and a
// few other properties. The number of classes is small compared to the number of resources. So each
// server keeps all classes with their exact counts, and updates them at the start of each read, in
// the snapshot of the read. Servers decide about classes with visibility.Scope and query.Query, and
// query PostgreSQL only for conditions on other properties.
//
// Each leaf of a resource has a term in an inverted index. A term is a keyed 64-bit hash. For
// comparisons other than equality, the server compares the existing values, which the table facets
// contains with their counts. Matching values become terms as well. If there are too many values,
// the server compares resources one by one. So the results always equal the results of
// query.Matches.
//
// No value from a caller becomes part of the text of a statement.
package postgres
