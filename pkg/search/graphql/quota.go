package graphql

import (
	"sync"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
)

const retrySeconds = 10

// quota bounds the number of open connections or subscriptions, in total and for each caller.
type quota struct {
	name string
	all  *semaphore.Weighted
	each *callers.Bound
}

func newQuota(name string, all, each int) *quota {
	return &quota{name: name, all: semaphore.NewWeighted(int64(all)), each: callers.NewBound("GraphQL "+name, "", each, retrySeconds)}
}

// take counts one connection or subscription of a user until release is called. release may be
// called several times.
func (q *quota) take(caller user.Info) (release func(), err error) {
	if !q.all.TryAcquire(1) {
		return nil, failure{apierrors.NewTooManyRequests("the server has as many open "+q.name+" as it may have", retrySeconds)}
	}
	free, err := q.each.Take(caller)
	if err != nil {
		q.all.Release(1)
		return nil, failed(err)
	}
	active.WithLabelValues(q.name).Inc()
	return sync.OnceFunc(func() {
		free()
		q.all.Release(1)
		active.WithLabelValues(q.name).Dec()
	}), nil
}
