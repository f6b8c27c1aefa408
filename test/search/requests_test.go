package search

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	allWorksPath = "/apis/work.open-cluster-management.io/v1/"
	// watchesOfACaller is the default of --max-watches-per-caller.
	watchesOfACaller = 300
)

// openStream sends a GET request for a stream. Unlike client-go, it does not retry.
func openStream(ctx context.Context, config *rest.Config, path string) (*http.Response, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// TestWatchesOfACallerAreLimited checks that the server returns 429 for a watch above --max-watches-per-caller, and that
// other callers and other requests are not affected.
func TestWatchesOfACallerAreLimited(t *testing.T) { onShared(t, watchesOfACallerAreLimited) }

func watchesOfACallerAreLimited(t *testing.T, f *fleet) {
	watching := rbacv1.PolicyRule{APIGroups: []string{"work.open-cluster-management.io"}, Resources: []string{"manifestworks"}, Verbs: []string{"list", "watch"}}
	greedy, other := newCaller(t, f.Hub, framework.Unique("greedy")), newCaller(t, f.Hub, framework.Unique("other"))
	for _, c := range []*caller{greedy, other} {
		defer c.May(t, framework.Cluster1, watching)()
	}
	path := allWorksPath + "namespaces/" + framework.Cluster1 + "/manifestworks?watch=true&timeoutSeconds=300"
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var last *http.Response
	var first context.CancelFunc
	for i := range watchesOfACaller + 1 {
		each, cancel := context.WithCancel(ctx)
		defer cancel()
		if i == 0 {
			first = cancel
		}
		var err error
		if last, err = openStream(each, greedy.Config, path); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer last.Body.Close()
		if i < watchesOfACaller && last.StatusCode != http.StatusOK {
			t.Fatalf("status of watch %d = %d, want 200", i, last.StatusCode)
		}
	}
	body, err := io.ReadAll(last.Body)
	if err != nil {
		t.Fatal(err)
	}
	if last.StatusCode != http.StatusTooManyRequests || last.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "--max-watches-per-caller") {
		t.Errorf("watch above the limit: status = %d, Retry-After = %q, body = %s, want 429, Retry-After and the flag", last.StatusCode, last.Header.Get("Retry-After"), body)
	}
	opens := func(c *caller) error {
		response, err := openStream(ctx, c.Config, path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	}
	if err := opens(other); err != nil {
		t.Errorf("watch of another caller: error = %v, want none", err)
	}
	if _, err := greedy.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("list of the caller at the limit of watches: error = %v, want none", err)
	}
	first()
	framework.Eventually(t, "the caller can open a watch after another watch has ended", func(context.Context) error { return opens(greedy) })
}

// TestSelectorsAreLimited checks that the server rejects selectors that are expensive to parse or to match, for stored
// and for virtual resources.
func TestSelectorsAreLimited(t *testing.T) { onShared(t, selectorsAreLimited) }

func selectorsAreLimited(t *testing.T, f *fleet) {
	config := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	values := "a+in+(" + strings.Repeat("v,", 100_000) + "v)"
	for _, resource := range []string{allWorksPath + "manifestworks", "/apis/cluster.open-cluster-management.io/v1/managedclusters", "/apis/" + searchv1alpha1.GroupName + "/v1alpha1/fleetresources", "/apis/rbac.open-cluster-management.io/v1alpha1/clusterpermissions"} {
		for _, query := range []string{
			"labelSelector=" + values, "labelSelector=" + strings.Repeat("!a,", 10_000) + "b", "fieldSelector=" + strings.Repeat("metadata.name=b,", 5_000) + "metadata.name=b",
			"continue=" + strings.Repeat("a", 500_000), "watch=true&labelSelector=" + values,
		} {
			response := framework.Must(openStream(t.Context(), config, resource+"?"+query))(t)
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("%s?%.30s: status %d, want 400", resource, query, response.StatusCode)
			}
			_ = response.Body.Close()
		}
		response := framework.Must(openStream(t.Context(), config, resource+"?limit=1&labelSelector=a+in+("+strings.Repeat("v,", 999)+"v)"))(t)
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s with a selector of 1000 values: status %d, want 200", resource, response.StatusCode)
		}
		_ = response.Body.Close()
	}
}

// stream is an open connection of an agent.
type stream struct {
	what string
	// read returns an error when the stream has ended.
	read func() error
	stop func()
}

// openings returns a function for each way in which an agent can open a stream.
func openings(cluster string, hub, direct *rest.Config) map[string]func(ctx context.Context) (*stream, error) {
	out := map[string]func(ctx context.Context) (*stream, error){}
	for where, config := range map[string]*rest.Config{"through the hub": hub, "directly": direct} {
		for what, path := range map[string]string{
			"a watch":                           allWorksPath + "namespaces/%s/manifestworks?watch=true",
			"a watch with the deprecated path":  allWorksPath + "watch/namespaces/%s/manifestworks",
			"a watch with initial events":       allWorksPath + "namespaces/%s/manifestworks?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
			"a watch from resource version 0":   allWorksPath + "namespaces/%s/manifestworks?watch=true&resourceVersion=0&timeoutSeconds=3600",
			"a watch of ManagedServiceAccounts": "/apis/authentication.open-cluster-management.io/v1beta1/namespaces/%s/managedserviceaccounts?watch=1",
			"a watch of FleetResources":         "/apis/" + searchv1alpha1.GroupName + "/v1alpha1/namespaces/%s/fleetresources?watch=true",
		} {
			path = fmt.Sprintf(path, cluster)
			out[what+" "+where] = func(ctx context.Context) (*stream, error) { return chunked(ctx, config, path) }
			if what == "a watch" {
				old := rest.CopyConfig(config)
				old.NextProtos = []string{"http/1.1"}
				out["a watch by HTTP/1.1 "+where] = func(ctx context.Context) (*stream, error) { return chunked(ctx, old, path) }
				out["a watch by WebSocket "+where] = func(ctx context.Context) (*stream, error) { return upgraded(ctx, config, path, "") }
			}
		}
		for _, protocol := range []string{"graphql-transport-ws", "graphql-ws"} {
			out[protocol+" "+where] = func(ctx context.Context) (*stream, error) { return upgraded(ctx, config, graphqlPath, protocol) }
		}
	}
	return out
}

