package embedded

import (
	"slices"
	"sync"
)

// writer contains the data that transactions use, one transaction at a time.
type writer struct {
	transactions uint64
	free         *freeList
	dictionary   *dictionaryMemory
	index        indexerMemory
	rows         rowMemory
	graph        graphMemory
}

// newWriter derives a writer from a state. After a transaction was abandoned, this undoes its
// changes.
func newWriter(s *state, transactions uint64) *writer {
	dictionary := newDictionaryMemory(s)
	graph := graphMemory{relationEdges: s.countRelations(), numbers: map[string]uint32{}}
	w := &writer{transactions: transactions, dictionary: dictionary, free: newFreeList(s), graph: graph}
	for i, edges := range graph.relationEdges {
		if edges == 0 {
			w.free.add(relationNumbers, uint32(i))
		} else {
			graph.numbers[s.relations.get(uint32(i))] = uint32(i)
		}
	}
	return w
}

// transaction changes a copy of a state. Each of its writers changes one part of the copy.
type transaction struct {
	state   state
	id      uint64
	writer  *writer
	journal journal

	dict        *dictionaryWriter
	index       *indexer
	rowWriter   *rowWriter
	edges       *graphWriter
	ownClusters bool
}

// begin starts a transaction on a copy of a state.
func (w *writer) begin(s *state) *transaction {
	w.transactions++
	t := &transaction{state: *s, id: w.transactions, writer: w, journal: journal{recording: true}}
	t.dict = &dictionaryWriter{
		dictionary: &t.state.dictionary, dictionaryMemory: w.dictionary, id: t.id, free: w.free, fresh: map[uint32][]uint32{},
	}
	t.index = &indexer{dictionaryWriter: t.dict, indexerMemory: &w.index}
	t.rowWriter = &rowWriter{
		state: &t.state, rowMemory: &w.rows, id: t.id, free: w.free, dict: t.dict, index: t.index,
		class: &classWriter{resources: &t.state.resources, id: t.id, free: w.free}, journal: &t.journal,
	}
	t.edges = &graphWriter{graph: &t.state.graph, graphMemory: &w.graph, id: t.id, free: w.free, rows: t.rowWriter}
	return t
}

// prepare adds pending data, and inserts the new terms into their order. It calls write
// concurrently. write must only read the transaction.
func (t *transaction) prepare(write func() error) error {
	t.index.flush()
	for id := range t.dict.fresh {
		t.dict.editProperty(id)
	}
	// None of these functions reads data that another one changes.
	var wait sync.WaitGroup
	wait.Go(t.dict.flushTrigrams)
	wait.Go(t.dict.order)
	err := write()
	wait.Wait()
	return err
}

// finish removes unused data before the state is published.
func (t *transaction) finish() {
	t.dict.removeUnused(t.state.version)
	if len(t.state.moved) > 2*movedLimit {
		t.state.firstMoved += uint64(len(t.state.moved) - movedLimit)
		t.state.moved = slices.Clone(t.state.moved[len(t.state.moved)-movedLimit:])
	}
}
