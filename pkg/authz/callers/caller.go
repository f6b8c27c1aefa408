// Package callers limits the concurrent requests, the watches, the access reviews and the write rate of each caller.
package callers

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// The prefix of a caller distinguishes clusters and namespaces, which have several users, from single users.
const (
	ofCluster   = "cluster:"
	ofNamespace = "namespace:"
	ofUser      = "user:"
)

// Of returns the caller of a user. All identities of a managed cluster are one caller, and all
// ServiceAccounts of a namespace are one caller, because their owner can create any number of them.
func Of(u user.Info) string {
	if cluster := clusterOf(u); cluster != "" {
		return ofCluster + cluster
	}
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return ofNamespace + namespace
	}
	return ofUser + u.GetName()
}

// Exempt reports whether no limit applies to a user. The group system:masters is exempt, as in API Priority
// and Fairness. The server itself is a member of this group.
func Exempt(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// clusterOf returns the cluster whose agent a user is, or "". If there are several, it returns the first one by name.
func clusterOf(u user.Info) string {
	prefixes := clusterv1.AgentGroups("")
	first := ""
	for _, group := range u.GetGroups() {
		if group == clusterv1.AllAgentsGroup {
			continue
		}
		for _, prefix := range prefixes {
			// Groups of add-ons have a suffix after the name of the cluster.
			name, found := strings.CutPrefix(group, prefix)
			if found && name != "" && !strings.Contains(name, ":") && (first == "" || name < first) {
				first = name
			}
		}
	}
	return first
}

// Bound limits the number of open requests or watches of each caller.
type Bound struct {
	what, flag   string
	limit        int
	retrySeconds int

	mu     sync.Mutex
	counts map[string]int
}

// NewBound returns a Bound with a limit for each caller. 0 means no limit. what is a plural, such as "watches". flag is
// the name of the flag that sets the limit, or empty. retrySeconds is the Retry-After of refusals.
func NewBound(what, flag string, limit, retrySeconds int) *Bound {
	registerMetrics()
	return &Bound{what: what, flag: flag, limit: limit, retrySeconds: retrySeconds, counts: map[string]int{}}
}

// Take adds one to the count of the caller of a user until release is called. It returns an API error
// with status 429 if the caller has reached the limit. A nil Bound has no limit.
func (b *Bound) Take(u user.Info) (release func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	if Exempt(u) {
		open.WithLabelValues(b.what).Inc()
		return sync.OnceFunc(func() { open.WithLabelValues(b.what).Dec() }), nil
	}
	caller := Of(u)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit > 0 && b.counts[caller] >= b.limit {
		refused.WithLabelValues(b.what).Inc()
		remedy := "try again later"
		if b.flag != "" {
			remedy = fmt.Sprintf("close some, or raise --%s of the hub-apiserver", b.flag)
		}
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf(
			"%s has %d open %s, which is the limit for each caller; %s", describe(caller), b.limit, b.what, remedy), b.retrySeconds)
	}
	b.counts[caller]++
	open.WithLabelValues(b.what).Inc()
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.counts[caller]--; b.counts[caller] == 0 {
			delete(b.counts, caller)
		}
		open.WithLabelValues(b.what).Dec()
	}), nil
}

func describe(caller string) string {
	for prefix, kind := range map[string]string{ofCluster: "cluster", ofNamespace: "the ServiceAccounts of namespace", ofUser: "user"} {
		if name, found := strings.CutPrefix(caller, prefix); found && name != "" {
			return fmt.Sprintf("%s %q", kind, name)
		}
	}
	return "the caller"
}
