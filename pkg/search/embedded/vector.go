package embedded

// A vector is a tree of three levels: the root has branches, a branch has leaves, a
// leaf has elements.
const (
	leafBits   = 6
	leafSize   = 1 << leafBits
	branchBits = 7
	branchSize = 1 << branchBits
)

// vector is an array that shares what it can with its copies: a copy is an
// assignment, and set copies only the parts that the transaction does not own yet.
// Elements that were never set are zero.
//
// A vector that readers have is not changed any more; only copies of it are, by one
// transaction at a time.
type vector[T any] struct {
	root   []*branch[T]
	owner  uint64
	length int
}

// branch has the owners of its leaves, which are of a size that wastes no memory so.
type branch[T any] struct {
	owner  uint64
	owners [branchSize]uint64
	leaves [branchSize]*leaf[T]
}

type leaf[T any] [leafSize]T

// get is the element at an index.
func (v *vector[T]) get(i uint32) T {
	if p := v.at(i); p != nil {
		return *p
	}
	var zero T
	return zero
}

// at points to the element at an index, which must not be changed; nil if it is zero
// because it was never near one that was set.
func (v *vector[T]) at(i uint32) *T {
	b := i >> (leafBits + branchBits)
	if b >= uint32(len(v.root)) || v.root[b] == nil {
		return nil
	}
	l := v.root[b].leaves[i>>leafBits&(branchSize-1)]
	if l == nil {
		return nil
	}
	return &l[i&(leafSize-1)]
}

// edit points to the element at an index, which the transaction may change until it ends.
func (v *vector[T]) edit(transaction uint64, i uint32) *T {
	b := int(i >> (leafBits + branchBits))
	if v.owner != transaction || b >= len(v.root) {
		root := make([]*branch[T], max(len(v.root), b+1), max(cap(v.root), b+1+b/4))
		copy(root, v.root)
		v.root, v.owner = root, transaction
	}
	v.length = max(v.length, int(i)+1)
	node := v.root[b]
	switch {
	case node == nil:
		node = &branch[T]{owner: transaction}
		v.root[b] = node
	case node.owner != transaction:
		node = &branch[T]{owner: transaction, owners: node.owners, leaves: node.leaves}
		v.root[b] = node
	}
	at := i >> leafBits & (branchSize - 1)
	l := node.leaves[at]
	if l == nil || node.owners[at] != transaction {
		owned := new(leaf[T])
		if l != nil {
			*owned = *l
		}
		l = owned
		node.leaves[at], node.owners[at] = l, transaction
	}
	return &l[i&(leafSize-1)]
}

// each calls f with the elements from each index on that were ever near one that was set.
func (v *vector[T]) each(f func(first uint32, elements *[leafSize]T)) {
	for i, b := range v.root {
		if b == nil {
			continue
		}
		for j, l := range b.leaves {
			if l != nil {
				f(uint32(i<<(leafBits+branchBits)|j<<leafBits), (*[leafSize]T)(l))
			}
		}
	}
}

// len is one more than the highest index that was ever set.
func (v *vector[T]) len() int { return v.length }
