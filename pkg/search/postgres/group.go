package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

const (
	// smallReport is the number of resources and edges up to which a report is applied together with others. A group
	// contains at most groupedReports reports.
	smallReport    = 500
	groupedReports = 32
	// smallGroups and largeGroups bound the transactions in which this process applies reports at a time, so that
	// reports leave processors of the database to searches, and small reports do not wait for large ones.
	smallGroups = 2
	largeGroups = 2
)

// queue contains the reports that wait. The goroutine of one of the waiting reports applies a group of them.
type queue struct {
	mu      sync.Mutex
	waiting []*application
	// busy contains the clusters with a report in progress.
	busy         map[string]bool
	small, large int
}

// wait waits until a report has been applied, or until its goroutine must apply a group of reports, which wait returns.
// If ctx ends while the report waits, the report is removed.
func (q *queue) wait(ctx context.Context, a *application) ([]*application, error) {
	select {
	case group := <-a.lead:
		return group, nil
	case <-ctx.Done():
	}
	if q.remove(a) {
		return nil, fmt.Errorf("waiting for other reports: %w", ctx.Err())
	}
	// The report is in a group already. The group has a deadline.
	return <-a.lead, nil
}

// remove removes a report that waits, and reports whether it did.
func (q *queue) remove(a *application) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, a)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

func (q *queue) add(a *application) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, a)
	q.start()
}

// end ends a group. Reports of again wait again.
func (q *queue) end(group, again []*application) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range group {
		delete(q.busy, a.report.Cluster)
	}
	*q.running(group[0])--
	for _, a := range again {
		a.alone = true
	}
	for _, a := range group {
		if !slices.Contains(again, a) {
			close(a.lead)
		}
	}
	q.waiting = append(again, q.waiting...)
	q.start()
}

func (q *queue) running(a *application) *int {
	if a.alone {
		return &q.large
	}
	return &q.small
}

// start starts groups as long as it may. The caller must hold the lock.
func (q *queue) start() {
	for {
		group := q.next()
		if len(group) == 0 {
			return
		}
		*q.running(group[0])++
		group[0].lead <- group
	}
}

// next removes the next group from the queue: the first report that may start, and the small reports of other clusters.
func (q *queue) next() []*application {
	var group, rest []*application
	for _, a := range q.waiting {
		start := !q.busy[a.report.Cluster]
		switch {
		case len(group) > 0:
			start = start && !a.alone && !group[0].alone && len(group) < groupedReports
		case a.alone:
			start = start && q.large < largeGroups
		default:
			start = start && q.small < smallGroups
		}
		if !start {
			rest = append(rest, a)
			continue
		}
		q.busy[a.report.Cluster] = true
		group = append(group, a)
	}
	q.waiting = rest
	return group
}

// applyGroup applies a group of reports in one transaction. It returns the reports that must be applied again, each in
// a transaction of its own. ctx is that of the first report.
func (e *Engine) applyGroup(ctx context.Context, group []*application) (again []*application) {
	if len(group) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	t := &transaction{engine: e, reports: group}
	again, err := t.run(ctx)
	for _, a := range t.reports {
		if err != nil && len(group) > 1 && !away(err) && ctx.Err() == nil {
			// One report must not make the others fail.
			again = append(again, a)
			continue
		}
		a.err = err
	}
	return again
}

// transaction applies reports of different clusters.
type transaction struct {
	engine  *Engine
	reports []*application
	pipeline
}

// run applies the reports. It returns the reports that it omits, because another server changes their clusters.
func (t *transaction) run(ctx context.Context) (omitted []*application, err error) {
	connection, err := t.engine.writes.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	defer connection.Release()
	defer func() {
		if err != nil {
			// If the rollback fails, the connection is closed.
			_ = t.engine.rollBack(ctx, connection)
		}
	}()
	t.conn = connection
	if omitted, err = t.lock(ctx); err != nil {
		return omitted, err
	}
	for _, phase := range []func(*application, context.Context) error{
		(*application).readExisting, (*application).compare, (*application).findClasses, (*application).createClasses, (*application).store,
	} {
		if err := t.each(ctx, phase); err != nil {
			return omitted, err
		}
		// What a phase writes or reads is the input of the next phase.
		if err := t.send(ctx); err != nil {
			return omitted, err
		}
	}
	if len(t.reports) > 0 {
		if err := t.publish(ctx); err != nil {
			return omitted, err
		}
	}
	t.add("committing", "COMMIT")
	return omitted, t.send(ctx)
}

