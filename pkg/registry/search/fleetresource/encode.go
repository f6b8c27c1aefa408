package fleetresource

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// eventObject is the FleetResource of a watch event. For clients that watch compact JSON, it encodes the event
// itself. The generic encoders read the properties of each resource three times, which takes longer than the
// search.
type eventObject struct {
	*searchv1alpha1.FleetResource
	event watch.EventType
	// done is called when the event is written, or not at all if the watch ends before.
	done func()
}

// eventRoom is the typical size of an event without its properties.
const eventRoom = 1 << 10

var _ runtime.CacheableObject = &eventObject{}

// direct contains the identifier of each encoder of events, and whether its output is equal to that of appendEvent.
var direct sync.Map

// sample has a value for each field that events contain.
var sample = newObject(&search.Item{
	UID: "cluster/uid", Cluster: "cluster", Version: 1,
	Object: search.JSON(`{"apigroup":"apps","apiversion":"v1","created":"2006-01-02T15:04:05Z","kind":"Deployment",` +
		`"kind_plural":"deployments","label":{"a":"1","b":"2"},"list":["x"],"name":"name","namespace":"namespace","number":1}`),
})

// DeepCopyObject implements runtime.Object.
func (o *eventObject) DeepCopyObject() runtime.Object {
	return &eventObject{FleetResource: o.DeepCopy(), event: o.event, done: func() {}}
}

// GetObject implements runtime.CacheableObject.
func (o *eventObject) GetObject() runtime.Object { return o.FleetResource }

// CacheEncode implements runtime.CacheableObject.
func (o *eventObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, to io.Writer) error {
	defer o.done()
	equal, known := direct.Load(id)
	if !known {
		var encoded bytes.Buffer
		// Encoders change the TypeMeta of the object for a moment.
		err := encode(sample.DeepCopy(), &encoded)
		equal = err == nil && bytes.Equal(encoded.Bytes(), appendEvent(nil, o.event, sample))
		direct.Store(id, equal)
	}
	if equal != true {
		return encode(o.FleetResource, to)
	}
	// A client that does not read keeps the buffer in memory, so it has no spare capacity, and replaces the object. Each
	// event is encoded once.
	encoded := appendEvent(make([]byte, 0, len(o.Properties.Raw)+eventRoom), o.event, o.FleetResource)
	o.FleetResource = &searchv1alpha1.FleetResource{}
	_, err := to.Write(encoded)
	return err
}

// appendEvent appends an event as compact JSON with the fields in the order of the Go types.
func appendEvent(dst []byte, event watch.EventType, object *searchv1alpha1.FleetResource) []byte {
	dst = appendText(append(dst, '{'), "type", string(event))
	dst = append(dst, `,"object":{"kind":"FleetResource","apiVersion":"`...)
	dst = append(dst, searchv1alpha1.SchemeGroupVersion.String()...)
	dst = append(dst, `","metadata":{`...)
	dst = appendText(dst, "name", object.Name)
	dst = appendNonEmpty(dst, "namespace", object.Namespace)
	dst = appendNonEmpty(dst, "uid", string(object.UID))
	dst = appendNonEmpty(dst, "resourceVersion", object.ResourceVersion)
	if created := object.CreationTimestamp; !created.IsZero() {
		dst = append(dst, `,"creationTimestamp":"`...)
		dst = append(created.UTC().AppendFormat(dst, time.RFC3339), '"')
	}
	if len(object.Labels) > 0 {
		dst = append(dst, `,"labels":{`...)
		for i, name := range slices.Sorted(maps.Keys(object.Labels)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(serving.AppendString(dst, name), ':')
			dst = serving.AppendString(dst, object.Labels[name])
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `},"resource":{`...)
	identity := &object.Resource
	if identity.APIGroup != "" {
		dst = append(appendText(dst, "apiGroup", identity.APIGroup), ',')
	}
	if identity.Version != "" {
		dst = append(appendText(dst, "version", identity.Version), ',')
	}
	dst = appendText(dst, "kind", identity.Kind)
	dst = appendNonEmpty(dst, "resource", identity.Resource)
	dst = appendNonEmpty(dst, "namespace", identity.Namespace)
	dst = appendText(append(dst, ','), "name", identity.Name)
	dst = append(dst, `},"properties":`...)
	dst = append(dst, object.Properties.Raw...)
	return append(dst, '}', '}', '\n')
}

// appendNonEmpty appends a comma and a field, unless its value is empty.
func appendNonEmpty(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendText(append(dst, ','), name, value)
}

func appendText(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, '"'), name...), '"', ':')
	return serving.AppendString(dst, value)
}
