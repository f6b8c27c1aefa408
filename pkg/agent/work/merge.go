package work

import (
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

const rbacGroup = "rbac.authorization.k8s.io"

// normalize turns a manifest into what is enforced: without what only the
// server sets, and in the form in which the server gives it back.
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
	case gvk.Group == rbacGroup:
		normalizeRBAC(content)
	}
	return nil
}

// dropNulls removes null fields: in a manifest they mean nothing, and the
// server never gives them back.
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

// encodeStringData does to a Secret what the server does to its write-only
// field stringData.
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

// normalizeRBAC fills in what the server defaults inside lists and references,
// since those are compared as they are, and leaves the rules of an aggregated
// ClusterRole to the controller that computes them.
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
		setDefault(ref, "apiGroup", rbacGroup)
	}
	subjects, _ := object["subjects"].([]any)
	for _, subject := range subjects {
		entry, ok := subject.(map[string]any)
		if !ok {
			continue
		}
		switch entry["kind"] {
		case "User", "Group":
			setDefault(entry, "apiGroup", rbacGroup)
		case "ServiceAccount":
			if entry["apiGroup"] == "" {
				delete(entry, "apiGroup")
			}
		}
	}
}

// enforce returns live changed so that it holds everything that want gives.
// What want does not give stays as it is, except that a list that want gives
// holds nothing else. Metadata is limited to what a manifest may give.
func enforce(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	result := live.DeepCopy()
	// The rules and subjects of RBAC objects are whole values: an extra field
	// inside one, such as resourceNames, changes what it grants.
	exact := want.GroupVersionKind().Group == rbacGroup
	given := map[string]any{}
	for key, value := range want.Object {
		switch key {
		case "apiVersion", "kind", "metadata":
		default:
			given[key] = value
		}
	}
	enforceValue(result.Object, given, exact, &search{left: maxCompared})
	// A ClusterRole whose rules are given has no others: those that an aggregation
	// collects would be added by the cluster, again and again.
	if _, ruled := given["rules"]; ruled && exact && given["aggregationRule"] == nil {
		delete(result.Object, "aggregationRule")
	}
	if labels := want.GetLabels(); len(labels) > 0 {
		result.SetLabels(mergeStrings(result.GetLabels(), labels))
	}
	if annotations := want.GetAnnotations(); len(annotations) > 0 {
		result.SetAnnotations(mergeStrings(result.GetAnnotations(), annotations))
	}
	setOwners(result, want.GetOwnerReferences())
	return result
}

// setOwners adds owner references, or brings those with the same UID up to date. It
// goes through both lists once: a manifest may give thousands.
func setOwners(object metav1.Object, given []metav1.OwnerReference) {
	if len(given) == 0 {
		return
	}
	owners := object.GetOwnerReferences()
	places := map[types.UID]int{}
	for i, owner := range slices.Backward(owners) {
		places[owner.UID] = i
	}
	for _, owner := range given {
		if at, there := places[owner.UID]; there {
			owners[at] = owner
			continue
		}
		places[owner.UID] = len(owners)
		owners = append(owners, owner)
	}
	object.SetOwnerReferences(owners)
}

// maxCompared bounds the values that are compared to find the counterparts of list
// items. A list may be long and in another order on the cluster, again and again: to
// compare all with all would hold a worker for minutes.
const maxCompared = 1_000_000

// search is for the counterparts of the items of an object.
type search struct {
	// left is how many more values are compared.
	left int
}

func enforceValue(live, want any, exactLists bool, s *search) any {
	switch want := want.(type) {
	case map[string]any:
		liveMap, ok := live.(map[string]any)
		if !ok {
			return runtime.DeepCopyJSONValue(want)
		}
		for key, value := range want {
			child, exists := liveMap[key]
			// An empty list and none are the same.
			if list, ok := value.([]any); ok && len(list) == 0 && !exists {
				continue
			}
			liveMap[key] = enforceValue(child, value, exactLists, s)
		}
		return liveMap
	case []any:
		if exactLists {
			return runtime.DeepCopyJSONValue(want)
		}
		liveList, _ := live.([]any)
		return enforceList(liveList, want, s)
	default:
		if sameScalar(live, want) {
			return live
		}
		return want
	}
}

// enforceList returns the items of want, each merged into the live item it
// corresponds to: so fields that the server defaulted inside an item stay.
func enforceList(live, want []any, s *search) []any {
	candidates := newCandidates(live)
	result := make([]any, len(want))
	for i, item := range want {
		at := candidates.counterpart(item, i, s)
		if at < 0 {
			result[i] = runtime.DeepCopyJSONValue(item)
			continue
		}
		candidates.used[at] = true
		result[i] = enforceValue(live[at], item, false, s)
	}
	return result
}

// candidates are the items of a live list that may be counterparts of given ones.
type candidates struct {
	live []any
	used []bool
	// first is before the first item that is not used.
	first int
	// named are the items with each name, in their order.
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

// counterpart finds the live item that a given item is about: one that already
// holds all of it, preferably in the same place, or else the one of its name.
func (c *candidates) counterpart(item any, index int, s *search) int {
	if index < len(c.live) && !c.used[index] && holds(c.live[index], item) {
		return index
	}
	for c.first < len(c.live) && c.used[c.first] {
		c.first++
	}
	for i := c.first; i < len(c.live) && s.left > 0; i++ {
		s.left--
		if !c.used[i] && s.holds(c.live[i], item) {
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

// holds reports whether live holds everything that want gives, and was found to before
// the search had to end.
func (s *search) holds(live, want any) bool {
	return holdsWithin(live, want, &s.left) && s.left >= 0
}

// holds reports whether live holds everything that want gives.
func holds(live, want any) bool {
	unlimited := math.MaxInt
	return holdsWithin(live, want, &unlimited)
}

// holdsWithin is holds, but compares no more values than are left.
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

// sameScalar compares leaves. JSON numbers of the same value are the same,
// whether or not they were written with a fraction.
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

func mergeStrings(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}

// sameObject reports whether writing b over a would change nothing. For the
// kinds that client-go knows, two ways to write one value, such as the
// quantities 1 and 1000m, are the same.
func sameObject(a, b *unstructured.Unstructured) bool {
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

// checkQuantities returns an error if a text in a value would be a quantity that takes too long
// to be decoded.
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

// contentHash identifies the part of a live object that a manifest can be
// about: all but the status and what the server counts in the metadata.
func contentHash(live *unstructured.Unstructured) string {
	content := maps.Clone(live.Object)
	delete(content, "status")
	delete(content, "metadata")
	// Without an error: the content came from JSON.
	hash, _ := hashOf(content, live.GetLabels(), live.GetAnnotations(), live.GetOwnerReferences())
	return hash
}

// setOwner adds an owner reference, or brings the one with its UID up to date.
// It reports whether the object changed.
func setOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	owners := object.GetOwnerReferences()
	at := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	if at < 0 {
		object.SetOwnerReferences(append(owners, owner))
		return true
	}
	if equality.Semantic.DeepEqual(owners[at], owner) {
		return false
	}
	owners[at] = owner
	object.SetOwnerReferences(owners)
	return true
}

// removeOwner removes the owner reference with a UID. It reports whether the
// object changed.
func removeOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	owners := object.GetOwnerReferences()
	kept := slices.DeleteFunc(slices.Clone(owners), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	if len(kept) == len(owners) {
		return false
	}
	object.SetOwnerReferences(kept)
	return true
}

func hasOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
}
