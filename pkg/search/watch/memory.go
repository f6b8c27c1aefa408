package watch

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
)

const (
	// itemBytes is the memory for one resource, excluding its texts.
	itemBytes = 128
	// placeBytes is the memory for a place, excluding its texts.
	placeBytes = 192
	// listedBytes is the memory for a resource of a page, excluding its UID.
	listedBytes = 32
	// typicalItemBytes is the memory for one resource, including texts of typical length.
	typicalItemBytes = itemBytes + 96
	// watchBytes is the memory of a watch and its connection, excluding events and resources. eventBytes is the
	// memory for an event until it is sent, excluding its properties.
	watchBytes = 64 << 10
	eventBytes = 2 << 10
	// memoryRetrySeconds is the time after which a client may retry a rejected watch.
	memoryRetrySeconds = 30
)

var watchMemory = metrics.NewGauge(&metrics.GaugeOpts{
	Subsystem: "hub_apiserver", Name: "search_watch_memory_bytes", StabilityLevel: metrics.ALPHA,
	Help: "Memory that watches of fleetresources and GraphQL subscriptions hold: the resources that their clients know, and changes and events that are not sent yet.",
})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(watchMemory) })

// Memory bounds the memory that all watches hold: the resources that their clients know, and changes
// and events that are not sent yet. One caller may use half of it, so that a caller cannot prevent the
// watches of others.
type Memory struct {
	limit int64
	flag  string

	mu      sync.Mutex
	held    int64
	callers map[string]int64
}

// NewMemory returns a Memory with a limit in bytes. The flag is the name of the flag that sets the
// limit.
func NewMemory(limit int64, flag string) *Memory {
	registerMetrics()
	return &Memory{limit: limit, flag: flag, callers: map[string]int64{}}
}

// Fits returns an API error with status 429 if a watch of the given number of resources exceeds the
// limit. A nil Memory has no limit.
func (m *Memory) Fits(u user.Info, resources int) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fitsLocked(u, watchBytes+int64(resources)*typicalItemBytes)
}

func (m *Memory) fitsLocked(u user.Info, bytes int64) error {
	limit := m.limit
	if !callers.Exempt(u) {
		limit /= 2
		if m.callers[callers.Of(u)]+bytes > limit {
			return m.refuse(fmt.Sprintf("the watches of one caller may use %d bytes of memory", limit))
		}
	}
	if m.held+bytes > m.limit {
		return m.refuse(fmt.Sprintf("all watches may use %d bytes of memory", m.limit))
	}
	return nil
}

func (m *Memory) refuse(limit string) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf(
		"%s, which this watch exceeds; select fewer resources, close other watches, or raise --%s of the hub-apiserver", limit, m.flag), memoryRetrySeconds)
}

// share is the part of a Memory that one watch holds.
type share struct {
	memory *Memory
	user   user.Info
	held   int64
}

// empty returns a share of the same Memory and user that holds nothing.
func (s *share) empty() *share { return &share{memory: s.memory, user: s.user} }

// grow takes more bytes, or returns an API error with status 429.
func (s *share) grow(bytes int64) error {
	if s.memory == nil {
		return nil
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if err := s.memory.fitsLocked(s.user, bytes); err != nil {
		return err
	}
	s.addLocked(bytes)
	return nil
}

// shrink returns bytes.
func (s *share) shrink(bytes int64) {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addLocked(-bytes)
}

// release returns all bytes.
func (s *share) release() {
	if s.memory == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addLocked(-s.held)
}

func (s *share) addLocked(bytes int64) {
	s.held += bytes
	m := s.memory
	m.held += bytes
	watchMemory.Set(float64(m.held))
	if callers.Exempt(s.user) {
		return
	}
	caller := callers.Of(s.user)
	if m.callers[caller] += bytes; m.callers[caller] == 0 {
		delete(m.callers, caller)
	}
}
