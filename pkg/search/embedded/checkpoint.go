package embedded

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// A checkpoint is a copy of a state on disk, with its indexes, so that a start does not index all
// resources again. The files of the clusters remain the data: a checkpoint contains the length and
// the checksum of each file at its version, and is used only for clusters whose file still begins
// with the same entries. Later entries are applied to it. A checkpoint that is damaged or has
// another format is removed, and all files are loaded.
//
// The file is mapped into memory. Texts, rows, lists and bitmaps stay in the mapping until they
// change. They are pages of the file, which the kernel can drop and read again, and the garbage
// collector does not read them. The mapping is never removed, because states refer to it.
const (
	checkpointFile = "search.checkpoint"
	// checkpointFormat must change if the file changes, or if the engine would derive other data
	// from the same resources, such as classes, kinds of text or trigrams.
	checkpointFormat = 1
	checkpointMagic  = "hubindex"
	// checkpointHeader is the size of the header: the magic, the format in the order of bytes of
	// the machine, the checksum and the length of the content.
	checkpointHeader = 8 + 4 + 4 + 8
	// checkpointAlign is the alignment of all parts.
	checkpointAlign = 8
	// checkpointFlush is the number of bytes after which written data are flushed to disk, so that
	// other writers to the same disk wait only for little.
	checkpointFlush = 16 << 20
)

// snapshot is a state and the files that contain it.
type snapshot struct {
	state *state
	files map[string]clusterFile
}

// checkpointRecord contains the parts of a state that are small.
type checkpointRecord struct {
	Version, HubClasses uint64
	Visible             int
	Properties          []propertyRecord
	Fields              []fieldRecord
	Classes             []classRecord
	Clusters            []clusterIndex
	Relations           []string
}

type propertyRecord struct {
	Name      string
	Used      bool
	Counts    [4]int
	EmptyKeys int
	Keys      []uint32
}

type fieldRecord struct {
	Property uint32
	Kind     query.Type
	Key      string
}

type classRecord struct {
	Class   visibility.Class
	Cluster uint32
	Pending bool
}

// clusterIndex contains a cluster, and the part of its file that the checkpoint contains.
type clusterIndex struct {
	Name                   string
	Record                 clusterRecord
	Present                bool
	Classes, SecretClasses []uint32
	Pending                uint32
	Length, Live           int
	Sum                    uint32
}

func (s *state) record(files map[string]clusterFile) *checkpointRecord {
	r := &checkpointRecord{Version: s.version, HubClasses: s.hubClasses, Visible: s.visible, Relations: s.relations}
	for i := range uint32(s.properties.len()) {
		p := s.properties.get(i)
		id, known := s.propertyNames[p.name]
		r.Properties = append(r.Properties, propertyRecord{p.name, known && id == i, p.counts, p.emptyKeys, p.keys})
	}
	for i := range uint32(s.fields.len()) {
		f := s.fields.get(i)
		r.Fields = append(r.Fields, fieldRecord{f.property, f.kind, f.key})
	}
	for i := range uint32(s.classes.len()) {
		c := s.classes.at(i)
		r.Classes = append(r.Classes, classRecord{c.class, c.cluster, c.pending})
	}
	for _, c := range s.clusters {
		file := files[c.name]
		r.Clusters = append(r.Clusters, clusterIndex{
			Name: c.name, Record: c.record(), Present: c.present, Classes: c.classes, SecretClasses: c.secretClasses, Pending: c.pending,
			Length: file.length, Live: file.live, Sum: file.sum,
		})
	}
	return r
}