func (t *transaction) each(ctx context.Context, phase func(*application, context.Context) error) error {
	for _, a := range t.reports {
		if err := phase(a, ctx); err != nil {
			return err
		}
	}
	return nil
}

// lock begins the transaction, acquires the locks of the clusters, and reads or creates their rows. A report that is
// alone waits for its lock. The others must not wait for each other, and are omitted.
func (t *transaction) lock(ctx context.Context) (omitted []*application, err error) {
	keys, names := make([]int64, len(t.reports)), make([]string, len(t.reports))
	byName := map[string]*application{}
	for i, a := range t.reports {
		a.begin(&t.pipeline)
		keys[i], names[i] = lockKey("cluster", a.report.Cluster), escape(a.report.Cluster)
		byName[names[i]] = a
	}
	t.add("beginning", "BEGIN")
	var locked []*application
	var index int
	take := "pg_try_advisory_xact_lock(key)"
	if t.reports[0].alone {
		take = "pg_advisory_xact_lock(key) IS NOT NULL"
	}
	t.read("waiting for another report of the cluster", []any{&index}, func() error {
		locked = append(locked, t.reports[index-1])
		return nil
	}, "SELECT at FROM unnest($1::bigint[]) WITH ORDINALITY k(key, at) WHERE "+take, keys)
	var id int32
	var name string
	var hub bool
	var resources, edges int
	t.read("reading clusters", []any{&id, &name, &hub, &resources, &edges}, func() error {
		a := byName[name]
		if a.cluster, a.applied.Resources, a.applied.Edges = id, resources, edges; a.removed {
			a.report.Hub = hub
		}
		return nil
	}, "SELECT id, name, hub, resources, edges FROM "+table("clusters")+" WHERE name = ANY($1)", names)
	if err := t.send(ctx); err != nil {
		return nil, err
	}
	for _, a := range t.reports {
		if !slices.Contains(locked, a) {
			omitted = append(omitted, a)
		}
	}
	// A cluster that does not exist is removed already.
	t.reports = slices.DeleteFunc(locked, func(a *application) bool { return a.removed && a.cluster == 0 })
	for _, a := range t.reports {
		if a.cluster == 0 {
			a.created = true
			t.read("creating the cluster", []any{&a.cluster}, func() error { return nil },
				"INSERT INTO "+table("clusters")+" (name, hub, reported, changed) VALUES ($1, $2, $3, 0) RETURNING id",
				escape(a.report.Cluster), a.report.Hub, a.report.Time)
		}
	}
	return omitted, t.send(ctx)
}

// publish writes the rows that contain the versions. It holds the lock of versions until the end of the transaction, so
// that a version becomes visible only after all lower versions.
func (t *transaction) publish(ctx context.Context) error {
	e := t.engine
	var version int64
	t.add("waiting for the lock of versions", "SELECT pg_advisory_xact_lock($1)", lockKey("version", ""))
	t.read("incrementing the version", []any{&version}, func() error { return nil },
		"UPDATE "+table("meta")+" SET version = version + $1 RETURNING version", len(t.reports))
	if err := t.send(ctx); err != nil {
		return err
	}
	for i, a := range t.reports {
		a.applied.Version = uint64(version) - uint64(len(t.reports)-1-i)
	}
	if err := t.each(ctx, (*application).publish); err != nil {
		return err
	}
	t.add("notifying", "SELECT pg_notify($1, $2)", e.channel(), strconv.FormatInt(version, 10))
	return nil
}
