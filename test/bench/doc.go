// Package bench measures the product on a real hub with one managed cluster,
// with etcd writing to disk as in production. `make bench` prints the figures;
// nothing here judges them.
//
//	BENCH_COUNT       ClusterPermissions of one measurement, accounts that move; 200 if not given
//	BENCH_STORED      ClusterPermissions at which memory and moves are measured; 1000 if not given
//	BENCH_NAMESPACES  namespaces that are labelled; 100 if not given
//	BENCH_ACCOUNTS    idle ManagedServiceAccounts; 5000 if not given
//	BENCH_CLUSTERS    clusters that are registered; 1000 if not given
//	HOSTILE_MINUTES   how long hostile authors work, and hostile callers; 1 if not given
//	HOSTILE_RESOURCES resources of the fleet that hostile callers search; 50000 if not given
//	HOSTILE_SEED      seed of what they write; 1 if not given
//	SEARCH_CLUSTERS, SEARCH_PER_CLUSTER  clusters of the fleet that is searched, and resources of each; 100 and 5000 if not given
//	KEEP              a directory to keep data and logs in
package bench
