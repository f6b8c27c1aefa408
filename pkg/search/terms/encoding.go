package terms

import "runtime"

// encoders are the places of those who encode large answers at a time. One core stays free for everything
// else where there is more than one.
var encoders = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// Encoder is a place among those who encode large answers. It is given up while a part of an answer is written, since
// a client may take that as slowly as it likes. The zero Encoder has no place.
type Encoder struct{ placed bool }

// Begin waits for a place. Places are given in the order in which they are waited for.
func (e *Encoder) Begin() {
	if !e.placed {
		encoders <- struct{}{}
		e.placed = true
	}
}

// End gives the place up.
func (e *Encoder) End() {
	if e.placed {
		<-encoders
		e.placed = false
	}
}
