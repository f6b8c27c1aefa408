package decide

import (
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

// normalize removes from a manifest the fields that only the server sets, and converts the other
// fields to the form that the server returns.
func normalize(object *unstructured.Unstructured) error {
	content := object.Object
	delete(content, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	dropNulls(content)
	gvk := object.GroupVersionKind()
	switch {
	case gvk.Group == "" && gvk.Kind == "Secret":
		return encodeStringData(content)
	case gvk.Group == rbacv1.GroupName:
		normalizeRBAC(content)
	}
	return nil
}

func dropNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if child == nil {
				delete(value, key)
				continue
			}
			dropNulls(child)
		}
	case []any:
		for _, child := range value {
			dropNulls(child)
		}
	}
}

// encodeStringData moves the write-only field stringData of a Secret to data, like the server.
func encodeStringData(secret map[string]any) error {
	plain, found, err := unstructured.NestedStringMap(secret, "stringData")
	if err != nil || !found {
		return err
	}
	delete(secret, "stringData")
	data, ok := secret["data"].(map[string]any)
	if !ok {
		if secret["data"] != nil {
			return errors.New("data of the Secret is not a map")
		}
		data = map[string]any{}
		secret["data"] = data
	}
	for key, value := range plain {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return nil
}

// normalizeRBAC sets the server's defaults inside lists and references, which are compared as whole
// values. It removes the rules of an aggregated ClusterRole, because a controller of the cluster
// computes them.
func normalizeRBAC(object map[string]any) {
	if _, aggregated := object["aggregationRule"]; aggregated {
		delete(object, "rules")
	}
	setDefault := func(value any, key, def string) {
		if entry, ok := value.(map[string]any); ok {
			if current, ok := entry[key].(string); !ok || current == "" {
				entry[key] = def
			}
		}
	}
	if ref, ok := object["roleRef"]; ok {
		setDefault(ref, "apiGroup", rbacv1.GroupName)
	}
	subjects, _ := object["subjects"].([]any)
	for _, subject := range subjects {
		entry, ok := subject.(map[string]any)
		if !ok {
			continue
		}
		switch entry["kind"] {
		case "User", "Group":
			setDefault(entry, "apiGroup", rbacv1.GroupName)
		case "ServiceAccount":
			if entry["apiGroup"] == "" {
				delete(entry, "apiGroup")
			}
		}
	}
}

// Enforce returns live with all fields of want set. Fields that want does not set stay, but a list
// that want sets contains no other items. In the metadata, it sets only labels, annotations and
// owner references.
func Enforce(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	result := live.DeepCopy()
	// An extra field in a rule or subject of an RBAC object, such as resourceNames, changes
	// what the object grants.
	exact := want.GroupVersionKind().Group == rbacv1.GroupName
	content := maps.Clone(want.Object)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, key)
	}
	left := maxCompared
	enforceValue(result.Object, content, exact, &left)
	// With an aggregation rule, the cluster would add other rules to the rules of the manifest.
	if _, ruled := content["rules"]; ruled && exact && content["aggregationRule"] == nil {
		delete(result.Object, "aggregationRule")
	}
	if wanted := want.GetLabels(); len(wanted) > 0 {
		result.SetLabels(labels.Merge(result.GetLabels(), wanted))
	}
	if annotations := want.GetAnnotations(); len(annotations) > 0 {
		result.SetAnnotations(labels.Merge(result.GetAnnotations(), annotations))
	}
	SetOwners(result, want.GetOwnerReferences()...)
	return result
}

// SetOwners adds owner references, or updates the references with the same UID. It iterates over
// both lists once, because a manifest may contain thousands of references.
func SetOwners(object metav1.Object, wanted ...metav1.OwnerReference) {
	if len(wanted) == 0 {
		return
	}
	owners := object.GetOwnerReferences()
	index := map[types.UID]int{}
	for i, owner := range slices.Backward(owners) {
		index[owner.UID] = i
	}
	for _, owner := range wanted {
		if at, exists := index[owner.UID]; exists {
			owners[at] = owner
			continue
		}
		index[owner.UID] = len(owners)
		owners = append(owners, owner)
	}
	object.SetOwnerReferences(owners)
}

// maxCompared bounds the number of values that are compared to find the counterparts of list items.
// A comparison of all pairs of items of a long list would take minutes.
const maxCompared = 1_000_000

// enforceValue returns live with all fields of want set. left is the number of values that may still be compared
// for the list items of the object.
func enforceValue(live, want any, exactLists bool, left *int) any {
	switch want := want.(type) {
	case map[string]any:
		liveMap, ok := live.(map[string]any)
		if !ok {
			return runtime.DeepCopyJSONValue(want)
		}
		for key, value := range want {
			child, exists := liveMap[key]
			// An empty list equals a missing one.
			if list, ok := value.([]any); ok && len(list) == 0 && !exists {
				continue
			}
			liveMap[key] = enforceValue(child, value, exactLists, left)
		}
		return liveMap
	case []any:
		if exactLists {
			return runtime.DeepCopyJSONValue(want)
		}
		liveList, _ := live.([]any)
		return enforceList(liveList, want, left)
	default:
		if sameScalar(live, want) {
			return live
		}
		return want
	}
}

