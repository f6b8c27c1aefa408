package access

import (
	"cmp"
	"slices"
	"sync"
	"unique"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Index contains the roles and bindings of clusters. Its methods may be called concurrently.
type Index struct {
	// changing is held by one change at a time, which reads without mu: it holds mu only while it writes, in proportion to
	// the difference that it makes. Questions hold mu for some milliseconds.
	changing sync.Mutex
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

// cluster returns a cluster, which it adds if it is new. The caller holds changing.
func (x *Index) cluster(name string) *cluster {
	c := x.clusters[name]
	if c != nil {
		return c
	}
	x.mu.Lock()
	defer x.mu.Unlock()
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
	x.changing.Lock()
	c := x.cluster(cluster)
	var changes *changes
	if c.state.Known != s.Known {
		changes = x.allOf(c)
	}
	x.mu.Lock()
	c.state = s
	x.mu.Unlock()
	x.changing.Unlock()
	changes.publish(true)
}

// Remove deletes a cluster with all that it reported.
func (x *Index) Remove(cluster string) {
	x.changing.Lock()
	c := x.clusters[cluster]
	if c == nil {
		x.changing.Unlock()
		return
	}
	var changes *changes
	if c.state.Known {
		changes = x.allOf(c)
	}
	x.mu.Lock()
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
	x.changing.Unlock()
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
		roles = append(roles, newRole{identity{key, rbac.FingerprintOf(rules)}, rules})
	}
	for key, b := range u.Bindings {
		bindings = append(bindings, prepareBinding(key, &b))
	}
	x.changing.Lock()
	c := x.cluster(name)
	ofRoles := differenceOf(roles, u.DeletedRoles, u.Full, len(c.roles), func(key rbac.Key) (int, rbac.Fingerprint) {
		if at, found := c.findRole(x.records.nodes[nodeKey{unique.Make(key.Namespace), unique.Make(key.Name)}]); found {
			return at, c.roles[at].rules.Fingerprint
		}
		return -1, rbac.Fingerprint{}
	})
	ofBindings := differenceOf(bindings, u.DeletedBindings, u.Full, len(c.bindings), c.findBinding)
	var changes *changes
	if c.state.Known {
		changes = x.changesOf(c)
	}
	x.mu.Lock()
	x.changeRoles(c, ofRoles, changes)
	x.changeBindings(c, ofBindings, changes)
	x.mu.Unlock()
	changes.addBound()
	x.changing.Unlock()
	changes.publish(false)
}

// difference is what an Update changes in a sorted list of records.
type difference[N any] struct {
	// given are the new and changed objects, and at the positions of the records that they replace, or -1.
	given []N
	at    []int
	// deleted are the positions of the deleted records.
	deleted []int
}

// differenceOf compares the objects of an Update with a list of a length. find returns the position of a key in the list and
// the fingerprint of the record there, or -1.
func differenceOf[N interface{ id() identity }](given []N, deleted []rbac.Key, full bool, length int, find func(rbac.Key) (int, rbac.Fingerprint)) (d difference[N]) {
	kept := newBitmap(length)
	for _, object := range given {
		id := object.id()
		at, fingerprint := find(id.key)
		if at >= 0 {
			kept.add(uint32(at))
		}
		if at < 0 || fingerprint != id.fingerprint {
			d.given, d.at = append(d.given, object), append(d.at, at)
		}
	}
	if full {
		for at := range length {
			if !kept.has(uint32(at)) {
				d.deleted = append(d.deleted, at)
			}
		}
		return d
	}
	for _, key := range deleted {
		if at, _ := find(key); at >= 0 {
			d.deleted = append(d.deleted, at)
		}
	}
	return d
}

func (x *Index) changeRoles(c *cluster, d difference[newRole], changes *changes) {
	byNode := func(a, b *role) int { return cmp.Compare(a.node.id, b.node.id) }
	c.roles = change(c.roles, d, byNode, func(given newRole) *role {
		r := x.records.role(&given)
		r.clusters.add(c.id)
		changes.role(r)
		return r
	}, func(r *role) {
		changes.role(r)
		x.releaseRole(c, r)
	})
}

func (x *Index) changeBindings(c *cluster, d difference[*newBinding], changes *changes) {
	byKey := func(a, b *binding) int { return a.compare(b.namespace.Value(), b.name.Value()) }
	c.bindings = change(c.bindings, d, byKey, func(given *newBinding) *binding {
		b := x.records.binding(given)
		b.clusters.add(c.id)
		changes.binding(b)
		return b
	}, func(b *binding) {
		changes.binding(b)
		x.releaseBinding(c, b)
	})
}

// change returns a sorted list after a change. record returns the new record of an object, and release releases an old one.
func change[T comparable, N any](list []T, d difference[N], compare func(a, b T) int, record func(N) T, release func(T)) []T {
	var added []T
	for i, given := range d.given {
		// It comes first, because the release of the last record of a name would change the order of the name.
		now := record(given)
		if at := d.at[i]; at < 0 {
			added = append(added, now)
		} else {
			release(list[at])
			list[at] = now
		}
	}
	var none T
	for _, at := range d.deleted {
		release(list[at])
		list[at] = none
	}
	if len(d.deleted) > 0 {
		list = slices.DeleteFunc(list, func(record T) bool { return record == none })
	}
	slices.SortFunc(added, compare)
	// From the last one on, each moves the records behind it to their final positions.
	end := len(list)
	list = append(list, added...)
	for i := len(added) - 1; i >= 0; i-- {
		at, _ := slices.BinarySearchFunc(list[:end], added[i], compare)
		copy(list[at+i+1:], list[at:end])
		list[at+i], end = added[i], at
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

// findBinding returns the position of the binding of a key on the cluster and its fingerprint, or -1.
func (c *cluster) findBinding(key rbac.Key) (int, rbac.Fingerprint) {
	at, found := slices.BinarySearchFunc(c.bindings, key, func(b *binding, key rbac.Key) int { return b.compare(key.Namespace, key.Name) })
	if !found {
		return -1, rbac.Fingerprint{}
	}
	return at, c.bindings[at].content
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
	if d == nil {
		return
	}
	for _, b := range d.candidates() {
		if d.nodes[b.node] && b.clusters.has(d.cluster.id) {
			d.binding(b)
		}
	}
}

// candidates returns the bindings of the changed roles on all clusters, or all bindings of the cluster if they are fewer. A
// tenant can change a role often, so it must not cost a scan of the bindings of others.
func (d *changes) candidates() []*binding {
	var found []*binding
	for n := range d.nodes {
		for _, in := range n.buckets {
			if len(found)+len(in.bindings) > len(d.cluster.bindings) {
				return d.cluster.bindings
			}
			found = append(found, in.bindings...)
		}
	}
	return found
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
