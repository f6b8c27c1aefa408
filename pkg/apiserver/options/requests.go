package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
)

const (
	// The defaults of the limits of each caller.
	defaultRequestsPerCaller = 50
	defaultWatchesPerCaller  = 300
	defaultWatchMemoryBytes  = 128 << 20

	// inFlightPerCore and mutatingPerCore are how many requests the server runs at a time for each core by
	// default, until they are as many as the library's own defaults.
	inFlightPerCore, maxInFlight = 40, 400
	mutatingPerCore, maxMutating = 20, 200

	minimumWatchMemoryBytes = 1 << 20
)

// requestsInFlight returns the defaults of --max-requests-inflight and --max-mutating-requests-inflight
// on a machine. API Priority and Fairness divides their sum: with the library's 600, two cores would run
// every caller's requests at once, and none of them in time.
func requestsInFlight(cores int) (requests, mutating int) {
	return min(maxInFlight, inFlightPerCore*cores), min(maxMutating, mutatingPerCore*cores)
}

// Requests are the flags that limit each caller.
type Requests struct {
	// PerCaller is how many requests of a caller run at a time, WatchesPerCaller how many watches
	// it has; 0 for no limit.
	PerCaller, WatchesPerCaller int
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
	if r.WatchMemoryBytes < minimumWatchMemoryBytes {
		errs = append(errs, fmt.Errorf("--search-watch-memory-bytes must be at least %d, not %d", minimumWatchMemoryBytes, r.WatchMemoryBytes))
	}
	return errs
}

func (r *Requests) config() apiserver.RequestLimits {
	return apiserver.RequestLimits{PerCaller: r.PerCaller, WatchesPerCaller: r.WatchesPerCaller, WatchMemoryBytes: r.WatchMemoryBytes}
}