func chunked(ctx context.Context, config *rest.Config, path string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := openStream(ctx, config, path)
	if err == nil && response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewReader(response.Body)
	return &stream{read: func() error {
		_, err := lines.ReadBytes('\n')
		return err
	}, stop: func() {
		cancel()
		_ = response.Body.Close()
	}}, nil
}

// upgraded opens a WebSocket. If a GraphQL protocol is given, it subscribes to a search.
func upgraded(ctx context.Context, config *rest.Config, path, protocol string) (*stream, error) {
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	secured.NextProtos = []string{"http/1.1"}
	dialer := websocket.Dialer{TLSClientConfig: secured, HandshakeTimeout: await.Patience}
	header := http.Header{}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	} else {
		header.Set("Origin", config.Host)
	}
	connection, response, err := dialer.DialContext(ctx, strings.Replace(config.Host, "https://", "wss://", 1)+path, header)
	if err != nil {
		if response != nil {
			err = fmt.Errorf("status %d: %w", response.StatusCode, err)
		}
		return nil, err
	}
	if protocol != "" {
		begin := map[string]string{"graphql-transport-ws": "subscribe", "graphql-ws": "start"}[protocol]
		payload := map[string]any{"query": `subscription { watch(input: {keywords: ["a"]}) { uid } }`}
		var answer struct{ Type string }
		err := connection.WriteJSON(map[string]string{"type": "connection_init"})
		for err == nil && answer.Type != "connection_ack" {
			err = connection.ReadJSON(&answer)
		}
		if err == nil {
			err = connection.WriteJSON(map[string]any{"id": "1", "type": begin, "payload": payload})
		}
		if err != nil {
			return nil, errors.Join(err, connection.Close())
		}
	}
	return &stream{read: func() error {
		_, _, err := connection.ReadMessage()
		return err
	}, stop: func() { _ = connection.Close() }}, nil
}

// TestDeniedAgentsKeepNoStream checks that streams of every kind that an agent opens before and during the denial of its
// cluster end, and that the agent cannot open new ones.
func TestDeniedAgentsKeepNoStream(t *testing.T) { onShared(t, deniedAgentsKeepNoStream) }

func deniedAgentsKeepNoStream(t *testing.T, f *fleet) {
	r := f.reporter(t)
	// The denial does not revoke this permission to search.
	r.agent.maySearch(t)
	direct := framework.Must(f.Server.UserConfig(localhub.AgentUser(r.name), localhub.AgentGroup(r.name)))(t)
	all := openings(r.name, r.agent.Config, direct)
	var mu sync.Mutex
	open := map[*stream]bool{}
	var opened, refused atomic.Int64
	var following sync.WaitGroup
	follow := func(what string, s *stream) {
		s.what = what
		mu.Lock()
		open[s] = true
		mu.Unlock()
		opened.Add(1)
		following.Go(func() {
			for s.read() == nil {
				continue
			}
			s.stop()
			mu.Lock()
			delete(open, s)
			mu.Unlock()
		})
	}
	for what, begin := range all {
		framework.Eventually(t, what+" can be opened", func(context.Context) error {
			s, err := begin(t.Context())
			if err == nil {
				follow(what, s)
			}
			return err
		})
	}
	first := opened.Load()
	mu.Lock()
	if len(open) != len(all) {
		t.Errorf("open streams before the denial = %d, want %d", len(open), len(all))
	}
	mu.Unlock()
	// Some of these streams are authorized before the denial and start after it.
	opening, stopOpening := context.WithCancel(t.Context())
	defer stopOpening()
	var openers sync.WaitGroup
	for what, begin := range all {
		openers.Go(func() {
			for opening.Err() == nil {
				if s, err := begin(t.Context()); err == nil {
					follow(what+", during the denial", s)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	framework.Eventually(t, fmt.Sprintf("at least %d more streams are opened", len(all)), func(context.Context) error {
		if more := opened.Load() - first; more < int64(len(all)) {
			return fmt.Errorf("%d are opened", more)
		}
		return nil
	})
	if _, err := f.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, begin := range all {
		s, err := begin(t.Context())
		if err == nil {
			s.stop()
		}
		if err == nil || !strings.Contains(err.Error(), "status 403") {
			t.Errorf("opening %s as the agent of a denied cluster = %v, want status 403", what, err)
		}
	}
	stopOpening()
	openers.Wait()
	framework.Eventually(t, "all streams have ended", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		var left []string
		for s := range open {
			left = append(left, s.what)
		}
		slices.Sort(left)
		if len(left) > 0 {
			return errors.New(strings.Join(slices.Compact(left), "; "))
		}
		return nil
	})
	following.Wait()
	t.Logf("%d streams were opened and ended, %d rejected", opened.Load(), refused.Load())
}