// restore is the reverse of record.
func (r *checkpointRecord) restore(s *state) {
	s.version, s.hubClasses, s.visible = r.Version, r.HubClasses, r.Visible
	for i, p := range r.Properties {
		*s.properties.edit(0, uint32(i)) = newProperty(0, p.Name)
		restored := s.properties.get(uint32(i))
		restored.counts, restored.emptyKeys, restored.keys = p.Counts, p.EmptyKeys, p.Keys
		if p.Used {
			s.propertyNames[p.Name] = uint32(i)
		}
	}
	for i, f := range r.Fields {
		*s.fields.edit(0, uint32(i)) = newField(f.Property, f.Kind, f.Key)
	}
	for i, c := range r.Classes {
		*s.classes.edit(0, uint32(i)) = class{class: interned(c.Class.Cluster, c.Class), cluster: c.Cluster, pending: c.Pending}
	}
	for i, c := range r.Clusters {
		s.clusterNames[c.Name] = uint32(i)
		s.clusters = append(s.clusters, &cluster{
			id: uint32(i), name: c.Name, hub: c.Record.Hub, present: c.Present, classes: c.Classes, secretClasses: c.SecretClasses,
			edges: c.Record.Edges, reported: c.Record.Reported, incomplete: c.Record.Incomplete, pending: c.Pending,
		})
	}
	s.relations = r.Relations
	for i, name := range r.Relations {
		s.relationNames[name] = uint32(i)
	}
}

// sets returns the postings outside of the dictionary, of the classes, properties and clusters that
// another state has, too.
func (s *state) sets(of *state) []*postings {
	var sets []*postings
	for i := range uint32(of.classes.len()) {
		sets = append(sets, &s.classes.at(i).rows)
	}
	for i := range uint32(of.properties.len()) {
		p := s.properties.get(i)
		for j := range p.variants {
			sets = append(sets, &p.variants[j])
		}
		sets = append(sets, &p.empties)
	}
	for _, c := range s.clusters[:len(of.clusters)] {
		sets = append(sets, &c.rows, &c.secrets, &c.unknown)
	}
	return sets
}

// writeCheckpoint replaces the checkpoint. It calls pause regularly, and ends with its error.
func (s *store) writeCheckpoint(from *snapshot, pause func() error) error {
	path := filepath.Join(s.dir, checkpointFile)
	if err := s.roomForCheckpoint(from); err != nil {
		return err
	}
	err := writeCheckpointFile(path+temporarySuffix, from, pause)
	if err == nil {
		if err = os.Rename(path+temporarySuffix, path); err == nil {
			return syncFile(s.dir)
		}
	}
	return errors.Join(err, os.Remove(path+temporarySuffix))
}

// roomForCheckpoint returns an error if the checkpoint could fill the disk. A checkpoint is smaller
// than the files of the clusters.
func (s *store) roomForCheckpoint(from *snapshot) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err != nil {
		return err
	}
	needed := uint64(0)
	for _, file := range from.files {
		needed += uint64(file.length)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < needed {
		return fmt.Errorf("%s: %d bytes are free and up to %d are required", s.dir, free, needed)
	}
	return nil
}

func writeCheckpointFile(path string, from *snapshot, pause func() error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := &summedFile{file: f, pause: pause}
	w := &checkpointWriter{to: bufio.NewWriterSize(sum, flushSize)}
	w.state(from)
	w.align()
	err = errors.Join(w.err, w.to.Flush())
	if err == nil {
		header := append([]byte(checkpointMagic), make([]byte, checkpointHeader-len(checkpointMagic))...)
		binary.NativeEndian.PutUint32(header[8:], checkpointFormat)
		binary.NativeEndian.PutUint32(header[12:], sum.sum)
		binary.NativeEndian.PutUint64(header[16:], uint64(sum.length))
		_, err = f.WriteAt(header, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// summedFile writes the content of a checkpoint after its header.
type summedFile struct {
	file   *os.File
	pause  func() error
	length int64
	sum    uint32
}

func (f *summedFile) Write(data []byte) (int, error) {
	n, err := f.file.WriteAt(data, checkpointHeader+f.length)
	if err != nil {
		return n, err
	}
	f.sum = crc32.Update(f.sum, sumTable, data)
	if before := f.length / checkpointFlush; (f.length+int64(n))/checkpointFlush > before {
		err = f.file.Sync()
	}
	f.length += int64(n)
	return n, errors.Join(err, f.pause())
}

// checkpointWriter writes a state in parts. An error makes the further calls have no effect.
type checkpointWriter struct {
	to  *bufio.Writer
	at  int
	err error
}

func (w *checkpointWriter) bytes(data []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(data)
		w.at += len(data)
	}
}

func (w *checkpointWriter) align() {
	var zero [checkpointAlign]byte
	w.bytes(zero[:-w.at&(checkpointAlign-1)])
}

// column writes numbers in the order of bytes of the machine.
func column[T any](w *checkpointWriter, count int, at func(i uint32) T) {
	w.align()
	var chunk [leafSize]T
	for i := 0; i < count; i += leafSize {
		n := min(leafSize, count-i)
		for j := range n {
			chunk[j] = at(uint32(i + j))
		}
		w.bytes(bytesOf(chunk[:n]))
	}
}

func bytesOf[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T))))
}

