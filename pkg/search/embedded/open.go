package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// lostVersions is by how much the version grows when some may have been lost: more than
// can have been given out between two times that the data were made durable.
const lostVersions = 1 << 32

// asideSuffix is what the names of files with damaged data have before a number.
const asideSuffix = ".corrupt-"

// formatSuffix is the same for files of another format, which are not damaged.
const formatSuffix = ".format-"

// Open opens the data in a directory, which is made if it does not exist. It returns
// search.ErrInUse if another process has them open.
//
// After a crash of the machine every cluster is Incomplete until its next full
// report. Data that are damaged, or of another format, are moved aside with a message, and the engine
// begins empty.
func Open(dir string, options Options) (*Engine, error) {
	registerMetrics()
	e := &Engine{
		logger: options.Logger, dir: dir, boot: options.boot, scopes: newScopes(), completions: newCompletions(),
		queue: make(chan *order, maxQueue), closed: make(chan struct{}),
		maxCost: options.MaxCost, caller: options.Caller, turns: newTurns(), answers: search.NewPool(search.PoolBytes),
	}
	if e.maxCost <= 0 {
		e.maxCost = search.DefaultCost
	}
	if !options.noRankings {
		e.rankings = newRankings(e)
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
	var err error
	if e.tokens, err = newTokens(); err != nil {
		return nil, err
	}
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
	if isDamage(err) {
		t, err = e.beginEmpty(path, err)
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

// openTrusted opens the file, which is as this machine has left it, and reads all of it.
func (e *Engine) openTrusted(path string) (*transaction, error) {
	if err := checkFile(path); err != nil {
		return nil, err
	}
	db, err := openStore(path)
	if err != nil {
		return nil, err
	}
	var t *transaction
	if err := guarded(func() error {
		var err error
		t, err = readAll(db, path)
		return err
	}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	e.db = db
	return t, nil
}

// recover reads a file that a crash of the machine may have left in any condition, and writes what it
// has to a new one, so that nothing is built on what may be wrong with it.
func (e *Engine) recover(path string) (*transaction, error) {
	t, old, err := readUntrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e.openTrusted(path)
	}
	if err != nil {
		return nil, err
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

// isDamage tells whether an error is one of what the file contains, rather than of the attempt to read it.
func isDamage(err error) bool { return errors.Is(err, errCorrupt) || errors.Is(err, errFormat) }

// beginEmpty puts data that cannot be read out of the way, instead of those that were put there before, and
// begins without any. Clusters are told to report everything when they report to an engine that does
// not know them.
func (e *Engine) beginEmpty(path string, damage error) (*transaction, error) {
	var previous []string
	for _, suffix := range [...]string{asideSuffix, formatSuffix} {
		found, err := filepath.Glob(path + suffix + "*")
		if err != nil {
			return nil, fmt.Errorf("damaged data: %w", err)
		}
		previous = append(previous, found...)
	}
	other := errors.Is(damage, errFormat)
	aside := path + asideSuffix
	if other {
		aside = path + formatSuffix
	}
	aside += strconv.FormatInt(time.Now().UnixNano(), 10)
	if err := os.Rename(path, aside); err != nil {
		return nil, fmt.Errorf("move damaged data aside: %w: %w", err, damage)
	}
	for _, old := range previous {
		if err := os.Remove(old); err != nil {
			e.logger.Error(err, "Data that were moved aside before were not removed")
		}
	}
	if other {
		e.logger.Info("The search data have another format than this version writes, and were moved aside; search begins empty, and "+
			"fills as clusters report again", "why", damage.Error(), "moved", aside)
	} else {
		e.logger.Error(damage, "The search data are damaged and were moved aside; search begins empty, and fills as clusters report. "+
			"The file that was moved is not needed any more, but for finding out what has damaged it", "moved", aside)
	}
	t, err := e.openTrusted(path)
	if err != nil {
		return nil, err
	}
	// Versions given out before are not known, but they were fewer than microseconds.
	t.version = uint64(time.Now().UnixMicro())
	return t, nil
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
	if db, err = openChecked(path); err != nil {
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

// checkFile checks the pages of a file, if there is one.
func checkFile(path string) error {
	db, err := openChecked(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return db.Close()
}

// openChecked opens a file for reading, and checks its pages.
func openChecked(path string) (*bbolt.DB, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if file.Size() == 0 {
		// Whoever made it did not come to write anything.
		return nil, fmt.Errorf("data: %w", fs.ErrNotExist)
	}
	var db *bbolt.DB
	if err := guarded(func() error {
		var err error
		db, err = openFile(path, &bbolt.Options{ReadOnly: true})
		if errno := syscall.Errno(0); err != nil && !errors.Is(err, search.ErrInUse) && !errors.As(err, &errno) {
			// It is not the system that refuses, but bbolt that finds no data of its own.
			err = fmt.Errorf("%w: %w", errCorrupt, err)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := guarded(func() error { return checkPages(db) }); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	return db, nil
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
