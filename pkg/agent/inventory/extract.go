package inventory

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// maxAnnotation is the maximum number of characters of a reported annotation.
const maxAnnotation = 64

// extractor creates records of the objects of one resource. It is not safe for concurrent use.
type extractor struct {
	cluster  string
	resource *resource
	settings *Settings
	// whole is true if the agent reads complete objects, and false if it reads only metadata.
	whole  bool
	row    row
	fields []parsedField
}

type parsedField struct {
	name string
	path *jsonpath.JSONPath
}

func newExtractor(cluster string, r *resource, settings *Settings) (*extractor, error) {
	e := &extractor{cluster: cluster, resource: r, settings: settings}
	gr := r.GroupResource()
	if metadataOnly[gr] || !r.reported {
		return e, nil
	}
	e.row, e.whole = table[gr]
	if configured, ok := settings.fields[gr]; ok {
		e.whole = true
		e.row.conditions = e.row.conditions || configured.Conditions
		for _, field := range configured.Fields {
			path, err := field.parse()
			if err != nil {
				return nil, fmt.Errorf("%s: field %q: %w", gr, field.Name, err)
			}
			e.fields = append(e.fields, parsedField{field.Name, path})
		}
	}
	return e, nil
}

func (e *extractor) uidOf(uid string) string { return e.cluster + "/" + uid }

// transform is a cache.TransformFunc that turns an object into its record.
func (e *extractor) transform(obj any) (any, error) {
	if r, ok := obj.(*record); ok {
		return r, nil
	}
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected %T", e.resource.GroupResource(), obj)
	}
	return e.extract(object)
}

func (e *extractor) extract(object metav1.Object) (*record, error) {
	r := &record{
		resource: e.resource, uid: e.uidOf(string(object.GetUID())), namespace: object.GetNamespace(), name: object.GetName(),
		ignored: !e.resource.reported || object.GetUID() == "" || !e.inNamespace(object),
	}
	if r.ignored {
		return r, nil
	}
	properties := e.common(object)
	found := owners(object, e.uidOf)
	if whole, ok := object.(*unstructured.Unstructured); ok && e.whole {
		e.extractContent(whole, r, properties, &found)
	}
	r.references = found
	for name, value := range properties {
		if isEmpty(value) {
			delete(properties, name)
		}
	}
	var err error
	if r.properties, err = json.Marshal(properties); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", e.resource.GroupResource(), r.namespace, r.name, err)
	}
	return r, nil
}

func (e *extractor) inNamespace(object metav1.Object) bool {
	namespace := object.GetNamespace()
	if namespace == "" && e.resource.Group == "" && e.resource.Resource == "namespaces" {
		namespace = object.GetName()
	}
	return namespace == "" || e.settings.reportsNamespace(namespace)
}

func (e *extractor) common(object metav1.Object) map[string]any {
	properties := map[string]any{
		"name":        object.GetName(),
		"namespace":   object.GetNamespace(),
		"kind":        e.resource.kind,
		"kind_plural": e.resource.Resource,
		"apigroup":    e.resource.Group,
		"apiversion":  e.resource.Version,
		"label":       object.GetLabels(),
	}
	if created := object.GetCreationTimestamp(); !created.IsZero() {
		properties["created"] = created.UTC().Format(time.RFC3339)
	}
	if e.settings.annotations {
		properties["annotation"] = shortAnnotations(object.GetAnnotations())
	}
	if owners := object.GetOwnerReferences(); len(owners) > 0 {
		owner := &owners[0]
		if controller := metav1.GetControllerOfNoCopy(object); controller != nil {
			owner = controller
		}
		properties["_ownerUID"] = e.uidOf(string(owner.UID))
	}
	return properties
}

// shortAnnotations returns the annotations to report. It omits the last-applied-configuration
// annotation of kubectl even if it is short, because that annotation contains the object.
func shortAnnotations(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range annotations {
		if key != corev1.LastAppliedConfigAnnotation && utf8.RuneCountInString(value) <= maxAnnotation {
			found[key] = value
		}
	}
	return found
}

func (e *extractor) extractContent(object *unstructured.Unstructured, r *record, properties map[string]any, found *references) {
	c := content(object.Object)
	for _, property := range e.row.properties {
		properties[property.name] = property.value(c)
	}
	if e.row.conditions {
		properties["condition"] = conditions(c)
	}
	if e.row.references != nil {
		e.row.references(c, found)
	}
	if e.row.selector != nil {
		r.selector = selectorTerms(e.row.selector(c))
	}
	if e.row.pod {
		e.extractPod(object, r, properties, found)
	}
	if e.row.access != nil {
		e.extractAccess(c, r, properties)
	}
	for _, field := range e.fields {
		if value := field.value(object.Object); value != nil {
			properties[field.name] = value
		}
	}
}

func (e *extractor) extractPod(object *unstructured.Unstructured, r *record, properties map[string]any, found *references) {
	r.labels = selectable(object.GetLabels())
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return // only metadata is reported
	}
	podProperties(pod, properties)
	*found = append(*found, podReferences(pod)...)
}

// value returns the result of a path: a value, a list of several values, or nil.
func (f parsedField) value(object map[string]any) any {
	results, err := f.path.FindResults(object)
	if err != nil {
		return nil
	}
	var found []any
	for _, set := range results {
		for _, result := range set {
			if result.IsValid() && result.CanInterface() && result.Interface() != nil {
				found = append(found, result.Interface())
			}
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		return found[0]
	default:
		return found
	}
}

// isEmpty reports whether a property has no value. Zero and false are values.
func isEmpty(value any) bool {
	if value == nil || value == "" {
		return true
	}
	v := reflect.ValueOf(value)
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}