// list writes a number of values and then the values.
func list[T any](w *checkpointWriter, values []T) {
	column(w, 1, func(uint32) uint64 { return uint64(len(values)) })
	w.bytes(bytesOf(values))
}

// texts writes the lengths of texts and then the texts.
func (w *checkpointWriter) texts(count int, at func(i uint32) string) {
	column(w, count, func(i uint32) uint32 { return uint32(len(at(i))) })
	for i := range uint32(count) {
		text := at(i)
		w.bytes(unsafe.Slice(unsafe.StringData(text), len(text)))
	}
}

// Postings are written as one number for each set, then all lists, then all bitmaps. The number is
// that of the only row, or setMany and the length of the list. A bitmap has the length 0.
const setMany = 1 << 31

func (w *checkpointWriter) postings(count int, at func(i uint32) *postings) {
	column(w, count, func(i uint32) uint32 {
		if s := at(i); s.many != nil {
			return setMany | uint32(len(s.many.list))
		} else {
			return s.one
		}
	})
	w.align()
	for i := range uint32(count) {
		if s := at(i); s.many != nil {
			w.bytes(bytesOf(s.many.list))
		}
	}
	for i := range uint32(count) {
		if s := at(i); s.many != nil && s.many.bitmap != nil {
			data, err := s.many.bitmap.ToBytes()
			w.err = errors.Join(w.err, err)
			list(w, data)
		}
	}
}

func (w *checkpointWriter) state(from *snapshot) {
	s := from.state
	var record bytes.Buffer
	w.err = gob.NewEncoder(&record).Encode(s.record(from.files))
	list(w, record.Bytes())
	counts := [...]uint64{uint64(s.rows.len()), uint64(s.terms.len()), uint64(s.trigrams.len()), uint64(s.adjacency.len())}
	list(w, counts[:])

	rows := s.rows.len()
	column(w, rows, func(i uint32) uint64 { return s.rows.at(i).version })
	column(w, rows, func(i uint32) uint32 { return s.rows.at(i).class })
	column(w, rows, func(i uint32) uint32 { return s.rows.at(i).kind })
	w.texts(rows, func(i uint32) string { return s.rows.at(i).data })

	terms := s.terms.len()
	column(w, terms, func(i uint32) termInfo { return s.terms.at(i).info() })
	w.texts(terms, func(i uint32) string { return s.terms.at(i).text })
	w.postings(terms, func(i uint32) *postings { return &s.terms.at(i).postings })
	w.postings(s.trigrams.len(), func(i uint32) *postings {
		if set := s.trigrams.at(i); set != nil {
			return set
		}
		return &postings{}
	})
	sets := s.sets(s)
	w.postings(len(sets), func(i uint32) *postings { return sets[i] })

	column(w, s.adjacency.len(), func(i uint32) uint32 { return uint32(len(s.adjacency.get(i))) })
	w.align()
	for i := range uint32(s.adjacency.len()) {
		w.bytes(bytesOf(s.adjacency.get(i)))
	}
	for i := range uint32(s.properties.len()) {
		w.property(s.properties.get(i))
	}
}

func (w *checkpointWriter) property(p *property) {
	lengths := make([]uint32, len(p.order))
	for i := range p.order {
		lengths[i] = uint32(len(p.order[i]))
	}
	list(w, lengths)
	w.align()
	for _, terms := range p.order {
		w.bytes(bytesOf(terms))
	}
	var firsts []uint32
	p.times.each(func(first uint32, _ *[leafSize]int64) { firsts = append(firsts, first) })
	list(w, firsts)
	w.align()
	p.times.each(func(_ uint32, values *[leafSize]int64) {
		// A leaf is stored as it is in memory, without owner.
		w.bytes(bytesOf([]leaf[int64]{{elements: *values}}))
	})
}

