package embedded

// A vector consists of leaves, which contain the elements.
const (
	leafBits = 6
	leafSize = 1 << leafBits
)

// vector is an array that shares memory with its copies. An assignment copies a vector, and edit
// copies only the parts that the transaction does not own yet. Elements that were never set are
// zero.
//
// A vector of a published state does not change any more. Only one transaction at a time changes a
// copy.
type vector[T any] struct {
	leaves []*leaf[T]
	owner  uint64
	length int
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
	at := i >> leafBits
	if at >= uint32(len(v.leaves)) || v.leaves[at] == nil {
		return nil
	}
	return &v.leaves[at].elements[i&(leafSize-1)]
}

// edit returns the element at an index. The transaction may change it until the transaction ends.
func (v *vector[T]) edit(transaction uint64, i uint32) *T {
	at := int(i >> leafBits)
	if v.owner != transaction {
		v.leaves, v.owner = append(make([]*leaf[T], 0, cap(v.leaves)), v.leaves...), transaction
	}
	if missing := at + 1 - len(v.leaves); missing > 0 {
		v.leaves = append(v.leaves, make([]*leaf[T], missing)...)
	}
	v.length = max(v.length, int(i)+1)
	l := v.leaves[at]
	if l == nil || l.owner != transaction {
		owned := &leaf[T]{owner: transaction}
		if l != nil {
			owned.elements = l.elements
		}
		l = owned
		v.leaves[at] = l
	}
	return &l.elements[i&(leafSize-1)]
}

// each calls f with each leaf that was set, and the index of its first element.
func (v *vector[T]) each(f func(first uint32, elements *[leafSize]T)) {
	for i, l := range v.leaves {
		if l != nil {
			f(uint32(i<<leafBits), &l.elements)
		}
	}
}

// len returns the highest index that was ever set, plus one.
func (v *vector[T]) len() int { return v.length }
