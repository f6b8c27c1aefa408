package fleetresource

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
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

// table implements rest.TableConvertor.
type table struct{}

var _ rest.TableConvertor = table{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Cluster", Type: "string", Description: "Cluster that the resource is on."},
	{Name: "Kind", Type: "string", Description: "Kind of the resource."},
	{Name: "Namespace", Type: "string", Description: "Namespace of the resource on its cluster."},
	{Name: "Name", Type: "string", Description: "Name of the resource on its cluster."},
	{Name: "Status", Type: "string", Description: "Status of the resource, for kinds that have one."},
	{Name: "Age", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
	{Name: "API Group", Type: "string", Priority: 1, Description: "API group of the resource."},
	{Name: "UID", Type: "string", Priority: 1, Description: "UID of the resource, which is the name of the FleetResource."},
}

// ConvertToTable implements rest.TableConvertor.
func (table) ConvertToTable(_ context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	out := &metav1.Table{}
	rows, err := metatable.MetaToTableRow(object, func(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
		resource, ok := obj.(*searchv1alpha1.FleetResource)
		if !ok {
			return nil, fmt.Errorf("expected a FleetResource, got a %T", obj)
		}
		return []any{
			resource.Namespace, resource.Resource.Kind, resource.Resource.Namespace, resource.Resource.Name,
			statusOf(resource.Properties.Raw), age, resource.Resource.APIGroup, name,
		}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("converting to a table: %w", err)
	}
	out.Rows = rows
	switch typed := object.(type) {
	case *searchv1alpha1.FleetResourceList:
		out.ResourceVersion, out.Continue, out.RemainingItemCount = typed.ResourceVersion, typed.Continue, typed.RemainingItemCount
	case *searchv1alpha1.FleetResource:
		out.ResourceVersion = typed.ResourceVersion
	}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		out.ColumnDefinitions = columns
	}
	return out, nil
}
