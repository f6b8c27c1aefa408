// Package query says what a search looks for: the text form is parsed, checked
// and evaluated here, and nowhere else. It is pure: no clock, no clients.
//
// A Query is a conjunction of keywords and filters. Engines may answer it from
// indexes, but what it means is what Matches says; every engine is tested against it.
package query

import "time"

// Query is what a caller looks for. The zero Query matches everything.
type Query struct {
	// Keywords must each be contained in the text of some value of some property,
	// or in the name of the cluster, ASCII letters compared without case. Two keywords
	// may be found in two properties.
	Keywords []string
	// Filters must all match.
	Filters []Filter
}

// Filter compares the values of one property.
//
// It matches when at least one of the comparisons other than != holds, or there
// are none of these, and every != holds. A comparison other than != holds for a map
// or a list when it holds for one of its leaves; a != holds when = holds for
// none, so it holds where the property is missing.
type Filter struct {
	// Property is the name of a property, or Cluster.
	Property string
	// Comparisons are what its values are compared with; at least one.
	Comparisons []Comparison
}

// Names of properties with a meaning of their own.
const (
	// Cluster is the name of the cluster that reported a resource; every resource has it.
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

// Hidden tells whether a property is not shown in schemas and completions; its
// name begins with an underscore.
func Hidden(property string) bool { return len(property) > 0 && property[0] == '_' }

// Op is an operator.
type Op string

// The operators. Equal is meant where none is given.
const (
	Equal          Op = "="
	NotEqual       Op = "!="
	Less           Op = "<"
	LessOrEqual    Op = "<="
	Greater        Op = ">"
	GreaterOrEqual Op = ">="
)

// Comparison compares a leaf with a value. Which of its fields count is decided
// when it is made, by NewComparison or Parse, and the same for every engine:
//
//   - Equal and NotEqual compare the text of the leaf with Parts, unless Age is set
//     and the leaf is a time (RFC 3339), which then must be newer than Age; or
//     unless both are numbers, which are compared as numbers.
//   - Of a map, key and value are compared as "key=value"; a comparison whose text
//     has no "=" is with the key alone.
//   - The property kind with a text that begins with a lower-case letter is
//     compared without case.
//   - The other operators compare numbers where Number is set, and then hold for
//     numbers only; times where Time or Age is set, and then hold for times only (with an
//     Age, > is newer and < older than it); and otherwise text, by bytes.
type Comparison struct {
	Op Op
	// Text is the value as it was given, without operator and quotes.
	Text string
	// Parts are the literal pieces of Text between wildcards; one piece means that
	// there is no wildcard. "nginx-*" has the parts "nginx-" and "".
	Parts []string
	// Number is Text as a number; nil if it is none.
	Number *float64
	// Time is Text as a time (RFC 3339 or a date); nil if it is none.
	Time *time.Time
	// Age is how long ago the words hour, day, week, month (30 days) and year
	// (365 days) are; 0 for any other Text.
	Age time.Duration
}

// Wildcard tells whether the comparison is with a pattern.
func (c *Comparison) Wildcard() bool { return len(c.Parts) > 1 }

// Type is the type of a property's value.
type Type uint8

// The types. JSON is the type of leaves that are none of the others, such as a
// list in a list; their text is compact JSON.
const (
	String Type = iota
	Number
	Bool
	JSON
	Map
	List
)

// Property is a property of a resource. A Map has a leaf for each key, in the
// order of the keys; a List has its leaves in their order; the other types have
// exactly one leaf.
type Property struct {
	Name   string
	Type   Type
	Leaves []Leaf
}

// Leaf is a single value.
type Leaf struct {
	// Key is the key in a Map; empty elsewhere.
	Key string
	// Type is String, Number, Bool or JSON.
	Type Type
	// Text is the value: of a String the text itself, of the others their JSON.
	Text string
}

// Properties are the properties of a resource in the order of their names, each once.
type Properties []Property
