package embedded

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"k8s.io/utils/lru"
)

const (
	// keywordsLimit bounds the number of cached keywords. Each takes at most one bit for each row.
	keywordsLimit = 16
	// keywordFollows bounds the number of changed rows that are read again. For more changes, the index
	// is faster.
	keywordFollows = 1 << 11
)

// keywords caches the rows of keywords that the index found. The console searches for a keyword several
// times, each time with another kind, and again when resources change.
type keywords struct{ byKey *lru.Cache }

func newKeywords() *keywords { return &keywords{byKey: lru.New(keywordsLimit)} }

// keywordKey contains the scope of the caller, so that no caller notices the keywords of others by the
// time of an answer. The cached rows are independent of the scope.
type keywordKey struct {
	scope   uint64
	keyword string
}

// keptKeyword contains the rows of a keyword after a number of moves and touches.
type keptKeyword struct {
	rows           *roaring.Bitmap
	moves, touches uint64
}

// keptRows returns the rows of a keyword that was searched before, or nil.
func (r *reader) keptRows(keyword string) (*roaring.Bitmap, error) {
	if r.keywords == nil {
		return nil, nil
	}
	found, ok := r.keywords.byKey.Get(keywordKey{r.scopeID, keyword})
	if !ok {
		return nil, nil
	}
	kept := found.(*keptKeyword)
	if kept.moves < r.firstMoved || kept.moves > r.nextMoved() || kept.touches < r.firstTouched || kept.touches > r.nextTouched() {
		return nil, nil
	}
	changed := slices.Clone(r.moved[kept.moves-r.firstMoved:])
	for _, t := range r.touched[kept.touches-r.firstTouched:] {
		changed = append(changed, t.row)
	}
	if len(changed) == 0 {
		return kept.rows, nil
	}
	slices.Sort(changed)
	if changed = slices.Compact(changed); len(changed) > keywordFollows {
		return nil, nil
	}
	cost := r.costOfRows()
	for _, row := range changed {
		cost += r.costOfReading(row)
	}
	if err := r.spend(cost); err != nil {
		return nil, err
	}
	// The cached rows may be the postings of a term.
	rows := roaring.And(kept.rows, kept.rows)
	for _, number := range changed {
		if at := r.rows.at(number); at != nil && at.exists() && r.rowContains(number, keyword) {
			rows.Add(number)
		} else {
			rows.Remove(number)
		}
	}
	r.keepRows(keyword, rows)
	return rows, nil
}

// keepRows caches the rows of a keyword, which must not be changed any more.
func (r *reader) keepRows(keyword string, rows *roaring.Bitmap) {
	if r.keywords != nil {
		r.keywords.byKey.Add(keywordKey{r.scopeID, keyword}, &keptKeyword{rows: rows, moves: r.nextMoved(), touches: r.nextTouched()})
	}
}
