package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// valueBytes bounds the buffer for one value, so that a body cannot make the decoder use more memory.
	valueBytes = 4 << 20
	// uidBytes bounds a UID. relationBytes bounds the type of an edge.
	uidBytes      = 512
	relationBytes = 128
	// readBytes is the size of reads from the body.
	readBytes = 64 << 10
)

// readers contains the buffers for bodies. Most reports are much smaller than a buffer.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBytes) }}

// ErrTooLarge is the error for a report that exceeds the Limits as a whole.
var ErrTooLarge = errors.New("the report is too large")

// errWindow is the error at the end of the window of the decoder.
var errWindow = errors.New("the value is too long")

// FormatError is the error for a body that is not a valid report.
type FormatError struct {
	// Offset is the number of valid bytes of the decompressed body.
	Offset int64
	// Err is the error at the offset.
	Err error
}

func (e *FormatError) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

// Unwrap returns the error at the offset.
func (e *FormatError) Unwrap() error { return e.Err }

// Decode decodes the report of a cluster from the upstream JSON format (inventory.Sync). hub is true
// for a report of the hub itself. full is true if the request declares a full report; the body may
// declare it as well. The caller sets the time.
//
// The Response contains only errors. The report contains all parts without errors. If a UID occurs
// twice, the last occurrence takes effect. A UID that is put and deleted is deleted.
//
// Decode returns a *FormatError for an invalid report, an error that wraps ErrTooLarge for a report
// that exceeds a limit, or an error that wraps the error of r.
func Decode(r io.Reader, cluster string, hub, full bool, limits Limits) (*search.Report, *inventory.Response, error) {
	report, response, _, err := decode(r, cluster, hub, full, limits, func(int64) error { return nil })
	return report, response, err
}