// enforceList returns the items of want, each merged into its live counterpart, so that defaults of
// the server inside an item are kept.
func enforceList(live, want []any, left *int) []any {
	candidates := newCandidates(live)
	result := make([]any, len(want))
	for i, item := range want {
		at := candidates.counterpart(item, i, left)
		if at < 0 {
			result[i] = runtime.DeepCopyJSONValue(item)
			continue
		}
		candidates.used[at] = true
		result[i] = enforceValue(live[at], item, false, left)
	}
	return result
}

// candidates are the items of a live list that may be counterparts of wanted items.
type candidates struct {
	live []any
	used []bool
	// first is a lower bound of the index of the first unused item.
	first int
	// named contains the indexes of the items with each name, in ascending order.
	named map[string][]int
}

func newCandidates(live []any) *candidates {
	c := &candidates{live: live, used: make([]bool, len(live)), named: map[string][]int{}}
	for i, item := range live {
		if entry, ok := item.(map[string]any); ok {
			if name, ok := entry["name"].(string); ok {
				c.named[name] = append(c.named[name], i)
			}
		}
	}
	return c
}

// counterpart returns the index of the live item that item replaces, or -1. It prefers an item that
// already contains item at the same index, then any item that contains it, then an item with the
// same name.
func (c *candidates) counterpart(item any, index int, left *int) int {
	if index < len(c.live) && !c.used[index] && holds(c.live[index], item) {
		return index
	}
	for c.first < len(c.live) && c.used[c.first] {
		c.first++
	}
	for i := c.first; i < len(c.live) && *left > 0; i++ {
		*left--
		if !c.used[i] && holdsWithin(c.live[i], item, left) && *left >= 0 {
			return i
		}
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return -1
	}
	name, ok := fields["name"].(string)
	if !ok {
		return -1
	}
	named := c.named[name]
	for len(named) > 0 && c.used[named[0]] {
		named = named[1:]
	}
	c.named[name] = named
	if len(named) == 0 {
		return -1
	}
	return named[0]
}

// holds reports whether live contains all fields of want.
func holds(live, want any) bool {
	unlimited := math.MaxInt
	return holdsWithin(live, want, &unlimited)
}

// holdsWithin is like holds, but compares at most left values.
func holdsWithin(live, want any, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	switch want := want.(type) {
	case map[string]any:
		liveMap, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			child, ok := liveMap[key]
			if !ok {
				if list, isList := value.([]any); isList && len(list) == 0 {
					continue
				}
				return false
			}
			if !holdsWithin(child, value, left) {
				return false
			}
		}
		return true
	case []any:
		liveList, ok := live.([]any)
		return ok && slices.EqualFunc(liveList, want, func(a, b any) bool { return holdsWithin(a, b, left) })
	default:
		return sameScalar(live, want)
	}
}

// sameScalar compares leaves. It compares JSON numbers by value, regardless of their notation.
func sameScalar(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// SameObject reports whether replacing a with b would change nothing. For the kinds of client-go,
// different notations of one value are equal, such as the quantities 1 and 1000m.
func SameObject(a, b *unstructured.Unstructured) bool {
	if equality.Semantic.DeepEqual(a.Object, b.Object) {
		return true
	}
	if !clientgoscheme.Scheme.Recognizes(a.GroupVersionKind()) {
		return false
	}
	typedA, errA := typed(a)
	typedB, errB := typed(b)
	return errA == nil && errB == nil && equality.Semantic.DeepEqual(typedA, typedB)
}

func typed(object *unstructured.Unstructured) (runtime.Object, error) {
	if err := checkQuantities(object.Object); err != nil {
		return nil, err
	}
	out, err := clientgoscheme.Scheme.New(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out)
}

// checkQuantities returns an error if a string in a value is a quantity that takes too long to
// decode.
func checkQuantities(value any) error {
	switch value := value.(type) {
	case map[string]any:
		for _, child := range value {
			if err := checkQuantities(child); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range value {
			if err := checkQuantities(child); err != nil {
				return err
			}
		}
	case string:
		if quantity.HasExponent(value) {
			return quantity.Check(value)
		}
	}
	return nil
}

// ContentHash returns the hash of the part of a live object that a manifest can set.
func ContentHash(live *unstructured.Unstructured) string {
	content := maps.Clone(live.Object)
	delete(content, "status")
	delete(content, "metadata")
	return Hash(content, live.GetLabels(), live.GetAnnotations(), live.GetOwnerReferences())
}
