// Package fair shares workers and requests among tenants.
//
// A [Queue] passes items to workers and a [Limiter] admits requests to an API server. Both have two
// lanes. The priority lane is for deletions and revocations. It has its own workers and every
// second request. Within a lane, tenants take turns. A [Watchdog] detects workers that do not
// return.
package fair
