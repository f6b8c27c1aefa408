package search

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres/postgrestest"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// testsOfEngines are the tests that ask the same of every engine; on the embedded one each
// is a test of its own. What two servers share is in TestReplicas.
var testsOfEngines = map[string]func(*testing.T, *fleet){
	"queries":                searchQueries,
	"items":                  searchItemsKeepTheirTypes,
	"pages":                  searchPages,
	"several at once":        searchSeveralAtOnce,
	"related":                searchRelated,
	"warnings":               searchWarnings,
	"completions":            searchCompletions,
	"labels":                 searchCompletesEveryLabel,
	"schemas":                searchSchemas,
	"objects are selected":   fleetResourcesAreSelected,
	"objects":                fleetResourcesAreObjects,
	"objects in chunks":      fleetResourcesInChunks,
	"versions":               fleetResourceVersions,
	"watches":                fleetResourcesAreWatched,
	"informers":              fleetResourcesInAnInformer,
	"graphql":                searchWithGraphQL,
	"grants":                 searchFollowsGrants,
	"roles of the hub":       searchFollowsRolesOfTheHub,
	"clusters come and go":   searchFollowsNewClusters,
	"resources of the hub":   searchOnTheHubIsWhatOneMayList,
	"callers are told apart": searchDoesNotMixCallersUp,
	"Secrets":                searchNeverFindsSecretsOfManagedClusters,
	"reports":                searchReports,
	"many callers at once":   searchByManyCallersAtOnce,
	"reports at a time":      searchReportsOneAtATime,
	"reports that end early": searchReportsThatEndEarly,
	"reports of others":      searchReportsAreOfOnesOwn,
	"impostors":              searchCannotBeTricked,
}

// TestSearchOnPostgres asks of the engine postgres what is asked of the embedded one.
func TestSearchOnPostgres(t *testing.T) {
	t.Parallel()
	url := postgrestest.Start(t)
	s := newSearchServer(t, "--search-engine=postgres", "--search-postgres-url-file="+fileOf(t, "database-url", url+"\n"))
	s.lasting = true
	t.Run("as any engine", func(t *testing.T) {
		for what, test := range testsOfEngines {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				test(t, s.fleet)
			})
		}
	})
	t.Run("after a restart everything is found at once", s.restarts)
	t.Run("what was acknowledged outlasts a kill", s.killed)
	t.Run("while the database is away", func(t *testing.T) { s.databaseIsAway(t, url) })
}

// databaseIsAway: without its database the server says so, to collectors as well, and tells
// nobody where it is. Everything is there again when the database is.
func (s *searchServer) databaseIsAway(t *testing.T, url string) {
	pods := []string{"pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"}
	query := "kind:Pod cluster:" + framework.Cluster1
	finds(t, s.OCM, query, pods...)
	watching := framework.Must(s.OCM.SearchV1alpha1().FleetResources(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{FieldSelector: "kind=Pod"}))(t)
	defer watching.Stop()
	wantEvents(t, watching, watch.Added, pods...)

	config := framework.Must(pgx.ParseConfig(url))(t)
	database := pgx.Identifier{config.Database}.Sanitize()
	config.Database = "postgres"
	admin := framework.Must(pgx.ConnectConfig(t.Context(), config))(t)
	defer func() {
		if err := admin.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	allow := func(yes bool) {
		t.Helper()
		framework.Must(admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", database, yes)))(t)
	}
	allow(false)
	framework.Must(admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "+strings.ReplaceAll(database, `"`, "'")))(t)
	// A client that tries again by itself would wait for what does not come back here.
	hub := s.Hub.AdminConfig()
	hub.Wrap(func(inner http.RoundTripper) http.RoundTripper { return impatient{inner} })
	client := framework.OCMClient(t, hub, nil)
	requests := searchEndpoints(framework.Cluster1)
	maps.Copy(requests, map[string]func(context.Context, versioned.Interface) error{
		"a report": func(ctx context.Context, _ versioned.Interface) error {
			return s.reporter.agent.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(syncPath(framework.Cluster1)).
				SetHeader("Content-Type", "application/json").Body([]byte("{}")).MaxRetries(0).Do(ctx).Error()
		},
	})
	for what, request := range requests {
		if what == "watch fleetresources" || strings.HasSuffix(what, "graphql") {
			continue // they say so in what they stream, or in their answers
		}
		var err error
		// What is known of inventories may be a second old.
		framework.Eventually(t, what+" fails", func(ctx context.Context) error {
			if err = request(ctx, client); err == nil {
				return errors.New("it is answered")
			}
			return nil
		})
		isRefused(t, err, http.StatusServiceUnavailable)
		if _, asked := apierrors.SuggestsClientDelay(err); !asked {
			t.Errorf("%s: it is not told when to come back: %v", what, err)
		}
		if strings.Contains(err.Error(), config.Host) || strings.Contains(err.Error(), config.User+"@") || strings.Contains(err.Error(), "SQLSTATE") {
			t.Errorf("%s tells about the database: %v", what, err)
		}
	}
	answer := framework.Must(graphqlPost(t.Context(), client, `{searchComplete(property: "kind")}`, nil))(t)
	if len(answer.Errors) == 0 || !strings.Contains(fmt.Sprint(answer.Errors), "is not available at the moment") || strings.Contains(fmt.Sprint(answer.Errors), config.Host) || strings.Contains(fmt.Sprint(answer.Errors), "SQLSTATE") {
		t.Errorf("graphql: got %+v", answer)
	}

	allow(true)
	start := time.Now()
	finds(t, s.OCM, query, pods...)
	t.Logf("searches are answered %v after the database is back", time.Since(start).Round(time.Millisecond))
	s.reporter.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.reporter.resource("Pod", "default", "back", nil)}})
	finds(t, s.OCM, query, append(pods, "pod.default.back")...)
	// A watch goes on or ends, so that its client begins again. What it must not is stay silent.
	for event := range untilSilent(t, watching) {
		if object, ok := event.Object.(*searchv1alpha1.FleetResource); event.Type == watch.Error || ok && event.Type == watch.Added && object.Name == "pod.default.back" {
			break
		}
	}
}

// impatient hides from a client when it is to try again, so that it does not. The Status still says so.
type impatient struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// untilSilent are the events of a watch until it ends; the test fails if none comes for long.
func untilSilent(t *testing.T, watching watch.Interface) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for {
			select {
			case event, open := <-watching.ResultChan():
				if !open || !yield(event) {
					return
				}
			case <-time.After(framework.Patience):
				t.Error("the watch tells nothing")
				return
			}
		}
	}
}

// fileOf writes a file in the directory of the test.
func fileOf(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(framework.OwnDir(t), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
