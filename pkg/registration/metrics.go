package registration

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
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
	hubProblems = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem: "hub_apiserver", Name: "registration_hub_problems", StabilityLevel: metrics.ALPHA,
		Help: "Number of missing prerequisites of a registration driver on the hub, by driver. Clusters of the driver get no access until it is 0.",
	}, []string{"driver"})

	registeredDesc = metrics.NewDesc("hub_apiserver_registered_clusters",
		"Number of managed clusters with access to the hub, by driver. Only the leading replica reports it.", []string{"driver"}, nil, metrics.ALPHA, "")

	registered = &registeredCollector{}
)

func init() {
	legacyregistry.MustRegister(acceptances, denials, failures, hubProblems)
	legacyregistry.CustomMustRegister(registered)
}

func driverOf(record *registerv1alpha1.ManagedClusterRegistration) string {
	if record == nil {
		return ""
	}
	return string(record.Spec.Driver)
}

func countFailure(record *registerv1alpha1.ManagedClusterRegistration, operation string) {
	failures.WithLabelValues(driverOf(record), operation).Inc()
}

// registeredCollector counts the clusters with access in the cache of the running controller.
type registeredCollector struct {
	metrics.BaseStableCollector
	running atomic.Pointer[Controller]
}

// DescribeWithStability implements metrics.StableCollector.
func (r *registeredCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- registeredDesc }

// CollectWithStability implements metrics.StableCollector.
func (r *registeredCollector) CollectWithStability(ch chan<- metrics.Metric) {
	c := r.running.Load()
	if c == nil {
		return
	}
	records, err := c.Registrations.Lister().List(labels.Everything())
	if err != nil {
		return // it only reads a cache
	}
	for _, driver := range c.Drivers {
		var count float64
		for _, record := range records {
			if record.Spec.Driver == driver.Name() && granted(record) {
				count++
			}
		}
		ch <- metrics.NewLazyConstMetric(registeredDesc, metrics.GaugeValue, count, string(driver.Name()))
	}
}
