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
	// inFlightPerCore and mutatingPerCore are the default numbers of concurrent requests for each core, up to
	// the defaults of the library.
	inFlightPerCore, maxInFlight = 10, 400
	mutatingPerCore, maxMutating = 5, 200

	minimumWatchMemoryBytes = 1 << 20
)

// defaultWriteRates are far above the needs of GitOps and agents: an agent may report the full quota of
// ManifestWorks of a cluster at once.
var defaultWriteRates = callers.WriteRates{
	Caller:    callers.Rate{Burst: 1 << 20, PerSecond: 8 << 10},
	Cluster:   callers.Rate{Burst: 64 << 20, PerSecond: 2 << 20},
	Namespace: callers.Rate{Burst: 16 << 20, PerSecond: 128 << 10},
	Minimum:   16 << 10,
}

// requestsInFlight returns the defaults of --max-requests-inflight and --max-mutating-requests-inflight for a
// number of cores. API Priority and Fairness divides their sum. With the library default of 600, a server
// with two cores would run the requests of every caller at once, and none of them in time. In
// BenchmarkHostileCallers, 40 and 20 for each core make a get eight times slower than 10 and 5.
func requestsInFlight(cores int) (requests, mutating int) {
	return min(maxInFlight, inFlightPerCore*cores), min(maxMutating, mutatingPerCore*cores)
}

type Requests struct {
	apiserver.RequestLimits
	// WriteRates are the values of Written, by the name of the rate.
	WriteRates map[string]string
}

func newRequests() Requests {
	return Requests{RequestLimits: apiserver.RequestLimits{
		PerCaller: 50, WatchesPerCaller: 300, WatchMemoryBytes: 128 << 20,
	}}
}

func (r *Requests) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&r.PerCaller, "max-requests-inflight-per-caller", r.PerCaller,
		"Maximum number of concurrent requests of one caller. Further requests are refused with status 429. A caller is a user, all ServiceAccounts of a namespace, or all identities of a managed cluster. Watches do not count. The group system:masters is exempt. 0 means no limit.")
	fs.IntVar(&r.WatchesPerCaller, "max-watches-per-caller", r.WatchesPerCaller,
		"Maximum number of open watches of one caller, including GraphQL subscriptions. Further watches are refused with status 429. The group system:masters is exempt. 0 means no limit.")
	fs.StringToStringVar(&r.WriteRates, apiserver.WriteRatesFlag, r.WriteRates,
		"Limits of the bytes that callers write to the objects of one namespace, as rate=quantity such as caller-burst=1Mi. <name>-burst bytes are allowed at once, and <name>-per-second bytes afterwards. The rate caller applies to every caller, and the rate cluster to the identities of a managed cluster. Bytes that exceed it use the rate namespace, which all callers share. Each write counts at least minimum bytes. Further writes are refused with status 429. The group system:masters is exempt. A burst of 0 means no limit. Defaults: "+describeRates()+".")
	fs.Int64Var(&r.WatchMemoryBytes, "search-watch-memory-bytes", r.WatchMemoryBytes,
		"Maximum memory in bytes that all watches of fleetresources and all GraphQL subscriptions hold. One caller may use half of it.")
}

func (r *Requests) validate() []error {
	var errs problems
	errs.addIf(r.PerCaller < 0, "--max-requests-inflight-per-caller must not be negative, not %d", r.PerCaller)
	errs.addIf(r.WatchesPerCaller < 0, "--max-watches-per-caller must not be negative, not %d", r.WatchesPerCaller)
	errs.add(r.writeRates())
	errs.addIf(r.WatchMemoryBytes < minimumWatchMemoryBytes,
		"--search-watch-memory-bytes must be at least %d, not %d", minimumWatchMemoryBytes, r.WatchMemoryBytes)
	return errs
}

// writeRates returns the default rates with the values of the flag.
func (r *Requests) writeRates() (callers.WriteRates, error) {
	rates := defaultWriteRates
	for _, name := range slices.Sorted(maps.Keys(r.WriteRates)) {
		field, known := ratesByName(&rates)[name]
		if !known {
			return rates, fmt.Errorf("--%s: %q is not a rate; supported rates: %s", apiserver.WriteRatesFlag, name, strings.Join(slices.Sorted(maps.Keys(ratesByName(&rates))), ", "))
		}
		var err error
		if *field, err = quota.Parse(r.WriteRates[name]); err != nil {
			return rates, fmt.Errorf("--%s: %s: %w", apiserver.WriteRatesFlag, name, err)
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
	limits := r.RequestLimits
	limits.Written, _ = r.writeRates() // validation has parsed them
	return limits
}
