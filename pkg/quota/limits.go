package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits bound the objects of a resource in one namespace. 0 means no limit.
type Limits struct {
	// Objects bounds the number of objects, Bytes their total size.
	Objects, Bytes int64
}

// ObjectLimits bound a single object. 0 means no limit.
type ObjectLimits struct {
	// Labels, Annotations, OwnerReferences, Finalizers and ManagedFields bound the number
	// of entries, LabelBytes and AnnotationBytes the total size of keys and values.
	Labels, LabelBytes           int64
	Annotations, AnnotationBytes int64
	OwnerReferences, Finalizers  int64
	ManagedFields                int64
	SpecBytes                    int64
	StatusBytes                  int64
	// StatusItems bounds the total number of elements of all lists and maps of the status.
	StatusItems int64
}

// DefaultObjectLimits are the default limits of a resource.
var DefaultObjectLimits = ObjectLimits{
	Labels: 256, LabelBytes: 32 << 10,
	// Kubernetes has the same limit of bytes. kubectl apply stores a copy of the object in an annotation.
	Annotations: 256, AnnotationBytes: 256 << 10,
	OwnerReferences: 64, Finalizers: 64, ManagedFields: 64,
	SpecBytes: 256 << 10, StatusBytes: 128 << 10, StatusItems: 1000,
}

// OrDefault returns the limits, with the limit of DefaultObjectLimits for each limit that is 0.
func (l ObjectLimits) OrDefault() ObjectLimits {
	defaults := DefaultObjectLimits
	for key, value := range l.byKey() {
		if *value == 0 {
			*value = *defaults.byKey()[key]
		}
	}
	return l
}

func (l *ObjectLimits) byKey() map[string]*int64 {
	return map[string]*int64{
		"labels": &l.Labels, "label-bytes": &l.LabelBytes, "annotations": &l.Annotations, "annotation-bytes": &l.AnnotationBytes,
		"owner-references": &l.OwnerReferences, "finalizers": &l.Finalizers, "managed-fields": &l.ManagedFields,
		"spec-bytes": &l.SpecBytes, "status-bytes": &l.StatusBytes, "status-items": &l.StatusItems,
	}
}

// Set sets the limit of a key, for example status-bytes, to a number or a quantity such as 64Mi.
func (l *ObjectLimits) Set(key, value string) error {
	limit, known := l.byKey()[key]
	if !known {
		return fmt.Errorf("unknown object limit %q: must be one of %s", key, strings.Join(ObjectLimitKeys(), ", "))
	}
	parsed, err := Parse(value)
	if err != nil {
		return err
	}
	*limit = parsed
	return nil
}

// ObjectLimitKeys returns the sorted keys of ObjectLimits.
func ObjectLimitKeys() []string {
	return slices.Sorted(maps.Keys(new(ObjectLimits).byKey()))
}

// Parse parses a limit such as 20000 or 64Mi.
func Parse(value string) (int64, error) {
	quantity, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%q must be a quantity, for example 20000 or 64Mi", value)
	}
	limit := quantity.Value()
	if quantity.Sign() < 0 || limit == math.MaxInt64 || quantity.CmpInt64(limit) != 0 {
		return 0, fmt.Errorf("%q must be an integer greater than or equal to 0", value)
	}
	return limit, nil
}
