package fair

import "container/list"

// flows holds items in one first-in-first-out queue for each tenant. Tenants take
// turns, so the wait of an item depends on how many tenants have items, and not on
// how many items another tenant has.
type flows[T comparable] struct {
	// turns are the tenants that have items; the front is next.
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

// push adds an item behind those of its tenant.
func (f *flows[T]) push(tenant string, item T) {
	of := f.tenants[tenant]
	if of == nil {
		of = &flow{items: list.New(), turn: f.turns.PushBack(tenant)}
		f.tenants[tenant] = of
	}
	f.items[item] = of.items.PushBack(item)
}

// remove drops an item of a tenant. It reports whether the item was there.
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

// next returns the oldest item of the first eligible tenant, and makes the next turn
// of the tenant come after those of all others.
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
