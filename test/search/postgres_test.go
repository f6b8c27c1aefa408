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
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

// smokeTests are the tests of the shared fleet that show that the server uses the engine postgres. test/enginetest
// compares the engines. TestReplicas tests two servers with the engine postgres.
var smokeTests = map[string]func(*testing.T, *fleet){
	"queries":               searchQueries,
	"pages":                 searchPages,
	"completions":           searchCompletions,
	"watches":               fleetResourcesAreWatched,
	"reports":               searchReports,
	"callers are separated": searchSeparatesCallers,
}

// TestSearchOnPostgres checks a server with the engine postgres.
func TestSearchOnPostgres(t *testing.T) {
	t.Parallel()
	url := postgrestest.Start(t)
	s := newSearchServer(t, "--search-engine=postgres", "--search-postgres-url-file="+fileOf(t, "database-url", url+"\n"))
	s.lasting = true
	t.Run("smoke tests", func(t *testing.T) {
		for what, test := range smokeTests {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				test(t, s.fleet)
			})
		}
	})
	t.Run("restart", s.restarts)
	t.Run("acknowledged reports survive a kill", s.killed)
	t.Run("database unavailable", func(t *testing.T) { s.databaseUnavailable(t, url) })
}

// databaseUnavailable checks that, without its database, the server returns 503 to all clients, including collectors,
// and does not disclose the address of the database. Once the database is available, requests succeed again.
func (s *searchServer) databaseUnavailable(t *testing.T, url string) {
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
	// client-go retries a 503 with Retry-After. The database stays unavailable, so the test prevents retries.
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
			continue // these report the error in the stream or in the answer
		}
		var err error
		// The inventory is cached for a second.
		framework.Eventually(t, what+" fails", func(ctx context.Context) error {
			if err = request(ctx, client); err == nil {
				return errors.New("the request succeeded")
			}
			return nil
		})
		isRefused(t, err, http.StatusServiceUnavailable)
		if _, asked := apierrors.SuggestsClientDelay(err); !asked {
			t.Errorf("%s: error = %v, want Retry-After", what, err)
		}
		if strings.Contains(err.Error(), config.Host) || strings.Contains(err.Error(), config.User+"@") || strings.Contains(err.Error(), "SQLSTATE") {
			t.Errorf("%s: error = %v, want no details of the database", what, err)
		}
	}
	answer := framework.Must(graphqlPost(t.Context(), client, `{searchComplete(property: "kind")}`, nil))(t)
	if len(answer.Errors) == 0 || !strings.Contains(fmt.Sprint(answer.Errors), "is unavailable") || strings.Contains(fmt.Sprint(answer.Errors), config.Host) || strings.Contains(fmt.Sprint(answer.Errors), "SQLSTATE") {
		t.Errorf("graphql: answer = %+v, want an error that the search is unavailable, without details of the database", answer)
	}

	allow(true)
	start := time.Now()
	finds(t, s.OCM, query, pods...)
	t.Logf("searches succeed %v after the database is available", time.Since(start).Round(time.Millisecond))
	s.reporter.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.reporter.resource("Pod", "default", "back", nil)}})
	finds(t, s.OCM, query, append(pods, "pod.default.back")...)
	// The watch must continue or end. It must not stay open without events.
	for event := range untilSilent(t, watching) {
		if object, ok := event.Object.(*searchv1alpha1.FleetResource); event.Type == watch.Error || ok && event.Type == watch.Added && object.Name == "pod.default.back" {
			break
		}
	}
}

// impatient removes Retry-After from responses, so that the client does not retry. The Status still contains the
// delay.
type impatient struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// untilSilent returns the events of a watch until it ends. The test fails if no event arrives within
// await.Patience.
func untilSilent(t *testing.T, watching watch.Interface) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for {
			select {
			case event, open := <-watching.ResultChan():
				if !open || !yield(event) {
					return
				}
			case <-time.After(await.Patience):
				t.Errorf("the watch returned no event within %s", await.Patience)
				return
			}
		}
	}
}

// fileOf writes a file to the directory of the test.
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
