// Package campaign breaks a hub with three replicas of the server, three members of etcd, PostgreSQL, a managed
// cluster and its registered agent in every way that administrators fear. Each row of docs/reliability.md is one test, which
// breaks one thing while clients of test/history write, read and watch, works are delivered to the managed cluster,
// and searches run. It fails if an acknowledged write is lost, or if the history has a violation.
//
// `make test` runs some rows for a short time. `make campaign` runs all rows, requires that each single failure is
// over within 15 seconds, and writes docs/reliability.md. If random faults take ten minutes or more, it also requires that
// goroutines, memory and open files of the replicas and of the agent do not grow. Environment variables:
//
//	CAMPAIGN        1 runs all rows, checks the time of recovery and writes docs/reliability.md
//	ROW             regular expression of the names of rows to run
//	FAULT_SECONDS   duration of a fault; 60 with CAMPAIGN, 5 otherwise
//	DURATION        duration of an unavailable APIService and of random faults, such as 10m; with CAMPAIGN 1h and 30m,
//	                otherwise 10s and 20s
//
// Hosts are network namespaces, which require root.
package campaign
