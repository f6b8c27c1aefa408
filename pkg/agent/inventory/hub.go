package inventory

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	// compressAbove is the size in bytes above which a report is compressed.
	compressAbove = 1 << 10
	// deltaTimeout and fullTimeout bound one report.
	deltaTimeout = time.Minute
	fullTimeout  = 10 * time.Minute
)

// hub sends the reports of one cluster.
type hub struct {
	client rest.Interface
	path   string
	// plain is set if the hub does not accept compressed reports.
	plain atomic.Bool
}

func newHub(config *rest.Config, cluster string) (*hub, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("hub client for inventories: %w", err)
	}
	return &hub{
		client: client,
		path:   "/apis/search.open-cluster-management.io/v1alpha1/namespaces/" + cluster + "/inventories/" + cluster + "/sync",
	}, nil
}

// send sends a batch. If the hub rejects the batch, send returns an API error. After any other
// error, the hub may or may not have applied the batch.
func (h *hub) send(ctx context.Context, b *batch) (*inventory.Response, error) {
	timeout := deltaTimeout
	if b.full {
		timeout = fullTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The reporter implements the backoff.
	request := h.client.Post().AbsPath(h.path).SetHeader("Content-Type", "application/json").MaxRetries(0)
	if b.full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	if compressed := b.exceeds(compressAbove) && !h.plain.Load(); compressed {
		request.SetHeader("Content-Encoding", "gzip")
		body, stop := stream(b, true)
		defer stop()
		request.Body(body)
	} else if b.exceeds(compressAbove) {
		body, stop := stream(b, false)
		defer stop()
		request.Body(body)
	} else {
		var body bytes.Buffer
		if err := b.encode(&body, collectorVersion()); err != nil {
			return nil, fmt.Errorf("encode report: %w", err)
		}
		request.Body(body.Bytes())
	}
	// The error that Raw returns does not contain the hub's reason.
	result := request.Do(ctx)
	err := result.Error()
	if apierrors.IsUnsupportedMediaType(err) {
		h.plain.Store(true)
	}
	if err != nil {
		return nil, fmt.Errorf("send report: %w", err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("send report: %w", err)
	}
	response := &inventory.Response{}
	if err := json.Unmarshal(raw, response); err != nil {
		return nil, fmt.Errorf("answer to report: %w", err)
	}
	return response, nil
}

func collectorVersion() string { return version.Short() }

// stream encodes a batch while the body is read. The caller must call stop, which returns after the
// encoder has ended.
func stream(b *batch, compress bool) (body io.Reader, stop func()) {
	reader, pipe := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pipe.CloseWithError(encodeTo(pipe, b, compress))
	}()
	return reader, func() {
		_ = reader.Close()
		<-ended
	}
}

func encodeTo(to io.Writer, b *batch, compress bool) error {
	if !compress {
		return b.encode(to, collectorVersion())
	}
	// Most hubs are near the agent, so it saves CPU time rather than bandwidth.
	compressor, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := b.encode(compressor, collectorVersion()); err != nil {
		return err
	}
	return compressor.Close()
}
