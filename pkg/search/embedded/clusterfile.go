package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"
)

// The file of a cluster consists of a header and entries. Changes are written by appending entries
// and then overwriting the header, so a crash of the process can leave entries only after the end.
// The last entry of a key applies. When most of the file is outdated, a new file replaces it.
//
// The header contains the format, the length of the entries, a checksum of the cluster's name and
// the entries, and a checksum of the header itself.
const (
	format      = 4
	formatMagic = "hubsrch"
	headerSize  = 8 + 8 + sumSize + sumSize
	// rewriteFrom is the amount of outdated data in bytes that a file of any size may contain.
	rewriteFrom = 64 << 10
	// replaceFrom is the number of changed resources that are always appended.
	replaceFrom = 100
	// flushSize is the amount of data in bytes per write.
	flushSize = 256 << 10
)

// The kinds of entries. The key of entryCluster is empty. The key of the other kinds is the UID of
// a resource, encoded as in the data of a row.
const (
	// entryCluster contains a clusterRecord.
	entryCluster = iota
	// entryResource contains a version and properties, or nothing if the resource was deleted.
	entryResource
	// entryEdges contains the relations and the destination UIDs of all edges from a resource.
	entryEdges
	entryKinds
)

// clusterRecord contains the stored data of a cluster as a whole.
type clusterRecord struct {
	Hub        bool      `json:"hub,omitempty"`
	Reported   time.Time `json:"reported"`
	Incomplete bool      `json:"incomplete,omitempty"`
	Resources  int       `json:"resources"`
	Edges      int       `json:"edges"`
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// clusterFile is the writer's knowledge of a file.
type clusterFile struct {
	// length and sum are the values in the header. live is the part of the length that is not
	// outdated.
	length, live int
	sum          uint32
	// written is true if the file changed since the store was opened.
	written bool
}

// newSum returns the checksum for no entries. It depends on the cluster, so a file is valid only
// under the name of its cluster.
func newSum(cluster string) uint32 { return crc32.Checksum([]byte(cluster), sumTable) }

func (f *clusterFile) header() []byte {
	header := binary.BigEndian.AppendUint64(append([]byte(formatMagic), format), uint64(f.length))
	header = binary.BigEndian.AppendUint32(header, f.sum)
	return binary.BigEndian.AppendUint32(header, crc32.Checksum(header, sumTable))
}

// parseHeader returns the entries of a file with a valid header. If the file begins with known
// entries, it returns only the entries after them, and true.
func parseHeader(data []byte, cluster string, known *clusterFile) ([]byte, *clusterFile, bool, error) {
	if len(data) < headerSize || string(data[:len(formatMagic)]) != formatMagic {
		return nil, nil, false, errCorrupt
	}
	if data[len(formatMagic)] != format {
		return nil, nil, false, errFormat
	}
	header, entries := data[:headerSize], data[headerSize:]
	end := headerSize - sumSize
	length := binary.BigEndian.Uint64(header[8:])
	if crc32.Checksum(header[:end], sumTable) != binary.BigEndian.Uint32(header[end:]) || length > uint64(len(entries)) {
		return nil, nil, false, errCorrupt
	}
	entries = entries[:length]
	before := 0
	if known != nil && known.length <= len(entries) {
		before = known.length
	}
	sum := crc32.Update(newSum(cluster), sumTable, entries[:before])
	later := before > 0 && sum == known.sum
	file := &clusterFile{length: len(entries), sum: crc32.Update(sum, sumTable, entries[before:])}
	if file.sum != binary.BigEndian.Uint32(header[16:]) {
		return nil, nil, false, errCorrupt
	}
	if later {
		entries, file.live = entries[before:], known.live
	}
	return entries, file, later, nil
}

// entryWriter appends entries to one file at a time.
type entryWriter struct {
	file   *os.File
	sum    uint32
	length int
	buffer []byte
	// value and decoded are buffers for one value at a time.
	value   []byte
	decoded decodedMemory
	err     error
}

// begin starts to append entries to a file that already contains entries.
func (w *entryWriter) begin(file *os.File, sum uint32, length int) *entryWriter {
	*w = entryWriter{file: file, sum: sum, length: length, buffer: w.buffer[:0], value: w.value, decoded: w.decoded}
	return w
}

func (w *entryWriter) entry(kind byte, key string, value []byte) {
	w.buffer = appendText(append(w.buffer, kind), key)
	w.buffer = append(binary.AppendUvarint(w.buffer, uint64(len(value))), value...)
	if len(w.buffer) >= flushSize {
		w.flush()
	}
}

func (w *entryWriter) flush() {
	if w.err == nil {
		_, w.err = w.file.WriteAt(w.buffer, int64(headerSize+w.length))
	}
	w.sum = crc32.Update(w.sum, sumTable, w.buffer)
	w.length += len(w.buffer)
	w.buffer = w.buffer[:0]
}

// append adds the changes of a cluster to its file.
func (s *store) append(t *transaction, c *cluster, changes *storedCluster, file *clusterFile) error {
	f, err := os.OpenFile(s.path(c.name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	w := s.entries.begin(f, file.sum, file.length)
	for _, uid := range changes.gone {
		w.entry(entryResource, uid, nil)
	}
	for _, uid := range changes.unrelated {
		w.entry(entryEdges, uid, nil)
	}
	slices.Sort(changes.rows)
	for _, number := range slices.Compact(changes.rows) {
		t.state.writeResource(w, c, number)
	}
	slices.Sort(changes.sources)
	for _, number := range slices.Compact(changes.sources) {
		t.state.writeEdges(w, c, number)
	}
	return s.end(t, c, w, file)
}

// replace writes a new file with the complete data of a cluster.
func (s *store) replace(t *transaction, c *cluster) error {
	path := s.path(c.name)
	f, err := os.OpenFile(path+temporarySuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := s.entries.begin(f, newSum(c.name), 0)
	c.rows.each(func(number uint32) bool {
		t.state.writeResource(w, c, number)
		return w.err == nil
	})
	for _, rows := range [...]*postings{&c.rows, &c.unknown} {
		rows.each(func(number uint32) bool {
			if slices.ContainsFunc(t.state.adjacency.get(number), func(e end) bool { return !e.in() }) {
				t.state.writeEdges(w, c, number)
			}
			return w.err == nil
		})
	}
	file := &clusterFile{}
	if err := s.end(t, c, w, file); err != nil {
		return err
	}
	file.live = file.length
	s.files[c.name] = file
	return os.Rename(path+temporarySuffix, path)
}

func (c *cluster) record() clusterRecord {
	return clusterRecord{Hub: c.hub, Reported: c.reported, Incomplete: c.incomplete, Resources: c.rows.count(), Edges: c.edges}
}

// end writes the record of the cluster and the header. The header makes all entries valid.
func (s *store) end(t *transaction, c *cluster, w *entryWriter, file *clusterFile) error {
	record, err := json.Marshal(c.record())
	w.entry(entryCluster, "", record)
	w.flush()
	if err = errors.Join(err, w.err); err == nil {
		file.length, file.sum, file.written = w.length, w.sum, true
		_, err = w.file.WriteAt(file.header(), 0)
	}
	return errors.Join(err, w.file.Close())
}

// writeResource writes the resource of a row. It writes nothing if the row no longer contains a
// resource, or now belongs to another cluster.
func (s *state) writeResource(w *entryWriter, c *cluster, number uint32) {
	r := s.rows.at(number)
	if r.exists() && s.classes.at(r.class).cluster == c.id {
		end := uidEnd(r.data)
		w.value = appendRecord(w.value[:0], r.version, s.decodeInto(&w.decoded, r.data))
		w.entry(entryResource, r.data[:end], w.value)
	}
}

// writeEdges writes the edges from a row. It writes nothing if the row is free, or now belongs to
// another cluster.
func (s *state) writeEdges(w *entryWriter, c *cluster, number uint32) {
	r := s.rows.at(number)
	if r.data == "" || s.classes.at(r.class).cluster != c.id {
		return
	}
	w.value = w.value[:0]
	for _, e := range s.adjacency.get(number) {
		if !e.in() {
			other := s.rows.at(e.other()).data
			w.value = append(appendText(w.value, s.relations.get(e.relation())), other[:uidEnd(other)]...)
		}
	}
	w.entry(entryEdges, r.data[:uidEnd(r.data)], w.value)
}

// entry is a part of a file. It shares the memory of the file.
type entry struct{ key, value []byte }

// readInto returns the content of a file, in the memory of buffer if it is large enough.
func readInto(buffer []byte, path string) (content []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	buffer = slices.Grow(buffer[:0], int(info.Size()))[:info.Size()]
	_, err = io.ReadFull(f, buffer)
	return buffer, err
}

// clusterEntries is the content of a file. If later is true, it is only what follows the known
// entries.
type clusterEntries struct {
	file             *clusterFile
	later, unchanged bool
	record           clusterRecord
	resources, edges []entry
}

// read reads the file of a cluster. If the file begins with known entries, it returns only the
// entries after them.
func (s *store) read(cluster string, known *clusterFile) (*clusterEntries, error) {
	var err error
	if s.content, err = readInto(s.content, s.path(cluster)); err != nil {
		return nil, err
	}
	entries, file, later, err := parseHeader(s.content, cluster, known)
	if err != nil {
		return nil, err
	}
	result := &clusterEntries{file: file, later: later}
	if result.unchanged = later && len(entries) == 0; result.unchanged {
		return result, nil
	}
	if later {
		entries = slices.Clone(entries)
	} else {
		// The result refers to the content.
		s.content = nil
	}
	var latest [entryKinds][]entry
	places := map[string]int{}
	d := decoder{rest: entries}
	for len(d.rest) > 0 {
		start := d.rest
		kind, key := d.byte(), d.bytes()
		id, value := bytesAsString(start[:len(start)-len(d.rest)]), d.bytes()
		if d.failed || kind >= entryKinds {
			return nil, fmt.Errorf("entry before %d: %w", len(entries)-len(d.rest), errCorrupt)
		}
		place, known := places[id]
		if !known {
			place = len(latest[kind])
			places[id] = place
			latest[kind] = append(latest[kind], entry{key: key})
		}
		latest[kind][place].value = value
	}
	result.resources, result.edges = latest[entryResource], latest[entryEdges]
	if len(latest[entryCluster]) != 1 || json.Unmarshal(latest[entryCluster][0].value, &result.record) != nil {
		return nil, fmt.Errorf("record of the cluster: %w", errCorrupt)
	}
	if later {
		return result, nil
	}
	for _, entries := range latest {
		for _, e := range entries {
			file.live += len(e.key) + len(e.value)
		}
	}
	return result, nil
}
