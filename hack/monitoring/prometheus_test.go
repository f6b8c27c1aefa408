package monitoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	// interval is the time between two scrapes, as in the manifests. A test scrapes once in each pause, and stores the
	// samples as if they were an interval apart, so that no range or duration of a rule has to change.
	interval = 30 * time.Second
	pause    = 250 * time.Millisecond
	// leastSteps is the number of steps, an hour, that a test waits at least for an alert.
	leastSteps = int(time.Hour / interval)
)

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// target is an endpoint that is scraped.
type target struct {
	labels map[string]string
	// scrape returns the metrics, in the text format.
	scrape func(context.Context) ([]byte, error)
	// stored are the series of the last scrape.
	stored map[string]labels.Labels
}

// prometheus stores samples and evaluates rules, on a clock that advances by an interval for each step.
type prometheus struct {
	storage *teststorage.TestStorage
	engine  *promql.Engine
	groups  []*rules.Group
	targets []*target
	// used are the metrics in the expressions of the components. The others are not stored.
	used map[string]bool
	// fired collects the alerts that a test lets fire.
	fired map[string]bool

	mu  sync.Mutex
	now time.Time
}

func newPrometheus(t *testing.T, components ...*manifests) *prometheus {
	t.Helper()
	p := &prometheus{storage: teststorage.New(t), used: map[string]bool{}, now: time.Now()}
	p.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: newParser()})
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(p.engine, p.storage), Appendable: p.storage, Queryable: p.storage,
		Context: t.Context(), Logger: promslog.NewNopLogger(), Parser: newParser(), NameValidationScheme: model.UTF8Validation,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	for _, component := range components {
		for _, expression := range component.expressions() {
			parser.Inspect(framework.Must(newParser().ParseExpr(expression))(t), func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					p.used[selector.Name] = true
				}
				return nil
			})
		}
		file := component.ruleFile(t)
		groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
		if len(errs) > 0 {
			t.Fatal(errors.Join(errs...))
		}
		// The alerts use the recorded series of the group before them.
		for _, group := range component.rules.Spec.Groups {
			p.groups = append(p.groups, groups[rules.GroupKey(file, group.Name)])
		}
	}
	return p
}

// step scrapes all targets and evaluates all rules.
func (p *prometheus) step(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(interval)
	for _, target := range p.targets {
		if err := p.store(ctx, target); err != nil {
			return err
		}
	}
	return p.evaluate(ctx)
}

