// Package bench measures the product on a real hub with one managed cluster,
// with etcd writing to disk as in production. `make bench` prints the figures;
// nothing here judges them.
//
//	BENCH_COUNT   ClusterPermissions of one measurement; 200 if not given
//	BENCH_STORED  ClusterPermissions at which memory is measured; 1000 if not given
//	KEEP          a directory to keep data and logs in
package bench
