package registration

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

// Values of the label operation of the metric of failures.
const (
	operationGrant     = "grant"
	operationRevoke    = "revoke"
	operationProvision = "provision"
	operationWithdraw  = "withdraw"
	operationCleanUp   = "cleanup"
	operationApprove   = "approve"
)

var (
	acceptances = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "registration_acceptances_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of grants of access to the hub, by driver.",
	}, []string{"driver"})
	denials = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "registration_denials_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of revocations of access to the hub, by driver and reason (Denied or Deleted).",
	}, []string{"driver", "reason"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "hub_apiserver", Name: "registration_failures_total", StabilityLevel: metrics.ALPHA,
		Help: "Number of failed attempts to register or remove managed clusters, by driver and operation (grant, revoke, provision, withdraw, cleanup or approve). Each is retried.",
	}, []string{"driver", "operation"})
	registered = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "registered_clusters", StabilityLevel: metrics.ALPHA,
		Help: "Number of managed clusters with access to the hub, by driver. Only the leading replica reports it.",
	}, []string{"driver"})

	hubProblems = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "registration_hub_problems", StabilityLevel: metrics.ALPHA,
		Help: "Number of missing prerequisites of a registration driver on the hub, by driver. Clusters of the driver get no access until it is 0.",
	}, []string{"driver"})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(acceptances, denials, failures, registered, hubProblems)
	})
)

func driverOf(record *registerv1alpha1.ManagedClusterRegistration) string {
	if record == nil {
		return ""
	}
	return string(record.Spec.Driver)
}

func countFailure(record *registerv1alpha1.ManagedClusterRegistration, operation string) {
	failures.WithLabelValues(driverOf(record), operation).Inc()
}

// census counts the clusters with access by driver.
type census struct {
	mu       sync.Mutex
	byName   map[string]string
	byDriver map[string]int
}

func newCensus() *census {
	return &census{byName: map[string]string{}, byDriver: map[string]int{}}
}

// set records the driver of a cluster with access. An empty driver means no access.
func (c *census) set(cluster, driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.byName[cluster]
	if before == driver {
		return
	}
	delete(c.byName, cluster)
	if driver != "" {
		c.byName[cluster] = driver
	}
	c.count(before, -1)
	c.count(driver, 1)
}

func (c *census) count(driver string, by int) {
	if driver == "" {
		return
	}
	c.byDriver[driver] += by
	registered.WithLabelValues(driver).Set(float64(c.byDriver[driver]))
}

// reset removes all clusters, since another replica leads.
func (c *census) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for driver := range c.byDriver {
		registered.WithLabelValues(driver).Set(0)
	}
	clear(c.byName)
	clear(c.byDriver)
}
