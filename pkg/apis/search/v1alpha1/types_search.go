package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Search finds resources of the hub and of managed clusters. It is not stored: the response to its creation
// contains the result in status. The result contains only resources that the caller may list on the hub or view
// on managed clusters. Other resources do not influence the result.
type Search struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the resources to find.
	// +optional
	Spec SearchSpec `json:"spec,omitempty"`

	// status is the result. It is read-only.
	// +optional
	Status SearchStatus `json:"status,omitempty"`
}

// SearchSpec specifies one search, or several in searches.
type SearchSpec struct {
	SearchRequest `json:",inline"`

	// searches is a list of at most 100 searches. status.results contains their results in the same order. If it
	// is set, no other field of the spec may be set.
	// +listType=atomic
	// +optional
	Searches []SearchRequest `json:"searches,omitempty"`
}

// SearchTerms specifies the resources to find. A resource matches if it matches query, all keywords and all
// filters. Empty terms match all resources.
type SearchTerms struct {
	// query is the text form of a search, for example `kind:Pod namespace:a,b status!=Running restarts>3
	// created:day label:app=web nginx`. Single words are keywords. A property and its values are separated by
	// an operator, and values by commas. * is a wildcard. Quoted values are literal.
	// +optional
	Query string `json:"query,omitempty"`

	// keywords is a list of strings. Each must be contained in the value of a property, ignoring case.
	// +listType=atomic
	// +optional
	Keywords []string `json:"keywords,omitempty"`

	// filters is a list of conditions on properties. All of them must match.
	// +listType=atomic
	// +optional
	Filters []SearchFilter `json:"filters,omitempty"`
}

// SearchFilter compares the values of a property.
type SearchFilter struct {
	// property is the name of the property, for example kind, namespace, status, label or cluster.
	Property string `json:"property"`

	// operator is =, !=, <, <=, > or >=. If it is set, values are literal. If it is empty, each value may start
	// with an operator and contain the wildcard *.
	// +optional
	Operator string `json:"operator,omitempty"`

	// values is a list of values, one of which must match. With != none of them may match. Values of the
	// property label are keys or have the form key=value. For times, hour, day, week, month and year are ages.
	// +listType=atomic
	Values []string `json:"values"`
}

// SearchOutput specifies the content of a search result.
type SearchOutput string

const (
	// OutputItems returns the count and the items.
	OutputItems SearchOutput = "Items"
	// OutputCount returns the count only.
	OutputCount SearchOutput = "Count"
	// OutputRelated returns the count, the items, the items that are related to them, and the number of
	// resources that are related to all matches.
	OutputRelated SearchOutput = "Related"
)

