package embedded

import "fmt"

// OnBoot returns options that simulate a machine with the given boot ID.
func OnBoot(id string) Options { return Options{boot: id} }

// Names in the directory of an engine.
const (
	StateFile      = stateFile
	CheckpointFile = checkpointFile
	DiscardedDir   = discardedDir
)

// ClusterFile returns the name of the file of a cluster.
func ClusterFile(cluster string) string { return fileName(cluster) }

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

// Checkpoint writes a checkpoint. It calls then before the engine uses the mapping of the checkpoint, unless then is
// nil, in which case the engine does not use it.
func (e *Engine) Checkpoint(then func()) error {
	written, err := e.checkpoint()
	if err != nil || then == nil {
		return err
	}
	then()
	return e.useCheckpoint(written)
}

// Indexed returns the number of resources that were not in the checkpoint when the data were loaded.
func (e *Engine) Indexed() int { return e.indexed }

// CheckpointRecord returns the record of a checkpoint as text, without files.
func (e *Engine) CheckpointRecord() string {
	return fmt.Sprintf("%+v", *e.current.Load().record(nil))
}

// CheckpointHeader is the size of the header of a checkpoint.
const CheckpointHeader = checkpointHeader

// Relations returns the number of types of edges that have a number, including those that are free.
func (e *Engine) Relations() int { return e.current.Load().relations.len() }

// Cached returns the number of kept keywords.
func (e *Engine) Cached() int { return e.keywords.Len() }
