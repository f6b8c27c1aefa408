package access

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unique"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// The limits of what one cluster may report.
const (
	// MaxObjects bounds the roles, and the bindings.
	MaxObjects = 100_000
	// MaxBytes bounds the text of roles and bindings together.
	MaxBytes = 64 << 20
)

// Index contains the roles and bindings of all clusters. Its methods may be called
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
	// changed is nil if nobody follows the changes.
	changed func(cluster string, state bool, concerned []rbac.Subject)
	// interests are notified of the same changes.
	interests rbac.Interests
}

var _ Writer = &Index{}

// cluster is what one cluster has reported.
type cluster struct {
	name  string
	id    uint32
	state State
	// roles are sorted by the number of their node, bindings by namespace and name.
	roles    []*role
	bindings []*binding
	size     int
}

// New returns an empty Index.
func New() *Index { return &Index{records: newRecords(), clusters: map[string]*cluster{}} }

// Changes notifies of changes of what subjects hold on clusters that are known.
func (x *Index) Changes() *rbac.Interests { return &x.interests }

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

// SetState implements Writer.
func (x *Index) SetState(cluster string, s State) {
	x.mu.Lock()
	c := x.cluster(cluster)
	var changes *changes
	if c.state.Known != s.Known {
		changes = x.changesOf(c)
		changes.addAll()
	}
	c.state = s
	x.mu.Unlock()
	changes.publish(true)
}

