package access

import (
	"cmp"
	"slices"
	"sync"
	"unique"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Index contains the roles and bindings of clusters. Its methods may be called
// concurrently.
type Index struct {
	// mu is held by questions for some milliseconds, and by updates in proportion to the
	// change.
	mu       sync.RWMutex
	records  records
	clusters map[string]*cluster
	// slots are the clusters by number; a free slot is nil.
	slots []*cluster
	free  []uint32
	// followers are called after changes.
	followers []func(cluster string, state bool, concerned []rbac.Subject)
}

// cluster is what one cluster has reported.
type cluster struct {
	name  string
	id    uint32
	state State
	// roles are sorted by the number of their node, bindings by namespace and name.
	roles    []*role
	bindings []*binding
}

// New returns an empty Index.
func New() *Index { return &Index{records: newRecords(), clusters: map[string]*cluster{}} }

// Follow makes the Index call changed after each change of what subjects hold on a cluster that is known, with the cluster
// and the subjects for which it may have changed. state is true if the cluster has become known or unknown. Follow must be
// called before the first change. changed may be called concurrently.
func (x *Index) Follow(changed func(cluster string, state bool, concerned []rbac.Subject)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followers = append(x.followers, changed)
}

// cluster returns a cluster, which it adds if it is new.
func (x *Index) cluster(name string) *cluster {
	c := x.clusters[name]
	if c != nil {
		return c
	}
	c = &cluster{name: name}
	if last := len(x.free) - 1; last >= 0 {
		c.id, x.free = x.free[last], x.free[:last]
		x.slots[c.id] = c
	} else {
		c.id = uint32(len(x.slots))
		x.slots = append(x.slots, c)
	}
	x.clusters[name] = c
	return c
}

// SetState sets how far the reported roles and bindings of a cluster can be relied on.
func (x *Index) SetState(cluster string, s State) {
	x.mu.Lock()
	c := x.cluster(cluster)
	var changes *changes
	if c.state.Known != s.Known {
		changes = x.allOf(c)
	}
	c.state = s
	x.mu.Unlock()
	changes.publish(true)
}

// Remove deletes a cluster with all that it reported.
func (x *Index) Remove(cluster string) {
	x.mu.Lock()
	c := x.clusters[cluster]
	if c == nil {
		x.mu.Unlock()
		return
	}
	var changes *changes
	if c.state.Known {
		changes = x.allOf(c)
	}
	for _, r := range c.roles {
		x.releaseRole(c, r)
	}
	for _, b := range c.bindings {
		x.releaseBinding(c, b)
	}
	delete(x.clusters, cluster)
	x.slots[c.id] = nil
	x.free = append(x.free, c.id)
	x.mu.Unlock()
	changes.publish(true)
}

// Totals returns the number of roles and bindings of a cluster.
func (x *Index) Totals(cluster string) (roles, bindings int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.clusters[cluster]; c != nil {
		return len(c.roles), len(c.bindings)
	}
	return 0, 0
}

// Subjects returns the subjects of the bindings of a cluster.
func (x *Index) Subjects(cluster string) []rbac.Subject {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.clusters[cluster]; c != nil {
		return x.allOf(c).concerned()
	}
	return nil
}

func (x *Index) releaseRole(c *cluster, r *role) {
	if r.clusters.remove(c.id); r.clusters.size == 0 {
		x.records.deleteRole(r)
	}
}

func (x *Index) releaseBinding(c *cluster, b *binding) {
	if b.clusters.remove(c.id); b.clusters.size == 0 {
		x.records.deleteBinding(b)
	}
}

// Update changes the roles and bindings of a cluster in one step: readers see all of it or nothing. It does not change the
// state of the cluster, which is unknown until SetState.
func (x *Index) Update(name string, u *Update) {
	// Fingerprints are computed without a lock.
	roles, bindings := make([]newRole, 0, len(u.Roles)), make([]*newBinding, 0, len(u.Bindings))
	for key, rules := range u.Roles {
		roles = append(roles, newRole{key: key, rules: rules, fingerprint: rbac.FingerprintOf(rules)})
	}
	for key, b := range u.Bindings {
		bindings = append(bindings, prepareBinding(key, &b))
	}
	x.mu.Lock()
	c := x.cluster(name)
	var changes *changes
	if c.state.Known {
		changes = x.changesOf(c)
	}
	x.setRoles(c, u, roles, changes)
	x.setBindings(c, u, bindings, changes)
	changes.addBound()
	x.mu.Unlock()
	changes.publish(false)
}

func (x *Index) setRoles(c *cluster, u *Update, roles []newRole, changes *changes) {
	now := make([]*role, len(roles))
	for i := range roles {
		now[i] = x.records.role(&roles[i])
		if now[i].clusters.add(c.id) {
			changes.role(now[i])
		}
	}
	byNode := func(a, b *role) int { return cmp.Compare(a.node.id, b.node.id) }
	slices.SortFunc(now, byNode)
	var deleted []int
	for _, key := range u.DeletedRoles {
		if at, found := c.findRole(x.records.nodes[nodeKey{unique.Make(key.Namespace), unique.Make(key.Name)}]); found {
			deleted = append(deleted, at)
		}
	}
	c.roles = replace(c.roles, now, deleted, u.Full, byNode, func(r *role) {
		changes.role(r)
		x.releaseRole(c, r)
	})
}

func (x *Index) setBindings(c *cluster, u *Update, bindings []*newBinding, changes *changes) {
	now := make([]*binding, len(bindings))
	for i, b := range bindings {
		now[i] = x.records.binding(b)
		if now[i].clusters.add(c.id) {
			changes.binding(now[i])
		}
	}
	byKey := func(a, b *binding) int { return a.compare(b.namespace.Value(), b.name.Value()) }
	slices.SortFunc(now, byKey)
	var deleted []int
	for _, key := range u.DeletedBindings {
		at, found := slices.BinarySearchFunc(c.bindings, key, func(b *binding, key rbac.Key) int { return b.compare(key.Namespace, key.Name) })
		if found {
			deleted = append(deleted, at)
		}
	}
	c.bindings = replace(c.bindings, now, deleted, u.Full, byKey, func(b *binding) {
		changes.binding(b)
		x.releaseBinding(c, b)
	})
}

// replace returns a sorted list after a change, and releases the records that are no
// longer in it. The new records are sorted and have different keys.
func replace[T comparable](list, now []T, deleted []int, full bool, compare func(a, b T) int, release func(T)) []T {
	if full {
		for _, old := range list {
			if at, found := slices.BinarySearchFunc(now, old, compare); !found || now[at] != old {
				release(old)
			}
		}
		return now
	}
	var none T
	for _, at := range deleted {
		release(list[at])
		list[at] = none
	}
	if len(deleted) > 0 {
		list = slices.DeleteFunc(list, func(record T) bool { return record == none })
	}
	for _, record := range now {
		at, found := slices.BinarySearchFunc(list, record, compare)
		switch {
		case !found:
			list = slices.Insert(list, at, record)
		case list[at] != record:
			release(list[at])
			list[at] = record
		}
	}
	return list
}

// findRole returns the position of the role of a name on the cluster. The node may be nil.
func (c *cluster) findRole(n *node) (int, bool) {
	if n == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(c.roles, n.id, func(r *role, id uint64) int { return cmp.Compare(r.node.id, id) })
}

// changes collects the subjects that a change of one cluster concerns. A nil pointer collects nothing.
type changes struct {
	index    *Index
	cluster  *cluster
	nodes    map[*node]bool
	subjects map[subjectKey]bool
}

func (x *Index) changesOf(c *cluster) *changes {
	return &changes{index: x, cluster: c, nodes: map[*node]bool{}, subjects: map[subjectKey]bool{}}
}

// allOf returns the change of everything that the cluster has reported.
func (x *Index) allOf(c *cluster) *changes {
	d := x.changesOf(c)
	for _, b := range c.bindings {
		d.binding(b)
	}
	return d
}

func (d *changes) binding(b *binding) {
	if d == nil {
		return
	}
	for _, ref := range b.subjects {
		d.subjects[ref.subject.subjectKey] = true
	}
}

func (d *changes) role(r *role) {
	if d != nil {
		d.nodes[r.node] = true
	}
}

// addBound adds the subjects that are bound to changed roles.
func (d *changes) addBound() {
	if d == nil || len(d.nodes) == 0 {
		return
	}
	for _, b := range d.cluster.bindings {
		if d.nodes[b.node] {
			d.binding(b)
		}
	}
}

func (d *changes) concerned() []rbac.Subject {
	concerned := make([]rbac.Subject, 0, len(d.subjects))
	for key := range d.subjects {
		concerned = append(concerned, key.subject())
	}
	return concerned
}

// publish calls the followers. The caller must not hold the lock of the Index.
func (d *changes) publish(state bool) {
	if d == nil || !state && len(d.subjects) == 0 {
		return
	}
	concerned := d.concerned()
	for _, changed := range d.index.followers {
		changed(d.cluster.name, state, concerned)
	}
}