// SearchRequest is one search.
type SearchRequest struct {
	SearchTerms `json:",inline"`

	// output is Items, Count or Related. Defaults to Items.
	// +optional
	Output SearchOutput `json:"output,omitempty"`

	// relatedKinds lists the kinds of related resources to return. If it is empty, all kinds are returned.
	// +listType=atomic
	// +optional
	RelatedKinds []string `json:"relatedKinds,omitempty"`

	// orderBy lists properties to order by, each optionally followed by " desc" or " asc". Numbers are ordered
	// numerically. Resources without the property come last.
	// +listType=atomic
	// +optional
	OrderBy []string `json:"orderBy,omitempty"`

	// countBy is the name of a property, for example kind. If it is set, counts contains the number of matching
	// resources for each value of the property.
	// +optional
	CountBy string `json:"countBy,omitempty"`

	// limit is the maximum number of items to return. -1 returns all items. It does not apply to counts. Defaults
	// to 1000.
	// +optional
	Limit *int32 `json:"limit,omitempty"`

	// relatedLimit is the maximum number of related items of each kind to return. -1 returns all items, and 0
	// returns counts only. Defaults to limit. Related items are related to the returned items, or to all
	// matches if limit is 0.
	// +optional
	RelatedLimit *int32 `json:"relatedLimit,omitempty"`

	// offset is the number of items to skip.
	// +optional
	Offset int32 `json:"offset,omitempty"`

	// continue is status.continue of the previous search, to return its next items. All other fields except
	// limit must be the same as in the previous search.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// SearchStatus contains the result of one search, or the results of several.
type SearchStatus struct {
	SearchResult `json:",inline"`

	// results lists the results of spec.searches.
	// +listType=atomic
	// +optional
	Results []SearchResult `json:"results,omitempty"`

	// warnings lists clusters with unknown or outdated resources, and properties that no resource has.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// SearchResult is the result of one search.
type SearchResult struct {
	// count is the number of matching resources, regardless of limit.
	Count int64 `json:"count"`

	// items lists the matching resources.
	// +listType=atomic
	// +optional
	Items []SearchItem `json:"items,omitempty"`

	// counts lists the first 1000 values of the property countBy in all matching resources, regardless of limit.
	// It is ordered like the values of a SearchCompletion.
	// +listType=atomic
	// +optional
	Counts []PropertyValue `json:"counts,omitempty"`

	// moreCounts is true if the property countBy has more values than counts contains.
	// +optional
	MoreCounts bool `json:"moreCounts,omitempty"`

	// related lists the related resources by kind.
	// +listType=atomic
	// +optional
	Related []RelatedResources `json:"related,omitempty"`

	// continue is set if there are more items. A search with this value returns the next items.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// SearchItem is a resource in a search result.
type SearchItem struct {
	// uid identifies the resource in the fleet. It has the form <cluster>/<uid>.
	UID string `json:"uid"`

	// cluster is the name of the cluster of the resource. The resources of the hub are in local-cluster.
	Cluster string `json:"cluster"`

	// properties contains the properties of the resource, for example kind, apigroup, name, namespace, created
	// and label. Other properties depend on the kind.
	Properties runtime.RawExtension `json:"properties"`

	// relatedTo lists the UIDs of the returned items that a related item is related to, or of the matches if
	// limit is 0.
	// +listType=atomic
	// +optional
	RelatedTo []string `json:"relatedTo,omitempty"`
}

// RelatedResources contains the related resources of one kind.
type RelatedResources struct {
	// kind is the kind of the resources.
	Kind string `json:"kind"`

	// count is the number of related resources of the kind.
	Count int64 `json:"count"`

	// items lists related resources of the kind, up to relatedLimit.
	// +listType=atomic
	// +optional
	Items []SearchItem `json:"items,omitempty"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SearchCompletion finds the values of a property among the resources that match a search. It is not stored:
// the response to its creation contains the result in status.
type SearchCompletion struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the values to find.
	Spec SearchCompletionSpec `json:"spec"`

	// status is the result. It is read-only.
	// +optional
	Status SearchCompletionStatus `json:"status,omitempty"`
}

// SearchCompletionSpec specifies the values to find.
type SearchCompletionSpec struct {
	SearchTerms `json:",inline"`

	// property is the name of the property.
	Property string `json:"property"`

	// prefix is the start of the values to find, ignoring case.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// limit is the maximum number of values to return. -1 returns all values. Defaults to 1000.
	// +optional
	Limit *int32 `json:"limit,omitempty"`
}

// PropertyType is the type of the values of a property.
type PropertyType string

// The types of properties.
const (
	PropertyString PropertyType = "String"
	PropertyNumber PropertyType = "Number"
	PropertyBool   PropertyType = "Bool"
	PropertyTime   PropertyType = "Time"
	PropertyMap    PropertyType = "Map"
	PropertyList   PropertyType = "List"
)

// SearchCompletionStatus contains the values of a property.
type SearchCompletionStatus struct {
	// values lists the values in order; numbers are ordered numerically. Entries of maps have the form
	// key=value.
	// +listType=atomic
	// +optional
	Values []PropertyValue `json:"values,omitempty"`

	// more is true if there are more values than limit.
	// +optional
	More bool `json:"more,omitempty"`

	// type is Number or Time if all values have this type, and String otherwise.
	// +optional
	Type PropertyType `json:"type,omitempty"`

	// min is the lowest value of a property of type Number or Time.
	// +optional
	Min string `json:"min,omitempty"`

	// max is the highest value of a property of type Number or Time.
	// +optional
	Max string `json:"max,omitempty"`
}

// PropertyValue is a value of a property.
type PropertyValue struct {
	// value is the value as a string.
	Value string `json:"value"`

	// count is the number of matching resources with this value.
	Count int64 `json:"count"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SearchSchema finds the properties of the resources that match a search. It is not stored: the response to its
// creation contains the result in status.
type SearchSchema struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the resources. If it is empty, the properties of all resources are returned.
	// +optional
	Spec SearchTerms `json:"spec,omitempty"`

	// status is the result. It is read-only.
	// +optional
	Status SearchSchemaStatus `json:"status,omitempty"`
}

// SearchSchemaStatus contains properties.
type SearchSchemaStatus struct {
	// properties lists the properties by name.
	// +listType=atomic
	// +optional
	Properties []PropertyDescription `json:"properties,omitempty"`
}

// PropertyDescription describes a property.
type PropertyDescription struct {
	// name is the name of the property.
	Name string `json:"name"`

	// type is the type of the values of the property. It is String if they have different types.
	Type PropertyType `json:"type"`
}
