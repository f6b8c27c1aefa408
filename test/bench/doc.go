// Package bench measures the product on a hub with one managed cluster. As in production,
// etcd writes to disk. `make bench` prints the figures; the benchmarks do not check them.
//
//	BENCH_COUNT       ClusterPermissions of one measurement, and accounts that move; 200 if not set
//	BENCH_STORED      ClusterPermissions at which memory and moves are measured; 1000 if not set
//	BENCH_NAMESPACES  namespaces that are labelled; 100 if not set
//	BENCH_ACCOUNTS    idle ManagedServiceAccounts; 5000 if not set
//	BENCH_CLUSTERS    clusters that register, or that a MulticlusterRoleAssignment selects; 1000 if not set
//	BENCH_WORKS       idle ManifestWorks with executors; 1000 if not set
//	BENCH_REVOCATIONS revocations of an executor's permission; 100 if not set
//	HOSTILE_MINUTES   minutes with hostile authors, and with hostile callers; 1 if not set
//	HOSTILE_RESOURCES resources of the fleet that hostile callers search; 50000 if not set
//	HOSTILE_SEED      seed of the requests of hostile authors; 1 if not set
//	SEARCH_CLUSTERS   clusters of the searched fleet, also of the console; 100 if not set
//	SEARCH_PER_CLUSTER  resources of each of these clusters; 5000 if not set
//	CONSOLE_SECONDS   duration of the live updates of the console; 60 if not set
//	ACCESS_CLUSTERS, ACCESS_BINDINGS  clusters whose RBAC is read after a restart, and bindings of each; 1000 if not set
//	SIZING            large measures 5,000 clusters and 10,000,000 resources, with 16 GB of memory or more, instead
//	                  of 100 and 1,000 clusters with 100,000 and 1,000,000 resources
//	SIZING_CLUSTERS, SIZING_RESOURCES  measure one fleet of this size instead; without resources, each cluster has 50
//	SIZING_SECONDS    duration of each measurement of a fleet or an agent, and of the wait before it; 120 if not set
//	SIZING_AGENT_RESOURCES  resources of the cluster of the measured agent; 1,000, 10,000 and 50,000 if not set
//	KEEP              directory that keeps data and logs
package bench
