// Package inventory serves inventories, which show the reported state of each cluster, and the subresource sync, to
// which clusters report.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// REST serves inventories. Callers receive the inventories of the clusters that they may view.
type REST struct {
	definition.Base
	rest.TableConvertor
	reports *ingest.Handler
	scopes  search.Scopes
}

var columns = definition.Columns[*searchv1alpha1.Inventory]{
	{Name: "Name", Description: "Name of the cluster.", Value: func(i *searchv1alpha1.Inventory) any { return i.Name }},
	{Name: "State", Description: "Reporting, Silent, Incomplete or Absent.", Value: func(i *searchv1alpha1.Inventory) any { return string(i.Status.State) }},
	{Name: "Resources", Description: "Number of resources, without Secrets of managed clusters.", Value: func(i *searchv1alpha1.Inventory) any {
		return strconv.FormatInt(i.Status.Resources, 10)
	}},
	{Name: "Relations", Description: "Number of relations between resources.", Value: func(i *searchv1alpha1.Inventory) any {
		return strconv.FormatInt(i.Status.Edges, 10)
	}},
	{Name: "Last Report", Description: "Time since the last report.", Value: func(i *searchv1alpha1.Inventory) any {
		if at := i.Status.LastReportTime; at != nil {
			return duration.HumanDuration(time.Since(at.Time))
		}
		return "<never>"
	}},
}

var (
	_ rest.Getter = &REST{}
	_ rest.Lister = &REST{}
)

// NewREST returns the storage of inventories.
func NewREST(reports *ingest.Handler, scopes search.Scopes) *REST {
	base := definition.Base{Object: &searchv1alpha1.Inventory{}, Objects: &searchv1alpha1.InventoryList{}, Namespaced: true, Singular: "inventory"}
	return &REST{Base: base, TableConvertor: definition.NewBareTableConvertor(columns), reports: reports, scopes: scopes}
}

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	states, err := r.states(ctx)
	if err != nil {
		return nil, err
	}
	for _, state := range states {
		if state.Name == name && request.NamespaceValue(ctx) == name {
			return newObject(state), nil
		}
	}
	return nil, apierrors.NewNotFound(searchv1alpha1.Resource("inventories"), name)
}

// List implements rest.Lister.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	states, err := r.states(ctx)
	if err != nil {
		return nil, err
	}
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	namespace := request.NamespaceValue(ctx)
	list := &searchv1alpha1.InventoryList{Items: []searchv1alpha1.Inventory{}}
	for _, state := range states {
		about := fields.Set{"metadata.name": state.Name, "metadata.namespace": state.Name}
		if (namespace == "" || namespace == state.Name) && byLabel.Matches(labels.Set{}) && byField.Matches(about) {
			list.Items = append(list.Items, *newObject(state))
		}
	}
	slices.SortFunc(list.Items, func(a, b searchv1alpha1.Inventory) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// states returns the states of the clusters that the caller may view.
func (r *REST) states(ctx context.Context) ([]*ingest.State, error) {
	scope, err := serving.Scope(ctx, r.scopes)
	if err != nil {
		return nil, err
	}
	states, err := r.reports.States(ctx)
	if err != nil {
		return nil, serving.Error(ctx, fmt.Errorf("states of the clusters: %w", err))
	}
	var out []*ingest.State
	for i := range states {
		if state := &states[i]; state.Hub && scope.WholeHub() || !state.Hub && scope.Cluster(state.Name) {
			out = append(out, state)
		}
	}
	return out, nil
}

func newObject(state *ingest.State) *searchv1alpha1.Inventory {
	object := &searchv1alpha1.Inventory{ObjectMeta: metav1.ObjectMeta{Namespace: state.Name, Name: state.Name}}
	// The number of Secrets of a managed cluster is confidential.
	object.Status = searchv1alpha1.InventoryStatus{
		State: searchv1alpha1.InventoryReporting, Resources: int64(state.Resources - state.Secrets), Edges: int64(state.Edges),
	}
	switch {
	case state.Absent:
		object.Status.State = searchv1alpha1.InventoryAbsent
	case state.Incomplete:
		object.Status.State = searchv1alpha1.InventoryIncomplete
	case state.Silent:
		object.Status.State = searchv1alpha1.InventorySilent
	}
	if !state.LastReport.IsZero() {
		reported := metav1.NewTime(state.LastReport)
		object.Status.LastReportTime = &reported
	}
	return object
}

// Sync serves inventories/sync, to which clusters report.
type Sync struct {
	definition.Base
	reports *ingest.Handler
}

var _ rest.Connecter = &Sync{}

// NewSync returns the storage of inventories/sync.
func NewSync(reports *ingest.Handler) *Sync {
	return &Sync{Base: definition.Base{Object: &searchv1alpha1.Inventory{}}, reports: reports}
}

// ConnectMethods implements rest.Connecter.
func (s *Sync) ConnectMethods() []string { return []string{http.MethodPost} }

// NewConnectOptions implements rest.Connecter.
func (s *Sync) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// Connect implements rest.Connecter. A cluster reports only in the namespace of its name, where its agent is
// authorized.
func (s *Sync) Connect(ctx context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	if namespace := request.NamespaceValue(ctx); namespace != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cluster %q cannot report in namespace %q", name, namespace))
	}
	return s.reports.Sync(name), nil
}
