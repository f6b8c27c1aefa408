package embedded

import (
	"fmt"
	"unsafe"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// releaseMapping takes the file's pages out of the memory of the process. They stay in that of the
// kernel, as far as there is room, but are no longer counted as the process's own.
func releaseMapping(db *bbolt.DB) error {
	// While there is a transaction, the mapping does not move.
	return db.View(func(tx *bbolt.Tx) error {
		info := db.Info()
		if info.Data == 0 {
			return nil
		}
		start := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data))
		if err := unix.Madvise(unsafe.Slice((*byte)(start), tx.Size()), unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("release the mapping of the data: %w", err)
		}
		return nil
	})
}
