// Package postgres is the search engine for fleets and replicas past one machine: a
// search.Engine on PostgreSQL.
//
// Several servers may use one database. Resources are rows whose keys begin with
// their cluster, so that the tables are partitioned by it, and could be
// distributed by it with Citus.
//
// What callers may find depends on the class of a resource: cluster, API group,
// plural name, namespace and a few properties more. There are few classes beside
// resources, so each server keeps them, with their exact counts, and brings them up to
// date at the beginning of each read, in the snapshot that the read uses. It decides
// about classes itself, with visibility.Scope and query.Query, and
// asks PostgreSQL only for what depends on the other properties.
//
// Each leaf of a resource has a term, a keyed hash of 64 bits, in an inverted index.
// Comparisons that are no plain equality are made in this process with
// the values that exist, which are kept with their counts in the table facets, and
// become terms too. What even that does not answer, because there are too many
// values, is compared row by row in this process. So the answers are those of query.Matches.
//
// Nothing that callers send is ever part of the text of a statement.
package postgres
