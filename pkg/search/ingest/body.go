package ingest

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// body is the decompressed body of a report.
type body struct {
	ctx    context.Context
	reader io.Reader
	// bytes is how many were read. From large on, the report needs a slot for large ones.
	bytes, large int64
	slot         *slot
}

// openBody prepares to read the body of a request. It does not read beyond the header
// of a compressed one.
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
		return nil, unsupportedEncoding(encoding)
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

// compressionError tells what is wrong with the body from what is wrong with the
// connection.
func compressionError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return &FormatError{Err: fmt.Errorf("the body is not well compressed: %w", err)}
	}
	return err
}

func unsupportedEncoding(encoding string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the content encoding %.32q is not supported; gzip is", encoding),
	}}
}

// boundReads makes reads of the request's body fail when ctx ends by its deadline. A context alone
// does not wake a read that waits for a slow sender.
func boundReads(ctx context.Context, w http.ResponseWriter) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return
	}
	// It is set here and never later: filters around this handler may have returned by
	// the time that ctx ends, and the connection is not ours any more then. The server resets it.
	if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil {
		klog.FromContext(ctx).V(2).Info("a slow report cannot be interrupted", "err", err)
	}
}
