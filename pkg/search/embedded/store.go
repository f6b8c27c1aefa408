package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// stateFile contains storeState. The process that has the data open holds a lock on it.
	stateFile = "search.state"
	// clusterSuffix follows the escaped name of the cluster in the name of its file.
	clusterSuffix = ".cluster"
	// temporarySuffix is the suffix of a file that replaces another file when it is complete.
	temporarySuffix = ".new"
	// discardedDir contains the files that were moved aside. It contains only the last file of each
	// cluster.
	discardedDir = "discarded"

	// stateSize is the size of the state file, which is overwritten in place. Its last bytes are a checksum.
	stateSize = 256
	sumSize   = 4

	lockTimeout = 2 * time.Second
	lockPeriod  = 20 * time.Millisecond

	// bootIDFile contains an ID that changes when the machine starts.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

var (
	errCorrupt = errors.New("the data are damaged")
	errFormat  = errors.New("the data have another format")
)

// storeState is written before the files of the clusters, so its version is at least the version of
// the newest file.
type storeState struct {
	Version uint64 `json:"version"`
	// Boot is the ID of the run of the machine in which the data were last opened.
	Boot string `json:"boot,omitempty"`
	// Clean is true if all data were made durable when they were closed.
	Clean bool `json:"clean,omitempty"`
}

// store keeps the reports of clusters on disk, with one file for each cluster. A write survives a
// crash of the process. It becomes durable against a crash of the machine when the store is closed.
//
// Files are read when the store is opened, and each file has a checksum of its whole content. A file
// that does not match its checksum is moved aside, and its cluster reports again.
type store struct {
	storeState
	dir    string
	logger klog.Logger
	lock   *os.File
	files  map[string]*clusterFile
	// trusted is false if the machine has crashed since the data were written.
	trusted bool
	entries entryWriter
	// content is a buffer for files.
	content []byte
	// mapping is the last mapping of a checkpoint, or empty.
	mapping []byte
}

// bootID returns the ID of the current run of the machine, or "" if the system provides none.
func bootID() string {
	id, err := os.ReadFile(bootIDFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// openStore opens the directory for this process.
func openStore(dir, boot string, logger klog.Logger) (_ *store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the search data: %w", err)
	}
	s := &store{dir: dir, logger: logger, files: map[string]*clusterFile{}}
	if s.lock, err = os.OpenFile(filepath.Join(dir, stateFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("search data: %w", err)
	}
	if err := s.begin(boot); err != nil {
		s.abandon()
		return nil, fmt.Errorf("search data in %s: %w", dir, err)
	}
	return s, nil
}

// begin reads the state, and marks the data as open.
func (s *store) begin(boot string) error {
	if err := flock(s.lock); err != nil {
		return err
	}
	known, err := s.readState()
	if err != nil {
		return err
	}
	s.trusted = known && (s.Clean || boot != "" && s.Boot == boot)
	s.Boot, s.Clean = boot, false
	if err := s.writeState(s.Version); err != nil {
		return err
	}
	return s.lock.Sync()
}

// flock locks a file until it is closed. It waits for a process that is ending.
func flock(file *os.File) error {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockPeriod) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case time.Now().After(deadline):
			return search.ErrInUse
		}
	}
}

// readState reads the state, and reports whether it is known. A directory without data is treated
// like data that were closed.
func (s *store) readState() (known bool, err error) {
	data, err := os.ReadFile(s.lock.Name())
	if err != nil {
		return false, err
	}
	if len(data) == 0 {
		clusters, err := s.clusters()
		s.Clean = len(clusters) == 0
		return s.Clean, err
	}
	content := data[:max(0, len(data)-sumSize)]
	if len(data) != stateSize || crc32.Checksum(content, sumTable) != binary.BigEndian.Uint32(data[len(content):]) {
		return false, nil
	}
	return json.Unmarshal(content, &s.storeState) == nil, nil
}

