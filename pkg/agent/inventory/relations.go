package inventory

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

type relation uint8

const (
	ownedBy relation = iota
	runsOn
	attachedTo
	usedBy
	boundTo
)

var relationNames = [...]string{ownedBy: "ownedBy", runsOn: "runsOn", attachedTo: "attachedTo", usedBy: "usedBy", boundTo: "boundTo"}

// target identifies the target of a reference: by class, namespace and name, or by UID.
type target struct {
	class           class
	namespace, name string
}

type class uint8

const (
	// byUID is the class of targets whose name is their UID.
	byUID class = iota
	node
	configMap
	secret
	serviceAccount
	claim
	volume
)

// classes maps the resources whose objects are referred to by name.
var classes = map[schema.GroupResource]class{
	{Resource: "nodes"}:                  node,
	{Resource: "configmaps"}:             configMap,
	{Resource: "secrets"}:                secret,
	{Resource: "serviceaccounts"}:        serviceAccount,
	{Resource: "persistentvolumeclaims"}: claim,
	{Resource: "persistentvolumes"}:      volume,
}

// pods is the resource that Services select.
var pods = schema.GroupResource{Resource: "pods"}

// reference is an edge that a record has once its target exists.
type reference struct {
	relation relation
	target   target
}

// references is a list of references without duplicates.
type references []reference

func (r *references) add(relation relation, class class, namespace, name string) {
	if name == "" {
		return
	}
	added := reference{relation, target{class, namespace, name}}
	if !slices.Contains(*r, added) {
		*r = append(*r, added)
	}
}

func owners(object metav1.Object, uidOf func(string) string) references {
	var found references
	for _, owner := range object.GetOwnerReferences() {
		if owner.UID != "" {
			found.add(ownedBy, byUID, "", uidOf(string(owner.UID)))
		}
	}
	return found
}

// podReferences returns the references to the node of a Pod and to the objects that the
// Pod uses.
func podReferences(pod *corev1.Pod) references {
	var found references
	attach := func(class class, name string) { found.add(attachedTo, class, pod.Namespace, name) }
	found.add(runsOn, node, "", pod.Spec.NodeName)
	attach(serviceAccount, pod.Spec.ServiceAccountName)
	for _, pull := range pod.Spec.ImagePullSecrets {
		attach(secret, pull.Name)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil:
			attach(configMap, v.ConfigMap.Name)
		case v.Secret != nil:
			attach(secret, v.Secret.SecretName)
		case v.PersistentVolumeClaim != nil:
			attach(claim, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			attach(claim, pod.Name+"-"+v.Name)
		case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
			attach(secret, v.CSI.NodePublishSecretRef.Name)
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					attach(configMap, source.ConfigMap.Name)
				}
				if source.Secret != nil {
					attach(secret, source.Secret.Name)
				}
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, source := range containers[i].EnvFrom {
				if source.ConfigMapRef != nil {
					attach(configMap, source.ConfigMapRef.Name)
				}
				if source.SecretRef != nil {
					attach(secret, source.SecretRef.Name)
				}
			}
			for _, variable := range containers[i].Env {
				from := ptr.Deref(variable.ValueFrom, corev1.EnvVarSource{})
				if from.ConfigMapKeyRef != nil {
					attach(configMap, from.ConfigMapKeyRef.Name)
				}
				if from.SecretKeyRef != nil {
					attach(secret, from.SecretKeyRef.Name)
				}
			}
		}
	}
	return found
}

// selectable encodes labels so that the terms of a selector are substrings.
func selectable(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteByte(0)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text.WriteString(key)
		text.WriteByte(1)
		text.WriteString(labels[key])
		text.WriteByte(0)
	}
	return text.String()
}

// selectorTerms returns the substrings that selectable labels contain if the selector
// matches them.
func selectorTerms(selector map[string]string) []string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		terms = append(terms, "\x00"+key+"\x01"+selector[key]+"\x00")
	}
	return terms
}

// selects reports whether the labels contain all terms. A selector without terms selects
// nothing.
func selects(terms []string, labels string) bool {
	for _, term := range terms {
		if !strings.Contains(labels, term) {
			return false
		}
	}
	return len(terms) > 0
}

// maxOwners is the maximum number of levels of owners that the agent follows.
const maxOwners = 8

// refer indexes a record as a target and as the source of its references.
func (s *state) refer(r *record) {
	if name, ok := r.target(); ok {
		s.named[name] = r
	}
	s.index(r, insert[target])
}

