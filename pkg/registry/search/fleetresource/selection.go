package fleetresource

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// listSelection is the selection of a list or a watch.
type listSelection struct {
	query query.Query
	// namespace selects a cluster, and name a resource by its UID there. An empty value selects
	// all.
	namespace, name string
}

// newSelection returns the selection of the options in a namespace, or in all if it is empty.
func newSelection(namespace string, options *metainternalversion.ListOptions) (*listSelection, error) {
	out := &listSelection{namespace: namespace}
	if options.FieldSelector != nil {
		for _, requirement := range options.FieldSelector.Requirements() {
			if err := out.addField(requirement); err != nil {
				return nil, err
			}
		}
	}
	if out.namespace != "" {
		out.add(query.Cluster, query.NewComparison(query.Equal, out.namespace))
	}
	if options.LabelSelector != nil {
		requirements, selectable := options.LabelSelector.Requirements()
		if !selectable {
			// No resource has two values of a label, so nothing is selected.
			out.add(query.Cluster, query.NewComparison(query.Equal, ""))
		}
		for i := range requirements {
			if err := out.addLabel(&requirements[i]); err != nil {
				return nil, err
			}
		}
	}
	if err := out.query.Check(); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

func (s *listSelection) add(property string, comparisons ...query.Comparison) {
	s.query.Filters = append(s.query.Filters, query.Filter{Property: property, Comparisons: comparisons})
}

func (s *listSelection) addField(requirement fields.Requirement) error {
	op := query.Equal
	if requirement.Operator == selection.NotEquals {
		op = query.NotEqual
	}
	switch requirement.Field {
	case fieldName:
		if op != query.Equal || (s.name != "" && s.name != requirement.Value) {
			return apierrors.NewBadRequest(fmt.Sprintf("field selector on %s must select exactly one value", fieldName))
		}
		s.name = requirement.Value
	case fieldNamespace:
		s.add(query.Cluster, query.NewComparison(op, requirement.Value))
	default:
		s.add(requirement.Field, query.NewComparison(op, requirement.Value))
	}
	return nil
}

func (s *listSelection) addLabel(requirement *labels.Requirement) error {
	key := requirement.Key()
	var comparisons []query.Comparison
	op := query.Equal
	switch requirement.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
	case selection.NotEquals, selection.NotIn:
		op = query.NotEqual
	case selection.Exists:
		comparisons = append(comparisons, query.NewComparison(query.Equal, key))
	case selection.DoesNotExist:
		comparisons = append(comparisons, query.NewComparison(query.NotEqual, key))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("label selector operator %q is not supported for fleetresources", requirement.Operator()))
	}
	if len(comparisons) == 0 {
		for _, value := range requirement.ValuesUnsorted() {
			comparisons = append(comparisons, query.NewComparison(op, key+"="+value))
		}
	}
	s.add(query.Label, comparisons...)
	return nil
}

// matches reports whether an item that was found by its name is selected.
func (s *listSelection) matches(item *search.Item, now time.Time) (bool, error) {
	if s.name != "" && nameOf(item.UID) != s.name {
		return false, nil
	}
	properties, err := query.DecodeProperties(item.JSON())
	if err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("properties of %s: %w", item.UID, err))
	}
	return s.query.Matches(item.Cluster, properties, now), nil
}
