package embedded

// A vector consists of pages of leaves, which contain the elements.
const (
	leafBits = 6
	leafSize = 1 << leafBits
	pageBits = 6
	pageSize = 1 << pageBits
)

// vector is an array that shares memory with its copies. An assignment copies a vector, and edit
// copies only the parts that the transaction does not own yet. Elements that were never set are
// zero.
//
// A vector of a published state no longer changes. Only one transaction at a time changes a
// copy.
type vector[T any] struct {
	pages  []*page[T]
	owner  uint64
	length int
}

type page[T any] struct {
	owner  uint64
	leaves [pageSize]*leaf[T]
}

type leaf[T any] struct {
	owner    uint64
	elements [leafSize]T
}

// get returns the element at an index.
func (v *vector[T]) get(i uint32) T {
	if p := v.at(i); p != nil {
		return *p
	}
	var zero T
	return zero
}

// at returns the element at an index, which must not be changed. It returns nil if the element is
// in a leaf that was never set.
func (v *vector[T]) at(i uint32) *T {
	if leaf := v.leafOf(i); leaf != nil {
		return &leaf[i&(leafSize-1)]
	}
	return nil
}

// leafOf returns the leaf that contains an index, like at.
func (v *vector[T]) leafOf(i uint32) *[leafSize]T {
	at := i >> (leafBits + pageBits)
	if at >= uint32(len(v.pages)) || v.pages[at] == nil {
		return nil
	}
	if l := v.pages[at].leaves[i>>leafBits&(pageSize-1)]; l != nil {
		return &l.elements
	}
	return nil
}

// edit returns the element at an index. The transaction may change it until the transaction ends.
func (v *vector[T]) edit(transaction uint64, i uint32) *T {
	return &v.editLeaf(transaction, i)[i&(leafSize-1)]
}

// editLeaf returns the leaf that contains an index, like edit.
func (v *vector[T]) editLeaf(transaction uint64, i uint32) *[leafSize]T {
	at := int(i >> (leafBits + pageBits))
	if v.owner != transaction {
		v.pages, v.owner = append(make([]*page[T], 0, cap(v.pages)), v.pages...), transaction
	}
	if missing := at + 1 - len(v.pages); missing > 0 {
		v.pages = append(v.pages, make([]*page[T], missing)...)
	}
	v.length = max(v.length, int(i)+1)
	p := v.pages[at]
	if p == nil || p.owner != transaction {
		owned := &page[T]{owner: transaction}
		if p != nil {
			owned.leaves = p.leaves
		}
		p = owned
		v.pages[at] = p
	}
	l := p.leaves[i>>leafBits&(pageSize-1)]
	if l == nil || l.owner != transaction {
		owned := &leaf[T]{owner: transaction}
		if l != nil {
			owned.elements = l.elements
		}
		l = owned
		p.leaves[i>>leafBits&(pageSize-1)] = l
	}
	return &l.elements
}

// each calls f with each leaf that was set, and the index of its first element.
func (v *vector[T]) each(f func(first uint32, elements *[leafSize]T)) {
	for i, p := range v.pages {
		if p == nil {
			continue
		}
		for j, l := range p.leaves {
			if l != nil {
				f(uint32((i<<pageBits|j)<<leafBits), &l.elements)
			}
		}
	}
}

// len returns the highest index that was ever set, plus one.
func (v *vector[T]) len() int { return v.length }
