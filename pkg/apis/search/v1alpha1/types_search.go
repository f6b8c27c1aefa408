package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Search finds resources of the hub and of managed clusters. Like a
// SubjectAccessReview it is not stored: creating it returns it with its status
// filled in. It finds what its author may list on the hub, and on managed clusters
// whose resources its author may view, and nothing else counts or shows anywhere in it.
type Search struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is looked for.
	// +optional
	Spec SearchSpec `json:"spec,omitempty"`

	// What was found.
	// +optional
	Status SearchStatus `json:"status,omitempty"`
}

// SearchSpec is one search, or several in searches.
type SearchSpec struct {
	SearchRequest `json:",inline"`

	// Several searches, answered in their order in status.results. No other field of
	// the spec may be given then. At most 100.
	// +listType=atomic
	// +optional
	Searches []SearchRequest `json:"searches,omitempty"`
}

// SearchTerms say what is looked for. What is given in query, keywords and filters
// must match altogether; without any of them everything does.
type SearchTerms struct {
	// Query is the text form of a search, such as
	// `kind:Pod namespace:a,b status!=Running restarts>3 created:day label:app=web nginx`.
	// Words are keywords, property and value are separated by an operator, values by
	// commas; * is a wildcard and quotes make a value literal.
	// +optional
	Query string `json:"query,omitempty"`

	// Keywords must each be contained in the value of some property, upper and lower case
	// being the same.
	// +listType=atomic
	// +optional
	Keywords []string `json:"keywords,omitempty"`

	// Filters must all match.
	// +listType=atomic
	// +optional
	Filters []SearchFilter `json:"filters,omitempty"`
}

// SearchFilter compares the values of a property.
type SearchFilter struct {
	// Property is its name, such as kind, namespace, status, label or cluster.
	Property string `json:"property"`

	// Operator is =, !=, <, <=, > or >=. With an operator, values are literal. Without
	// one, each value may begin with an operator, and * in it is a wildcard.
	// +optional
	Operator string `json:"operator,omitempty"`

	// Values of which one must match; with !=, none. Values of the property label are
	// keys, or written as key=value. hour, day, week, month and year are ages where the
	// property is a time.
	// +listType=atomic
	Values []string `json:"values"`
}

// SearchOutput is what a search returns.
type SearchOutput string

const (
	// OutputItems returns the count and items.
	OutputItems SearchOutput = "Items"
	// OutputCount returns the count only.
	OutputCount SearchOutput = "Count"
	// OutputRelated returns the count, items, and what is related to all matches.
	OutputRelated SearchOutput = "Related"
)

