package embedded

// storedChanges contains the changes that a transaction must write to disk, by cluster.
type storedChanges struct {
	clusters map[uint32]*storedCluster
}

// storedCluster contains the changes of one cluster.
type storedCluster struct {
	// rows contains the changed rows. sources contains the rows whose outgoing edges changed.
	rows    []uint32
	sources []uint32
	// gone contains the UIDs of deleted resources. unrelated contains the UIDs of rows that no
	// longer have edges.
	gone      []string
	unrelated []string
	// removed is true if all previously stored data are deleted.
	removed bool
}

func (s *storedChanges) cluster(id uint32) *storedCluster {
	c := s.clusters[id]
	if c == nil {
		if s.clusters == nil {
			s.clusters = map[uint32]*storedCluster{}
		}
		c = &storedCluster{}
		s.clusters[id] = c
	}
	return c
}

func (s *storedChanges) row(cluster, number uint32) {
	c := s.cluster(cluster)
	c.rows = append(c.rows, number)
}

func (s *storedChanges) edges(cluster, source uint32) {
	c := s.cluster(cluster)
	if last := len(c.sources) - 1; last < 0 || c.sources[last] != source {
		c.sources = append(c.sources, source)
	}
}

func (s *storedChanges) gone(cluster uint32, uid string) {
	c := s.cluster(cluster)
	c.gone = append(c.gone, uid)
	c.unrelated = append(c.unrelated, uid)
}

func (s *storedChanges) noEdges(cluster uint32, uid string) {
	c := s.cluster(cluster)
	c.unrelated = append(c.unrelated, uid)
}