// checkpoint is the content of a checkpoint: a state, and the files that contain it by cluster.
type checkpoint struct {
	state state
	files map[string]*clusterFile
}

func newCheckpoint() *checkpoint {
	return &checkpoint{files: map[string]*clusterFile{}, state: state{
		clusterNames: map[string]uint32{}, dictionary: dictionary{propertyNames: map[string]uint32{}}, graph: graph{relationNames: map[string]uint32{}},
	}}
}

// openCheckpoint maps the checkpoint into memory and checks it.
func (s *store) openCheckpoint() (*checkpointReader, error) {
	data, err := mapFile(filepath.Join(s.dir, checkpointFile))
	if err != nil {
		return nil, err
	}
	header, content := data[:checkpointHeader], data[checkpointHeader:]
	switch {
	case string(header[:8]) != checkpointMagic || binary.NativeEndian.Uint32(header[8:]) != checkpointFormat:
		err = errFormat
	case binary.NativeEndian.Uint64(header[16:]) != uint64(len(content)) || crc32.Checksum(content, sumTable) != binary.NativeEndian.Uint32(header[12:]):
		err = errCorrupt
	default:
		return &checkpointReader{decoder: decoder{rest: content}, size: len(content)}, nil
	}
	return nil, errors.Join(err, syscall.Munmap(data))
}

// readCheckpoint returns the checkpoint, or an empty one if there is none that can be used.
func (s *store) readCheckpoint() (*checkpoint, error) {
	path := filepath.Join(s.dir, checkpointFile)
	if err := os.Remove(path + temporarySuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r, err := s.openCheckpoint()
	if errors.Is(err, fs.ErrNotExist) {
		return newCheckpoint(), nil
	}
	if err == nil {
		if found := r.checkpoint(); r.complete() {
			return found, nil
		}
		err = errCorrupt
	}
	s.logger.Info("The checkpoint of the search data cannot be used and is removed. All data are indexed again, which takes longer", "reason", err.Error())
	return newCheckpoint(), os.Remove(path)
}

// mapFile maps a file into memory for reading.
func mapFile(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < checkpointHeader {
		return nil, errCorrupt
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
}

// checkpointReader reads what checkpointWriter writes. Its results share the memory of the data.
type checkpointReader struct {
	decoder
	size  int
	lists []postingList
}

// complete reports whether everything was read.
func (r *checkpointReader) complete() bool { return !r.failed && len(r.rest) == 0 }

func (r *checkpointReader) align() { r.take(uint64(-(r.size - len(r.rest)) & (checkpointAlign - 1))) }

// readColumn returns numbers that column has written.
func readColumn[T any](r *checkpointReader, count int) []T {
	r.align()
	return readValues[T](r, count)
}

func readValues[T any](r *checkpointReader, count int) []T {
	data := r.take(uint64(count) * uint64(unsafe.Sizeof(*new(T))))
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), count)
}

func readList[T any](r *checkpointReader) []T {
	if count := readColumn[uint64](r, 1); count != nil && count[0] <= uint64(len(r.rest)) {
		return readValues[T](r, int(count[0]))
	}
	r.failed = true
	return nil
}

// texts calls set with each text.
func (r *checkpointReader) texts(count int, set func(i uint32, text string)) {
	for i, length := range readColumn[uint32](r, count) {
		set(uint32(i), bytesAsString(r.take(uint64(length))))
	}
}

// ends calls set with the ends of each row that has some.
func (r *checkpointReader) ends(count int, set func(i uint32, ends []end)) {
	degrees := readColumn[uint32](r, count)
	r.align()
	for i, degree := range degrees {
		if degree > 0 {
			set(uint32(i), slices.Clip(readValues[end](r, int(degree))))
		}
	}
}

