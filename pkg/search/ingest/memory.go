package ingest

import (
	"unsafe"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// About how many bytes of memory parts of a report take, beside their texts.
const (
	leafCost     = int(unsafe.Sizeof(query.Leaf{}))
	propertyCost = int(unsafe.Sizeof(query.Property{}))
	// mapCost is what an entry of a map of texts takes.
	mapCost      = 48
	resourceCost = int(unsafe.Sizeof(search.Resource{})) + mapCost
	deletionCost = int(unsafe.Sizeof(""))
	edgeCost     = int(unsafe.Sizeof(search.Edge{}))
)

// tellAfter is how much more a report takes when that is told.
const tellAfter = 1 << 20

// roomyLeaves is up to how many leaves properties are decoded without waste.
const roomyLeaves = 64

// takes counts what the report takes more.
func (d *decoder) takes(bytes int) error {
	d.held += int64(bytes)
	if d.held < d.told+tellAfter {
		return nil
	}
	d.told = d.held
	return d.hold(d.held)
}

// compactLeaves gives many leaves a place of just their size. They were appended one by one, so that
// as much room again may have been kept for more.
func compactLeaves(properties query.Properties) {
	leaves := 0
	for i := range properties {
		leaves += len(properties[i].Leaves)
	}
	if leaves <= roomyLeaves {
		return
	}
	all := make([]query.Leaf, 0, leaves)
	for i := range properties {
		begin := len(all)
		all = append(all, properties[i].Leaves...)
		properties[i].Leaves = all[begin:len(all):len(all)]
	}
}
