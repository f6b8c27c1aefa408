package options

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
)

const (
	// minMaxStaleness is in relation to the interval at which replicas are checked.
	minMaxStaleness  = time.Second
	searchDataFolder = "search"
)

var searchVisibilities = []visibility.Mode{visibility.Auto, visibility.RBAC, visibility.Reviews}

type Search struct {
	apiserver.SearchConfig
	// PostgresURLFile is the file with PostgresURL, and PostgresReplicaURLsFile the file with PostgresReplicaURLs.
	PostgresURLFile, PostgresReplicaURLsFile string
}

func newSearch() Search {
	return Search{SearchConfig: apiserver.SearchConfig{
		MaxRequestCost: search.DefaultCost, ClusterResources: ingest.DefaultClusterResources, ClusterBytes: ingest.DefaultClusterBytes,
		Engine: apiserver.EmbeddedSearch, Visibility: visibility.Auto, HubCluster: "local-cluster",
		PostgresMaxStaleness: 5 * time.Second, Console: true,
	}}
}

func (s *Search) addFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&s.Engine), "search-engine", string(s.Engine),
		"Store of the resources of the fleet. embedded: in this process, for one replica. postgres: in PostgreSQL, for several replicas. none: no search.")
	fs.StringVar(&s.DataDir, "search-data-dir", s.DataDir,
		"Directory for the data of the embedded search engine. Defaults to the directory search in --data-dir.")
	fs.StringVar(&s.PostgresURLFile, "search-postgres-url-file", s.PostgresURLFile,
		"File with the URL or the connection string of the database for the search engine postgres.")
	fs.StringVar(&s.PostgresReplicaURLsFile, "search-postgres-replica-urls-file", s.PostgresReplicaURLsFile,
		"File with the URLs or the connection strings of streaming replicas of this database, one per line. Searches, completions and schemas are sent to a replica if its state is recent enough, otherwise to the primary. Lists and watches of fleetresources, subscriptions and reports always use the primary.")
	fs.DurationVar(&s.PostgresMaxStaleness, "search-postgres-max-staleness", s.PostgresMaxStaleness,
		"Maximum age of the state of a replica that answers searches. A replica that lags further behind gets no searches.")
	fs.StringVar((*string)(&s.Visibility), "search-visibility", string(s.Visibility),
		"How the server decides which resources a caller can find. RBAC: it evaluates the roles and bindings of the hub. Reviews: it sends SubjectAccessReviews to the hub for each kind and namespace, which works with any authorizer. Auto: RBAC if the hub uses only RBAC, otherwise Reviews.")
	fs.StringVar(&s.HubCluster, "hub-cluster-name", s.HubCluster,
		"Name of the cluster that is the hub itself. Resources that are reported in the namespace with this name are resources of the hub. Callers find them if they may list them on the hub.")
	fs.DurationVar(&s.MaxRequestCost, "search-max-request-cost", s.MaxRequestCost,
		"Maximum processor time of the searches of one request, as the embedded search engine estimates it before the evaluation. With PostgreSQL, only related items have a cost. Requests that need more are refused.")
	fs.IntVar(&s.ClusterResources, "search-cluster-max-resources", s.ClusterResources,
		"Maximum number of resources of one cluster in search. A report that exceeds it is refused with status 413.")
	fs.Int64Var(&s.ClusterBytes, "search-cluster-max-bytes", s.ClusterBytes,
		"Approximate maximum memory in bytes for the resources of one cluster in search. A report that exceeds it is refused with status 413.")
	fs.BoolVar(&s.Console, "console", s.Console,
		"Serve the console, the page that shows the fleet in a browser, to users with permission to get console in search.open-cluster-management.io.")
}

func (s *Search) validate(embeddedEtcd bool) []error {
	var errs problems
	errs.addIf(s.ClusterResources < 1 || s.ClusterBytes < 1,
		"--search-cluster-max-resources and --search-cluster-max-bytes must be at least 1, not %d and %d", s.ClusterResources, s.ClusterBytes)
	errs.addIf(!slices.Contains(apiserver.SearchEngines, s.Engine),
		"--search-engine must be one of %v, not %q", apiserver.SearchEngines, s.Engine)
	errs.addIf(s.Engine == apiserver.EmbeddedSearch && s.DataDir == "" && !embeddedEtcd,
		"--search-data-dir is required for the embedded search engine; use --search-engine=postgres for several replicas, or --search-engine=none to disable search")
	errs.addIf(s.Engine == apiserver.PostgresSearch && s.PostgresURLFile == "",
		"--search-postgres-url-file is required with --search-engine=%s", s.Engine)
	errs.addIf(s.PostgresReplicaURLsFile != "" && s.Engine != apiserver.PostgresSearch,
		"--search-postgres-replica-urls-file requires --search-engine=%s", apiserver.PostgresSearch)
	errs.addIf(s.PostgresMaxStaleness < minMaxStaleness,
		"--search-postgres-max-staleness must be at least %s, not %s", minMaxStaleness, s.PostgresMaxStaleness)
	errs.addIf(s.MaxRequestCost <= 0, "--search-max-request-cost must be positive, not %s", s.MaxRequestCost)
	errs.addIf(!slices.Contains(searchVisibilities, s.Visibility),
		"--search-visibility must be one of %v, not %q", searchVisibilities, s.Visibility)
	invalid := apivalidation.ValidateNamespaceName(s.HubCluster, false)
	errs.addIf(len(invalid) > 0, "--hub-cluster-name must be a valid name of a namespace, not %q: %s", s.HubCluster, strings.Join(invalid, ", "))
	return errs
}

// config returns the configuration of search, or nil for a server without search.
func (s *Search) config(dataDir string) (*apiserver.SearchConfig, error) {
	config := s.SearchConfig
	config.ByClusterPermission = utilfeature.DefaultFeatureGate.Enabled(apiserver.SearchByClusterPermission)
	switch config.Engine {
	case apiserver.NoSearch:
		return nil, nil
	case apiserver.EmbeddedSearch:
		if config.DataDir == "" {
			config.DataDir = filepath.Join(dataDir, searchDataFolder)
		}
	default:
		content, err := os.ReadFile(s.PostgresURLFile)
		if err != nil {
			return nil, fmt.Errorf("--search-postgres-url-file: %w", err)
		}
		config.PostgresURL = strings.TrimSpace(string(content))
		if config.PostgresReplicaURLs, err = readLines(s.PostgresReplicaURLsFile); err != nil {
			return nil, fmt.Errorf("--search-postgres-replica-urls-file: %w", err)
		}
	}
	return &config, nil
}

// readLines returns the lines of a file that are not empty, or none without a file.
func readLines(file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
