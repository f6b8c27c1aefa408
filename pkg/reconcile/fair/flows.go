package fair

import "container/list"

// flows contains one first-in-first-out queue of items for each tenant. Tenants take turns, so the
// wait of an item depends on the number of tenants with items, and not on the number of items of
// other tenants.
type flows[T comparable] struct {
	// turns are the tenants that have items. The front is next.
	turns   *list.List
	tenants map[string]*flow
	// items are the positions of all items.
	items map[T]*list.Element
}

type flow struct {
	items *list.List
	turn  *list.Element
}

func newFlows[T comparable]() *flows[T] {
	return &flows[T]{turns: list.New(), tenants: map[string]*flow{}, items: map[T]*list.Element{}}
}

func (f *flows[T]) len() int { return len(f.items) }

// push adds an item behind the other items of its tenant.
func (f *flows[T]) push(tenant string, item T) {
	of := f.tenants[tenant]
	if of == nil {
		of = &flow{items: list.New(), turn: f.turns.PushBack(tenant)}
		f.tenants[tenant] = of
	}
	f.items[item] = of.items.PushBack(item)
}

// remove removes an item of a tenant. It reports whether the item existed.
func (f *flows[T]) remove(tenant string, item T) bool {
	at, ok := f.items[item]
	if !ok {
		return false
	}
	delete(f.items, item)
	of := f.tenants[tenant]
	of.items.Remove(at)
	if of.items.Len() == 0 {
		f.turns.Remove(of.turn)
		delete(f.tenants, tenant)
	}
	return true
}

// next returns the oldest item of the first eligible tenant, and moves the tenant behind all
// others.
func (f *flows[T]) next(eligible func(tenant string) bool) (item T, ok bool) {
	for turn := f.turns.Front(); turn != nil; turn = turn.Next() {
		tenant, _ := turn.Value.(string)
		if !eligible(tenant) {
			continue
		}
		f.turns.MoveToBack(turn)
		item, ok = f.tenants[tenant].items.Front().Value.(T)
		return item, ok
	}
	return item, false
}
