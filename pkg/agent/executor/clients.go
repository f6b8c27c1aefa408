package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
)

// maxClients bounds the clients that are kept. Making one takes no request.
const maxClients = 500

// clients are clients that act as executors.
type clients struct {
	config *rest.Config
	kept   *lru.Cache
}

func newClients(managed *rest.Config) *clients {
	config := rest.CopyConfig(managed)
	if config.RateLimiter == nil && config.QPS >= 0 {
		// Without one, each client would have a budget of its own.
		qps, burst := config.QPS, config.Burst
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
	return &clients{config: config, kept: lru.New(maxClients)}
}

// of returns the client that acts as an executor.
func (c *clients) of(executor types.NamespacedName) (dynamic.Interface, error) {
	if kept, ok := c.kept.Get(executor); ok {
		return kept.(dynamic.Interface), nil
	}
	config := rest.CopyConfig(c.config)
	// The API server adds the groups that a ServiceAccount has, which it need not
	// exist for.
	config.Impersonate = rest.ImpersonationConfig{UserName: access.UserName(executor)}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	explained := &impersonator{executor: executor, client: client}
	c.kept.Add(executor, explained)
	return explained, nil
}

func (c *clients) forget(executor types.NamespacedName) { c.kept.Remove(executor) }

// impersonator is a client whose errors tell when it is the agent that lacks a
// right, and not the executor.
type impersonator struct {
	executor types.NamespacedName
	client   dynamic.Interface
}

func (i *impersonator) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	client := i.client.Resource(resource)
	return &impersonatedResource{impersonated: impersonated{i, client}, client: client}
}

// explain completes the error of a request that the agent may not make in the
// name of the executor.
func (i *impersonator) explain(err error) error {
	var status *apierrors.StatusError
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) || !strings.Contains(status.ErrStatus.Message, "cannot impersonate") {
		return err
	}
	explained := status.ErrStatus.DeepCopy()
	explained.Message = fmt.Sprintf("the agent may not act as the executor %s: it takes a Role in namespace %q, or a ClusterRole, of the agent with the rule %s, "+
		"or an agent that is started with --executor-mode=%s: %s",
		i.executor, i.executor.Namespace, ruleText(rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{i.executor.Name}, Verbs: []string{"impersonate"},
		}), Review, explained.Message)
	return &apierrors.StatusError{ErrStatus: *explained}
}

type impersonatedResource struct {
	impersonated
	client dynamic.NamespaceableResourceInterface
}

func (r *impersonatedResource) Namespace(namespace string) dynamic.ResourceInterface {
	return &impersonated{r.by, r.client.Namespace(namespace)}
}

type impersonated struct {
	by     *impersonator
	client dynamic.ResourceInterface
}

func (r *impersonated) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	result, err := r.client.Create(ctx, object, options, subresources...)
	return result, r.by.explain(err)
}

func (r *impersonated) Update(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	result, err := r.client.Update(ctx, object, options, subresources...)
	return result, r.by.explain(err)
}

func (r *impersonated) UpdateStatus(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	result, err := r.client.UpdateStatus(ctx, object, options)
	return result, r.by.explain(err)
}

func (r *impersonated) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	return r.by.explain(r.client.Delete(ctx, name, options, subresources...))
}

func (r *impersonated) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, which metav1.ListOptions) error {
	return r.by.explain(r.client.DeleteCollection(ctx, options, which))
}

func (r *impersonated) Get(ctx context.Context, name string, options metav1.GetOptions, subresources ...string) (*unstructured.Unstructured, error) {
	result, err := r.client.Get(ctx, name, options, subresources...)
	return result, r.by.explain(err)
}

func (r *impersonated) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	result, err := r.client.List(ctx, options)
	return result, r.by.explain(err)
}

func (r *impersonated) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	result, err := r.client.Watch(ctx, options)
	return result, r.by.explain(err)
}

func (r *impersonated) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*unstructured.Unstructured, error) {
	result, err := r.client.Patch(ctx, name, kind, data, options, subresources...)
	return result, r.by.explain(err)
}

func (r *impersonated) Apply(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error) {
	result, err := r.client.Apply(ctx, name, object, options, subresources...)
	return result, r.by.explain(err)
}

func (r *impersonated) ApplyStatus(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	result, err := r.client.ApplyStatus(ctx, name, object, options)
	return result, r.by.explain(err)
}
