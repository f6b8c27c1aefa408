// Package fair shares workers and requests among tenants.
//
// A [Queue] hands items to workers and a [Limiter] hands requests to an API server.
// Both have two lanes. The priority lane, for deletions and revocations, has
// workers of its own and every second request. Within a lane, tenants take turns. A
// [Watchdog] finds the workers that do not return.
package fair
