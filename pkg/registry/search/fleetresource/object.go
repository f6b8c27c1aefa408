package fleetresource

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
func newObject(item *search.Item) (*searchv1alpha1.FleetResource, error) {
	encoded := item.JSON()
	properties, err := query.DecodeProperties(encoded)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("properties of %s: %w", item.UID, err))
	}
	object := &searchv1alpha1.FleetResource{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: item.Cluster, Name: nameOf(item.UID), UID: types.UID(nameOf(item.UID)),
			ResourceVersion: strconv.FormatUint(item.Version, 10),
		},
		Properties: runtime.RawExtension{Raw: encoded},
	}
	for i := range properties {
		p := &properties[i]
		if p.Name == query.Label && p.Type == query.Map && len(p.Leaves) > 0 {
			object.Labels = make(map[string]string, len(p.Leaves))
			for _, leaf := range p.Leaves {
				object.Labels[leaf.Key] = leaf.Text
			}
		}
		if p.Type != query.String {
			continue
		}
		switch text := p.Leaves[0].Text; p.Name {
		case query.APIGroup:
			object.Resource.APIGroup = text
		case query.APIVersion:
			object.Resource.Version = text
		case query.Kind:
			object.Resource.Kind = text
		case query.KindPlural:
			object.Resource.Resource = text
		case query.Namespace:
			object.Resource.Namespace = text
		case query.Name:
			object.Resource.Name = text
		case query.Created:
			if created, err := time.Parse(time.RFC3339, text); err == nil {
				object.CreationTimestamp = metav1.NewTime(created)
			}
		}
	}
	return object, nil
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
		properties, err := query.DecodeProperties(resource.Properties.Raw)
		if err != nil {
			return nil, fmt.Errorf("properties of %s: %w", name, err)
		}
		return []any{
			resource.Namespace, resource.Resource.Kind, resource.Resource.Namespace, resource.Resource.Name,
			search.Text(properties, query.Status), age, resource.Resource.APIGroup, name,
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
