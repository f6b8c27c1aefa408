package visibility

import (
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// interests indexes interests by subject.
type interests struct {
	mu        sync.Mutex
	bySubject map[rbac.Subject]map[*interest]struct{}
	all       map[*interest]struct{}
}

// interest is notified when the Scope of an identity may have changed.
type interest struct {
	subjects []rbac.Subject
	// touched must not block. managed is set if only permissions on managed clusters may have changed.
	touched func(managed bool)
}

func newInterests() *interests {
	return &interests{bySubject: map[rbac.Subject]map[*interest]struct{}{}, all: map[*interest]struct{}{}}
}

func (i *interests) add(one *interest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all[one] = struct{}{}
	for _, s := range one.subjects {
		if i.bySubject[s] == nil {
			i.bySubject[s] = map[*interest]struct{}{}
		}
		i.bySubject[s][one] = struct{}{}
	}
}

func (i *interests) remove(one *interest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, one)
	for _, s := range one.subjects {
		if delete(i.bySubject[s], one); len(i.bySubject[s]) == 0 {
			delete(i.bySubject, s)
		}
	}
}

// touch notifies the interests in subjects whose permissions on the hub may have changed.
func (i *interests) touch(subjects []rbac.Subject) { i.notify(subjects, false) }

// touchManaged notifies the interests in subjects whose permissions on managed clusters may have changed.
func (i *interests) touchManaged(subjects []rbac.Subject) { i.notify(subjects, true) }

func (i *interests) notify(subjects []rbac.Subject, managed bool) {
	if len(subjects) == 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	touched := map[*interest]struct{}{}
	for _, s := range subjects {
		for one := range i.bySubject[s] {
			if _, done := touched[one]; !done {
				touched[one] = struct{}{}
				one.touched(managed)
			}
		}
	}
}

func (i *interests) touchAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for one := range i.all {
		one.touched(false)
	}
}