// Remove implements Writer.
func (x *Index) Remove(cluster string) {
	x.mu.Lock()
	c := x.clusters[cluster]
	if c == nil {
		x.mu.Unlock()
		return
	}
	var changes *changes
	if c.state.Known {
		changes = x.changesOf(c)
		changes.addAll()
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

// prepared is a checked Update. It is computed without a lock.
type prepared struct {
	roles    []newRole
	bindings []*newBinding
}

func (x *Index) prepare(u *Update) (*prepared, error) {
	p := &prepared{roles: make([]newRole, 0, len(u.Roles)), bindings: make([]*newBinding, 0, len(u.Bindings))}
	for key, rules := range u.Roles {
		if err := check(key, rbac.KindRole, rbac.KindClusterRole); err != nil {
			return nil, err
		}
		sum, size := hashRules(x.records.seed, rules)
		p.roles = append(p.roles, newRole{key: key, rules: rules, hash: sum, size: size + len(key.Namespace) + len(key.Name)})
	}
	for key, b := range u.Bindings {
		if err := check(key, rbac.KindRoleBinding, rbac.KindClusterRoleBinding); err != nil {
			return nil, err
		}
		p.bindings = append(p.bindings, prepareBinding(x.records.seed, key, &b))
	}
	for _, key := range u.DeletedRoles {
		if err := check(key, rbac.KindRole, rbac.KindClusterRole); err != nil {
			return nil, err
		}
		if _, both := u.Roles[key]; both {
			return nil, fmt.Errorf("%s is both set and deleted", key)
		}
	}
	for _, key := range u.DeletedBindings {
		if err := check(key, rbac.KindRoleBinding, rbac.KindClusterRoleBinding); err != nil {
			return nil, err
		}
		if _, both := u.Bindings[key]; both {
			return nil, fmt.Errorf("%s is both set and deleted", key)
		}
	}
	return p, nil
}

// check rejects keys that no object of a cluster has.
func check(key rbac.Key, namespaced, clusterScoped string) error {
	switch {
	case key.Kind != namespaced && key.Kind != clusterScoped:
		return fmt.Errorf("unsupported kind %q: supported values: %q, %q", key.Kind, namespaced, clusterScoped)
	case key.Name == "":
		return fmt.Errorf("a %s has no name", key.Kind)
	case key.Kind == namespaced && key.Namespace == "":
		return fmt.Errorf("%s has no namespace", key)
	case key.Kind == clusterScoped && key.Namespace != "":
		return fmt.Errorf("%s has a namespace", key)
	}
	return nil
}

// Update implements Writer.
func (x *Index) Update(name string, u *Update) error {
	p, err := x.prepare(u)
	if err != nil {
		return fmt.Errorf("RBAC of cluster %q: %w", name, err)
	}
	changes, err := x.update(name, u, p)
	changes.publish(false)
	return err
}

func (x *Index) update(name string, u *Update, p *prepared) (*changes, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.clusters[name]
	if c == nil {
		c = &cluster{}
	}
	roles, bindings, size := x.measure(c, u, p)
	if roles > MaxObjects || bindings > MaxObjects || size > MaxBytes {
		return nil, fmt.Errorf("RBAC of cluster %q: %d roles and %d bindings with %d bytes exceed the limits of %d roles, %d bindings and %d bytes",
			name, roles, bindings, size, MaxObjects, MaxObjects, MaxBytes)
	}
	c = x.cluster(name)
	c.size = size
	var changes *changes
	if c.state.Known {
		changes = x.changesOf(c)
	}
	x.setRoles(c, u, p, changes)
	x.setBindings(c, u, p, changes)
	changes.addBound()
	return changes, nil
}

// measure returns the number of objects and the bytes of text after an update.
func (x *Index) measure(c *cluster, u *Update, p *prepared) (roles, bindings, size int) {
	if !u.Full {
		roles, bindings, size = len(c.roles), len(c.bindings), c.size
		dropRole := func(key rbac.Key) {
			if at, found := c.findRole(x.records.nodes, key); found {
				roles--
				size -= int(c.roles[at].size)
			}
		}
		dropBinding := func(key rbac.Key) {
			if at, found := c.findBinding(key); found {
				bindings--
				size -= int(c.bindings[at].size)
			}
		}
		for i := range p.roles {
			dropRole(p.roles[i].key)
		}
		for _, b := range p.bindings {
			dropBinding(b.key)
		}
		for _, key := range distinct(u.DeletedRoles) {
			dropRole(key)
		}
		for _, key := range distinct(u.DeletedBindings) {
			dropBinding(key)
		}
	}
	for i := range p.roles {
		size += p.roles[i].size
	}
	for _, b := range p.bindings {
		size += b.size
	}
	return roles + len(p.roles), bindings + len(p.bindings), size
}

func (x *Index) setRoles(c *cluster, u *Update, p *prepared, changes *changes) {
	now := make([]*role, len(p.roles))
	for i := range p.roles {
		now[i] = x.records.role(&p.roles[i])
		if now[i].clusters.add(c.id) {
			changes.role(now[i])
		}
	}
	byNode := func(a, b *role) int { return cmp.Compare(a.node.id, b.node.id) }
	slices.SortFunc(now, byNode)
	var deleted []int
	if !u.Full {
		for _, key := range distinct(u.DeletedRoles) {
			if at, found := c.findRole(x.records.nodes, key); found {
				deleted = append(deleted, at)
			}
		}
	}
	c.roles = replace(c.roles, now, deleted, u.Full, byNode, func(r *role) {
		changes.role(r)
		x.releaseRole(c, r)
	})
}

func (x *Index) setBindings(c *cluster, u *Update, p *prepared, changes *changes) {
	now := make([]*binding, len(p.bindings))
	for i, b := range p.bindings {
		now[i] = x.records.binding(b)
		if now[i].clusters.add(c.id) {
			changes.binding(now[i])
		}
	}
	byKey := func(a, b *binding) int { return a.compare(b.namespace.Value(), b.name.Value()) }
	slices.SortFunc(now, byKey)
	var deleted []int
	if !u.Full {
		for _, key := range distinct(u.DeletedBindings) {
			if at, found := c.findBinding(key); found {
				deleted = append(deleted, at)
			}
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
	}
	// The positions are valid until the list changes its length.
	var added []T
	for _, record := range now {
		at, found := slices.BinarySearchFunc(list, record, compare)
		switch {
		case !found:
			added = append(added, record)
		case list[at] != record:
			release(list[at])
			list[at] = record
		}
	}
	for _, at := range deleted {
		list[at] = none
	}
	if len(deleted) > 0 {
		list = slices.DeleteFunc(list, func(record T) bool { return record == none })
	}
	switch len(added) {
	case 0:
	case 1:
		at, _ := slices.BinarySearchFunc(list, added[0], compare)
		list = slices.Insert(list, at, added[0])
	default:
		list = append(list, added...)
		slices.SortFunc(list, compare)
	}
	return list
}

// findRole returns the position of a role of the cluster.
func (c *cluster) findRole(nodes map[nodeKey]*node, key rbac.Key) (int, bool) {
	n := nodes[nodeKey{unique.Make(key.Namespace), unique.Make(key.Name)}]
	if n == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(c.roles, n.id, func(r *role, id uint64) int { return cmp.Compare(r.node.id, id) })
}

// findBinding returns the position of a binding of the cluster.
func (c *cluster) findBinding(key rbac.Key) (int, bool) {
	return slices.BinarySearchFunc(c.bindings, key, func(b *binding, key rbac.Key) int { return b.compare(key.Namespace, key.Name) })
}

func distinct(keys []rbac.Key) []rbac.Key {
	seen := make(map[rbac.Key]bool, len(keys))
	var list []rbac.Key
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			list = append(list, key)
		}
	}
	return list
}
