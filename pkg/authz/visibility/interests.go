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
	// touched must not block.
	touched func()
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

func (i *interests) touch(subjects []rbac.Subject) {
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
				one.touched()
			}
		}
	}
}

func (i *interests) touchAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for one := range i.all {
		one.touched()
	}
}
