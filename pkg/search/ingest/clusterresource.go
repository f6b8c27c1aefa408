package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// addonLabel is the prefix of the labels of a ManagedCluster that name its add-ons.
	addonLabel = "feature.open-cluster-management.io/addon-"
	// consoleClaim is the claim with the URL of the console of a cluster.
	consoleClaim = "consoleurl.cluster.open-cluster-management.io"
	// maxConditions bounds the conditions of a ManagedCluster that become properties, because agents
	// write them.
	maxConditions = 64
)

// UpdateCluster stores the resource of kind Cluster if the ManagedCluster or the number of its Nodes
// has changed. If there is no ManagedCluster, Run removes the resource with all others of the cluster, and UpdateCluster
// removes only that of the hub, whose others are kept.
func (h *Handler) UpdateCluster(ctx context.Context, cluster string) error {
	if h.config.Cluster == nil {
		return nil
	}
	properties, err := h.describe(ctx, cluster)
	if err != nil {
		return err
	}
	if properties == nil && !h.hub(cluster) {
		h.resources.Delete(cluster)
		return nil
	}
	if before, known := h.resources.Load(cluster); known && reflect.DeepEqual(before, properties) {
		return nil
	}
	return h.storeResource(ctx, cluster, properties)
}

// storedResource returns the properties of the resource of kind Cluster, after it has been stored. It
// returns nil if there is none.
func (h *Handler) storedResource(ctx context.Context, cluster string) (query.Properties, error) {
	if _, known := h.resources.Load(cluster); !known {
		if err := h.UpdateCluster(ctx, cluster); err != nil {
			return nil, err
		}
	}
	return h.resourceOf(cluster), nil
}

// resourceOf returns the properties of the resource of kind Cluster that this process has stored, or
// nil if it has stored none.
func (h *Handler) resourceOf(cluster string) query.Properties {
	stored, _ := h.resources.Load(cluster)
	properties, _ := stored.(query.Properties)
	return properties
}

// describe returns the properties of a cluster, or nil if it has no ManagedCluster.
func (h *Handler) describe(ctx context.Context, cluster string) (query.Properties, error) {
	managed := h.config.Cluster(cluster)
	if managed == nil {
		return nil, nil
	}
	nodes, err := h.config.Engine.Search(ctx, visibility.Everything(), &search.Request{Query: nodesOf(cluster), Now: h.config.Clock.Now()})
	if err != nil {
		return nil, fmt.Errorf("counting the Nodes of %s: %w", cluster, err)
	}
	return clusterProperties(managed, nodes.Count, h.hub(cluster), h.config.Limits)
}

func nodesOf(cluster string) query.Query {
	return query.Query{Filters: []query.Filter{query.NewFilter(query.Kind, query.Equal, "Node"), query.NewFilter(query.Cluster, query.Equal, cluster)}}
}

// storeResource stores the resource of kind Cluster, or removes it if properties is nil. Another
// server may have done so already.
func (h *Handler) storeResource(ctx context.Context, cluster string, properties query.Properties) error {
	uid := search.ClusterUIDPrefix + cluster
	item, err := search.Get(ctx, h.config.Engine, visibility.Everything(), uid)
	if err != nil {
		return fmt.Errorf("reading %s: %w", uid, err)
	}
	report := &search.Report{Cluster: cluster, Hub: h.hub(cluster)}
	switch {
	case item != nil && properties == nil:
		report.Delete = []string{uid}
	case item != nil:
		before, err := query.DecodeProperties(item.JSON())
		if err == nil && reflect.DeepEqual(before, properties) {
			h.resources.Store(cluster, properties)
			return nil
		}
		fallthrough
	case properties != nil:
		report.Put = []search.Resource{{UID: uid, Properties: properties}}
	}
	if len(report.Put)+len(report.Delete) > 0 {
		if _, err := h.config.Engine.Apply(ctx, report); err != nil {
			return fmt.Errorf("storing %s: %w", uid, err)
		}
		h.known.invalidate()
		h.states.invalidate()
	}
	h.resources.Store(cluster, properties)
	return nil
}

// clusterProperties returns the properties of a cluster. Those that upstream clients use
// have the names of the upstream search service.
func clusterProperties(managed *clusterv1.ManagedCluster, nodes int, hub bool, limits Limits) (query.Properties, error) {
	content := map[string]any{
		query.Name: managed.Name, query.Kind: "Cluster",
		query.KindPlural: "managedclusters", query.APIGroup: clusterv1.GroupName, query.APIVersion: clusterv1.SchemeGroupVersion.Version,
		query.Created: managed.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"),
	}
	set := func(name string, value any, given bool) {
		if given {
			content[name] = value
		}
	}
	addons := map[string]string{}
	for key := range managed.Labels {
		if name, is := strings.CutPrefix(key, addonLabel); is {
			addons[name] = "true"
		}
	}
	set(query.Label, managed.Labels, len(managed.Labels) > 0)
	set("addon", addons, len(addons) > 0)
	cpu, memory := managed.Status.Capacity["cpu"], managed.Status.Capacity["memory"]
	set("cpu", cpu.Value(), !cpu.IsZero())
	set("memory", memory.Value(), !memory.IsZero())
	set("nodes", nodes, nodes > 0)
	set("kubernetesVersion", managed.Status.Version.Kubernetes, managed.Status.Version.Kubernetes != "")
	if configs := managed.Spec.ManagedClusterClientConfigs; len(configs) > 0 {
		set("apiEndpoint", configs[0].URL, configs[0].URL != "")
	}
	for i := range managed.Status.ClusterClaims {
		if claim := &managed.Status.ClusterClaims[i]; claim.Name == consoleClaim {
			set("consoleURL", claim.Value, claim.Value != "")
		}
	}
	for i := range managed.Status.Conditions[:min(len(managed.Status.Conditions), maxConditions)] {
		condition := &managed.Status.Conditions[i]
		if _, taken := content[condition.Type]; !taken && validName(condition.Type) {
			content[condition.Type] = string(condition.Status)
		}
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding the ManagedCluster %s: %w", managed.Name, err)
	}
	if len(encoded) > limits.ResourceBytes {
		return nil, fmt.Errorf("the labels and the status of the ManagedCluster %s have more than %d bytes", managed.Name, limits.ResourceBytes)
	}
	properties, err := query.DecodeProperties(encoded)
	if err != nil {
		return nil, fmt.Errorf("decoding the ManagedCluster %s: %w", managed.Name, err)
	}
	properties, problem := complete(properties, "", "", hub, limits.Properties)
	if problem != "" {
		return nil, fmt.Errorf("the ManagedCluster %s: %s", managed.Name, problem)
	}
	return properties, nil
}
