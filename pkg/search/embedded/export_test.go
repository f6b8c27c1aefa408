package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search"

// OnBoot are options as if the machine were in a run with this ID.
func OnBoot(id string) Options { return Options{boot: id} }

// DataFile is the name of the file in the directory of an engine.
const DataFile = dataFile

// WithoutRankings are options to do without orders of all resources, as is done until there are.
func WithoutRankings() Options { return Options{noRankings: true} }

// Ranked tells whether an order of all resources is kept.
func (e *Engine) Ranked(by []search.Order) bool {
	e.rankings.mu.Lock()
	defer e.rankings.mu.Unlock()
	entry := e.rankings.byKey[orderKey(by)]
	return entry != nil && entry.current.Load() != nil
}

// TextBytes is how much memory the texts of values take.
func (e *Engine) TextBytes() int {
	size := 0
	for _, piece := range e.current.Load().texts {
		size += len(piece)
	}
	return size
}
