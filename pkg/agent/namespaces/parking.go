package namespaces

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// parking contains the namespaces that exceed the quota of the hub. One of them, the probe, is
// retried. The others wait for the probe and cost no request.
type parking struct {
	mu    sync.Mutex
	probe string
	names sets.Set[string]
}

// wait parks a namespace and returns true if another namespace is the probe.
func (p *parking) wait(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probe == "" || p.probe == name {
		return false
	}
	p.names.Insert(name)
	waiting.Set(float64(p.names.Len() + 1))
	return true
}

// refuse parks a namespace that the quota has rejected. It reports whether the namespace is the
// probe, and whether it has just become the probe.
func (p *parking) refuse(name string) (probe, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first = p.probe == ""; first {
		p.probe, p.names = name, sets.New[string]()
	}
	if probe = p.probe == name; !probe {
		p.names.Insert(name)
	}
	waiting.Set(float64(p.names.Len() + 1))
	return probe, first
}

// probing reports whether a namespace is the probe.
func (p *parking) probing(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probe == name && name != ""
}

// release removes all namespaces and returns them.
func (p *parking) release() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probe == "" {
		return nil
	}
	names := append(p.names.UnsortedList(), p.probe)
	p.probe, p.names = "", nil
	waiting.Set(0)
	return names
}
