package namespaces

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// parking keeps the namespaces that the quota of the hub has no room for. One of them,
// the probe, is tried from time to time; the others wait for it and cost no request.
type parking struct {
	mu    sync.Mutex
	probe string
	names sets.Set[string]
}

// wait reports whether a namespace that is to be reported has to wait for the probe.
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

// refuse parks a namespace that the hub has refused. It reports whether the namespace is
// the probe, and whether it is the first one.
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

// isProbe reports whether a namespace is the probe.
func (p *parking) isProbe(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probe == name && name != ""
}

// release returns all namespaces that wait, and lets them be tried.
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
