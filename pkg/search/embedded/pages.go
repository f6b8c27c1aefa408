package embedded

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
	"unsafe"

	"go.etcd.io/bbolt"
)

// The file consists of pages, and bbolt trusts them: a damaged one makes it end the process, in a
// goroutine of its own or by an endless recursion. So before it does more than to open the file, every
// page is checked. This is the layout of its version 2, whose numbers are those of the processor.
const (
	pageHeader  = 16
	pageElement = 16
	pageBranch  = 1
	pageLeaf    = 2
	leafBucket  = 1
	// bucketHeader is what the value of a bucket begins with: its root and a sequence.
	bucketHeader = 16
	// metaSize is the size of a meta page's content before its checksum.
	metaSize = 56
	// pageDepth is more than a file of any size has levels, buckets in buckets included.
	pageDepth = 64
)

// pages checks the pages of a file.
type pages struct {
	data []byte
	size int
	// limit is the number of pages that are in use, or were.
	limit uint64
	seen  []uint64
}

// checkPages tells whether the pages of a file are sound. What they contain has checksums of its own.
func checkPages(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		info := db.Info()
		size, length := info.PageSize, tx.Size()
		if info.Data == 0 || size < pageHeader+metaSize+8 || length < 2*int64(size) {
			return fmt.Errorf("no pages: %w", errCorrupt)
		}
		// The file may have become shorter than what it is said to have.
		if file, err := os.Stat(db.Path()); err != nil {
			return err
		} else if file.Size() < length {
			return fmt.Errorf("the file has %d bytes of %d: %w", file.Size(), length, errCorrupt)
		}
		start := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data))
		p := &pages{data: unsafe.Slice((*byte)(start), length), size: size, limit: uint64(length) / uint64(size)}
		p.seen = make([]uint64, p.limit/64+1)
		root, err := p.root()
		if err != nil {
			return err
		}
		return p.tree(root, nil, nil, 0)
	})
}

// root is the page with the outermost bucket. Both meta pages must be sound: with one of them the file
// would be what it was before the last report.
func (p *pages) root() (uint64, error) {
	var root, newest uint64
	for i := range 2 {
		content := p.data[i*p.size+pageHeader:][:metaSize+8]
		sum := fnv.New64a()
		sum.Write(content[:metaSize])
		if sum.Sum64() != binary.NativeEndian.Uint64(content[metaSize:]) {
			return 0, fmt.Errorf("meta page %d: %w", i, errCorrupt)
		}
		if transaction := binary.NativeEndian.Uint64(content[metaSize-8:]); i == 0 || transaction > newest {
			root, newest = binary.NativeEndian.Uint64(content[16:]), transaction
		}
	}
	return root, nil
}

func pageError(id uint64, what string) error {
	return fmt.Errorf("page %d %s: %w", id, what, errCorrupt)
}

// tree checks a page with all below it. Keys are from the first on, and before the end, if there are any.
func (p *pages) tree(id uint64, first, end []byte, depth int) error {
	if id < 2 || id >= p.limit || depth > pageDepth {
		return pageError(id, "cannot be used")
	}
	header := p.data[id*uint64(p.size):]
	overflow := uint64(binary.NativeEndian.Uint32(header[12:]))
	if binary.NativeEndian.Uint64(header) != id || overflow >= p.limit-id {
		return pageError(id, "is another one")
	}
	for i := id; i <= id+overflow; i++ {
		if p.seen[i/64]>>(i%64)&1 != 0 {
			return pageError(i, "is used twice")
		}
		p.seen[i/64] |= 1 << (i % 64)
	}
	return p.content(id, header[:(overflow+1)*uint64(p.size)], first, end, depth)
}

// content checks a page that is a part of the file, or of a value.
func (p *pages) content(id uint64, page, first, end []byte, depth int) error {
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if flags != pageBranch && flags != pageLeaf || pageHeader+count*pageElement > len(page) || flags == pageBranch && count == 0 {
		return pageError(id, "has no tree")
	}
	key := func(i int) (key, value []byte, child uint64, err error) {
		at := pageHeader + i*pageElement
		element := page[at:][:pageElement]
		position, keySize := binary.NativeEndian.Uint32(element), binary.NativeEndian.Uint32(element[4:])
		valueSize := uint32(0)
		if flags == pageLeaf {
			position, keySize, valueSize = keySize, binary.NativeEndian.Uint32(element[8:]), binary.NativeEndian.Uint32(element[12:])
			child = uint64(binary.NativeEndian.Uint32(element) & leafBucket)
		} else {
			child = binary.NativeEndian.Uint64(element[8:])
		}
		from := uint64(at) + uint64(position)
		middle := from + uint64(keySize)
		if middle+uint64(valueSize) > uint64(len(page)) {
			return nil, nil, 0, pageError(id, "ends too early")
		}
		return page[from:middle], page[middle:][:valueSize], child, nil
	}
	this, value, child, err := []byte(nil), []byte(nil), uint64(0), error(nil)
	if count > 0 {
		if this, value, child, err = key(0); err != nil {
			return err
		}
	}
	for i := range count {
		next, nextValue, nextChild := end, []byte(nil), uint64(0)
		if i+1 < count {
			if next, nextValue, nextChild, err = key(i + 1); err != nil {
				return err
			}
		}
		if i == 0 && first != nil && bytes.Compare(this, first) < 0 || next != nil && bytes.Compare(this, next) >= 0 {
			return pageError(id, "is not in order")
		}
		switch {
		case flags == pageBranch:
			err = p.tree(child, this, next, depth+1)
		case child != 0:
			err = p.bucket(id, value, depth+1)
		}
		if err != nil {
			return err
		}
		this, value, child = next, nextValue, nextChild
	}
	return nil
}

// bucket checks a bucket, which may be in its value as a whole.
func (p *pages) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHeader {
		return pageError(id, "has no bucket")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, nil, nil, depth)
	}
	if value = value[bucketHeader:]; len(value) < pageHeader || depth > pageDepth {
		return pageError(id, "has no bucket")
	}
	if binary.NativeEndian.Uint16(value[8:]) != pageLeaf {
		return pageError(id, "has a bucket of something else")
	}
	return p.content(id, value, nil, nil, depth)
}
