package quota

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits bound what one namespace may hold of a resource. A limit of 0 is none.
type Limits struct {
	// Objects bounds how many objects there are, Bytes their size in total.
	Objects, Bytes int64
}

// ObjectLimits bound a single object. A limit of 0 is none.
type ObjectLimits struct {
	// Labels, Annotations, OwnerReferences, Finalizers and ManagedFields bound the number
	// of these, LabelBytes and AnnotationBytes the size of keys and values together.
	Labels, LabelBytes           int64
	Annotations, AnnotationBytes int64
	OwnerReferences, Finalizers  int64
	ManagedFields                int64
	SpecBytes                    int64
	StatusBytes                  int64
	// StatusItems bounds the elements that all lists and maps of the status have together.
	StatusItems int64
}

// DefaultObjectLimits bound objects of a resource that says nothing else.
var DefaultObjectLimits = ObjectLimits{
	Labels: 256, LabelBytes: 32 << 10,
	// Kubernetes allows as many bytes; kubectl apply keeps a copy of the object in one.
	Annotations: 256, AnnotationBytes: 256 << 10,
	OwnerReferences: 64, Finalizers: 64, ManagedFields: 64,
	SpecBytes: 256 << 10, StatusBytes: 128 << 10, StatusItems: 1000,
}

// OrDefault returns the limits with those of DefaultObjectLimits in place of 0.
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

// Set changes limits to what the value of a flag says: a number, or a quantity such as
// 64Mi. The keys are those that a message about a limit names, such as labels or
// status-bytes.
func (l *ObjectLimits) Set(key, value string) error {
	limit, known := l.byKey()[key]
	if !known {
		return fmt.Errorf("%q is no limit of objects: there are %s", key, strings.Join(ObjectLimitKeys(), ", "))
	}
	parsed, err := Parse(value)
	if err != nil {
		return err
	}
	*limit = parsed
	return nil
}

// ObjectLimitKeys returns the keys of ObjectLimits, in order.
func ObjectLimitKeys() []string {
	var keys []string
	for key := range new(ObjectLimits).byKey() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Parse returns the limit that a quantity such as 20000 or 64Mi stands for.
func Parse(value string) (int64, error) {
	quantity, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity such as 20000 or 64Mi", value)
	}
	limit := quantity.Value()
	if quantity.Sign() < 0 || limit == math.MaxInt64 || quantity.CmpInt64(limit) != 0 {
		return 0, fmt.Errorf("%q is no whole number of 0 or more", value)
	}
	return limit, nil
}