// postings sets the rows of each set, unless at returns nil for it.
func (r *checkpointReader) postings(count int, at func(i uint32) *postings) {
	heads := readColumn[uint32](r, count)
	r.align()
	var bitmaps []*postingList
	for i, head := range heads {
		if head == 0 {
			continue
		}
		set := at(uint32(i))
		if head&setMany == 0 {
			if set != nil {
				set.one = head
			}
			continue
		}
		rows := readValues[uint32](r, int(head&^setMany))
		var many *postingList
		if set != nil {
			many = &packed(&r.lists, []postingList{{list: slices.Clip(rows)}})[0]
			set.many = many
		}
		if len(rows) == 0 {
			bitmaps = append(bitmaps, many)
		}
	}
	for _, many := range bitmaps {
		data := readList[byte](r)
		if many == nil {
			continue
		}
		many.bitmap = roaring.New()
		if _, err := many.bitmap.FromUnsafeBytes(data); err != nil {
			r.failed = true
		}
		many.bitmap.SetCopyOnWrite(true)
	}
}

func (r *checkpointReader) checkpoint() *checkpoint {
	found := newCheckpoint()
	s := &found.state
	var record checkpointRecord
	err := gob.NewDecoder(bytes.NewReader(readList[byte](r))).Decode(&record)
	counts := readList[uint64](r)
	if r.failed = r.failed || err != nil || len(counts) != 4; r.failed {
		return nil
	}
	record.restore(s)
	for _, c := range record.Clusters {
		if c.Present {
			found.files[c.Name] = &clusterFile{length: c.Length, live: c.Live, sum: c.Sum}
		}
	}
	rows, terms, trigrams, adjacency := int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3])
	versions, classes, kinds := readColumn[uint64](r, rows), readColumn[uint32](r, rows), readColumn[uint32](r, rows)
	r.texts(rows, func(i uint32, data string) {
		if !r.failed {
			*s.rows.edit(0, i) = row{data: data, version: versions[i], class: classes[i], kind: kinds[i]}
		}
	})
	infos := readColumn[termInfo](r, terms)
	r.texts(terms, func(i uint32, text string) {
		if !r.failed {
			*s.terms.edit(0, i) = term{text: text, postings: postings{info: infos[i]}}
		}
	})
	r.postings(terms, func(i uint32) *postings { return &s.terms.edit(0, i).postings })
	if r.failed {
		return nil
	}
	// The tables are derived again, because their hashes are those of the process.
	var tables sync.WaitGroup
	tables.Go(s.indexTerms)
	tables.Go(s.indexRows)
	r.postings(trigrams, func(i uint32) *postings { return s.trigrams.edit(0, i) })
	sets := s.sets(s)
	r.postings(len(sets), func(i uint32) *postings { return sets[i] })

	r.ends(adjacency, func(i uint32, ends []end) { *s.adjacency.edit(0, i) = ends })
	for i := range record.Properties {
		r.property(s.properties.get(uint32(i)))
	}
	tables.Wait()
	s.indexClasses()
	return found
}

func (r *checkpointReader) property(p *property) {
	lengths := readList[uint32](r)
	r.align()
	for _, length := range lengths {
		p.order = append(p.order, slices.Clip(readValues[uint32](r, int(length))))
	}
	firsts := readList[uint32](r)
	leaves := readColumn[leaf[int64]](r, len(firsts))
	for i := range leaves {
		p.times.setLeaf(firsts[i], &leaves[i])
	}
}

// indexTerms creates the table of terms.
func (s *state) indexTerms() {
	for i := uint32(1); i < uint32(s.terms.len()); i++ {
		if t := s.terms.at(i); !t.postings.empty() {
			s.termCount++
		}
	}
	s.termTable.rebuild(0, s.termCount*3/2)
	for i := uint32(1); i < uint32(s.terms.len()); i++ {
		if t := s.terms.at(i); !t.postings.empty() {
			s.termTable.insert(0, hashTerm(hashText(t.text), t.info().field(), t.info()), i)
		}
	}
}

// indexRows creates the table of UIDs.
func (s *state) indexRows() {
	s.uids.rebuild(0, s.rows.len()*3/2)
	for i := range uint32(s.rows.len()) {
		if s.rows.at(i).data != "" {
			s.uids.insert(0, s.hashRow(i), i)
		}
	}
}

// indexClasses creates the table of classes.
func (s *state) indexClasses() {
	for i := range uint32(s.classes.len()) {
		if c := s.classes.at(i); !c.pending && !c.rows.empty() {
			s.classTable.insert(0, hashClass(c.cluster, &c.class), i)
		}
	}
}