// decode is like Decode, with memory accounting. While the report grows, it calls hold with the
// approximate memory of the report so far, and fails if hold fails. It returns the memory of the
// whole report.
func decode(r io.Reader, cluster string, hub, full bool, limits Limits, hold func(bytes int64) error) (*search.Report, *inventory.Response, int64, error) {
	limits = limits.withDefaults()
	buffered := readers.Get().(*bufio.Reader)
	buffered.Reset(r)
	defer func() {
		buffered.Reset(nil)
		readers.Put(buffered)
	}()
	w := &window{r: buffered, size: valueBytes, left: limits.BodyBytes}
	// Maps of names are expensive and not necessary: the last of duplicate names takes effect.
	w.json = jsontext.NewDecoder(w, jsontext.AllowDuplicateNames(true))
	d := &decoder{
		json: w.json, window: w, limits: limits, hold: hold,
		prefix: cluster + "/", self: search.ClusterUIDPrefix + cluster,
		report: &search.Report{Cluster: cluster, Hub: hub, Full: full},
		put:    map[string]int{}, interned: map[string]string{},
		names: sets.Set[string]{}, relations: sets.Set[string]{},
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

// decoder decodes one report.
type decoder struct {
	json   *jsontext.Decoder
	window *window
	limits Limits
	// prefix is the prefix of the UIDs of the cluster's resources. self is the UID of the
	// resource of kind Cluster.
	prefix, self string

	report *search.Report
	// put contains the indexes of UIDs in report.Put.
	put map[string]int
	// interned contains words that are shared by many resources and edges.
	interned map[string]string
	// names contains the names of the properties, and relations the types of the added edges. Engines keep data for
	// each of them.
	names, relations sets.Set[string]
	// name is the last name of a field, and scratch the last text with escapes.
	name, scratch []byte
	// resources, edges and values count the parts of the report so far.
	resources, edges, values int
	// held is the approximate memory of the report. announced is the part of it that was passed to
	// hold.
	held, announced int64
	hold            func(bytes int64) error

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
		return d.shape("the report must be a JSON object")
	}
	err := d.fields(func(name []byte) error {
		switch string(name) {
		case "clearall":
			return d.clearAll()
		case "addresources":
			return d.list(func() error { return d.resource(&d.add) })
		case "updateresources":
			return d.list(func() error { return d.resource(&d.update) })
		case "deleteresources":
			return d.list(d.deletion)
		case "addedges":
			return d.list(func() error { return d.edge(&d.report.AddEdges, &d.addEdge) })
		case "deleteedges":
			return d.list(func() error { return d.edge(&d.report.DeleteEdges, &d.deleteEdge) })
		}
		return d.skip()
	})
	if err != nil {
		return err
	}
	// Reading to the end also verifies the checksum of a compressed body.
	if _, err := d.json.ReadToken(); err != io.EOF {
		if err == nil {
			return d.shape("unexpected data after the report")
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
		return d.shape("clearAll must be true or false")
	}
	return d.skip()
}

func (d *decoder) resource(refused *refusals) error {
	if err := d.count(&d.resources, d.limits.Resources, "resources"); err != nil {
		return err
	}
	var uid, kind, plural string
	var properties, internal query.Properties
	problem := "properties are missing"
	err := d.fields(func(name []byte) (err error) {
		switch string(name) {
		case "uid":
			uid, err = d.uid()
		case "kind":
			kind, err = d.word(kindBytes)
		case "resourcestring":
			plural, err = d.word(identityBytes)
		case "properties":
			properties, problem, err = d.properties()
		default:
			err = d.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if wrong := d.foreign(uid); wrong != "" {
		problem = wrong
	}
	if problem == "" {
		properties, problem = complete(properties, kind, plural, d.report.Hub, d.limits.Properties)
	}
	if problem == "" {
		properties, internal, problem = splitAccess(properties, uid == d.prefix+inventory.AccessReportID)
	}
	if problem == "" && !d.knownNames(properties) {
		problem = fmt.Sprintf("the report has more than %d different names of properties", d.limits.Names)
	}
	if problem != "" {
		refused.add(uid, problem)
		return nil
	}
	// The kind and the plural are not part of the counted properties.
	if err := d.grow(len(kind) + len(plural)); err != nil {
		return err
	}
	if at, again := d.put[uid]; again {
		d.report.Put[at].Properties, d.report.Put[at].Internal = properties, internal
		return nil
	}
	d.put[uid] = len(d.report.Put)
	d.report.Put = append(d.report.Put, search.Resource{UID: uid, Properties: properties, Internal: internal})
	return d.grow(resourceCost + len(uid))
}

// properties reads the properties of a resource. If they are rejected, it returns the reason as
// text.
func (d *decoder) properties() (query.Properties, string, error) {
	switch d.json.PeekKind() {
	case '{', 0:
	default:
		return nil, "properties must be an object", d.skip()
	}
	// The window includes the white space around the value.
	longest := d.limits.ResourceBytes + accessBytes
	d.window.size = int64(longest) + readBytes
	value, err := d.json.ReadValue()
	d.window.size = valueBytes
	if errors.Is(err, errWindow) {
		return nil, tooLong(d.limits), d.skip()
	}
	if err != nil {
		return nil, "", d.failed(err)
	}
	if len(value) > longest {
		return nil, tooLong(d.limits), nil
	}
	properties, err := query.DecodeProperties(value)
	if err != nil {
		return nil, fmt.Sprintf("cannot decode properties: %v", err), nil
	}
	values, memory, problem := 0, len(value)+len(properties)*propertyCost, ""
	for i := range properties {
		counted := weigh(&properties[i])
		values += counted.values
		memory += counted.memory
		if !counted.representable && problem == "" {
			problem = fmt.Sprintf("property %.*q contains a number that is out of range", nameBytes, properties[i].Name)
		}
	}
	if d.values += values; d.values > d.limits.Values {
		return nil, "", fmt.Errorf("%w: more than %d values", ErrTooLarge, d.limits.Values)
	}
	if problem == "" && len(value) > d.limits.ResourceBytes && withoutAccess(properties) > d.limits.ResourceBytes {
		problem = tooLong(d.limits)
	}
	if problem != "" {
		return nil, problem, nil
	}
	if err := d.grow(memory); err != nil {
		return nil, "", err
	}
	compactLeaves(properties)
	return properties, "", nil
}

func tooLong(limits Limits) string {
	return fmt.Sprintf("properties are longer than %d bytes", limits.ResourceBytes)
}

func (d *decoder) deletion() error {
	if err := d.count(&d.resources, d.limits.Resources, "resources"); err != nil {
		return err
	}
	var uid string
	err := d.fields(func(name []byte) (err error) {
		if string(name) != "uid" {
			return d.skip()
		}
		uid, err = d.uid()
		return err
	})
	if err != nil {
		return err
	}
	if wrong := d.foreign(uid); wrong != "" {
		d.delete.add(uid, wrong)
		return nil
	}
	d.report.Delete = append(d.report.Delete, uid)
	return d.grow(deletionCost + len(uid))
}

func (d *decoder) edge(edges *[]search.Edge, refused *refusals) error {
	if err := d.count(&d.edges, d.limits.Edges, "edges"); err != nil {
		return err
	}
	var edge search.Edge
	err := d.fields(func(name []byte) (err error) {
		switch string(name) {
		case "sourceuid":
			edge.SourceUID, err = d.uid()
		case "destuid":
			edge.DestUID, err = d.uid()
		case "sourcekind":
			edge.SourceKind, err = d.word(kindBytes)
		case "destkind":
			edge.DestKind, err = d.word(kindBytes)
		case "edgetype":
			edge.Type, err = d.word(relationBytes)
		default:
			err = d.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if problem := d.edgeProblem(&edge, edges == &d.report.AddEdges); problem != "" {
		refused.add(edge.SourceUID, problem)
		return nil
	}
	*edges = append(*edges, edge)
	return d.grow(edgeCost + len(edge.SourceUID) + len(edge.DestUID) + len(edge.SourceKind) + len(edge.DestKind) + len(edge.Type))
}

// edgeProblem returns the reason why an edge is rejected, or "" if it is accepted.
func (d *decoder) edgeProblem(edge *search.Edge, added bool) string {
	if wrong := d.foreign(edge.SourceUID); wrong != "" {
		return "SourceUID: " + wrong
	}
	if wrong := d.foreign(edge.DestUID); wrong != "" {
		return "DestUID: " + wrong
	}
	switch {
	case edge.Type == "":
		return "EdgeType is missing"
	case len(edge.Type) > relationBytes:
		return fmt.Sprintf("EdgeType is longer than %d bytes", relationBytes)
	case len(edge.SourceKind) > kindBytes:
		return fmt.Sprintf("SourceKind is longer than %d bytes", kindBytes)
	case len(edge.DestKind) > kindBytes:
		return fmt.Sprintf("DestKind is longer than %d bytes", kindBytes)
	}
	if added && !d.relations.Has(edge.Type) {
		if len(d.relations) >= d.limits.Relations {
			return fmt.Sprintf("the report has more than %d different EdgeTypes", d.limits.Relations)
		}
		d.relations.Insert(edge.Type)
	}
	return ""
}

// knownNames records the names of the properties of a resource. It returns false, and records none, if the report
// has too many different names.
func (d *decoder) knownNames(properties query.Properties) bool {
	var fresh []string
	for i := range properties {
		if name := properties[i].Name; !d.names.Has(name) {
			// The name may be a part of all properties, which would then stay in memory.
			fresh = append(fresh, strings.Clone(name))
		}
	}
	if len(d.names)+len(fresh) > d.limits.Names {
		return false
	}
	d.names.Insert(fresh...)
	return true
}

// foreign returns the reason why a UID does not belong to the cluster, or "" if it does.
func (d *decoder) foreign(uid string) string {
	switch {
	case uid == "":
		return "uid is missing"
	case len(uid) > uidBytes:
		return fmt.Sprintf("uid is longer than %d bytes", uidBytes)
	case len(uid) > len(d.prefix) && strings.HasPrefix(uid, d.prefix):
		return ""
	case uid == d.self:
		return "the server adds the resource of kind Cluster from the ManagedCluster"
	}
	return fmt.Sprintf("uid must begin with %q in reports of this cluster", d.prefix)
}

func (d *decoder) count(n *int, limit int, what string) error {
	if *n++; *n > limit {
		return fmt.Errorf("%w: more than %d %s", ErrTooLarge, limit, what)
	}
	return nil
}

// settle removes contradictions from the report.
func (d *decoder) settle() {
	r := d.report
	for _, uid := range r.Delete {
		if at, found := d.put[uid]; found {
			r.Put[at].UID = ""
		}
	}
	r.Put = slices.DeleteFunc(r.Put, func(resource search.Resource) bool { return resource.UID == "" })
	if len(r.DeleteEdges) > 0 {
		gone := sets.Set[search.Edge]{}
		for _, edge := range r.DeleteEdges {
			gone.Insert(identity(edge))
		}
		r.AddEdges = slices.DeleteFunc(r.AddEdges, func(edge search.Edge) bool { return gone.Has(identity(edge)) })
	}
	if r.Full {
		r.Delete, r.DeleteEdges = nil, nil
	}
}

// identity returns an edge with only the fields that identify it.
func identity(edge search.Edge) search.Edge {
	return search.Edge{SourceUID: edge.SourceUID, DestUID: edge.DestUID, Type: edge.Type}
}
