package fair

import "slices"

// lane contains the waiting items of one lane, first in, first out for each tenant, and counts its
// workers. Tenants take turns, so the wait of an item depends on the number of tenants with items, and
// not on the number of items of other tenants.
type lane[T comparable] struct {
	name string
	// turns are the tenants that have items. The first is next.
	turns []string
	items map[string][]T
	// workers is the number of workers, and workersPerTenant limits those of one tenant. busy is the
	// number of busy ones, and held contains those of each tenant.
	workers, workersPerTenant, busy int
	held                            map[string]int
}

func newLane[T comparable](name string, workers, workersPerTenant int) *lane[T] {
	return &lane[T]{name: name, items: map[string][]T{}, workers: workers, workersPerTenant: workersPerTenant, held: map[string]int{}}
}

// add adds an item behind the other items of its tenant.
func (l *lane[T]) add(tenant string, item T) {
	if len(l.items[tenant]) == 0 {
		l.turns = append(l.turns, tenant)
	}
	l.items[tenant] = append(l.items[tenant], item)
}

// remove removes an item of a tenant.
func (l *lane[T]) remove(tenant string, item T) {
	items := l.items[tenant]
	switch at := slices.Index(items, item); {
	case len(items) == 1:
		delete(l.items, tenant)
		l.turns = slices.DeleteFunc(l.turns, func(other string) bool { return other == tenant })
	case at == 0:
		l.items[tenant] = items[1:]
	default:
		l.items[tenant] = slices.Delete(items, at, at+1)
	}
}

// next returns the oldest item of the first eligible tenant, and moves the tenant behind all others.
func (l *lane[T]) next(eligible func(tenant string) bool) (item T, ok bool) {
	at := slices.IndexFunc(l.turns, eligible)
	if at < 0 {
		return item, false
	}
	tenant := l.turns[at]
	l.turns = append(slices.Delete(l.turns, at, at+1), tenant)
	return l.items[tenant][0], true
}

// hasWorker reports whether there is an idle worker for a tenant. A tenant that has workers gets another
// one only if more than twice as many are idle. So a single tenant can use many workers, many tenants get
// fewer each, and the last idle workers are reserved for tenants that have none.
func (l *lane[T]) hasWorker(tenant string) bool {
	held, idle := l.held[tenant], l.workers-l.busy
	return idle > 0 && (held == 0 || held < l.workersPerTenant && 2*held < idle)
}

// count changes the number of busy workers.
func (l *lane[T]) count(tenant string, change int) {
	l.busy += change
	if l.held[tenant] += change; l.held[tenant] == 0 {
		delete(l.held, tenant)
	}
}
