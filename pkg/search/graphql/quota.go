package graphql

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
)

const retrySeconds = 10

// quota bounds the number of open connections or subscriptions, in total and for each user.
type quota struct {
	name      string
	all, each int

	lock  sync.Mutex
	total int
	users map[string]int
}

func newQuota(name string, all, each int) *quota {
	return &quota{name: name, all: all, each: each, users: map[string]int{}}
}

// take counts one connection or subscription of a user until release is called. release may be
// called several times.
func (q *quota) take(caller user.Info) (release func(), err error) {
	name := callers.Of(caller)
	q.lock.Lock()
	defer q.lock.Unlock()
	switch {
	case q.total >= q.all:
		return nil, failure{apierrors.NewTooManyRequests(fmt.Sprintf("the server has %d %s open, the limit for all users", q.all, q.name), retrySeconds)}
	case q.users[name] >= q.each:
		return nil, failure{apierrors.NewTooManyRequests(fmt.Sprintf("you have %d %s open, the limit for each user", q.each, q.name), retrySeconds)}
	}
	q.total++
	q.users[name]++
	active.WithLabelValues(q.name).Inc()
	return sync.OnceFunc(func() {
		q.lock.Lock()
		defer q.lock.Unlock()
		q.total--
		if q.users[name]--; q.users[name] == 0 {
			delete(q.users, name)
		}
		active.WithLabelValues(q.name).Dec()
	}), nil
}
