package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// loader adds the files of clusters to a transaction.
type loader struct {
	transaction *transaction
	store       *store
	// known contains the files whose entries a checkpoint contains.
	known map[string]*clusterFile
	// indexed is the number of resources that a checkpoint does not contain.
	indexed int
	// properties and leaves are buffers for one resource at a time.
	properties query.Properties
	leaves     []query.Leaf
}

// loadedFile is the content of the file of a cluster, or the reason why it cannot be used.
type loadedFile struct {
	cluster string
	*clusterEntries
	damage error
}

// load reads the files of all clusters, until ctx ends. The known files are in the state already.
// It returns the number of resources that were not.
func (t *transaction) load(ctx context.Context, s *store, known map[string]*clusterFile) (indexed int, err error) {
	names, err := s.clusters()
	if err != nil {
		return 0, err
	}
	l := &loader{transaction: t, store: s, known: known}
	for name := range known {
		if !slices.Contains(names, name) {
			l.forget(name)
		}
	}
	defer func() { s.content = nil }()
	// The next file is read and checked while the resources of the previous one are indexed.
	files := make(chan loadedFile)
	go func() {
		defer close(files)
		for _, name := range names {
			if ctx.Err() != nil {
				return
			}
			entries, damage := s.read(name, known[name])
			files <- loadedFile{name, entries, damage}
		}
	}()
	for file := range files {
		damage := file.damage
		if damage == nil {
			damage = l.add(&file)
		}
		if damage != nil {
			err = errors.Join(err, l.drop(file.cluster, damage))
		}
	}
	return l.indexed, errors.Join(err, ctx.Err())
}

// forget removes a cluster of a checkpoint that was removed or written again later. The version
// includes that change already.
func (l *loader) forget(name string) {
	version := l.transaction.state.version
	l.transaction.removeCluster(name)
	l.transaction.state.version = version
}

// add adds the entries of a file. It returns an error if they are damaged.
func (l *loader) add(file *loadedFile) error {
	if file.unchanged {
		l.store.files[file.cluster] = file.file
		return nil
	}
	if !file.later && l.known[file.cluster] != nil {
		l.forget(file.cluster)
	}
	c := l.transaction.cluster(file.cluster, file.record.Hub)
	for _, e := range file.resources {
		if err := l.addResource(c, e); err != nil {
			return err
		}
	}
	for _, e := range file.edges {
		if number, known := l.transaction.state.findRow(c.id, e.key); known && file.later {
			l.transaction.edges.removeFrom(c, number, nil)
		}
		if !l.transaction.edges.load(c, e) {
			return fmt.Errorf("edges of %x: %w", e.key, errCorrupt)
		}
	}
	l.transaction.sweep(c)
	c.reported, c.incomplete = file.record.Reported, file.record.Incomplete
	if resources := c.rows.count(); resources != file.record.Resources || c.edges != file.record.Edges {
		return fmt.Errorf("%d resources of %d and %d edges of %d: %w", resources, file.record.Resources, c.edges, file.record.Edges, errCorrupt)
	}
	l.store.files[file.cluster] = file.file
	return nil
}

// addResource adds or removes a resource.
func (l *loader) addResource(c *cluster, e entry) error {
	if !isUID(e.key) {
		return fmt.Errorf("resource %x: %w", e.key, errCorrupt)
	}
	if len(e.value) == 0 {
		if number, known := l.transaction.state.findRow(c.id, e.key); known && l.transaction.state.rows.at(number).exists() {
			l.indexed++
			l.transaction.remove(number, c, nil)
		}
		return nil
	}
	var version uint64
	var ok bool
	if version, l.properties, l.leaves, ok = readRecord(e.value, l.properties[:0], l.leaves[:0]); !ok {
		return fmt.Errorf("resource %x: %w", e.key, errCorrupt)
	}
	l.indexed++
	reached := l.transaction.state.version
	l.transaction.state.version = max(version, 1)
	uid := appendUIDText(nil, c.name, bytesAsString(e.key))
	number, _ := l.transaction.rowWriter.put(c, &search.Resource{UID: bytesAsString(uid), Properties: l.properties})
	// The properties may have changed and changed back.
	l.transaction.state.rows.edit(l.transaction.id, number).version = l.transaction.state.version
	l.transaction.state.version = max(reached, l.transaction.state.version)
	return nil
}

// drop removes a cluster whose file is damaged. The cluster is Incomplete until its next full
// report.
func (l *loader) drop(name string, damage error) error {
	l.transaction.removeCluster(name)
	l.transaction.cluster(name, false).incomplete = true
	if !errors.Is(damage, errFormat) && !errors.Is(damage, errCorrupt) {
		damage = fmt.Errorf("%w: %w", errCorrupt, damage)
	}
	return l.store.discard(fileName(name), damage)
}
