package embedded

import "unsafe"

// bytesAsString gives bytes as a text without a copy. The text must not be used after the bytes
// change, which those of a file do when its transaction ends.
func bytesAsString(data []byte) string { return unsafe.String(unsafe.SliceData(data), len(data)) }

// recordData reads texts and numbers of a record; once something is missing all is zero.
type recordData struct {
	rest   string
	failed bool
}

func (d *recordData) take(n int) string {
	if n < 0 || n > len(d.rest) {
		d.failed, d.rest = true, ""
		return ""
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *recordData) byte() byte {
	if b := d.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (d *recordData) uvarint() uint64 {
	var value uint64
	for i := 0; i < len(d.rest) && i < 10; i++ {
		b := d.rest[i]
		value |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			d.rest = d.rest[i+1:]
			return value
		}
	}
	d.failed, d.rest = true, ""
	return 0
}

func (d *recordData) text() string {
	length := d.uvarint()
	if length > uint64(len(d.rest)) {
		d.failed, d.rest = true, ""
		return ""
	}
	return d.take(int(length))
}
