package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// valueBytes bounds what is buffered to read one value, so that a body cannot
	// make the decoder hold more than this at a time.
	valueBytes = 4 << 20
	// uidBytes bounds a UID.
	uidBytes = 512
	// readBytes is how much is read from the body at a time.
	readBytes = 64 << 10
)

// ErrTooLarge is the error for a report that exceeds the Limits as a whole.
var ErrTooLarge = errors.New("the report is too large")

// errWindow is what the decoder meets at the end of its window.
var errWindow = errors.New("the value is too long")

// FormatError is the error for a body that is not a report.
type FormatError struct {
	// Offset is how many bytes of the (decompressed) body were good.
	Offset int64
	// Err tells what is wrong there.
	Err error
}

func (e *FormatError) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

// Unwrap returns what is wrong.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode reads the report of a cluster in the public JSON (inventory.Sync); hub tells
// whether it is the hub's own, and full whether the request says that it is a report of
// everything, which the body may say too. Time is left to the caller.
//
// The Response holds nothing but errors: what it names is not in the report, and
// everything else is. A UID that comes twice is in the report as it came last, and what is
// both put and deleted is deleted.
//
// The error is a *FormatError for what is not a report, wraps ErrTooLarge for one
// that exceeds a limit, and otherwise wraps that of r.
func Decode(r io.Reader, cluster string, hub, full bool, limits Limits) (*search.Report, *inventory.Response, error) {
	report, response, _, err := decode(r, cluster, hub, full, limits, func(int64) error { return nil })
	return report, response, err
}

// decode is Decode. It calls hold as the report grows, with about how many bytes of memory it takes by then, and ends
// with the error of that. It returns how many bytes that are in the end.
func decode(r io.Reader, cluster string, hub, full bool, limits Limits, hold func(bytes int64) error) (*search.Report, *inventory.Response, int64, error) {
	limits = limits.withDefaults()
	w := &window{r: bufio.NewReaderSize(r, readBytes), size: valueBytes, left: limits.BodyBytes}
	// A map that is kept for every open object is neither needed nor cheap: the last of
	// equal names wins.
	w.json = jsontext.NewDecoder(w, jsontext.AllowDuplicateNames(true))
	d := &decoder{
		json: w.json, window: w, limits: limits, hold: hold,
		prefix: cluster + "/", self: "cluster__" + cluster,
		report: &search.Report{Cluster: cluster, Hub: hub, Full: full},
		put:    map[string]int{}, interned: map[string]string{},
	}
	for _, list := range []*refusals{&d.add, &d.update, &d.delete, &d.addEdge, &d.deleteEdge} {
		list.max = limits.Errors
		list.errors = []inventory.SyncError{}
	}
	if err := d.body(); err != nil {
		return nil, nil, 0, err
	}
	d.settle()
	return d.report, &inventory.Response{
		AddErrors: d.add.list(), UpdateErrors: d.update.list(), DeleteErrors: d.delete.list(),
		AddEdgeErrors: d.addEdge.list(), DeleteEdgeErrors: d.deleteEdge.list(),
	}, d.held, nil
}

// decoder reads one report.
type decoder struct {
	json   *jsontext.Decoder
	window *window
	limits Limits
	// prefix is what UIDs of the cluster begin with, self that of the cluster itself.
	prefix, self string

	report *search.Report
	// put are the places of UIDs in the report.
	put map[string]int
	// interned are words that many resources and edges share.
	interned map[string]string
	scratch  []byte
	// resources, edges and values are how many have come.
	resources, edges, values int
	// held is about how many bytes the report takes, of which told were passed to hold.
	held, told int64
	hold       func(bytes int64) error

	add, update, delete, addEdge, deleteEdge refusals
}

