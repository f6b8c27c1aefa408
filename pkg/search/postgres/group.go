package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
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

// startReports starts the goroutines that apply reports until ctx ends.
func (e *Engine) startReports(ctx context.Context) {
	e.small, e.large = make(chan *application), make(chan *application)
	e.ending = ctx.Done()
	for range smallGroups {
		e.ended.Go(func() { e.applyReports(ctx, e.small, groupedReports) })
	}
	for range largeGroups {
		e.ended.Go(func() { e.applyReports(ctx, e.large, 1) })
	}
}

// apply waits until the report has been applied. If ctx ends while the report waits, the report is dropped. A report that
// waits for another report of its cluster occupies none of the goroutines, so that reports of other clusters continue.
func (e *Engine) apply(ctx context.Context, a *application) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	a.ctx = ctx
	pause := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5}
	for {
		waiting := e.small
		if a.alone {
			waiting = e.large
		}
		select {
		case waiting <- a:
		case <-ctx.Done():
			return fmt.Errorf("waiting for other reports: %w", ctx.Err())
		case <-e.ending:
			return errors.New("the engine is closed")
		}
		// The group has a deadline.
		if again := <-a.done; !again {
			return a.err
		}
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
		}
	}
}

// applyReports applies reports that wait, in groups of at most most reports, until ctx ends.
func (e *Engine) applyReports(ctx context.Context, waiting <-chan *application, most int) {
	for {
		select {
		case first := <-waiting:
			e.applyGroup(groupOf(first, waiting, most))
		case <-ctx.Done():
			return
		}
	}
}

// groupOf returns a report with others that wait. They are of different clusters.
func groupOf(first *application, waiting <-chan *application, most int) []*application {
	group, clusters := []*application{first}, sets.New(first.report.Cluster)
	for len(group) < most {
		select {
		case a := <-waiting:
			if clusters.Has(a.report.Cluster) {
				a.done <- true
				continue
			}
			clusters.Insert(a.report.Cluster)
			group = append(group, a)
		default:
			return group
		}
	}
	return group
}

// applyGroup applies a group of reports in one transaction. Some must be applied again: those of clusters that another
// transaction changes, and if the group fails, each in a transaction of its own.
func (e *Engine) applyGroup(group []*application) {
	ctx := group[0].ctx
	if len(group) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	t := &transaction{engine: e, reports: group}
	omitted, err := t.run(ctx)
	// One report must not make the others fail.
	retry := err != nil && len(group) > 1 && !away(err) && ctx.Err() == nil
	for _, a := range group {
		a.err, a.alone = err, a.alone || retry
		a.done <- retry || slices.Contains(omitted, a)
	}
}

// transaction applies reports of different clusters.
type transaction struct {
	engine  *Engine
	reports []*application
	pipeline
}

// run applies the reports. It returns the reports that it omits, because another transaction changes their clusters.
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

// lock begins the transaction, acquires the locks of the clusters, and reads or creates their rows. It omits reports
// whose locks another transaction holds.
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
	t.read("locking clusters", []any{&index}, func() error {
		locked = append(locked, t.reports[index-1])
		return nil
	}, "SELECT at FROM unnest($1::bigint[]) WITH ORDINALITY k(key, at) WHERE pg_try_advisory_xact_lock(key)", keys)
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
