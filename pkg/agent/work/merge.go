package work

import (
	"encoding/base64"
	"errors"
	"maps"
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
	enforceValue(result.Object, given, exact)
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
	if owners := want.GetOwnerReferences(); len(owners) > 0 {
		result.SetOwnerReferences(mergeOwners(result.GetOwnerReferences(), owners))
	}
	return result
}

// mergeOwners adds owner references, and brings those with the same UID up to date.
func mergeOwners(into, from []metav1.OwnerReference) []metav1.OwnerReference {
	at := make(map[types.UID]int, len(into))
	for i, owner := range into {
		at[owner.UID] = i
	}
	for _, owner := range from {
		if i, known := at[owner.UID]; known {
			into[i] = owner
			continue
		}
		at[owner.UID] = len(into)
		into = append(into, owner)
	}
	return into
}

func enforceValue(live, want any, exactLists bool) any {
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
			liveMap[key] = enforceValue(child, value, exactLists)
		}
		return liveMap
	case []any:
		if exactLists {
			return runtime.DeepCopyJSONValue(want)
		}
		liveList, _ := live.([]any)
		return enforceList(liveList, want)
	default:
		if sameScalar(live, want) {
			return live
		}
		return want
	}
}

// maxComparisons bounds how many pairs of items are compared to find what items of two
// lists correspond. Above it an item corresponds to the one in its place, or of its name.
const maxComparisons = 100_000

// enforceList returns the items of want, each merged into the live item it
// corresponds to: so fields that the server defaulted inside an item stay.
func enforceList(live, want []any) []any {
	items := counterparts{live: live, used: make([]bool, len(live)), names: map[string][]int{}, exhaustive: len(live)*len(want) <= maxComparisons}
	for i, item := range live {
		if name, ok := nameOf(item); ok {
			items.names[name] = append(items.names[name], i)
		}
	}
	result := make([]any, len(want))
	for i, item := range want {
		at := items.of(item, i)
		if at < 0 {
			result[i] = runtime.DeepCopyJSONValue(item)
			continue
		}
		items.used[at] = true
		result[i] = enforceValue(live[at], item, false)
	}
	return result
}

// counterparts finds which live items the items of a manifest are about.
type counterparts struct {
	live []any
	used []bool
	// names are the places of live items by name.
	names map[string][]int
	// exhaustive is whether the lists are short enough to compare each with each.
	exhaustive bool
}

// of returns the place of the live item that an item is about: one that already
// holds all of it, preferably in the same place, or else the one of its name; -1 if
// there is none.
func (c *counterparts) of(item any, index int) int {
	if index < len(c.live) && !c.used[index] && holds(c.live[index], item) {
		return index
	}
	if c.exhaustive {
		for i := range c.live {
			if !c.used[i] && holds(c.live[i], item) {
				return i
			}
		}
	}
	name, ok := nameOf(item)
	if !ok {
		return -1
	}
	places := c.names[name]
	for len(places) > 0 && c.used[places[0]] {
		places = places[1:]
	}
	c.names[name] = places
	if len(places) == 0 {
		return -1
	}
	return places[0]
}

// nameOf returns the field by which items of most lists are told apart.
func nameOf(item any) (string, bool) {
	fields, _ := item.(map[string]any)
	name, ok := fields["name"].(string)
	return name, ok
}

// holds reports whether live holds everything that want gives.
func holds(live, want any) bool {
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
			if !holds(child, value) {
				return false
			}
		}
		return true
	case []any:
		liveList, ok := live.([]any)
		return ok && slices.EqualFunc(liveList, want, holds)
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
