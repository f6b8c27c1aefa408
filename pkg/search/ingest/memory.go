package ingest

import (
	"unsafe"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Approximate memory of the parts of a report, in addition to their texts.
const (
	leafCost     = int(unsafe.Sizeof(query.Leaf{}))
	propertyCost = int(unsafe.Sizeof(query.Property{}))
	// mapCost is the memory of an entry in a map of texts.
	mapCost      = 48
	resourceCost = int(unsafe.Sizeof(search.Resource{})) + mapCost
	deletionCost = int(unsafe.Sizeof(""))
	edgeCost     = int(unsafe.Sizeof(search.Edge{}))
)

// announceAfter is the growth of a report after which hold is called again.
const announceAfter = 1 << 20

// roomyLeaves is the number of leaves up to which decoded properties have no spare capacity.
const roomyLeaves = 64

// grow adds to the memory of the report.
func (d *decoder) grow(bytes int) error {
	d.held += int64(bytes)
	if d.held < d.announced+announceAfter {
		return nil
	}
	d.announced = d.held
	return d.hold(d.held)
}

// compactLeaves removes spare capacity. The leaves were appended one by one, so it may be as large
// as the leaves.
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
