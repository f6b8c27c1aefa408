package ingest

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// body is the decompressed body of a report.
type body struct {
	ctx    context.Context
	reader io.Reader
	// bytes is the number of bytes read. If it exceeds large, the report requires a slot for large
	// reports.
	bytes, large int64
	slot         *slot
}

// openBody opens the body of a request. It reads at most the header of a compressed body.
func openBody(ctx context.Context, w http.ResponseWriter, r *http.Request, slot *slot, large, limit int64) (*body, error) {
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: the body has more than %d bytes", ErrTooLarge, limit)
	}
	if r.ContentLength > large {
		if err := slot.grow(); err != nil {
			return nil, err
		}
	}
	b := &body{ctx: ctx, reader: http.MaxBytesReader(w, r.Body, limit), large: large, slot: slot}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		plain, err := gzip.NewReader(b.reader)
		if err != nil {
			return nil, compressionError(err)
		}
		b.reader = plain
	default:
		return nil, newStatus(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("the content encoding %.32q is not supported; use gzip", encoding))
	}
	return b, nil
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.reader.Read(p)
	if b.bytes += int64(n); b.bytes > b.large {
		if full := b.slot.grow(); full != nil {
			return n, full
		}
	}
	return n, compressionError(err)
}

// compressionError turns an error of corrupt data into a FormatError. Other errors are caused by
// the connection.
func compressionError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return &FormatError{Err: fmt.Errorf("the body is not valid gzip: %w", err)}
	}
	return err
}

// boundReads sets the deadline of ctx for reads of the request's body. The context alone does not
// end a read that waits for a slow sender.
func boundReads(ctx context.Context, w http.ResponseWriter) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	// The deadline is set here and not when ctx ends: by then, outer handlers may have returned,
	// and the connection may serve another request. The server resets the deadline.
	if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot set a deadline for a report", "err", err)
	}
}
