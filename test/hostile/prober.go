package hostile

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// prober measures the latency of the requests of other callers.
type prober struct {
	mu sync.Mutex
	// latencies are the latencies since the last take. A paused prober records none.
	latencies []time.Duration
	paused    bool
}

// probe sends usual requests of an administrator, one after another, until ctx ends.
func (p *prober) probe(ctx context.Context, s *Site) {
	requests := []Request{
		{Method: http.MethodGet, Path: worksPath + "/probe"},
		{Method: http.MethodGet, Path: permissionsPath + "?limit=10"},
		{Method: http.MethodPost, Path: accountsPath + "?dryRun=All", Body: body(accountsPath, "ManagedServiceAccount", "", `,"spec":{"rotation":{}}`)},
		{Method: http.MethodGet, Path: clustersPath + "/" + AgentCluster},
	}
	for i := 0; ctx.Err() == nil; i++ {
		started := time.Now()
		_, _, _ = s.send(ctx, requests[i%len(requests)])
		took := time.Since(started)
		p.mu.Lock()
		if !p.paused {
			p.latencies = append(p.latencies, took)
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pause stops or resumes the recording of latencies.
func (p *prober) pause(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
}

// take returns the latencies since the last call of take.
func (p *prober) take() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.latencies
	p.latencies = nil
	return taken
}

// p99 returns the 99th percentile.
func p99(latencies []time.Duration) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	return latencies[min(len(latencies)-1, len(latencies)*99/100)]
}
