package inventory

import (
	"bufio"
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
	compressor, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
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
	raw, _ := result.Raw()
	response := &inventory.Response{}
	if err := json.Unmarshal(raw, response); err != nil {
		return nil, fmt.Errorf("answer to report: %w", err)
	}
	return response, nil
}

func (h *hub) encode(to io.Writer, b *batch) error {
	h.compressor.Reset(to)
	if err := b.encode(h.compressor, version.Short()); err != nil {
		return err
	}
	return h.compressor.Close()
}

// batch is a snapshot of a report, taken when begin returns it.
type batch struct {
	full bool
	// greeting is true for a report that checks whether the hub accepts reports.
	greeting bool
	// access is true if the batch contains the content of RBAC objects. urgent is true if it contains changes of them.
	access, urgent bool
	// updated contains the records that the hub may know, unless the batch is full.
	added, updated []item
	removes        []inventory.Deleted
	adds, drops    []inventory.Edge
	// resources and edges are the totals on the hub after the batch.
	resources, edges int
}

// item is a copy of a record in a batch. Later changes of the record do not affect it.
type item struct {
	resource   *resource
	uid        string
	properties []byte
	access     []byte
}

func (b *batch) put(r *record) {
	it := item{resource: r.resource, uid: r.uid, properties: r.properties}
	if b.access {
		it.access = r.access
	}
	if b.full || !r.known {
		b.added = append(b.added, it)
	} else {
		b.updated = append(b.updated, it)
	}
	r.known = true
}

func (b *batch) kind() string {
	switch {
	case b.full:
		return "full"
	case len(b.added)+len(b.updated)+len(b.removes)+len(b.adds)+len(b.drops) == 0:
		return "heartbeat"
	default:
		return "delta"
	}
}

// encode writes the JSON of inventory.Sync as a stream, so that memory does not hold all of it.
func (b *batch) encode(to io.Writer, version string) error {
	// The writer keeps the first error until Flush.
	w := bufio.NewWriterSize(to, 32<<10)
	writeText(w, `{"version":`)
	writeValue(w, &version)
	if b.full {
		writeText(w, `,"clearAll":true`)
	}
	writeList(w, "addResources", b.added, writeItem)
	writeList(w, "updateResources", b.updated, writeItem)
	writeList(w, "deleteResources", b.removes, writeValue[inventory.Deleted])
	writeList(w, "addEdges", b.adds, writeValue[inventory.Edge])
	writeList(w, "deleteEdges", b.drops, writeValue[inventory.Edge])
	writeText(w, `}`)
	return w.Flush()
}

// writeList writes a member with a list. A list without elements is omitted.
func writeList[T any](w *bufio.Writer, name string, elements []T, write func(*bufio.Writer, *T)) {
	for i := range elements {
		if i == 0 {
			writeText(w, `,"`+name+`":[`)
		} else {
			writeText(w, `,`)
		}
		write(w, &elements[i])
	}
	if len(elements) > 0 {
		writeText(w, `]`)
	}
}

func writeItem(w *bufio.Writer, it *item) {
	writeText(w, `{"kind":`)
	writeValue(w, &it.resource.kind)
	writeText(w, `,"uid":`)
	writeValue(w, &it.uid)
	writeText(w, `,"resourceString":`)
	writeValue(w, &it.resource.Resource)
	writeText(w, `,"properties":`)
	if len(it.access) > 0 {
		_, _ = w.Write(it.properties[:len(it.properties)-1])
		writeText(w, `,`)
		_, _ = w.Write(it.access)
		writeText(w, `}`)
	} else {
		_, _ = w.Write(it.properties)
	}
	writeText(w, `}`)
}

func writeText(w *bufio.Writer, text string) { _, _ = w.WriteString(text) }

// writeValue writes a string, or a struct of strings, which can always be encoded.
func writeValue[T any](w *bufio.Writer, value *T) {
	encoded, _ := json.Marshal(value)
	_, _ = w.Write(encoded)
}
