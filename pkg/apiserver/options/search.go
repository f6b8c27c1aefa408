package options

import (
	"errors"
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
	defaultHubCluster = "local-cluster"
	searchDataFolder  = "search"
)

var searchVisibilities = []visibility.Mode{visibility.Auto, visibility.RBAC, visibility.Reviews}

// Search are the flags of fleet search.
type Search struct {
	// Engine is one of apiserver.SearchEngines.
	Engine string
	// DataDir is where the embedded engine keeps its data; in --data-dir if empty.
	DataDir string
	// PostgresURLFile has the URL of the database of the engine postgres.
	PostgresURLFile string
	// Visibility is one of searchVisibilities.
	Visibility string
	// HubCluster is the cluster that is the hub itself.
	HubCluster string
	// MaxRequestCost is the processor time that the searches of one request may take of the embedded engine.
	MaxRequestCost time.Duration
	// ClusterResources and ClusterBytes bound what is stored of one cluster.
	ClusterResources int
	ClusterBytes     int64
}

func newSearch() Search {
	return Search{
		MaxRequestCost: search.DefaultCost, ClusterResources: ingest.DefaultClusterResources, ClusterBytes: ingest.DefaultClusterBytes,
		Engine: string(apiserver.EmbeddedSearch), Visibility: string(visibility.Auto), HubCluster: defaultHubCluster,
	}
}

func (s *Search) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Engine, "search-engine", s.Engine,
		"What keeps the resources of the fleet: embedded, in this process, for one server; postgres, for several; public-postgres, which reads a database that the public indexer fills and takes no reports itself; or none, for a server without search.")
	fs.StringVar(&s.DataDir, "search-data-dir", s.DataDir,
		"Directory for the data of the embedded search engine. Defaults to the directory search in --data-dir.")
	fs.StringVar(&s.PostgresURLFile, "search-postgres-url-file", s.PostgresURLFile,
		"File with the URL, or the connection string, of the database of the search engines postgres and public-postgres.")
	fs.StringVar(&s.Visibility, "search-visibility", s.Visibility,
		"How it is decided who finds what: RBAC evaluates the hub's roles and bindings in this process; Reviews asks the hub for each kind and namespace, which works with any authorizer; Auto does the first as long as the hub says that RBAC alone decides, and the second otherwise.")
	fs.StringVar(&s.HubCluster, "hub-cluster-name", s.HubCluster,
		"Name of the cluster that is the hub itself. What is reported in the namespace of that name are the hub's own resources, and found by those who may list them there.")
	fs.DurationVar(&s.MaxRequestCost, "search-max-request-cost", s.MaxRequestCost,
		"Maximum processor time that the searches of one request may take, as the embedded search engine estimates it before it evaluates them. A request that needs more is refused.")
	fs.IntVar(&s.ClusterResources, "search-cluster-max-resources", s.ClusterResources,
		"Resources that one cluster may have in search. A report that exceeds it is refused with 413.")
	fs.Int64Var(&s.ClusterBytes, "search-cluster-max-bytes", s.ClusterBytes,
		"About how many bytes of memory the resources of one cluster may take in search. A report that exceeds it is refused with 413.")
}

func (s *Search) validate(embeddedEtcd bool) []error {
	var errs []error
	if s.ClusterResources < 1 || s.ClusterBytes < 1 {
		errs = append(errs, fmt.Errorf("--search-cluster-max-resources and --search-cluster-max-bytes must be at least 1, not %d and %d", s.ClusterResources, s.ClusterBytes))
	}
	engine := apiserver.SearchEngine(s.Engine)
	if !slices.Contains(apiserver.SearchEngines, engine) {
		errs = append(errs, fmt.Errorf("--search-engine must be one of %v, not %q", apiserver.SearchEngines, s.Engine))
	}
	if engine == apiserver.EmbeddedSearch && s.DataDir == "" && !embeddedEtcd {
		errs = append(errs, errors.New("--search-data-dir must be given for the embedded search engine; several servers take --search-engine=postgres, and --search-engine=none does without search"))
	}
	if (engine == apiserver.PostgresSearch || engine == apiserver.PublicPostgresSearch) && s.PostgresURLFile == "" {
		errs = append(errs, fmt.Errorf("--search-postgres-url-file must be given with --search-engine=%s", s.Engine))
	}
	if s.MaxRequestCost <= 0 {
		errs = append(errs, fmt.Errorf("--search-max-request-cost must be positive, not %s", s.MaxRequestCost))
	}
	if !slices.Contains(searchVisibilities, visibility.Mode(s.Visibility)) {
		errs = append(errs, fmt.Errorf("--search-visibility must be one of %v, not %q", searchVisibilities, s.Visibility))
	}
	if problems := apivalidation.ValidateNamespaceName(s.HubCluster, false); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--hub-cluster-name must be the name of a namespace, not %q: %s", s.HubCluster, strings.Join(problems, ", ")))
	}
	return errs
}

// config is the server's configuration of search; nil for a server without.
func (s *Search) config(dataDir string) (*apiserver.SearchConfig, error) {
	config := &apiserver.SearchConfig{
		Engine: apiserver.SearchEngine(s.Engine), DataDir: s.DataDir,
		Visibility: visibility.Mode(s.Visibility), HubCluster: s.HubCluster, MaxRequestCost: s.MaxRequestCost,
		ClusterResources: s.ClusterResources, ClusterBytes: s.ClusterBytes,
		ByClusterPermission: utilfeature.DefaultFeatureGate.Enabled(apiserver.SearchByClusterPermission),
	}
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
	}
	return config, nil
}
