package quota

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// nearPercent is the percentage of a limit from which a namespace is near the limit.
const nearPercent = 80

var (
	rejections = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "quota_refusals_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were rejected because of a quota or an object limit, by resource and limit.",
	}, []string{"resource", "limit"})

	bodyRejections = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "body_refusals_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were rejected because their body contains too many values.",
	})

	limitDesc = metrics.NewDesc("hub_apiserver_quota_limit",
		"Quota of each namespace, by resource and limit (objects or bytes).", []string{"resource", "limit"}, nil, metrics.ALPHA, "")
	usedDesc = metrics.NewDesc("hub_apiserver_quota_used_max",
		"Usage of the namespace with the highest usage, by resource and limit (objects or bytes).", []string{"resource", "limit"}, nil, metrics.ALPHA, "")
	nearDesc = metrics.NewDesc("hub_apiserver_quota_namespaces_near_limit",
		"Namespaces that use 80 % or more of a quota, by resource and limit (objects or bytes).", []string{"resource", "limit"}, nil, metrics.ALPHA, "")

	collected = &collector{counters: map[string]*Counter{}}
)

func init() {
	legacyregistry.MustRegister(rejections, bodyRejections)
	legacyregistry.CustomMustRegister(collected)
}

// collector reports the Counters of this process. It aggregates namespaces, since a large hub has
// thousands of them.
type collector struct {
	metrics.BaseStableCollector

	mu       sync.Mutex
	counters map[string]*Counter
}

func (c *collector) add(counter *Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counters[counter.resource.String()] = counter
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- limitDesc
	ch <- usedDesc
	ch <- nearDesc
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, counter := range c.counters {
		counter.collect(ch)
	}
}

func (c *Counter) collect(ch chan<- metrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == nil {
		return
	}
	for _, kind := range []struct {
		name  string
		limit int64
		used  func(*usage) int64
	}{
		{"objects", c.limits.Objects, func(u *usage) int64 { return int64(len(u.objects)) }},
		{"bytes", c.limits.Bytes, func(u *usage) int64 { return u.bytes }},
	} {
		var most, near int64
		for _, u := range c.namespaces {
			used := kind.used(u)
			most = max(most, used)
			if kind.limit > 0 && 100*float64(used) >= nearPercent*float64(kind.limit) {
				near++
			}
		}
		gauge := func(desc *metrics.Desc, value int64) {
			ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, float64(value), c.resource.Resource, kind.name)
		}
		gauge(limitDesc, kind.limit)
		gauge(usedDesc, most)
		gauge(nearDesc, near)
	}
}
