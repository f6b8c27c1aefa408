package embedded

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"unique"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
)

// classWriter changes the classes of rows.
type classWriter struct {
	resources *resources
	id        uint64
	free      *freeList
	// emptied are classes of the current cluster that may have no row left.
	emptied []uint32
}

// secret reports whether a class contains Secrets on a managed cluster. The permission to view the
// cluster does not include them.
func secret(c visibility.Class) bool { return !c.Hub && c.Secret() }

// enter adds a row to a class and returns the number of the class. It creates the class if it is
// new.
func (w *classWriter) enter(c *cluster, of visibility.Class, row uint32) uint32 {
	id := w.number(c, of)
	w.resources.classes.edit(w.id, id).rows.add(w.id, row)
	if secret(of) {
		c.secrets.add(w.id, row)
	} else {
		c.secrets.remove(w.id, row)
	}
	return id
}

func (w *classWriter) number(c *cluster, of visibility.Class) uint32 {
	hash := hashClass(c.id, &of)
	if id, known := w.resources.classTable.find(hash, func(id uint32) bool { return w.resources.classes.at(id).class == of }); known {
		return id
	}
	id := w.free.take(classNumbers, w.resources.classes.len())
	*w.resources.classes.edit(w.id, id) = class{class: interned(c.name, of), cluster: c.id}
	w.resources.classTable.insert(w.id, hash, id)
	// Appending does not change the part of the memory that older states read.
	if secret(of) {
		c.secretClasses = append(c.secretClasses, id)
	} else {
		c.classes = append(c.classes, id)
	}
	if of.Hub {
		w.resources.hubClasses++
	}
	return id
}

// leave removes a row from its class.
func (w *classWriter) leave(id, row uint32) {
	e := w.resources.classes.edit(w.id, id)
	e.rows.remove(w.id, row)
	if e.rows.empty() && !e.pending {
		w.emptied = append(w.emptied, id)
	}
}

// removeEmpty removes the classes of a cluster that have no row left.
func (w *classWriter) removeEmpty(c *cluster) {
	unused := func(id uint32) bool { return w.resources.classes.at(id).rows.empty() }
	slices.Sort(w.emptied)
	emptied := slices.DeleteFunc(slices.Compact(w.emptied), func(id uint32) bool { return !unused(id) })
	w.emptied = w.emptied[:0]
	if len(emptied) == 0 {
		return
	}
	for _, id := range emptied {
		e := w.resources.classes.at(id)
		w.resources.classTable.remove(w.id, hashClass(c.id, &e.class), id)
		if e.class.Hub {
			w.resources.hubClasses++
		}
		w.free.add(classNumbers, id)
	}
	for _, list := range [...]*[]uint32{&c.classes, &c.secretClasses} {
		*list = slices.DeleteFunc(slices.Clone(*list), unused)
	}
}

// newPending creates the class of rows to which only edges refer.
func (w *classWriter) newPending(cluster string, clusterID uint32) uint32 {
	id := uint32(w.resources.classes.len())
	*w.resources.classes.edit(w.id, id) = class{class: visibility.Class{Cluster: cluster}, cluster: clusterID, pending: true}
	return id
}

func hashClass(clusterID uint32, c *visibility.Class) uint64 {
	hash := hashOf(c.Namespace, clusterID)
	hash ^= bits.RotateLeft64(maphash.String(hashSeed, c.Resource), 1) ^ bits.RotateLeft64(maphash.String(hashSeed, c.Group), 2)
	if c.Hub {
		hash = ^hash
	}
	return hash
}

// interned returns a class that shares its texts with equal classes, so that it does not keep the
// memory of reports.
func interned(cluster string, c visibility.Class) visibility.Class {
	c.Cluster = cluster
	for _, text := range [...]*string{&c.Group, &c.Resource, &c.Namespace} {
		*text = unique.Make(*text).Value()
	}
	return c
}