// SearchRequest is one search.
type SearchRequest struct {
	SearchTerms `json:",inline"`

	// Output is Items (the default), Count or Related.
	// +optional
	Output SearchOutput `json:"output,omitempty"`

	// RelatedKinds are the kinds of related resources to return; all if empty.
	// +listType=atomic
	// +optional
	RelatedKinds []string `json:"relatedKinds,omitempty"`

	// OrderBy are properties to order by, each followed by " desc" or " asc". Numbers are
	// ordered as numbers. Resources without the property come last.
	// +listType=atomic
	// +optional
	OrderBy []string `json:"orderBy,omitempty"`

	// Limit of the items returned. 1000 by default; -1 for all. It bounds neither the
	// count nor what is related.
	// +optional
	Limit *int32 `json:"limit,omitempty"`

	// RelatedLimit bounds the related items of each kind. 1000 by default; -1 for all;
	// 0 returns their counts only.
	// +optional
	RelatedLimit *int32 `json:"relatedLimit,omitempty"`

	// Offset is how many items are left out at the beginning.
	// +optional
	Offset int32 `json:"offset,omitempty"`

	// Continue is status.continue of the search whose next items are wanted. Everything
	// else but limit must be as it was there.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// SearchStatus is the result of one search, or the results of several.
type SearchStatus struct {
	SearchResult `json:",inline"`

	// Results of spec.searches.
	// +listType=atomic
	// +optional
	Results []SearchResult `json:"results,omitempty"`

	// Warnings name clusters whose resources are not, or no longer reliably, known, and
	// properties that nothing has.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// SearchResult is what one search found.
type SearchResult struct {
	// Count is how many resources match, whatever the limit is.
	Count int64 `json:"count"`

	// Items that match.
	// +listType=atomic
	// +optional
	Items []SearchItem `json:"items,omitempty"`

	// Related resources, by kind.
	// +listType=atomic
	// +optional
	Related []RelatedResources `json:"related,omitempty"`

	// Continue is for a search for the next items; empty after the last.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// SearchItem is a resource that was found.
type SearchItem struct {
	// UID identifies the resource in the fleet: the name of its cluster, a slash, and its UID there.
	UID string `json:"uid"`

	// Cluster is the name of its cluster; the hub's own resources are in local-cluster.
	Cluster string `json:"cluster"`

	// Properties of the resource, such as kind, apigroup, name, namespace, created and
	// label, and more that depend on the kind.
	Properties runtime.RawExtension `json:"properties"`

	// RelatedTo are the UIDs of the matches that a related item is related to.
	// +listType=atomic
	// +optional
	RelatedTo []string `json:"relatedTo,omitempty"`
}

// RelatedResources are related resources of one kind.
type RelatedResources struct {
	// Kind of the resources.
	Kind string `json:"kind"`

	// Count is how many there are.
	Count int64 `json:"count"`

	// Items of the kind.
	// +listType=atomic
	// +optional
	Items []SearchItem `json:"items,omitempty"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SearchCompletion finds the values of a property among what a search matches. It is
// not stored: creating it returns it with its status filled in.
type SearchCompletion struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which values are wanted.
	Spec SearchCompletionSpec `json:"spec"`

	// The values.
	// +optional
	Status SearchCompletionStatus `json:"status,omitempty"`
}

// SearchCompletionSpec says which values are wanted.
type SearchCompletionSpec struct {
	SearchTerms `json:",inline"`

	// Property whose values are wanted.
	Property string `json:"property"`

	// Prefix that the values begin with, upper and lower case being the same.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// Limit of the values returned. 1000 by default; -1 for all.
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

// SearchCompletionStatus are the values of a property.
type SearchCompletionStatus struct {
	// Values in their order, numbers as numbers. Those of a map are written as key=value.
	// +listType=atomic
	// +optional
	Values []PropertyValue `json:"values,omitempty"`

	// More is true if there are more values than the limit.
	// +optional
	More bool `json:"more,omitempty"`

	// Type is Number or Time if all values are, and String otherwise.
	// +optional
	Type PropertyType `json:"type,omitempty"`

	// Min is the lowest value of numbers or times.
	// +optional
	Min string `json:"min,omitempty"`

	// Max is the highest value of numbers or times.
	// +optional
	Max string `json:"max,omitempty"`
}

// PropertyValue is a value of a property.
type PropertyValue struct {
	// Value as text.
	Value string `json:"value"`

	// Count is how many of the matching resources have it.
	Count int64 `json:"count"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SearchSchema finds the properties of what a search matches. It is not stored:
// creating it returns it with its status filled in.
type SearchSchema struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Of which resources the properties are wanted; of all if it is empty.
	// +optional
	Spec SearchTerms `json:"spec,omitempty"`

	// The properties.
	// +optional
	Status SearchSchemaStatus `json:"status,omitempty"`
}

// SearchSchemaStatus are properties.
type SearchSchemaStatus struct {
	// Properties by name.
	// +listType=atomic
	// +optional
	Properties []PropertyDescription `json:"properties,omitempty"`
}

// PropertyDescription describes a property.
type PropertyDescription struct {
	// Name of the property.
	Name string `json:"name"`

	// Type of its values; String where they differ.
	Type PropertyType `json:"type"`
}
