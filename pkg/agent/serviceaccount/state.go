package serviceaccount

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// accountState is the state of one account that the agent keeps in memory between passes. After a
// restart, it is rebuilt. Only passes over the account use it.
type accountState struct {
	// uid is the UID of the ManagedServiceAccount to which the other fields belong.
	uid types.UID
	// unlabelled is true if a ServiceAccount with the name exists without the label, and so is not
	// watched.
	unlabelled bool
	// unstored is true if no Secret can exist yet.
	unstored bool
	// spare is a token that could not be stored. It is kept so that a retry does not request
	// another token.
	spare *minted
	// checked describes the Secret when it was last up to date.
	checked *checked
	// waitingSince is the time since which the agent waits for access to a Secret or for its
	// removal.
	waitingSince time.Time
	// notBefore is the time at which a failed pass is retried, unless its trigger differs from
	// tried.
	notBefore time.Time
	tried     trigger
	// conflict is true if the last pass found an object of another owner.
	conflict bool
	// reported is the generation of the last report without failures, at the time reportedAt. It is
	// zero after a failure.
	reported   int64
	reportedAt time.Time
}

// trigger contains all inputs of a pass except the time.
type trigger struct {
	generation int64
	nudge      string
	account    types.UID
	version    string
	ca         string
}

// states contains the state of every account.
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
