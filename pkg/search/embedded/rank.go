package embedded

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sort"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// pauseRows is the number of rows between two calls of pause.
const pauseRows = 4096

// ranked returns all resources in an order. Resources with equal values are ordered by UID. It
// calls pause regularly and returns the error of pause.
func (s *state) ranked(by []search.Order, pause func() error) ([]uint32, error) {
	rows, err := s.byUID(pause)
	if err != nil {
		return nil, err
	}
	// The sorts are stable, so the most significant property is sorted last.
	for i := len(by) - 1; i >= 0; i-- {
		ranks, highest, err := s.ranks(by[i].Property, pause)
		if err != nil {
			return nil, err
		}
		if by[i].Descending {
			for row, rank := range ranks {
				if rank > 0 {
					ranks[row] = highest + 1 - rank
				}
			}
		}
		rows = sortedByRank(rows, ranks, highest)
		if err := pause(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// sortedByRank returns rows sorted by their ranks. highest is the maximum rank. Rows without a rank
// come last.
func sortedByRank(rows, ranks []uint32, highest uint32) []uint32 {
	starts := make([]uint32, highest+2)
	for _, row := range rows {
		starts[(ranks[row]+highest)%(highest+1)+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	sorted := make([]uint32, len(rows))
	for _, row := range rows {
		place := (ranks[row] + highest) % (highest + 1)
		sorted[starts[place]] = row
		starts[place]++
	}
	return sorted
}

// ranks returns the rank of each row's value among all values of a property, from 1. Rows without a
// value have the rank 0.
func (s *state) ranks(name string, pause func() error) (ranks []uint32, highest uint32, err error) {
	ranks = make([]uint32, s.rows.len())
	if name == query.Cluster {
		return ranks, s.rankClusters(ranks), nil
	}
	id, known := s.propertyNames[name]
	if !known {
		return ranks, 0, nil
	}
	p := s.properties.get(id)
	terms := s.termsByKey(p)
	if !p.variants[query.Map].empty() || !p.variants[query.List].empty() {
		highest, err = s.rankFirst(id, terms, ranks, pause)
		return ranks, highest, err
	}
	distinct := p.distinct()
	for i, number := range terms {
		if i == 0 || distinct || s.orderTerms(terms[i-1], number) != 0 {
			highest++
		}
		s.terms.at(number).postings.each(func(row uint32) bool {
			ranks[row] = highest
			return true
		})
		if i%pauseRows == pauseRows-1 {
			if err := pause(); err != nil {
				return nil, 0, err
			}
		}
	}
	return ranks, highest, nil
}

// rankFirst ranks rows by their first value. Rows may have several values.
func (s *state) rankFirst(property uint32, terms, ranks []uint32, pause func() error) (highest uint32, err error) {
	byTerm := make(map[uint32]uint32, len(terms))
	for i, number := range terms {
		if i == 0 || s.orderTerms(terms[i-1], number) != 0 {
			highest++
		}
		byTerm[number] = highest
	}
	for row := range uint32(len(ranks)) {
		if r := s.rows.at(row); r != nil && r.exists() {
			ranks[row] = byTerm[s.firstTerm(r.data, property)]
		}
		if row%pauseRows == pauseRows-1 {
			if err := pause(); err != nil {
				return 0, err
			}
		}
	}
	return highest, nil
}

// rankClusters ranks rows by the names of their clusters.
func (s *state) rankClusters(ranks []uint32) (highest uint32) {
	keys := make([]sortKey, len(s.clusters))
	order := make([]int, len(s.clusters))
	for i, c := range s.clusters {
		keys[i], order[i] = newSortKey(c.name), i
	}
	slices.SortFunc(order, func(a, b int) int { return keys[a].compare(&keys[b], false) })
	for i, at := range order {
		if i == 0 || keys[order[i-1]].compare(&keys[at], false) != 0 {
			highest++
		}
		s.clusters[at].rows.each(func(row uint32) bool {
			ranks[row] = highest
			return true
		})
	}
	return highest
}

// orderTerms compares the sort keys of two terms.
func (s *state) orderTerms(a, b uint32) int {
	ka, kb := s.termKey(a), s.termKey(b)
	return ka.compare(&kb, false)
}

// termsByKey returns the terms of a property in the order of their sort keys.
func (s *state) termsByKey(p *property) []uint32 {
	terms := slices.Concat(p.order...)
	if !p.inKeyOrder() {
		slices.SortStableFunc(terms, s.orderTerms)
	}
	return terms
}

// inKeyOrder reports whether the order of the terms equals the order of their sort keys.
func (p *property) inKeyOrder() bool {
	return p.counts[orderOdd>>4] == 0 && (p.counts[orderTime>>4] == 0 || p.counts[orderText>>4] == 0) && p.emptyKeys == 0
}

// distinct reports whether no two terms have equal sort keys.
func (p *property) distinct() bool {
	return p.emptyKeys == 0 && p.counts[orderNum>>4] == 0 && p.counts[orderOdd>>4] == 0 && len(p.keys) == 0 &&
		p.variants[query.List].empty() && p.variants[query.Bool].empty() && p.variants[query.JSON].empty()
}

// byUID returns all resources in the order of their UIDs.
func (s *state) byUID(pause func() error) ([]uint32, error) {
	clusters := slices.Clone(s.clusters)
	// In a UID, a slash follows the name. It determines the order if one name is a prefix of
	// another.
	slices.SortFunc(clusters, func(a, b *cluster) int { return strings.Compare(a.name+"/", b.name+"/") })
	rows := make([]uint32, 0, s.visible)
	var others []uint32
	for _, c := range clusters {
		keys := make([]sortable, 0, c.rows.count())
		c.rows.each(func(row uint32) bool {
			data := s.rows.at(row).data
			if data[0] == uidCluster {
				others = append(others, row)
			} else {
				keys = append(keys, sortable{prefix: uidPrefix(data), number: row})
			}
			return true
		})
		slices.SortFunc(keys, func(a, b sortable) int {
			return cmp.Or(cmp.Compare(a.prefix, b.prefix), s.compareUIDs(a.number, b.number))
		})
		for i := range keys {
			rows = append(rows, keys[i].number)
		}
		if err := pause(); err != nil {
			return nil, err
		}
	}
	// The UID of the resource for the cluster itself does not start with the name of the cluster.
	slices.SortFunc(others, s.compareUIDs)
	result, done := make([]uint32, 0, len(rows)+len(others)), 0
	for _, row := range others {
		at := done + sort.Search(len(rows)-done, func(i int) bool { return s.compareUIDs(rows[done+i], row) > 0 })
		result = append(append(result, rows[done:at]...), row)
		done = at
	}
	return append(result, rows[done:]...), nil
}

// uidPrefix returns the first eight bytes after the cluster's name in the UID of a row.
func uidPrefix(data string) uint64 {
	var text [8]byte
	if data[0] == uidUUID {
		var id [4]byte
		copy(id[:], data[1:])
		hex.Encode(text[:], id[:])
	} else {
		length, at := uvarint(data, 1)
		copy(text[:], data[at:at+int(length)])
	}
	return binary.BigEndian.Uint64(text[:])
}