// writeState overwrites the state. A crash of the process cannot leave a partial state, because the
// state is smaller than a page.
func (s *store) writeState(version uint64) error {
	s.Version = version
	data, err := json.Marshal(s.storeState)
	if err != nil {
		return err
	}
	padding := stateSize - sumSize - len(data)
	if padding < 0 {
		return fmt.Errorf("%s has no room for %d bytes", stateFile, len(data))
	}
	data = append(data, strings.Repeat(" ", padding)...)
	_, err = s.lock.WriteAt(binary.BigEndian.AppendUint32(data, crc32.Checksum(data, sumTable)), 0)
	return err
}

// discard moves a file aside.
func (s *store) discard(name string, reason error) error {
	aside := filepath.Join(s.dir, discardedDir, name)
	err := os.MkdirAll(filepath.Dir(aside), 0o700)
	if err == nil {
		err = os.Rename(filepath.Join(s.dir, name), aside)
	}
	if err != nil {
		return fmt.Errorf("move %s aside, since %w: %w", name, reason, err)
	}
	if errors.Is(reason, errFormat) {
		s.logger.Info("A file of the search data has another format and was moved aside; its clusters report again", "file", name, "moved", aside)
	} else {
		s.logger.Error(reason, "A file of the search data is damaged and was moved aside; its cluster reports again. "+
			"The file is needed only to find out what damaged it", "file", name, "moved", aside)
	}
	return nil
}

// clusters returns the names of the clusters that have a file. It removes incomplete files of a
// crash.
func (s *store) clusters() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), clusterSuffix+temporarySuffix) {
			if err := os.Remove(filepath.Join(s.dir, entry.Name())); err != nil {
				return nil, err
			}
		}
		escaped, found := strings.CutSuffix(entry.Name(), clusterSuffix)
		if !found {
			continue
		}
		name, err := url.PathUnescape(escaped)
		if err != nil || fileName(name) != entry.Name() {
			if err := s.discard(entry.Name(), errCorrupt); err != nil {
				return nil, err
			}
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

func fileName(cluster string) string { return url.PathEscape(cluster) + clusterSuffix }

func (s *store) path(cluster string) string { return filepath.Join(s.dir, fileName(cluster)) }

// write writes the changes of a transaction. After an error, the files of its clusters may contain
// more than the published data, so the next write replaces them.
func (s *store) write(t *transaction) error {
	err := s.writeState(t.state.version)
	for id, changes := range t.journal.stored.clusters {
		if err != nil {
			break
		}
		c := t.state.clusters[id]
		if err = s.writeCluster(t, c, changes); err != nil {
			err = fmt.Errorf("cluster %s: %w", c.name, err)
		}
	}
	if err != nil {
		for id := range t.journal.stored.clusters {
			delete(s.files, t.state.clusters[id].name)
		}
	}
	return err
}

func (s *store) writeCluster(t *transaction, c *cluster, changes *storedCluster) error {
	file := s.files[c.name]
	switch {
	case !c.present:
		delete(s.files, c.name)
		if err := os.Remove(s.path(c.name)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case file == nil || changes.removed || file.length > 2*file.live+rewriteFrom || len(changes.rows) > max(replaceFrom, c.rows.count()/2):
		// Appending most of the resources would only make the file due for replacement.
		return s.replace(t, c)
	default:
		return s.append(t, c, changes, file)
	}
}

// close makes the data durable.
func (s *store) close() error {
	err := s.sync()
	if err == nil {
		s.Clean = true
		err = s.writeState(s.Version)
	}
	if err == nil {
		err = s.lock.Sync()
	}
	return errors.Join(err, s.lock.Close())
}

// abandon closes the store after a failure to open it.
func (s *store) abandon() {
	if err := s.lock.Close(); err != nil {
		s.logger.Error(err, "The search data were not closed")
	}
}

func (s *store) sync() error {
	for cluster, file := range s.files {
		if file.written {
			if err := syncFile(s.path(cluster)); err != nil {
				return err
			}
		}
	}
	return syncFile(s.dir)
}

// syncFile makes a file, or the names in a directory, durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
