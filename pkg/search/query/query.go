// Package query defines the meaning of searches. Only this package parses, checks and evaluates
// queries. It is pure: it uses neither clocks nor clients.
//
// A Query is a conjunction of keywords and filters. Engines may use indexes, but Matches defines the result, and
// every engine is tested against it.
package query

import "time"

// Query is a search query. The zero Query matches everything.
type Query struct {
	// Keywords must each occur in the text of a value of a property, or in the name of the cluster.
	// ASCII letters are compared case-insensitively. Different keywords may occur in different
	// properties.
	Keywords []string
	// Filters must all match.
	Filters []Filter
}

// Filter compares the values of one property.
//
// It matches if each != comparison holds, and if at least one of the other comparisons holds or
// there are no others. For a map or a list, a comparison other than != holds if it holds for one of
// its leaves. A != comparison holds if = holds for no leaf, so it also holds if the property is
// missing.
type Filter struct {
	// Property is the name of a property, or Cluster.
	Property string
	// Comparisons contains at least one comparison.
	Comparisons []Comparison
}

// Names of properties with a special meaning.
const (
	// Cluster is the name of the cluster that reported a resource. Every resource has it.
	Cluster = "cluster"
	// Label and Annotation are maps.
	Label      = "label"
	Annotation = "annotation"

	Kind       = "kind"
	KindPlural = "kind_plural"
	APIGroup   = "apigroup"
	APIVersion = "apiversion"
	Namespace  = "namespace"
	Name       = "name"
	Created    = "created"
	Status     = "status"
)

// Names of properties that only the server sets.
const (
	HubResource = "_hubClusterResource"
	UID         = "_uid"
	RelatedUIDs = "_relatedUids"
)

// Reserved reports whether only the server may set a property. Reported values are dropped, so that
// no cluster can pretend to be the hub or another cluster.
func Reserved(property string) bool {
	switch property {
	case Cluster, HubResource, UID, RelatedUIDs:
		return true
	}
	return false
}

// Hidden reports whether schemas and completions exclude a property. Names of hidden properties
// begin with an underscore.
func Hidden(property string) bool { return len(property) > 0 && property[0] == '_' }

// Op is an operator.
type Op string

// The operators. Equal is the default.
const (
	Equal          Op = "="
	NotEqual       Op = "!="
	Less           Op = "<"
	LessOrEqual    Op = "<="
	Greater        Op = ">"
	GreaterOrEqual Op = ">="
)

// Comparison compares a leaf with a value. NewComparison and Parse set its fields. The meaning of
// the fields is the same for every engine:
//
//   - Equal and NotEqual compare the text of the leaf with Parts. If both are numbers, they
//     compare numbers. If Age is set and the leaf is a time (RFC 3339), the leaf must be
//     newer than Age.
//   - Leaves of a map are compared as "key=value"; a comparison whose text contains no "="
//     is compared with the key alone.
//   - The property kind is compared case-insensitively with a text that begins with a
//     lower-case letter.
//   - The other operators compare numbers if Number is set, and hold for numbers only;
//     times if Time or Age is set, and hold for times only (for an Age, > means newer and
//     < older); and otherwise texts by bytes.
type Comparison struct {
	Op Op
	// Text is the value without operator and quotes.
	Text string
	// Parts are the literal parts of Text between wildcards. A single part means that Text has no
	// wildcard. "nginx-*" has the parts "nginx-" and "".
	Parts []string
	// Number is Text as a number, or nil.
	Number *float64
	// Time is Text as a time (RFC 3339 or a date), or nil.
	Time *time.Time
	// Age is the age for the words hour, day, week, month (30 days) and year (365 days), and 0 for any other Text.
	Age time.Duration
}

// Wildcard reports whether the value is a pattern.
func (c *Comparison) Wildcard() bool { return len(c.Parts) > 1 }

// Type is the type of a property's value.
type Type uint8

// The types. JSON is the type of nested leaves, such as a list in a list; their text is compact JSON.
const (
	String Type = iota
	Number
	Bool
	JSON
	Map
	List
)

// Property is a property of a resource. A Map has a leaf for each key, ordered by key. A List has
// its leaves in order. The other types have exactly one leaf.
type Property struct {
	Name   string
	Type   Type
	Leaves []Leaf
}

// Leaf is a single value.
type Leaf struct {
	// Key is the key in a Map, and empty otherwise.
	Key string
	// Type is String, Number, Bool or JSON.
	Type Type
	// Text is the text of a String, and the JSON of other types.
	Text string
}

// Properties are the properties of a resource, ordered by name and unique.
type Properties []Property
