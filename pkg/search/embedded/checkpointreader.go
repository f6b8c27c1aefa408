package embedded

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/RoaringBitmap/roaring/v2"
)

// checkpoint is the content of a checkpoint: a state, and the files that contain it by cluster.
type checkpoint struct {
	state state
	files map[string]*clusterFile
}

func newCheckpoint() *checkpoint {
	return &checkpoint{files: map[string]*clusterFile{}, state: state{
		clusterNames: map[string]uint32{}, dictionary: dictionary{propertyNames: map[string]uint32{}},
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
		return &checkpointReader{decoder: decoder{rest: content}, size: len(content), mapping: data}, nil
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
			s.mapping = r.mapping
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
	size    int
	mapping []byte
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
	return valuesOf[T](r.take(uint64(count) * uint64(sizeOf[T]())))
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
				set.single = head
			}
			continue
		}
		rows := readValues[uint32](r, int(head&^setMany))
		var many *postingList
		if set != nil {
			many = &postingList{list: slices.Clip(rows)}
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
	tables.Go(s.indexTimes)
	r.postings(trigrams, func(i uint32) *postings { return s.trigrams.edit(0, i) })
	sets := s.sets(s)
	r.postings(len(sets), func(i uint32) *postings { return sets[i] })

	r.ends(adjacency, func(i uint32, ends []end) { *s.adjacency.edit(0, i) = ends })
	for i := range record.Properties {
		r.property(s.properties.get(uint32(i)))
	}
	r.align()
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
