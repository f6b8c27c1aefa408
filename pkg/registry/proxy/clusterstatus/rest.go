// Package clusterstatus serves clusterstatuses/aggregator, to which upstream collectors report the
// resources of their cluster.
package clusterstatus

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	proxyv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
)

// syncPath is the only path below the subresource.
const syncPath = "sync"

// NewREST returns the storage of the parent of the subresource. It has no verbs.
func NewREST() rest.Storage {
	return definition.Base{Object: &proxyv1beta1.ClusterStatus{}, Namespaced: true, Singular: "clusterstatus"}
}

// Aggregator serves clusterstatuses/aggregator.
type Aggregator struct {
	definition.Base
	reports *ingest.Handler
}

var _ rest.Connecter = &Aggregator{}

// NewAggregator returns an Aggregator that passes reports to a handler.
func NewAggregator(reports *ingest.Handler) *Aggregator {
	return &Aggregator{definition.Base{Object: &proxyv1beta1.ClusterStatus{}}, reports}
}

// ConnectMethods implements rest.Connecter.
func (a *Aggregator) ConnectMethods() []string { return []string{http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (a *Aggregator) NewConnectOptions() (runtime.Object, bool, string) {
	return &proxyv1beta1.ClusterStatusProxyOptions{}, true, "path"
}

// Connect implements rest.Connecter. The namespace must be the namespace of the cluster, because
// the agent is authorized there.
func (a *Aggregator) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	at := options.(*proxyv1beta1.ClusterStatusProxyOptions)
	if strings.Trim(at.Path, "/") != syncPath {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("path %q does not exist; post reports to %q", at.Path, syncPath))
	}
	if namespace := request.NamespaceValue(ctx); namespace != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cluster %s must report in its own namespace, not in namespace %s", name, namespace))
	}
	return a.reports.Sync(name), nil
}