func (p *prometheus) evaluate(ctx context.Context) error {
	var errs []error
	for _, group := range p.groups {
		group.Eval(ctx, p.now)
		for _, rule := range group.Rules() {
			if err := rule.LastError(); err != nil {
				errs = append(errs, fmt.Errorf("rule %s: %w", rule.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// store scrapes a target. As Prometheus does, it ends the series that the target no longer has.
func (p *prometheus) store(ctx context.Context, t *target) error {
	at := p.now.UnixMilli()
	app := p.storage.Appender(ctx)
	up, now := 1.0, map[string]labels.Labels{}
	content, err := t.scrape(ctx)
	if err != nil {
		up = 0
	} else if err := parse(content, p.used, t.labels, func(series labels.Labels, sample float64) error {
		now[series.String()] = series
		_, err := app.Append(0, series, at, sample)
		return err
	}); err != nil {
		return errors.Join(err, app.Rollback())
	}
	errs := []error{add(app, t.with("__name__", "up"), at, up)}
	for name, series := range t.stored {
		if _, ok := now[name]; !ok {
			errs = append(errs, add(app, series, at, math.Float64frombits(value.StaleNaN)))
		}
	}
	t.stored = now
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, app.Rollback())
	}
	return app.Commit()
}

func (t *target) with(name, of string) labels.Labels {
	all := maps.Clone(t.labels)
	all[name] = of
	return labels.FromMap(all)
}

func add(app storage.Appender, series labels.Labels, at int64, sample float64) error {
	_, err := app.Append(0, series, at, sample)
	return err
}

// parse calls visit for each sample of the metrics in a scrape, with the labels of its target.
func parse(content []byte, metrics map[string]bool, of map[string]string, visit func(labels.Labels, float64) error) error {
	parsed := textparse.NewPromParser(content, labels.NewSymbolTable(), false)
	for {
		entry, err := parsed.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		text, _, sample := parsed.Series()
		if name, _, _ := bytes.Cut(text, []byte("{")); !metrics[string(name)] {
			continue
		}
		var series labels.Labels
		parsed.Labels(&series)
		builder := labels.NewBuilder(series)
		for name, of := range of {
			if own := series.Get(name); own != "" {
				builder.Set("exported_"+name, own)
			}
			builder.Set(name, of)
		}
		if err := visit(builder.Labels(), sample); err != nil {
			return err
		}
	}
}

// query returns the result of an instant query.
func (p *prometheus) query(ctx context.Context, expression string) (promql.Vector, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query, err := p.engine.NewInstantQuery(ctx, p.storage, nil, expression, p.now)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Vector()
}

// firing returns the names of the alerts that fire, sorted.
func (p *prometheus) firing() []string {
	var names []string
	for _, group := range p.groups {
		for _, rule := range group.AlertingRules() {
			if rule.State() == rules.StateFiring {
				names = append(names, rule.Name())
			}
		}
	}
	slices.Sort(names)
	return names
}

// fires steps until an alert fires. Before each step, it calls during, which keeps the cause alive.
func (p *prometheus) fires(t *testing.T, during func(context.Context), alerts ...string) {
	t.Helper()
	p.until(t, during, fmt.Sprintf("the alerts %q fire", alerts), func() error {
		firing := p.firing()
		for _, alert := range alerts {
			if !slices.Contains(firing, alert) {
				return fmt.Errorf("firing alerts = %q, want %q", firing, alert)
			}
			p.fired[alert] = true
		}
		return nil
	})
}

// until steps until check returns nil. The test fails if that takes longer than [await.Patience] and an hour of steps.
func (p *prometheus) until(t *testing.T, during func(context.Context), what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(await.Patience)
	for steps := 0; ; steps++ {
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
		if during != nil {
			during(t.Context())
		}
		err := p.step(t.Context())
		if err == nil {
			err = check()
		}
		if err == nil {
			return
		}
		// On a busy machine, a rule needs more time for the steps of its range and duration.
		if steps >= leastSteps && time.Now().After(deadline) {
			t.Fatalf("waiting until %s: %v after %d steps", what, err, steps)
		}
	}
}

// feed stores series in the notation of Prometheus' tests, one value for each interval, and evaluates the rules.
func (p *prometheus) feed(t *testing.T, series ...string) {
	t.Helper()
	steps := 0
	values := make([][]parser.SequenceValue, len(series))
	names := make([]labels.Labels, len(series))
	for i, text := range series {
		var err error
		if names[i], values[i], err = newParser().ParseSeriesDesc(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		steps = max(steps, len(values[i]))
	}
	for step := range steps {
		p.now = p.now.Add(interval)
		app := p.storage.Appender(t.Context())
		for i := range series {
			if step < len(values[i]) && !values[i][step].Omitted {
				if err := add(app, names[i], p.now.UnixMilli(), values[i][step].Value); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := p.evaluate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// unknown returns the names of metrics and the labels in an expression that no stored series has.
func (p *prometheus) unknown(ctx context.Context, expression string) ([]string, error) {
	parsed, err := newParser().ParseExpr(expression)
	if err != nil {
		return nil, err
	}
	var missing []string
	known := map[string]map[string]bool{}
	var names []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			name := node.Name
			names = append(names, name)
			if known[name] == nil {
				if known[name], err = p.labelsOf(ctx, name); err != nil {
					return err
				}
			}
			if len(known[name]) == 0 {
				missing = append(missing, name)
			}
			for _, matcher := range node.LabelMatchers {
				if !known[name][matcher.Name] {
					missing = append(missing, name+"{"+matcher.Name+"}")
				}
			}
		case *parser.AggregateExpr:
			// The aggregated expression contains the selectors: their labels are known after the inspection.
			inner, innerErr := p.unknownIn(ctx, node)
			missing, err = append(missing, inner...), errors.Join(err, innerErr)
		}
		return err
	})
	if len(names) == 0 {
		missing = append(missing, "no metric in "+strings.TrimSpace(expression))
	}
	return missing, err
}

// unknownIn returns the labels by which an expression aggregates, and that none of its series has.
func (p *prometheus) unknownIn(ctx context.Context, aggregate *parser.AggregateExpr) ([]string, error) {
	all := map[string]bool{}
	var err error
	parser.Inspect(aggregate.Expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found, err := p.labelsOf(ctx, selector.Name)
			maps.Copy(all, found)
			return err
		}
		return nil
	})
	var missing []string
	for _, label := range aggregate.Grouping {
		if !all[label] {
			missing = append(missing, "by ("+label+") of "+aggregate.Expr.String())
		}
	}
	return missing, err
}

// labelsOf returns the labels of a metric.
func (p *prometheus) labelsOf(ctx context.Context, name string) (map[string]bool, error) {
	querier, err := p.storage.Querier(0, p.now.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer func() { _ = querier.Close() }()
	found := map[string]bool{}
	set := querier.Select(ctx, false, nil, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name))
	for set.Next() {
		set.At().Labels().Range(func(l labels.Label) { found[l.Name] = true })
	}
	return found, set.Err()
}
