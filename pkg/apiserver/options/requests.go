package options

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

const (
	// The defaults of the limits of each caller.
	defaultRequestsPerCaller = 50
	defaultWatchesPerCaller  = 300
	defaultWatchMemoryBytes  = 128 << 20

	// inFlightPerCore and mutatingPerCore are how many requests the server runs at a time for each core by
	// default, until they are as many as the library's own defaults.
	inFlightPerCore, maxInFlight = 10, 400
	mutatingPerCore, maxMutating = 5, 200

	minimumWatchMemoryBytes = 1 << 20
)

// defaultWriteRates are far above what GitOps and agents need: an agent may report a cluster's full quota
// of ManifestWorks at once.
var defaultWriteRates = callers.WriteRates{
	Caller:    callers.Rate{Burst: 1 << 20, PerSecond: 8 << 10},
	Cluster:   callers.Rate{Burst: 64 << 20, PerSecond: 2 << 20},
	Namespace: callers.Rate{Burst: 16 << 20, PerSecond: 128 << 10},
	Minimum:   16 << 10,
}

// requestsInFlight returns the defaults of --max-requests-inflight and --max-mutating-requests-inflight
// on a machine. API Priority and Fairness divides their sum: with the library's 600, two cores would run
// every caller's requests at once, and none of them in time. In BenchmarkHostileCallers, 40 and 20 for each core
// make a get eight times as slow as 10 and 5 do.
func requestsInFlight(cores int) (requests, mutating int) {
	return min(maxInFlight, inFlightPerCore*cores), min(maxMutating, mutatingPerCore*cores)
}

// Requests are the flags that limit each caller.
type Requests struct {
	// PerCaller is how many requests of a caller run at a time, WatchesPerCaller how many watches
	// it has; 0 for no limit.
	PerCaller, WatchesPerCaller int
	// WriteRates are how many bytes callers write to the objects of a namespace, by the name of the rate.
	WriteRates map[string]string
	// WatchMemoryBytes is the memory that all watches of searches may take for what they have to remember.
	WatchMemoryBytes int64
}

func newRequests() Requests {
	return Requests{PerCaller: defaultRequestsPerCaller, WatchesPerCaller: defaultWatchesPerCaller, WatchMemoryBytes: defaultWatchMemoryBytes}
}

func (r *Requests) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&r.PerCaller, "max-requests-inflight-per-caller", r.PerCaller,
		"Maximum number of requests of one caller that run at the same time; more are refused with status 429. A caller is a user, all ServiceAccounts of a namespace, or all identities of a managed cluster. Watches do not count, and the group system:masters is exempt. 0 for no limit.")
	fs.IntVar(&r.WatchesPerCaller, "max-watches-per-caller", r.WatchesPerCaller,
		"Maximum number of watches that one caller has open at the same time, GraphQL subscriptions included; more are refused with status 429. The group system:masters is exempt. 0 for no limit.")
	fs.StringToStringVar(&r.WriteRates, apiserver.WriteRatesFlag, r.WriteRates,
		"Bytes that callers may write to the objects of one namespace, as rate=quantity such as caller-burst=1Mi: <whose>-burst at once and <whose>-per-second afterwards. Every caller has a rate of its own (caller), the identities of a managed cluster share another (cluster), and what exceeds it is taken from that of the namespace (namespace). A write counts minimum bytes at least. More is refused with status 429. The group system:masters is exempt. A burst of 0 is no limit. Defaults: "+describeRates()+".")
	fs.Int64Var(&r.WatchMemoryBytes, "search-watch-memory-bytes", r.WatchMemoryBytes,
		"Maximum memory, in bytes, that all watches of fleetresources and all GraphQL subscriptions take together to remember which resources their clients know. One caller may use half of it.")
}

func (r *Requests) validate() []error {
	var errs []error
	if r.PerCaller < 0 {
		errs = append(errs, fmt.Errorf("--max-requests-inflight-per-caller must not be negative, not %d", r.PerCaller))
	}
	if r.WatchesPerCaller < 0 {
		errs = append(errs, fmt.Errorf("--max-watches-per-caller must not be negative, not %d", r.WatchesPerCaller))
	}
	if _, err := r.writeRates(); err != nil {
		errs = append(errs, fmt.Errorf("--%s: %w", apiserver.WriteRatesFlag, err))
	}
	if r.WatchMemoryBytes < minimumWatchMemoryBytes {
		errs = append(errs, fmt.Errorf("--search-watch-memory-bytes must be at least %d, not %d", minimumWatchMemoryBytes, r.WatchMemoryBytes))
	}
	return errs
}

// writeRates returns the default rates with what the flag says in their place.
func (r *Requests) writeRates() (callers.WriteRates, error) {
	rates := defaultWriteRates
	for _, name := range slices.Sorted(maps.Keys(r.WriteRates)) {
		field, known := ratesByName(&rates)[name]
		if !known {
			return rates, fmt.Errorf("%q is no rate: there are %s", name, strings.Join(slices.Sorted(maps.Keys(ratesByName(&rates))), ", "))
		}
		var err error
		if *field, err = quota.Parse(r.WriteRates[name]); err != nil {
			return rates, fmt.Errorf("%s: %w", name, err)
		}
	}
	return rates, nil
}

func ratesByName(rates *callers.WriteRates) map[string]*int64 {
	return map[string]*int64{
		"caller-burst": &rates.Caller.Burst, "caller-per-second": &rates.Caller.PerSecond,
		"cluster-burst": &rates.Cluster.Burst, "cluster-per-second": &rates.Cluster.PerSecond,
		"minimum": &rates.Minimum, "namespace-burst": &rates.Namespace.Burst, "namespace-per-second": &rates.Namespace.PerSecond,
	}
}

func describeRates() string {
	rates := defaultWriteRates
	var out []string
	for name, value := range ratesByName(&rates) {
		out = append(out, fmt.Sprintf("%s=%d", name, *value))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func (r *Requests) config() apiserver.RequestLimits {
	// Validation has parsed them before.
	rates, _ := r.writeRates()
	return apiserver.RequestLimits{PerCaller: r.PerCaller, WatchesPerCaller: r.WatchesPerCaller, Written: rates, WatchMemoryBytes: r.WatchMemoryBytes}
}
