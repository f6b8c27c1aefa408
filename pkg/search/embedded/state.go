package embedded

import (
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// state contains all data at one version. Published states no longer change. A transaction
// changes a copy of the last state. An assignment copies a state.
type state struct {
	version uint64
	dictionary
	resources
	graph

	// clusters are indexed by clusterNames. That map is replaced when a cluster is added.
	clusters     []*cluster
	clusterNames map[string]uint32
}

// dictionary contains the terms and their indexes.
type dictionary struct {
	// terms starts with a term that is never used, so that 0 means no term.
	terms     vector[term]
	termTable table
	termCount int
	fields    vector[*field]
	trigrams  vector[postings]

	// properties are indexed by propertyNames. That map is replaced when a property is added.
	properties    vector[*property]
	propertyNames map[string]uint32
}

// resources contains the rows and their classes.
type resources struct {
	rows vector[row]
	uids table
	// visible is the number of resources.
	visible int

	classes    vector[class]
	classTable table
	// hubClasses is the number of changes of the classes of the hub.
	hubClasses uint64

	// moved contains the rows that were added, were removed or changed their class or name, in
	// order. firstMoved is the number of the first of these moves. Data that are derived from a
	// Scope follow the moves.
	moved      []uint32
	firstMoved uint64
	// changes is the number of changes of rows since the data were loaded.
	changes int
}

// graph contains the edges between rows.
type graph struct {
	adjacency vector[[]end]
	// relations are the types of edges.
	relations vector[string]
}

const (
	// movedLimit is the minimum number of moves that are kept. The maximum is twice that number.
	movedLimit = 1 << 16
)

// nextMoved returns the number of the next move.
func (r *resources) nextMoved() uint64 { return r.firstMoved + uint64(len(r.moved)) }

// row is a resource. A row to which only edges refer has the version 0.
type row struct {
	// data contain the UID and then the terms in the order of properties; see rows.go.
	data    string
	version uint64
	class   uint32
	// kind is the term of the property kind, or 0.
	kind uint32
}

func (r *row) exists() bool { return r.version != 0 }

// term is the value of a leaf of a field. Terms are the most frequent data, so they are small.
type term struct {
	// postings also contain the termInfo.
	postings postings
	// text is the text of the leaf.
	text string
}

func (t *term) info() termInfo { return t.postings.info }

// termInfo is the number of the field and, in the lower bits, the kind of text.
type termInfo uint32

const (
	// infoLeaf contains the query.Type of the leaf.
	infoLeaf termInfo = 3
	// infoPlain marks a string that is its own JSON form between quotes.
	infoPlain termInfo = 1 << 2
	// infoEmpty marks the term of a map or list without leaves.
	infoEmpty termInfo = 1 << 3
	// infoOrder contains one of the following orders.
	infoOrder  termInfo = 3 << 4
	orderText  termInfo = 0 << 4
	orderNum   termInfo = 1 << 4
	orderTime  termInfo = 2 << 4
	orderOdd   termInfo = 3 << 4
	fieldShift          = 6
	fieldLimit          = 1<<(32-fieldShift) - 1
)

func (i termInfo) field() uint32        { return uint32(i >> fieldShift) }
func (i termInfo) leaf() query.Type     { return query.Type(i & infoLeaf) }
func (i termInfo) plain() bool          { return i&infoPlain != 0 }
func (i termInfo) empty() bool          { return i&infoEmpty != 0 }
func (i termInfo) order() termInfo      { return i & infoOrder }
func (i termInfo) number() bool         { return i.order() == orderNum }
func (i termInfo) isTime() bool         { return i.order() >= orderTime }
func (i termInfo) canonical() bool      { return i.order() == orderTime }
func (i termInfo) of(f uint32) termInfo { return i | termInfo(f)<<fieldShift }

// field is a property of one type and, for a map, of one key. Only its count of terms changes. Only
// transactions use the count.
type field struct {
	property uint32
	// kind is Map or List, or String for all other types.
	kind query.Type
	key  string
	// keyJSON is the key as a JSON string with a colon.
	keyJSON string
	terms   int
}

// property is a property of any type.
type property struct {
	owner  uint64
	name   string
	hidden bool
	// internal is true if no search returns or finds the property.
	internal bool
	// json is the name as a JSON string with a colon.
	json string
	// variants contains the rows whose property has a type. Times have their own variant.
	variants [variantCount]postings
	// order contains all terms in the order of completions.
	order ordered
	// times contains the values of the rows that are times without fractions, in the form of
	// timeValue.
	times vector[int64]
	// keys are the fields of a map.
	keys []uint32
	// counts are the numbers of terms by their order. emptyKeys is the number of terms of maps
	// whose key is empty. Such terms are ordered only by their value.
	counts    [4]int
	emptyKeys int
}

// variantTime is the variant of strings that are times.
const (
	variantTime  = int(query.List) + 1
	variantCount = variantTime + 1
)

// cluster is a cluster that has reported.
type cluster struct {
	owner uint64
	id    uint32
	name  string
	hub   bool
	// present is false for a cluster that was removed. Its number is kept for its name.
	present bool
	// rows contains the resources of the cluster. secrets contains those resources that are
	// Secrets.
	rows, secrets postings
	// unknown contains rows to which only edges refer.
	unknown postings
	// classes contains the classes of the rows, except classes of Secrets.
	classes, secretClasses []uint32
	edges                  int
	reported               time.Time
	incomplete             bool
	// pending is the class of rows to which only edges refer.
	pending uint32
}

// class is a set of rows that a Scope treats alike, except for their names.
type class struct {
	rows    postings
	class   visibility.Class
	cluster uint32
	pending bool
}

// end is an edge from the view of one of its rows: the other row, the relation, and the direction.
type end uint64

func newEnd(other, relation uint32, in bool) end {
	e := end(other)<<32 | end(relation)<<1
	if in {
		e |= 1
	}
	return e
}

func (e end) other() uint32    { return uint32(e >> 32) }
func (e end) relation() uint32 { return uint32(e) >> 1 }
func (e end) in() bool         { return e&1 != 0 }
