package inventory

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	// deltaTimeout and fullTimeout bound one report.
	deltaTimeout = time.Minute
	fullTimeout  = 10 * time.Minute
)

// hub sends the reports of one cluster. It is not safe for concurrent use.
type hub struct {
	client rest.Interface
	path   string
	// compressor is used again for each report, because it needs a megabyte.
	compressor *gzip.Writer
}

func newHub(config *rest.Config, cluster string) (*hub, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("hub client for inventories: %w", err)
	}
	// Most hubs are near the agent, so compression saves CPU time rather than bandwidth.
	compressor, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("hub client for inventories: %w", err)
	}
	return &hub{
		client: client, compressor: compressor,
		path: "/apis/search.open-cluster-management.io/v1alpha1/namespaces/" + cluster + "/inventories/" + cluster + "/sync",
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
	var body bytes.Buffer
	if err := h.encode(&body, b); err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	// The reporter implements the backoff.
	request := h.client.Post().AbsPath(h.path).SetHeader("Content-Type", "application/json").SetHeader("Content-Encoding", "gzip").
		MaxRetries(0).Body(body.Bytes())
	if b.full {
		request.SetHeader(inventory.OverwriteHeader, "true")
	}
	// The error that Raw returns does not contain the hub's reason.
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
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

// encode writes a compressed batch.
func (h *hub) encode(to io.Writer, b *batch) error {
	h.compressor.Reset(to)
	if err := b.encode(h.compressor, version.Short()); err != nil {
		return err
	}
	return h.compressor.Close()
}
