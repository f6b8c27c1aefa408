package rbac

import "sync"

// Interests notifies those whose state depends on the permissions of subjects. Its zero value is ready, and its methods
// may be called concurrently.
type Interests struct {
	mu        sync.Mutex
	bySubject map[Subject]map[*Interest]struct{}
	all       map[*Interest]struct{}
}

// Interest is notified when the permissions of its subjects may have changed.
type Interest struct {
	Subjects []Subject
	// Touched must not block.
	Touched func()
}

// Add begins to notify an Interest.
func (i *Interests) Add(interest *Interest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.bySubject, i.all = map[Subject]map[*Interest]struct{}{}, map[*Interest]struct{}{}
	}
	i.all[interest] = struct{}{}
	for _, s := range interest.Subjects {
		if i.bySubject[s] == nil {
			i.bySubject[s] = map[*Interest]struct{}{}
		}
		i.bySubject[s][interest] = struct{}{}
	}
}

// Remove ends the notifications of an Interest.
func (i *Interests) Remove(interest *Interest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, interest)
	for _, s := range interest.Subjects {
		if delete(i.bySubject[s], interest); len(i.bySubject[s]) == 0 {
			delete(i.bySubject, s)
		}
	}
}

// Subscribe returns an Interest in the subjects, and a channel that receives a value after each Touch or TouchAll. One
// value covers all of them before it is received. The caller must call Remove.
func (i *Interests) Subscribe(subjects []Subject) (interest *Interest, touched <-chan struct{}) {
	channel := make(chan struct{}, 1)
	interest = &Interest{Subjects: subjects, Touched: func() {
		select {
		case channel <- struct{}{}:
		default:
		}
	}}
	i.Add(interest)
	return interest, channel
}

// Empty reports whether there is no Interest.
func (i *Interests) Empty() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.all) == 0
}

// Touch notifies each Interest in one of the subjects once.
func (i *Interests) Touch(subjects []Subject) {
	if len(subjects) == 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	touched := map[*Interest]struct{}{}
	for _, s := range subjects {
		for interest := range i.bySubject[s] {
			if _, done := touched[interest]; !done {
				touched[interest] = struct{}{}
				interest.Touched()
			}
		}
	}
}

// TouchAll notifies each Interest.
func (i *Interests) TouchAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for interest := range i.all {
		interest.Touched()
	}
}
