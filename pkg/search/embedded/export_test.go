package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search"

// OnBoot returns options that simulate a machine with the given boot ID.
func OnBoot(id string) Options { return Options{boot: id} }

// Names in the directory of an engine.
const (
	StateFile    = stateFile
	DiscardedDir = discardedDir
	FormerFile   = formerFile
)

// ClusterFile returns the name of the file of a cluster.
func ClusterFile(cluster string) string { return fileName(cluster) }

// WithoutRankings returns options without rankings.
func WithoutRankings() Options { return Options{noRankings: true} }

// Ranked reports whether a ranking of an order exists.
func (e *Engine) Ranked(by []search.Order) bool {
	e.rankings.mu.Lock()
	defer e.rankings.mu.Unlock()
	entry := e.rankings.byKey[orderKey(by)]
	return entry != nil && entry.current.Load() != nil
}

// TextBytes returns the memory of the texts of terms.
func (e *Engine) TextBytes() int {
	size := 0
	e.current.Load().terms.each(func(_ uint32, terms *[leafSize]term) {
		for i := range terms {
			size += len(terms[i].text)
		}
	})
	return size
}