func (s *state) unrefer(r *record) {
	if name, ok := r.target(); ok && s.named[name] == r {
		delete(s.named, name)
	}
	s.index(r, erase[target])
}

// index adds a record to the indexes of sources, or removes it from them.
func (s *state) index(r *record, change func(map[target]sets.Set[*record], target, *record)) {
	for _, reference := range r.references {
		change(s.referrers, reference.target, r)
	}
	if len(r.selector) > 0 {
		change(s.selectors, within(r), r)
	}
	if r.resource.GroupResource() == pods {
		change(s.selected, within(r), r)
	}
}

// within returns the target for all objects in the namespace of a record.
func within(r *record) target { return target{namespace: r.namespace} }

// target returns the target by which other records refer to this record by name, if one exists.
func (r *record) target() (target, bool) {
	class, ok := classes[r.resource.GroupResource()]
	return target{class, r.namespace, r.name}, ok
}

func (s *state) resolve(t target) *record {
	if t.class == byUID {
		return s.records[t.name]
	}
	return s.named[t]
}

// relink marks the records that may have an edge to a new or deleted record.
func (s *state) relink(r *record) {
	s.relinkOwned(r)
	if name, ok := r.target(); ok {
		for referrer := range s.referrers[name] {
			s.pending.related.Insert(referrer)
		}
	}
	s.relinkSelectors(r)
}

// relinkOwned marks all direct and indirect dependents of a record, because each dependent has edges
// to the owners of its owners.
func (s *state) relinkOwned(r *record) {
	seen := sets.New(r)
	level := []*record{r}
	for depth := 0; depth < maxOwners && len(level) > 0; depth++ {
		var next []*record
		for _, owner := range level {
			for owned := range s.referrers[target{class: byUID, name: owner.uid}] {
				if !seen.Has(owned) {
					seen.Insert(owned)
					s.pending.related.Insert(owned)
					next = append(next, owned)
				}
			}
		}
		level = next
	}
}

func (s *state) relinkSelectors(r *record) {
	if r.resource.GroupResource() != pods {
		return
	}
	for selector := range s.selectors[within(r)] {
		if selects(selector.selector, r.labels) {
			s.pending.related.Insert(selector)
		}
	}
}

// relate updates the edges from a record, and adds the changes to a batch.
func (s *state) relate(r *record, b *batch) {
	if len(r.references)+len(r.selector)+len(r.edges) == 0 {
		return
	}
	wanted := s.wanted(r)
	s.edges -= len(r.edges)
	added := wanted
	if !b.full {
		added = wanted.Difference(sets.New(r.edges...))
	}
	for e := range added {
		b.adds = append(b.adds, reportedEdge(r, s.records[e.to], e.relation))
	}
	for _, e := range r.edges {
		// The hub deletes the edges to a deleted record with the record.
		if to := s.records[e.to]; to != nil && !b.full && !wanted.Has(e) {
			b.drops = append(b.drops, reportedEdge(r, to, e.relation))
		}
	}
	r.edges = wanted.UnsortedList()
	s.edges += len(r.edges)
}

func reportedEdge(from, to *record, relation relation) inventory.Edge {
	return inventory.Edge{
		SourceUID: from.uid, SourceKind: from.resource.kind, DestUID: to.uid, DestKind: to.resource.kind, EdgeType: relationNames[relation],
	}
}

func (s *state) wanted(r *record) sets.Set[edge] {
	wanted := sets.New[edge]()
	want := func(to *record, relation relation) {
		if to != nil && to != r {
			wanted.Insert(edge{to.uid, relation})
		}
	}
	for _, reference := range r.references {
		want(s.resolve(reference.target), reference.relation)
	}
	for _, owner := range s.ownersOf(r) {
		want(owner, ownedBy)
	}
	if len(r.selector) > 0 {
		for pod := range s.selected[within(r)] {
			if selects(r.selector, pod.labels) {
				want(pod, usedBy)
			}
		}
	}
	return wanted
}

func (s *state) ownersOf(r *record) []*record {
	var found []*record
	level := []*record{r}
	for depth := 0; depth < maxOwners && len(level) > 0; depth++ {
		var next []*record
		for _, owned := range level {
			for _, reference := range owned.references {
				if reference.relation != ownedBy {
					continue
				}
				if owner := s.resolve(reference.target); owner != nil && !slices.Contains(found, owner) {
					found = append(found, owner)
					next = append(next, owner)
				}
			}
		}
		level = next
	}
	return found
}
