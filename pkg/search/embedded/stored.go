package embedded

// storedChanges are what a transaction must write to disk: by cluster, the rows that were
// put, the UIDs that are gone, and the rows whose outgoing edges changed.
type storedChanges struct {
	clusters map[uint32]*storedCluster
}

type storedCluster struct {
	rows    []uint32
	sources []uint32
	gone    []string
	// unrelated are UIDs of rows that are given up, so that they have no edges.
	unrelated []string
	// removed is true if all that was stored before is gone.
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
