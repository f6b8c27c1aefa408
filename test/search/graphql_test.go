package search

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const graphqlPath = "/apis/search.open-cluster-management.io/v1alpha1/graphql"

// graphqlAnswer contains the fields of a response that public clients read.
type graphqlAnswer struct {
	Errors []struct{ Message string }
	Data   struct {
		Search []struct {
			Count   int
			Items   []map[string]any
			Related []struct {
				Kind  string
				Count int
				Items []map[string]any
			}
		}
		SearchComplete []string
		Messages       []struct{ ID, Kind, Description string }
		SearchSchema   struct{ AllProperties []string }
		Watch          struct {
			UID, Operation   string
			NewData, OldData map[string]any
		}
	}
}

func graphqlPost(ctx context.Context, client versioned.Interface, query string, variables map[string]any) (*graphqlAnswer, error) {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return nil, err
	}
	content, err := client.SearchV1alpha1().RESTClient().Post().AbsPath(graphqlPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", content, err)
	}
	answer := &graphqlAnswer{}
	if err := json.Unmarshal(content, answer); err != nil {
		return nil, fmt.Errorf("%s: %w", content, err)
	}
	return answer, nil
}

// consoleQuery is a query that a console sends.
const consoleQuery = `query items($input: [SearchInput]) { search(input: $input) { count items related { kind count items } } }`

func TestSearchWithGraphQL(t *testing.T) { onShared(t, searchWithGraphQL) }

