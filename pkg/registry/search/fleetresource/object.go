package fleetresource

import (
	"strconv"
	"time"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// newObject returns the FleetResource of an item.
func newObject(item *search.Item) *searchv1alpha1.FleetResource {
	name := nameOf(item.UID)
	object := &searchv1alpha1.FleetResource{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: item.Cluster, Name: name, UID: types.UID(name),
			ResourceVersion: strconv.FormatUint(item.Version, 10),
		},
		Properties: runtime.RawExtension{Raw: item.JSON()},
	}
	identity := &object.Resource
	search.WalkObject(object.Properties.Raw, func(key, value []byte) {
		switch property := string(key[1 : len(key)-1]); {
		case property == query.Label && value[0] == '{':
			object.Labels = map[string]string{}
			search.WalkObject(value, func(key, value []byte) { object.Labels[search.LeafText(key)] = search.LeafText(value) })
		case value[0] != '"':
		case property == query.APIGroup:
			identity.APIGroup = search.LeafText(value)
		case property == query.APIVersion:
			identity.Version = search.LeafText(value)
		case property == query.Kind:
			identity.Kind = search.LeafText(value)
		case property == query.KindPlural:
			identity.Resource = search.LeafText(value)
		case property == query.Namespace:
			identity.Namespace = search.LeafText(value)
		case property == query.Name:
			identity.Name = search.LeafText(value)
		case property == query.Created:
			if created, err := time.Parse(time.RFC3339, search.LeafText(value)); err == nil {
				object.CreationTimestamp = metav1.NewTime(created)
			}
		}
	})
	if len(object.Labels) == 0 {
		object.Labels = nil
	}
	return object
}

// statusOf returns the status in encoded properties, or "" if it is missing or has several values.
func statusOf(properties []byte) string {
	var status string
	search.WalkObject(properties, func(key, value []byte) {
		if string(key) == `"`+query.Status+`"` && value[0] != '{' && value[0] != '[' {
			status = search.LeafText(value)
		}
	})
	return status
}

var columns = definition.Columns[*searchv1alpha1.FleetResource]{
	{Name: "Cluster", Description: "Cluster that the resource is on.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Namespace }},
	{Name: "Kind", Description: "Kind of the resource.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Resource.Kind }},
	{Name: "Namespace", Description: "Namespace of the resource on its cluster.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Resource.Namespace }},
	{Name: "Name", Description: "Name of the resource on its cluster.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Resource.Name }},
	{Name: "Status", Description: "Status of the resource, for kinds that have one.", Value: func(r *searchv1alpha1.FleetResource) any {
		return statusOf(r.Properties.Raw)
	}},
	{Name: "Age", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], Value: func(r *searchv1alpha1.FleetResource) any {
		return metatable.ConvertToHumanReadableDateType(r.CreationTimestamp)
	}},
	{Name: "API Group", Wide: true, Description: "API group of the resource.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Resource.APIGroup }},
	{Name: "UID", Wide: true, Description: "UID of the resource, which is the name of the FleetResource.", Value: func(r *searchv1alpha1.FleetResource) any { return r.Name }},
}
