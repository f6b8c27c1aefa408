package fair

import "context"

// Class says how an item or a request is scheduled.
type Class struct {
	// Priority puts the item into the lane that waits for no other.
	Priority bool
	// Tenant is the party that shares workers and requests with others.
	Tenant string
	// Failed marks an item that failed last time. At most half of the workers are
	// busy with such items.
	Failed bool
}

func (c Class) lane() int {
	if c.Priority {
		return priorityLane
	}
	return ordinaryLane
}

const (
	ordinaryLane = iota
	priorityLane
	lanes
)

// laneNames are the values of the metrics' label.
var laneNames = [lanes]string{"ordinary", "priority"}

type classKey struct{}

// WithClass returns a context whose requests a Limiter schedules by a class.
func WithClass(ctx context.Context, class Class) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// classOf returns the class of a request. Requests of no tenant, such as those of
// informers, share one turn.
func classOf(ctx context.Context) Class {
	class, _ := ctx.Value(classKey{}).(Class)
	return class
}
