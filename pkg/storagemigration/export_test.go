package storagemigration

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
)

// Step runs the loop once. It returns after how much time the loop runs again.
func (m *Migrator) Step(ctx context.Context) (time.Duration, error) {
	return m.reconcile(ctx, cache.ObjectName{})
}

// OneByOne makes each Step rewrite one object.
func (m *Migrator) OneByOne() { m.step = 0 }

// Unlimited removes the limits of the rate.
func (m *Migrator) Unlimited() {
	for _, limiter := range []*rate.Limiter{m.checks, m.writes, m.bytes} {
		limiter.SetLimit(rate.Inf)
	}
}

// Settled is the time after which the loop runs again if nothing is left to do.
const Settled = recheck

// RecordKey is the key of the record, without the prefix of the server.
const RecordKey = stateKey + recordKey

// ReplicaKey is the prefix of the keys of replicas, without the prefix of the server.
const ReplicaKey = stateKey + replicasKey
