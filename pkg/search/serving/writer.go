package serving

import (
	"io"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// chunkSize is the size of the writes of a response. API servers compress a response if its first
// write has at least 128 KiB.
const chunkSize = 256 << 10

// flushAt leaves room in a chunk for the item that exceeds it.
const flushAt = chunkSize - chunkSize/8

// encoders bounds the number of large responses that are encoded in parallel. If there are several
// cores, one stays free for other requests.
var encoders = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

var chunks = sync.Pool{New: func() any {
	chunk := make([]byte, 0, chunkSize)
	return &chunk
}}

// Writer writes a response in chunks. From the second chunk on, it holds an encoder slot. It
// releases the slot while it writes a chunk, because the client may be slow. Slots are granted in
// the order of requests.
type Writer struct {
	// Buffer is the data to write. The caller appends to it.
	Buffer []byte

	to      io.Writer
	chunk   *[]byte
	encodes bool
	err     error
}

// NewWriter returns a Writer. The caller must call Close.
func NewWriter(to io.Writer) *Writer {
	chunk := chunks.Get().(*[]byte)
	return &Writer{Buffer: (*chunk)[:0], to: to, chunk: chunk}
}

// Flush writes the buffer if it is nearly full. It returns the first error of the underlying
// writer.
func (w *Writer) Flush() error {
	if len(w.Buffer) < flushAt {
		return w.err
	}
	w.write()
	if w.err == nil {
		encoders <- struct{}{}
		w.encodes = true
	}
	return w.err
}

// Close writes the remaining buffer, unless a write has failed before. It returns the first error.
func (w *Writer) Close() error {
	w.write()
	*w.chunk = w.Buffer
	chunks.Put(w.chunk)
	return w.err
}

func (w *Writer) write() {
	if w.encodes {
		<-encoders
		w.encodes = false
	}
	if w.err == nil && len(w.Buffer) > 0 {
		_, w.err = w.to.Write(w.Buffer)
	}
	w.Buffer = w.Buffer[:0]
}

// AppendString appends a text as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
