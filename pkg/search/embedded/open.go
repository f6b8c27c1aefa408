package embedded

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// lostVersions is by how much the version grows when some may have been lost: more than
// can have been given out between two times that the data were made durable.
const lostVersions = 1 << 32

// Open opens the data in a directory, which is made if it does not exist. It returns
// search.ErrInUse if another process has them open.
//
// After a crash of the machine every cluster is Incomplete until its next full
// report. If the data cannot be read then, they are moved aside, and the engine begins empty.
func Open(dir string, options Options) (*Engine, error) {
	registerMetrics()
	e := &Engine{
		logger: options.Logger, dir: dir, boot: options.boot, scopes: newScopes(),
		queue: make(chan *order, maxQueue), closed: make(chan struct{}),
	}
	if e.logger.GetSink() == nil {
		e.logger = klog.Background()
	}
	if e.boot == "" {
		e.boot = bootID()
	}
	e.log = changeLog{limit: options.ChangeLog, published: make(chan struct{})}
	if e.log.limit <= 0 {
		e.log.limit = defaultChangeLog
	}
	var epoch [8]byte
	if _, err := rand.Read(epoch[:]); err != nil {
		return nil, fmt.Errorf("epoch: %w", err)
	}
	e.epoch = binary.BigEndian.Uint64(epoch[:])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the data: %w", err)
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	e.running.Add(2)
	go e.write()
	go e.sync()
	return e, nil
}

// open opens the file, and reads it.
func (e *Engine) open() error {
	path := filepath.Join(e.dir, dataFile)
	before, err := readMarker(filepath.Join(e.dir, markerFile))
	if err != nil {
		return err
	}
	start := time.Now()
	var t *transaction
	if before.trusts(e.boot) {
		t, err = e.openTrusted(path)
	} else {
		t, err = e.recover(path)
	}
	if err != nil {
		return err
	}
	if err := writeMarker(filepath.Join(e.dir, markerFile), marker{Boot: e.boot}); err != nil {
		return errors.Join(err, e.db.Close())
	}
	if err := releaseMapping(e.db); err != nil {
		e.logger.V(4).Info("Pages of the data stay in memory", "err", err)
	}
	if t.visible > 0 {
		e.logger.Info("Search has read its data", "resources", t.visible, "clusters", len(t.clusters), "duration", time.Since(start))
	}
	s := t.state
	e.writer = t.writer
	e.current.Store(&s)
	e.log.reset(&s)
	s.measure()
	return nil
}

// openTrusted opens the file and reads all of it.
func (e *Engine) openTrusted(path string) (*transaction, error) {
	db, err := openStore(path)
	if err != nil {
		return nil, err
	}
	t, err := readAll(db, path)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	e.db = db
	return t, nil
}

// recover reads a file that a crash of the machine may have left in any condition, and writes what it
// has to a new one, so that nothing is built on what may be wrong with it.
func (e *Engine) recover(path string) (*transaction, error) {
	t, old, err := readUntrusted(path)
	switch {
	case errors.Is(err, search.ErrInUse):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return e.openTrusted(path)
	case err != nil:
		aside := fmt.Sprintf("%s.corrupt-%d", path, time.Now().UnixNano())
		e.logger.Error(err, "The data did not survive the crash of the machine; search begins empty, until clusters report", "moved", aside)
		if err := os.Rename(path, aside); err != nil {
			return nil, fmt.Errorf("move corrupt data aside: %w", err)
		}
		if t, err = e.openTrusted(path); err != nil {
			return nil, err
		}
		// Versions given out before are not known, but they were fewer than microseconds.
		t.version = uint64(time.Now().UnixMicro())
		return t, nil
	}
	defer func() {
		if err := old.Close(); err != nil {
			e.logger.Error(err, "The data from before the crash of the machine were not closed")
		}
	}()
	e.logger.Info("The machine crashed since reports were written; clusters need to report everything again", "clusters", len(t.clusters))
	t.version += lostVersions
	for id := range t.clusters {
		c := t.editCluster(uint32(id))
		c.incomplete = true
		t.stored.cluster(c.id)
	}
	return t, e.replace(path, t)
}

// replace puts a new file with all that a transaction has in the place of another.
func (e *Engine) replace(path string, t *transaction) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("new data: %w", err)
	}
	db, err := openStore(fresh)
	if err != nil {
		return err
	}
	err = t.writeAll(db)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the data anew: %w", err), db.Close())
	}
	t.stored = storedChanges{}
	e.db = db
	return nil
}

// readUntrusted reads a file that may be corrupt. The file stays open, so that others do not use it.
func readUntrusted(path string) (t *transaction, db *bbolt.DB, err error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, fmt.Errorf("data: %w", err)
	}
	if err := guarded(func() error {
		var err error
		db, err = openFile(path, &bbolt.Options{ReadOnly: true})
		return err
	}); err != nil {
		return nil, nil, err
	}
	if err := guarded(func() error {
		var err error
		t, err = readAll(db, path)
		return err
	}); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return t, db, nil
}

// readAll reads all that a file has.
func readAll(db *bbolt.DB, path string) (*transaction, error) {
	t := newWriter(&state{}, 0).begin(&state{
		propertyNames: map[string]uint32{}, clusterNames: map[string]uint32{}, relationNames: map[string]uint32{},
	})
	t.recording = false
	if err := db.View(t.load); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err := t.prepare(func() error { return nil }); err != nil {
		return nil, err
	}
	t.finish()
	t.compact()
	t.moved = nil
	return t, nil
}

// guarded turns panics, and faults in mapped memory, into errors: that is how corrupt
// files show.
func guarded(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errCorrupt, p)
		}
	}()
	return f()
}
