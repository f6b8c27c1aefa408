package embedded

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// rankingLimit bounds the number of rankings.
	rankingLimit = 8
	// rankedOrders bounds the number of properties of a ranking, because each takes time and
	// memory.
	rankedOrders = 2
	// rankingIdle is the time that a ranking is kept after its last use.
	rankingIdle = 10 * time.Minute
	// Up to rankedAtOnce rows are ranked by the request that requires the order. More rows are
	// ranked in the background when the order is requested for the second time.
	rankedAtOnce = 1 << 14
	// Up to followedAtOnce changes are followed by the request that requires the order, and up to
	// followedInBackground changes in the background. For more changes, ranking all rows again is
	// faster.
	followedAtOnce       = 1 << 9
	followedInBackground = 1 << 13
)

// errOutrun is the error if a ranking belongs to a later version than the reader. The reader then
// starts again.
var errOutrun = errors.New("the order is that of a later version")

// rankings caches orders of all resources, and updates them when they are requested.
type rankings struct {
	engine *Engine
	mu     sync.Mutex
	byKey  map[string]*rankingEntry
	// busy is true while a ranking is computed in the background.
	busy atomic.Bool
}

func newRankings(e *Engine) *rankings {
	return &rankings{engine: e, byKey: map[string]*rankingEntry{}}
}

// rankingEntry is the ranking of one order. One reader at a time updates it.
type rankingEntry struct {
	by      []search.Order
	updates sync.Mutex
	current atomic.Pointer[ranking]
	// asked is the number of requests. used is the time of the last request. The mutex of rankings
	// guards both.
	asked int
	used  time.Time
}

// orderKey returns a text that identifies an order.
func orderKey(by []search.Order) string {
	var key []byte
	for _, order := range by {
		direction := byte(0)
		if order.Descending {
			direction = 1
		}
		key = append(appendText(key, order.Property), direction)
	}
	return string(key)
}

// entry returns the entry of an order, and reports whether the order was requested before.
func (c *rankings) entry(by []search.Order) (entry *rankingEntry, again bool) {
	key := orderKey(by)
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, known := c.byKey[key]
	if !known {
		if len(c.byKey) >= rankingLimit {
			c.evict()
		}
		entry = &rankingEntry{by: slices.Clone(by)}
		c.byKey[key] = entry
	}
	entry.asked++
	entry.used = time.Now()
	return entry, entry.asked > 1
}

// evict removes the least recently used ranking.
func (c *rankings) evict() {
	oldest := ""
	for key, entry := range c.byKey {
		if was := c.byKey[oldest]; was == nil || entry.used.Before(was.used) {
			oldest = key
		}
	}
	delete(c.byKey, oldest)
}

// forgetIdle removes rankings that have not been used for rankingIdle.
func (c *rankings) forgetIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range c.byKey {
		if time.Since(entry.used) > rankingIdle {
			delete(c.byKey, key)
		}
	}
}

// of returns the ranking of an order for a reader, or nil if none exists yet. It returns errOutrun
// if the ranking belongs to a later version.
func (c *rankings) of(r *reader, by []search.Order) (*ranking, error) {
	entry, again := c.entry(by)
	if k, err := entry.at(r.version); k != nil || err != nil {
		return k, err
	}
	small := r.rows.len() <= rankedAtOnce
	if k := entry.current.Load(); !small && (k == nil || k.behind(r.state) > followedAtOnce) {
		if again {
			c.rank(entry)
		}
		return nil, nil
	}
	entry.updates.Lock()
	defer entry.updates.Unlock()
	if k, err := entry.at(r.version); k != nil || err != nil {
		return k, err
	}
	k := entry.current.Load()
	if k != nil && k.behind(r.state) <= followedAtOnce {
		k = k.follow(r.state)
	} else {
		var err error
		if k, err = r.newRanking(entry.by, r.pause); err != nil {
			return nil, err
		}
	}
	entry.current.Store(k)
	return k, nil
}

// at returns the ranking if it is valid for a version, or nil if it is valid for earlier versions.
func (e *rankingEntry) at(version uint64) (*ranking, error) {
	switch k := e.current.Load(); {
	case k == nil || version > k.to:
		return nil, nil
	case version < k.from:
		return nil, errOutrun
	default:
		return k, nil
	}
}

// rank updates a ranking in the background. Only one ranking is updated at a time.
func (c *rankings) rank(entry *rankingEntry) {
	e := c.engine
	e.closing.RLock()
	defer e.closing.RUnlock()
	if e.isClosed || !c.busy.CompareAndSwap(false, true) {
		return
	}
	e.running.Go(func() {
		defer c.busy.Store(false)
		// The mutex is not held during the update, so readers do not wait.
		s := e.current.Load()
		k := entry.current.Load()
		if k != nil && k.behind(s) <= followedInBackground {
			k = k.follow(s)
		} else {
			var err error
			if k, err = s.newRanking(entry.by, e.giveWay); err != nil {
				return
			}
		}
		entry.updates.Lock()
		defer entry.updates.Unlock()
		if now := entry.current.Load(); now == nil || now.to < k.to {
			entry.current.Store(k)
		}
	})
}

// giveWay lets other goroutines run. It returns an error if the engine is closed.
func (e *Engine) giveWay() error {
	select {
	case <-e.closed:
		return errClosed
	default:
		runtime.Gosched()
		return nil
	}
}
