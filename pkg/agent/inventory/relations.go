package inventory

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// relation is the type of an edge.
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

// class is the kind of a target.
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

// owners returns the references to the owners of an object.
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
	environment := func(from []corev1.EnvFromSource, variables []corev1.EnvVar) {
		for _, source := range from {
			if source.ConfigMapRef != nil {
				attach(configMap, source.ConfigMapRef.Name)
			}
			if source.SecretRef != nil {
				attach(secret, source.SecretRef.Name)
			}
		}
		for _, variable := range variables {
			if variable.ValueFrom == nil {
				continue
			}
			if key := variable.ValueFrom.ConfigMapKeyRef; key != nil {
				attach(configMap, key.Name)
			}
			if key := variable.ValueFrom.SecretKeyRef; key != nil {
				attach(secret, key.Name)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		environment(pod.Spec.InitContainers[i].EnvFrom, pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		environment(pod.Spec.Containers[i].EnvFrom, pod.Spec.Containers[i].Env)
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
