package embedded

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
)

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

// list writes a number of values and then the values.
func list[T any](w *checkpointWriter, values []T) {
	column(w, 1, func(uint32) uint64 { return uint64(len(values)) })
	w.bytes(bytesOf(values))
}

// texts writes the lengths of texts and then the texts.
func (w *checkpointWriter) texts(count int, at func(i uint32) string) {
	column(w, count, func(i uint32) uint32 { return uint32(len(at(i))) })
	for i := range uint32(count) {
		w.bytes(stringAsBytes(at(i)))
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
			return s.single
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
		set := s.trigrams.get(i)
		return &set
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
}
