package embedded

import "unsafe"

// These conversions do not copy. A checkpoint is mapped into memory, and its texts, rows, lists and edges are views of the
// mapping (see checkpoint.go): with copies, a start would take longer and need more memory. Texts of reports and files
// are views until it is known whether they are new.

// bytesAsString returns bytes as a string. The bytes must not be changed afterwards.
func bytesAsString(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }

// stringAsBytes returns a string as bytes, which must not be changed.
func stringAsBytes(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// sameMemory reports whether two texts are the same memory. It is false for empty texts.
func sameMemory(a, b string) bool {
	return len(a) > 0 && len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// bytesOf returns the memory of values without pointers.
func bytesOf[T any](values []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*sizeOf[T]())
}

// valuesOf is the reverse of bytesOf. The data must be aligned.
func valuesOf[T any](data []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/sizeOf[T]())
}
