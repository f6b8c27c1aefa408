package embedded

import (
	"github.com/RoaringBitmap/roaring/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// keywordsLimit bounds the number of cached keywords. Each takes at most one bit for each row.
	keywordsLimit = 64
	// paidLimit bounds the number of paid keywords.
	paidLimit = 256
	// keywordFollows bounds the number of changed rows that are read again. For more changes, the index
	// is faster.
	keywordFollows = 1 << 11
	// cachedText bounds the length of a cached keyword, because callers choose them.
	cachedText = 1024
)

// keywords caches the rows of keywords that the index found. The console searches for a keyword several
// times, each time with another kind, and again when resources change.
type keywords struct{ byKey, paid *lru.Cache }

func newKeywords() *keywords {
	return &keywords{byKey: lru.New(keywordsLimit), paid: lru.New(paidLimit)}
}

// keywordKey contains the caller and the scope, so that no caller notices the keywords of others by the
// time of an answer. The cached rows are complete only within the scope.
type keywordKey struct {
	caller  string
	scope   uint64
	keyword string
}

// paidKey is a keyword of a request.
type paidKey struct {
	budget  *search.Budget
	keyword string
}

// pay returns false if another search of the same request has paid for a keyword. A keyword that is cached for
// another reason is paid for, so that refusals do not show what is cached.
func (k *keywords) pay(budget *search.Budget, keyword string) bool {
	if len(keyword) > cachedText {
		return true
	}
	key := paidKey{budget, keyword}
	if _, paid := k.paid.Get(key); paid {
		return false
	}
	k.paid.Add(key, nil)
	return true
}

// keptKeyword contains the rows of a keyword after a number of moves and touches.
type keptKeyword struct {
	rows           *roaring.Bitmap
	moves, touches uint64
}

// keptRows returns the rows of a keyword that was searched before, or nil.
func (r *reader) keptRows(keyword string) *roaring.Bitmap {
	found, ok := r.keywords.byKey.Get(keywordKey{r.caller, r.scopeID, keyword})
	if !ok {
		return nil
	}
	kept := found.(*keptKeyword)
	if kept.moves < r.firstMoved || kept.moves > r.nextMoved() || kept.touches < r.firstTouched || kept.touches > r.nextTouched() {
		return nil
	}
	// A row that enters the scope later has moved then.
	changed := roaring.New()
	for _, row := range r.moved[kept.moves-r.firstMoved:] {
		if r.scope.Contains(row) {
			changed.Add(row)
		}
	}
	for _, t := range r.touched[kept.touches-r.firstTouched:] {
		if r.scope.Contains(t.row) {
			changed.Add(t.row)
		}
	}
	if changed.IsEmpty() {
		return kept.rows
	}
	if r.costOfReadingAll(changed, keywordFollows*readCost) == keywordFollows*readCost {
		return nil
	}
	// The cached rows may be the postings of a term.
	rows := roaring.And(kept.rows, kept.rows)
	changed.Iterate(func(number uint32) bool {
		if r.rowContains(number, keyword) {
			rows.Add(number)
		} else {
			rows.Remove(number)
		}
		return true
	})
	r.keepRows(keyword, rows)
	return rows
}

// keepRows caches the rows of a keyword, which must not be changed any more.
func (r *reader) keepRows(keyword string, rows *roaring.Bitmap) {
	if len(keyword) > cachedText {
		return
	}
	r.keywords.byKey.Add(keywordKey{r.caller, r.scopeID, keyword}, &keptKeyword{rows: rows, moves: r.nextMoved(), touches: r.nextTouched()})
}
