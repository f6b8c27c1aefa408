package fair

import "context"

// Class is the scheduling class of an item or a request.
type Class struct {
	// Priority puts the item into the priority lane, which does not wait for other items.
	Priority bool
	// Tenant is the party that shares workers and requests with others.
	Tenant string
	// Failed marks an item whose last handling failed. At most half of the workers are busy with
	// such items.
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

// laneNames are the values of the label of the metrics.
var laneNames = [lanes]string{"ordinary", "priority"}

type classKey struct{}

// WithClass returns a context with a class, by which a Limiter schedules its requests.
func WithClass(ctx context.Context, class Class) context.Context {
	return context.WithValue(ctx, classKey{}, class)
}

// ClassOf returns the class of a context. Requests without a tenant, such as requests of informers,
// share one turn.
func ClassOf(ctx context.Context) Class {
	class, _ := ctx.Value(classKey{}).(Class)
	return class
}