func searchWithGraphQL(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	// Consoles use a token of the hub.
	console := newAccountCaller(t, s.Hub, "default", framework.Unique("console"))
	revokeSearch := console.maySearch(t)
	revoke := console.views(t, s.seen.name)
	finds(t, console.OCM, "kind:Node", "node.node-1")
	ask := func(t *testing.T, query string, variables map[string]any) *graphqlAnswer {
		t.Helper()
		return framework.Must(graphqlPost(t.Context(), console.OCM, query, variables))(t)
	}
	input := func(filters map[string][]string, keywords ...string) map[string]any {
		var list []map[string]any
		for property, values := range filters {
			list = append(list, map[string]any{"property": property, "values": values})
		}
		return map[string]any{"filters": list, "keywords": keywords}
	}
	names := func(items []map[string]any) []string {
		out := []string{}
		for _, item := range items {
			out = append(out, fmt.Sprint(item["name"]))
		}
		slices.Sort(out)
		return out
	}
	t.Run("search", func(t *testing.T) {
		got := ask(t, consoleQuery, map[string]any{"input": []any{
			input(map[string][]string{"kind": {"Pod"}, "status": {"!=Running"}}), input(nil, "nginx", "crash"), input(map[string][]string{"cluster": {s.hidden.name}}),
		}})
		results := got.Data.Search
		if len(got.Errors) > 0 || len(results) != 3 || results[0].Count != 3 || !slices.Equal(names(results[0].Items), []string{"bare", "job-x", "web-1-b"}) ||
			results[1].Count != 1 || results[2].Count != 0 || len(results[2].Items) != 0 {
			t.Fatalf("answer = %+v, want three results with counts 3, 1 and 0", got)
		}
		item := results[1].Items[0]
		for property, want := range map[string]any{"_uid": s.seen.name + "/pod.payments.web-1-b", "cluster": s.seen.name, "restarts": "10", "label": "app=web", "image": "nginx:1.27"} {
			if item[property] != want {
				t.Errorf("property %s = %v, want %v", property, item[property], want)
			}
		}
	})
	t.Run("order, limit and offset", func(t *testing.T) {
		pods := input(map[string][]string{"kind": {"Pod"}, "restarts": {">=0"}})
		pods["orderBy"], pods["limit"], pods["offset"] = "restarts desc", 2, 1
		result := ask(t, consoleQuery, map[string]any{"input": []any{pods}}).Data.Search[0]
		if result.Count != 3 || len(result.Items) != 2 || result.Items[0]["name"] != "job-x" || result.Items[1]["name"] != "web-1-a" {
			t.Errorf("result = %+v, want items job-x and web-1-a of 3", result)
		}
	})
	t.Run("related", func(t *testing.T) {
		of := input(map[string][]string{"kind": {"ReplicaSet"}})
		of["relatedKinds"] = []string{"Pod"}
		result := ask(t, consoleQuery, map[string]any{"input": []any{of}}).Data.Search[0]
		if len(result.Related) != 1 || result.Related[0].Count != 2 || !slices.Equal(names(result.Related[0].Items), []string{"web-1-a", "web-1-b"}) {
			t.Errorf("related = %+v, want Pods web-1-a and web-1-b", result.Related)
		}
		// The limit applies to the related items of each kind.
		of["limit"] = 1
		result = ask(t, consoleQuery, map[string]any{"input": []any{of}}).Data.Search[0]
		if len(result.Related) != 1 || result.Related[0].Count != 2 || len(result.Related[0].Items) != 1 {
			t.Errorf("related with limit 1 = %+v, want one of two Pods", result.Related)
		}
	})
	t.Run("searchComplete", func(t *testing.T) {
		if got := ask(t, `{searchComplete(property: "label", query: {filters: [{property: "kind", values: ["!Cluster"]}]})}`, nil).Data.SearchComplete; !slices.Equal(got, []string{"app=job", "app=web", "tier=front"}) {
			t.Errorf("searchComplete(label) = %q, want app=job, app=web and tier=front", got)
		}
		if got := ask(t, `{searchComplete(property: "restarts")}`, nil).Data.SearchComplete; !slices.Equal(got, []string{"isNumber", "0", "10"}) {
			t.Errorf("searchComplete(restarts) = %q, want isNumber, 0 and 10", got)
		}
	})
	t.Run("searchSchema", func(t *testing.T) {
		got := ask(t, `{searchSchema}`, nil).Data.SearchSchema.AllProperties
		if len(got) < 7 || !slices.Equal(got[:6], []string{"cluster", "kind", "label", "name", "namespace", "status"}) || !slices.Contains(got, "restarts") || slices.Contains(got, "onlysecretshave") {
			t.Errorf("searchSchema = %q, want the standard properties first, restarts, and no property of Secrets", got)
		}
	})
	t.Run("messages", func(t *testing.T) {
		const query = `{messages {id kind description}}`
		if got := ask(t, query, nil); len(got.Errors) > 0 || len(got.Data.Messages) > 0 {
			t.Errorf("messages = %+v, want none", got)
		}
		absent := s.SilentCluster(t)
		defer console.views(t, absent)()
		framework.Eventually(t, "a message names the cluster without reports", func(ctx context.Context) error {
			got, err := graphqlPost(ctx, console.OCM, query, nil)
			if err != nil {
				return err
			}
			if messages := got.Data.Messages; len(messages) != 1 || messages[0].ID != "S20" || !strings.Contains(messages[0].Description, absent) {
				return fmt.Errorf("messages = %+v", messages)
			}
			return nil
		})
	})
	t.Run("by GET", func(t *testing.T) {
		content, err := console.OCM.SearchV1alpha1().RESTClient().Get().AbsPath(graphqlPath).Param("query", `{searchComplete(property: "cluster")}`).Do(t.Context()).Raw()
		if err != nil || !strings.Contains(string(content), `["`+s.seen.name+`"]`) {
			t.Errorf("GET = %s, %v, want cluster %s", content, err, s.seen.name)
		}
	})
	t.Run("without filters and keywords", func(t *testing.T) {
		content, err := console.OCM.SearchV1alpha1().RESTClient().Post().AbsPath(graphqlPath).SetHeader("Content-Type", "application/json").
			Body([]byte(`{"query":"{search(input: [{}]) {count}}"}`)).Do(t.Context()).Raw()
		if !strings.Contains(string(content), "must contain a filter or keyword") {
			t.Errorf("search without filters and keywords = %s, %v, want an error that requires one", content, err)
		}
	})
	t.Run("watch", func(t *testing.T) { s.graphqlWatches(t, console, revoke, revokeSearch) })
}