func (d *decoder) body() error {
	switch d.json.PeekKind() {
	case '{':
	case 0:
		_, err := d.json.ReadToken()
		if err == io.EOF {
			return d.shape("the body is empty")
		}
		return d.failed(err)
	default:
		return d.shape("a report is a JSON object")
	}
	if err := d.open(); err != nil {
		return err
	}
	for {
		name, more, err := d.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch name {
		case fieldClearAll:
			err = d.clearAll()
		case fieldAddResources:
			err = d.list(func() error { return d.resource(&d.add) })
		case fieldUpdateResources:
			err = d.list(func() error { return d.resource(&d.update) })
		case fieldDeleteResources:
			err = d.list(d.deletion)
		case fieldAddEdges:
			err = d.list(func() error { return d.edge(&d.report.AddEdges, &d.addEdge) })
		case fieldDeleteEdges:
			err = d.list(func() error { return d.edge(&d.report.DeleteEdges, &d.deleteEdge) })
		default:
			err = d.skip()
		}
		if err != nil {
			return err
		}
	}
	// Reading to the end also checks the sum of a compressed body.
	if _, err := d.json.ReadToken(); err != io.EOF {
		if err == nil {
			return d.shape("there is something after the report")
		}
		return d.failed(err)
	}
	return nil
}

func (d *decoder) clearAll() error {
	switch d.json.PeekKind() {
	case 't':
		d.report.Full = true
	case 'f', 'n', 0:
	default:
		return d.shape("clearAll is true or false")
	}
	return d.skip()
}

func (d *decoder) resource(refused *refusals) error {
	if err := d.count(&d.resources, d.limits.Resources, "resources"); err != nil {
		return err
	}
	if err := d.open(); err != nil {
		return err
	}
	var uid, kind, plural string
	var properties query.Properties
	problem := "properties are missing"
	for {
		name, more, err := d.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch name {
		case fieldUID:
			var text []byte
			if text, err = d.text(); err == nil {
				uid = string(text)
			}
		case fieldKind:
			kind, err = d.word()
		case fieldResourceString:
			plural, err = d.word()
		case fieldProperties:
			properties, problem, err = d.properties()
		default:
			err = d.skip()
		}
		if err != nil {
			return err
		}
	}
	if wrong := d.foreign(uid); wrong != "" {
		problem = wrong
	}
	if problem == "" {
		properties, problem = complete(properties, kind, plural, d.report.Hub, d.limits.Properties)
	}
	if problem != "" {
		refused.add(uid, problem)
		return nil
	}
	if at, again := d.put[uid]; again {
		d.report.Put[at].Properties = properties
		return nil
	}
	d.put[uid] = len(d.report.Put)
	d.report.Put = append(d.report.Put, search.Resource{UID: uid, Properties: properties})
	return d.takes(resourceCost + len(uid))
}

// properties reads what a resource consists of. The text says why it is not taken.
func (d *decoder) properties() (query.Properties, string, error) {
	switch d.json.PeekKind() {
	case '{', 0:
	default:
		return nil, "properties are not an object", d.skip()
	}
	// The window is wider than what is allowed by the space around the value.
	d.window.size = int64(d.limits.ResourceBytes) + readBytes
	value, err := d.json.ReadValue()
	d.window.size = valueBytes
	if errors.Is(err, errWindow) {
		return nil, d.tooLong(), d.skip()
	}
	if err != nil {
		return nil, "", d.failed(err)
	}
	if len(value) > d.limits.ResourceBytes {
		return nil, d.tooLong(), nil
	}
	properties, err := query.DecodeProperties(value)
	if err != nil {
		return nil, fmt.Sprintf("properties cannot be read: %v", err), nil
	}
	values, memory, problem := 0, len(value)+len(properties)*propertyCost, ""
	for i := range properties {
		counted := weigh(&properties[i])
		values += counted.values
		memory += counted.memory
		if !counted.representable && problem == "" {
			problem = fmt.Sprintf("property %.*q has a number that is out of range", nameBytes, properties[i].Name)
		}
	}
	if d.values += values; d.values > d.limits.Values {
		return nil, "", fmt.Errorf("%w: more than %d values", ErrTooLarge, d.limits.Values)
	}
	if problem != "" {
		return nil, problem, nil
	}
	if err := d.takes(memory); err != nil {
		return nil, "", err
	}
	compactLeaves(properties)
	return properties, "", nil
}

