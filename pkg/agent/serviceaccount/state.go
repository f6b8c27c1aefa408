package serviceaccount

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// accountState is what the agent remembers of one account between passes. After
// a restart it is built anew. Only the pass over the account uses it, and there
// is one at a time.
type accountState struct {
	// uid is the UID of the ManagedServiceAccount that everything is about.
	uid types.UID
	// owner is the newest version that was written, until the informer has it.
	owner *v1beta1.ManagedServiceAccount
	// unlabelled is whether a ServiceAccount is in the way that the watch does not show.
	unlabelled bool
	// unstored is whether nobody can have made the Secret yet.
	unstored bool
	// spare is a token that could not be stored. It is the only one that is
	// ever remembered, so that retries do not request another.
	spare *minted
	// checked is about the Secret as it was found or made to be in order.
	checked *checked
	// waitingSince is since when a Secret is in the way that may soon not be.
	waitingSince time.Time
	// notBefore is when a failed pass is tried again, unless anything but
	// tried comes up.
	notBefore time.Time
	tried     trigger
	// reported is the generation of which the status last said, at reportedAt,
	// that all is well; zero if it said anything else.
	reported   int64
	reportedAt time.Time
	// complaint is the last error that was logged.
	complaint string
}

// trigger is what a pass depends on, apart from the time.
type trigger struct {
	generation int64
	nudge      string
	account    types.UID
	version    string
	ca         uint64
}

// states holds the state of every account.
type states struct {
	mu       sync.Mutex
	accounts map[string]*accountState
}

func (s *states) get(name string) *accountState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accounts == nil {
		s.accounts = map[string]*accountState{}
	}
	if s.accounts[name] == nil {
		s.accounts[name] = &accountState{}
	}
	return s.accounts[name]
}

func (s *states) drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accounts, name)
}

// newest returns the newest known version of a ManagedServiceAccount, nil if the
// informer does not have it.
func (c *Controller) newest(name string, st *accountState) *v1beta1.ManagedServiceAccount {
	cached, err := c.owners.Get(name)
	if err != nil {
		return nil
	}
	if written := st.owner; written != nil && written.UID == cached.UID && isNewer(written, cached) {
		return written
	}
	st.owner = nil
	return cached
}

func isNewer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
