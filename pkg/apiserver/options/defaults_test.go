package options

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// TestDocumentedDefaults checks the defaults of flags that pages in docs name.
func TestDocumentedDefaults(t *testing.T) {
	sets := New().Flags()
	for name, want := range map[string]string{
		// operating.md
		"authorization-webhook-cache-authorized-ttl": "10s",
		"cluster-drain-timeout":                      "10m0s",
		"data-quota-bytes":                           strconv.Itoa(8 << 30),
		"delete-collection-workers":                  "10",
		"etcd-compaction-interval":                   "1m0s",
		"max-requests-inflight-per-caller":           "50",
		"max-watches-per-caller":                     "300",
		"nil-executor":                               "Allow",
		"search-max-request-cost":                    "1s",
		"search-watch-memory-bytes":                  strconv.Itoa(128 << 20),
		"serving-certificate-validity":               "2160h0m0s",
		// backup.md
		"snapshot-interval": "0s",
		"snapshot-keep":     "14",
		// limits.md
		"managed-serviceaccount-max-validity": "87600h0m0s",
		"manifest-limit-bytes":                strconv.Itoa(500 << 10),
		"registration-max-requests":           "100",
		"search-cluster-max-bytes":            strconv.Itoa(1 << 30),
		"search-cluster-max-resources":        "500000",
		// search.md
		"search-postgres-max-staleness": "5s",
	} {
		var flag *pflag.Flag
		for _, set := range sets.FlagSets {
			if found := set.Lookup(name); found != nil {
				flag = found
			}
		}
		if flag == nil || flag.DefValue != want {
			t.Errorf("--%s = %+v, want the default %s", name, flag, want)
		}
	}
	for rate, want := range map[string]int64{
		"caller-burst": 1 << 20, "caller-per-second": 8 << 10, "cluster-burst": 64 << 20, "cluster-per-second": 2 << 20,
		"namespace-burst": 16 << 20, "namespace-per-second": 128 << 10, "minimum": 16 << 10,
	} {
		requests := newRequests()
		rates, err := requests.writeRates()
		if got := ratesByName(&rates)[rate]; err != nil || got == nil || *got != want {
			t.Errorf("--write-rates: %s = %v, %v, want %d", rate, got, err, want)
		}
	}
}

// TestRequestsInFlight checks the defaults of --max-requests-inflight and --max-mutating-requests-inflight: 10 and 5 for
// each core, at most 400 and 200.
func TestRequestsInFlight(t *testing.T) {
	for cores, want := range map[int][2]int{1: {10, 5}, 2: {20, 10}, 40: {400, 200}, 64: {400, 200}} {
		before := runtime.GOMAXPROCS(cores)
		o := New()
		runtime.GOMAXPROCS(before)
		if got := [2]int{o.ServerRun.MaxRequestsInFlight, o.ServerRun.MaxMutatingRequestsInFlight}; got != want {
			t.Errorf("requests in flight with %d cores = %v, want %v", cores, got, want)
		}
	}
}

// TestDocumentedQuotas checks that docs/limits.md contains the default quotas and limits of objects.
func TestDocumentedQuotas(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(number string) int64 {
		value, err := quota.Parse(strings.ReplaceAll(number, ",", ""))
		if err != nil {
			t.Error(err)
		}
		return value
	}
	documented := map[string]quota.Limits{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| ([0-9,]+) \\| ([0-9]+Mi) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = quota.Limits{Objects: parse(row[2]), Bytes: parse(row[3])}
	}
	rows := map[string]quota.ObjectLimits{}
	for _, row := range apiserver.Resources(apiserver.Dependencies{Quotas: &apiserver.Quotas{}}) {
		if !row.ServerOwned {
			rows[row.Name] = row.Limits
		}
		if row.Quota != documented[row.Name] {
			t.Errorf("quota of %s = %+v, documented: %+v", row.Name, row.Quota, documented[row.Name])
		}
	}

	defaults := quota.DefaultObjectLimits
	number := "([0-9][0-9,]*(?:[KM]i)?)"
	_, objects, _ := strings.Cut(string(page), "## Object limits")
	found := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| .* \\| "+number+"(.*) \\|$").FindAllStringSubmatch(objects, -1)
	if len(found) != len(quota.ObjectLimitKeys()) {
		t.Errorf("documented limits of objects = %d, want %d", len(found), len(quota.ObjectLimitKeys()))
	}
	for _, row := range found {
		check := func(name string, limits quota.ObjectLimits, value string) {
			want := limits
			if err := want.Set(row[1], strings.ReplaceAll(value, ",", "")); err != nil || want != limits {
				t.Errorf("%s of %s = %+v, documented: %s (%v)", row[1], name, limits, value, err)
			}
		}
		check("all resources", defaults, row[2])
		for _, other := range regexp.MustCompile("; ([A-Z][A-Za-z]+) "+number).FindAllStringSubmatch(row[3], -1) {
			limits, ok := rows[strings.ToLower(other[1])]
			if !ok {
				t.Errorf("%s: %s is documented and is no resource", row[1], other[1])
			}
			check(other[1], limits, other[2])
		}
	}
}

func TestSecurePortIsRequired(t *testing.T) {
	o := New()
	o.EmbeddedEtcd.DataDir, o.Recommended.SecureServing.BindPort = t.TempDir(), 0
	completed, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	if err := completed.Validate(); err == nil || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("Validate(--secure-port=0) = %v, want an error that names the flag", err)
	}
}
