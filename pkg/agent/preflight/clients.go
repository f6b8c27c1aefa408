package preflight

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// maxClients bounds the cached clients. The creation of a client sends no request.
	maxClients = 500
	// maxStatusBytes bounds the part of a response to a forbidden request that is kept in memory.
	maxStatusBytes = 1 << 20
)

// clients are clients that act as executors.
type clients struct {
	config *rest.Config
	cached *lru.Cache
}

func newClients(managed *rest.Config) *clients {
	config := rest.CopyConfig(managed)
	if config.RateLimiter == nil && config.QPS >= 0 {
		// By default, each client has its own limiter. The clients share one instead.
		qps, burst := config.QPS, config.Burst
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	return &clients{config: config, cached: lru.New(maxClients)}
}

// of returns the client that acts as an executor.
func (c *clients) of(executor types.NamespacedName) (dynamic.Interface, error) {
	if cached, ok := c.cached.Get(executor); ok {
		return cached.(dynamic.Interface), nil
	}
	config := rest.CopyConfig(c.config)
	// The API server adds the groups of the ServiceAccount, even if it does not exist.
	config.Impersonate = rest.ImpersonationConfig{UserName: accessreview.UserName(executor)}
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper { return &explainer{transport, executor} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c.cached.Add(executor, client)
	return client, nil
}

func (c *clients) forget(executor types.NamespacedName) { c.cached.Remove(executor) }

// explainer adds the missing rule to the error if the agent is not allowed to impersonate the
// executor.
type explainer struct {
	http.RoundTripper
	executor types.NamespacedName
}

func (e *explainer) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := e.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusForbidden {
		return response, err
	}
	read, err := io.ReadAll(io.LimitReader(response.Body, maxStatusBytes))
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(read, &status) == nil && strings.Contains(status.Message, "cannot impersonate") {
		rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{e.executor.Name}, Verbs: []string{"impersonate"}}
		status.Message = fmt.Sprintf("the agent cannot act as the executor %s; grant it to the agent with %s, or start the agent with --executor-mode=%s: %s",
			e.executor, rbac.RoleText(e.executor.Namespace, rule), Review, status.Message)
		if read, err = json.Marshal(status); err != nil {
			response.Body.Close()
			return nil, err
		}
		response.ContentLength = int64(len(read))
	}
	response.Body = &replayed{io.MultiReader(bytes.NewReader(read), response.Body), response.Body}
	return response, nil
}

// replayed is a response body that can be read from the start after a part of it was read.
type replayed struct {
	io.Reader
	io.Closer
}
