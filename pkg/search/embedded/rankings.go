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
	// rankingLimit bounds how many orders are kept.
	rankingLimit = 8
	// rankedOrders is by how many properties an order may be that is kept. To make one takes time and
	// memory for each.
	rankedOrders = 2
	// rankingIdle is how long an order is kept that nobody asks for.
	rankingIdle = 10 * time.Minute
	// rankedAtOnce is up to how many rows whoever asks for an order makes it; more are ranked
	// in the background, once an order is asked for again.
	rankedAtOnce = 1 << 14
	// followedAtOnce is how many changes whoever asks for an order follows, and followedInBackground is
	// from how many on it is quicker to rank everything again.
	followedAtOnce       = 1 << 9
	followedInBackground = 1 << 13
)

// errOutrun is the error for a ranking that is of a later version than a reader, who reads again.
var errOutrun = errors.New("the order is that of a later version")

// rankings keep the orders that are asked for, and bring them up to date when they are.
type rankings struct {
	engine *Engine
	mu     sync.Mutex
	byKey  map[string]*rankingEntry
	// busy is true while an order is made in the background.
	busy atomic.Bool
}

func newRankings(e *Engine) *rankings {
	return &rankings{engine: e, byKey: map[string]*rankingEntry{}}
}

// rankingEntry is the ranking of one order. It is brought up to date by one reader at a time.
type rankingEntry struct {
	by      []search.Order
	updates sync.Mutex
	current atomic.Pointer[ranking]
	// asked counts who asked for it, and used is when that was last. The mutex of rankings guards them.
	asked int
	used  time.Time
}

// orderKey names an order.
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

// entry gives the entry of an order, and whether it was asked for before.
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

// evict gives up the order that was not asked for for longest.
func (c *rankings) evict() {
	oldest := ""
	for key, entry := range c.byKey {
		if was := c.byKey[oldest]; was == nil || entry.used.Before(was.used) {
			oldest = key
		}
	}
	delete(c.byKey, oldest)
}

// forgetIdle gives up the orders that nobody has asked for in a while.
func (c *rankings) forgetIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range c.byKey {
		if time.Since(entry.used) > rankingIdle {
			delete(c.byKey, key)
		}
	}
}

// of gives the ranking of an order for a reader; nil if there is none yet. It returns errOutrun if
// there is one of a later version.
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

// at gives the ranking if it is true for a version; nil if it is of earlier ones.
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

// rank brings a ranking up to date in the background, one at a time.
func (c *rankings) rank(entry *rankingEntry) {
	e := c.engine
	e.closing.RLock()
	defer e.closing.RUnlock()
	if e.isClosed || !c.busy.CompareAndSwap(false, true) {
		return
	}
	e.running.Go(func() {
		defer c.busy.Store(false)
		// Readers do not wait for this, as they would for the mutex.
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

// giveWay lets others run, and is an error when the engine is closed.
func (e *Engine) giveWay() error {
	select {
	case <-e.closed:
		return errClosed
	default:
		runtime.Gosched()
		return nil
	}
}
