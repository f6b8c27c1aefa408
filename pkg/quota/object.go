package quota

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Parts contains the parts of an object that ObjectLimits bound. Missing parts are nil.
type Parts struct {
	Meta         metav1.Object
	Spec, Status any
}

// PartsOf returns the parts of an object with the given spec and status.
func PartsOf(obj runtime.Object, spec, status any) Parts {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return Parts{Spec: spec, Status: status}
	}
	return Parts{Meta: accessor, Spec: spec, Status: status}
}

// measure is a measured size of an object with its limit.
type measure struct {
	path  *field.Path
	key   string
	limit int64
	value func(Parts) int64
	unit  string
}

// Check returns an error for each limit that an object exceeds. old is the object before an
// update, or nil for a create. A size that already exceeded its limit may stay or shrink. name
// is the name of the resource for metrics and for the flag in the message.
func (l ObjectLimits) Check(name string, obj Parts, old *Parts) field.ErrorList {
	var errs field.ErrorList
	for _, f := range l.measures() {
		if f.limit == 0 {
			continue
		}
		value := f.value(obj)
		if value <= f.limit || old != nil && value <= f.value(*old) {
			continue
		}
		rejections.WithLabelValues(name, f.key).Inc()
		err := field.TooLong(f.path, "", int(f.limit))
		err.Detail = fmt.Sprintf("must have at most %d %s, found %d; remove some, or ask an administrator to raise the limit with --object-limits=%s.%s=%d",
			f.limit, f.unit, value, name, f.key, f.limit)
		errs = append(errs, err)
	}
	return errs
}

func (l ObjectLimits) measures() []measure {
	metadata := field.NewPath("metadata")
	of := func(value func(metav1.Object) int64) func(Parts) int64 {
		return func(p Parts) int64 {
			if p.Meta == nil {
				return 0
			}
			return value(p.Meta)
		}
	}
	return []measure{
		{metadata.Child("labels"), "labels", l.Labels, of(func(o metav1.Object) int64 { return int64(len(o.GetLabels())) }), "entries"},
		{metadata.Child("labels"), "label-bytes", l.LabelBytes, of(func(o metav1.Object) int64 { return textBytes(o.GetLabels()) }), "bytes"},
		{metadata.Child("annotations"), "annotations", l.Annotations, of(func(o metav1.Object) int64 { return int64(len(o.GetAnnotations())) }), "entries"},
		{metadata.Child("annotations"), "annotation-bytes", l.AnnotationBytes, of(func(o metav1.Object) int64 { return textBytes(o.GetAnnotations()) }), "bytes"},
		{metadata.Child("ownerReferences"), "owner-references", l.OwnerReferences, of(func(o metav1.Object) int64 { return int64(len(o.GetOwnerReferences())) }), "entries"},
		{metadata.Child("finalizers"), "finalizers", l.Finalizers, of(func(o metav1.Object) int64 { return int64(len(o.GetFinalizers())) }), "entries"},
		{metadata.Child("managedFields"), "managed-fields", l.ManagedFields, of(func(o metav1.Object) int64 { return int64(len(o.GetManagedFields())) }), "entries"},
		{field.NewPath("spec"), "spec-bytes", l.SpecBytes, func(p Parts) int64 { return Size(p.Spec) }, "bytes"},
		{field.NewPath("status"), "status-bytes", l.StatusBytes, func(p Parts) int64 { return Size(p.Status) }, "bytes"},
		{field.NewPath("status"), "status-items", l.StatusItems, func(p Parts) int64 { return Items(p.Status) }, "elements in its lists and maps"},
	}
}

func textBytes(entries map[string]string) int64 {
	var sum int64
	for key, value := range entries {
		sum += int64(len(key)) + int64(len(value))
	}
	return sum
}