// graphqlWatches checks a subscription through the hub, as a console uses it. revoke revokes the permission to view, and
// revokeSearch the permission to search.
func (s *smallFleet) graphqlWatches(t *testing.T, console *caller, revoke, revokeSearch func()) {
	tlsConfig := framework.Must(rest.TLSConfigFor(console.Config))(t)
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: await.Patience}
	url := strings.Replace(console.Config.Host, "https://", "wss://", 1) + graphqlPath
	connection, response, err := dialer.DialContext(t.Context(), url, http.Header{"Authorization": {"Bearer " + console.Config.BearerToken}})
	if err != nil {
		t.Fatalf("%v: %+v", err, response)
	}
	// The server closes the connection at the end.
	defer func() { _ = connection.Close() }()
	if err := connection.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	send := func(message any) {
		t.Helper()
		if err := connection.WriteJSON(message); err != nil {
			t.Fatal(err)
		}
	}
	// receive returns the next message of a type.
	receive := func(typed string) *graphqlAnswer {
		t.Helper()
		for {
			var message struct {
				Type    string
				Payload json.RawMessage
			}
			if err := connection.ReadJSON(&message); err != nil {
				t.Fatal(err)
			}
			switch message.Type {
			case typed:
				answer := &graphqlAnswer{}
				if len(message.Payload) > 0 {
					if err := json.Unmarshal(message.Payload, answer); err != nil {
						t.Fatal(err)
					}
				}
				return answer
			case "error", "complete":
				t.Fatalf("message = %s %s, want %s", message.Type, message.Payload, typed)
			}
		}
	}
	send(map[string]any{"type": "connection_init"})
	receive("connection_ack")
	send(map[string]any{"id": "1", "type": "subscribe", "payload": map[string]any{
		"query":     `subscription ($input: SearchInput) { watch(input: $input) { uid operation newData oldData timestamp } }`,
		"variables": map[string]any{"input": map[string]any{"filters": []any{map[string]any{"property": "kind", "values": []string{"Widget"}}}}},
	}})

	// The protocol does not confirm a subscription, so the test reports Widgets until the first event arrives.
	ctx, cancel := context.WithCancel(t.Context())
	begun, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(sent)
		for i := 0; ; i++ {
			widget := s.seen.resource("Widget", "shop", fmt.Sprintf("early-%d", i), nil)
			if _, err := s.seen.sync(ctx, inventory.Sync{AddResources: []inventory.Resource{widget}}); err != nil {
				sent <- err
				return
			}
			select {
			case <-begun:
				return
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	defer func() {
		cancel()
		for range sent {
			continue
		}
	}()
	receive("next")
	close(begun)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	marked := func(operation string) *graphqlAnswer {
		t.Helper()
		for {
			answer := receive("next")
			if event := answer.Data.Watch; strings.HasSuffix(event.UID, "/widget.shop.marked") {
				if event.Operation != operation || event.UID != s.seen.name+"/widget.shop.marked" {
					t.Fatalf("event = %+v, want %s of cluster %s", event, operation, s.seen.name)
				}
				return answer
			}
		}
	}
	widget := s.seen.resource("Widget", "shop", "marked", with{"size": 1})
	s.hidden.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.hidden.resource("Widget", "shop", "marked", nil)}})
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{widget}})
	marked("INSERT")
	widget.Properties["size"] = json.RawMessage("2")
	s.seen.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{widget}})
	if event := marked("UPDATE").Data.Watch; fmt.Sprint(event.NewData["size"]) != "2" || fmt.Sprint(event.OldData["size"]) != "1" {
		t.Errorf("event for an update: size in oldData = %v, newData = %v, want 1 and 2", event.OldData["size"], event.NewData["size"])
	}
	s.seen.changes(t, inventory.Sync{DeleteResources: []inventory.Deleted{{UID: widget.UID}}})
	marked("DELETE")
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{widget}})
	marked("INSERT")
	revoke()
	if event := marked("DELETE").Data.Watch; event.NewData != nil || event.OldData["size"] != nil {
		t.Errorf("event for a revoked item: oldData = %v, newData = %v, want no properties", event.OldData, event.NewData)
	}
	send(map[string]any{"id": "1", "type": "complete"})

	// The server closes the connection after the caches of the authorizers have expired.
	revokeSearch()
	if err := connection.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		// The next read returns the error of the connection.
		_ = connection.WriteJSON(map[string]any{"id": fmt.Sprint("late-", i), "type": "subscribe", "payload": map[string]any{"query": "{messages{id}}"}})
		var message struct{ Type string }
		for message.Type != "complete" {
			if err := connection.ReadJSON(&message); err != nil {
				if !websocket.IsCloseError(err, 4403) {
					t.Errorf("connection error = %v, want code 4403", err)
				}
				return
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}