func (d *decoder) tooLong() string {
	return fmt.Sprintf("properties are longer than %d bytes", d.limits.ResourceBytes)
}

func (d *decoder) deletion() error {
	if err := d.count(&d.resources, d.limits.Resources, "resources"); err != nil {
		return err
	}
	if err := d.open(); err != nil {
		return err
	}
	var uid string
	for {
		name, more, err := d.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if name == fieldUID {
			var text []byte
			if text, err = d.text(); err == nil {
				uid = string(text)
			}
		} else {
			err = d.skip()
		}
		if err != nil {
			return err
		}
	}
	if wrong := d.foreign(uid); wrong != "" {
		d.delete.add(uid, wrong)
		return nil
	}
	d.report.Delete = append(d.report.Delete, uid)
	return d.takes(deletionCost + len(uid))
}

func (d *decoder) edge(edges *[]search.Edge, refused *refusals) error {
	if err := d.count(&d.edges, d.limits.Edges, "edges"); err != nil {
		return err
	}
	if err := d.open(); err != nil {
		return err
	}
	var edge search.Edge
	for {
		name, more, err := d.next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch name {
		case fieldSourceUID:
			edge.SourceUID, err = d.known()
		case fieldDestUID:
			edge.DestUID, err = d.known()
		case fieldSourceKind:
			edge.SourceKind, err = d.word()
		case fieldDestKind:
			edge.DestKind, err = d.word()
		case fieldEdgeType:
			edge.Type, err = d.word()
		default:
			err = d.skip()
		}
		if err != nil {
			return err
		}
	}
	if wrong := d.foreign(edge.SourceUID); wrong != "" {
		refused.add(edge.SourceUID, "SourceUID: "+wrong)
	} else if wrong := d.foreign(edge.DestUID); wrong != "" {
		refused.add(edge.SourceUID, "DestUID: "+wrong)
	} else if edge.Type == "" {
		refused.add(edge.SourceUID, "EdgeType is missing")
	} else {
		*edges = append(*edges, edge)
		return d.takes(edgeCost + len(edge.SourceUID) + len(edge.DestUID))
	}
	return nil
}

// foreign says why a UID is not one of the cluster; empty if it is.
func (d *decoder) foreign(uid string) string {
	switch {
	case uid == "":
		return "uid is missing"
	case len(uid) > uidBytes:
		return fmt.Sprintf("uid is longer than %d bytes", uidBytes)
	case uid == d.self || len(uid) > len(d.prefix) && strings.HasPrefix(uid, d.prefix):
		return ""
	}
	return fmt.Sprintf("uid begins with %q in reports of this cluster", d.prefix)
}

func (d *decoder) count(n *int, limit int, what string) error {
	if *n++; *n > limit {
		return fmt.Errorf("%w: more than %d %s", ErrTooLarge, limit, what)
	}
	return nil
}

// settle makes the report say one thing about each resource and edge.
func (d *decoder) settle() {
	r := d.report
	if len(r.Delete) > 0 && len(r.Put) > 0 {
		for _, uid := range r.Delete {
			if at, found := d.put[uid]; found {
				r.Put[at].UID = ""
			}
		}
		kept := r.Put[:0]
		for _, resource := range r.Put {
			if resource.UID != "" {
				kept = append(kept, resource)
			}
		}
		clear(r.Put[len(kept):])
		r.Put = kept
	}
	if len(r.DeleteEdges) > 0 && len(r.AddEdges) > 0 {
		gone := make(map[search.Edge]struct{}, len(r.DeleteEdges))
		for _, edge := range r.DeleteEdges {
			gone[identity(edge)] = struct{}{}
		}
		kept := r.AddEdges[:0]
		for _, edge := range r.AddEdges {
			if _, found := gone[identity(edge)]; !found {
				kept = append(kept, edge)
			}
		}
		r.AddEdges = kept
	}
	if r.Full {
		r.Delete, r.DeleteEdges = nil, nil
	}
}

// identity is an edge without what does not tell it from others.
func identity(edge search.Edge) search.Edge {
	return search.Edge{SourceUID: edge.SourceUID, DestUID: edge.DestUID, Type: edge.Type}
}
