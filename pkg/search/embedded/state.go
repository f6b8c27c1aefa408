package embedded

import (
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// state is everything at one version. Readers have states that do not change any
// more; a transaction changes a copy of the last one, which is an assignment.
type state struct {
	version uint64

	rows      vector[row]
	adjacency vector[[]end]
	uids      table
	// visible counts the resources.
	visible int

	// terms begin with one that is never used, so that 0 is none.
	terms     vector[term]
	texts     texts
	termTable table
	termCount int
	fields    vector[*field]
	trigrams  vector[rowset]

	// properties, clusters and relations are found by their names in maps, which are
	// replaced when there is a new one.
	properties    vector[*property]
	propertyNames map[string]uint32
	clusters      []*cluster
	clusterNames  map[string]uint32
	relations     []string
	relationNames map[string]uint32

	classes    vector[class]
	classTable table
	// hubClasses counts the changes of which classes the hub has.
	hubClasses uint64

	// moved are the rows that came, went or changed their class or name, in the order
	// in which they did; firstMoved is the number of the first. What is derived from a Scope is
	// kept up to date with them.
	moved      []uint32
	firstMoved uint64
	// touched are changes of properties of rows that did not move, kept as moved are.
	touched      []touch
	firstTouched uint64
}

// movedLimit bounds how many moves are remembered at least; it is twice that at most.
const movedLimit = 1 << 16

// touchedLimit is the same for touched.
const touchedLimit = 1 << 17

// nextMoved is the number that the next move will have.
func (s *state) nextMoved() uint64 { return s.firstMoved + uint64(len(s.moved)) }

// row is a resource. One that only edges know yet has the version 0.
type row struct {
	// data are the UID and then the terms in the order of properties, see rows.go.
	data    string
	version uint64
	class   uint32
	// kind is the term of the property kind; 0 without.
	kind uint32
}

func (r *row) exists() bool { return r.version != 0 }

// term is a value that a leaf of a field has. There are more of them than of anything else, so that
// they have no pointers but to the rows of those with many.
type term struct {
	// rows have the termInfo beside them.
	rows rowset
	// stored is where the text of the leaf is.
	stored textPlace
}

// info tells the field, and what the term is.
func (t *term) info() termInfo { return t.rows.beside }

// termInfo is the number of the field and, in the lower bits, what the text is.
type termInfo uint32

const (
	// infoLeaf has the query.Type of the leaf.
	infoLeaf termInfo = 3
	// infoPlain marks a string that is the same in JSON between quotes.
	infoPlain termInfo = 1 << 2
	// infoEmpty marks what a map or list without leaves has instead.
	infoEmpty termInfo = 1 << 3
	// infoOrder has one of the orders below.
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

// field is a property of one type and, of a map, one key. It does not change but for
// its count of terms, which only transactions look at.
type field struct {
	property uint32
	// kind is Map, List, or String for all others.
	kind query.Type
	key  string
	// keyJSON is the key as JSON with a colon.
	keyJSON string
	terms   int
}

// property is a property of any type.
type property struct {
	owner  uint64
	name   string
	hidden bool
	// json is the name as JSON with a colon.
	json string
	// variants are the rows whose property has a type; times are their own type.
	variants [variantCount]rowset
	// empties are the rows whose map or list has no leaves.
	empties rowset
	// order has all terms in the order of completions.
	order ordered
	// times are the rows' values where these are times without fractions, as timeValue gives them.
	times vector[int64]
	// keys are the fields of a map.
	keys []uint32
	// counts are of terms, by what orders them; emptyKeys are those of maps whose key is
	// empty, which order by their value alone.
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
	// present is false for one that was removed; its number is kept for its name.
	present bool
	// rows are its resources, and secrets those of them that are Secrets.
	rows, secrets rowset
	// unknown are rows that only edges know.
	unknown rowset
	// classes are those of its rows, Secrets apart.
	classes, secretClasses []uint32
	edges                  int
	reported               time.Time
	incomplete             bool
	// pending is the class of rows that only edges know.
	pending uint32
}

// class are the rows about which the same is decided but for their names.
type class struct {
	rows    rowset
	class   visibility.Class
	cluster uint32
	pending bool
}

// end is an edge as one of its rows sees it: the other row, the relation, and
// whether the edge comes in.
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
