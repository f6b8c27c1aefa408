package localhub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// JoinCluster creates a ManagedCluster that the hub accepts, as an administrator may
// before there is an agent, and returns when its agents have their access there: to its
// works, its accounts and its inventory. Our server must serve the hub's ManagedClusters.
// Joining again changes nothing.
func JoinCluster(ctx context.Context, hub *Cluster, name string) error {
	return join(ctx, hub, name, map[string]any{"hubAcceptsClient": true})
}

// JoinRunning is [JoinCluster] for a cluster that has an API server. Its
// ManagedCluster says where that is and what verifies it, as an agent would.
func JoinRunning(ctx context.Context, hub, managed *Cluster) error {
	return joinRunning(ctx, hub, managed, managed.Name)
}

func joinRunning(ctx context.Context, hub, managed *Cluster, name string) error {
	config := managed.AnonymousConfig()
	return join(ctx, hub, name, map[string]any{
		"hubAcceptsClient": true,
		"managedClusterClientConfigs": []any{map[string]any{
			"url":      config.Host,
			"caBundle": base64.StdEncoding.EncodeToString(config.CAData),
		}},
	})
}

func join(ctx context.Context, hub *Cluster, name string, spec map[string]any) error {
	roles, err := ReadManifests(filepath.Join(Root(), "artifacts", "agent", "hub"))
	if err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	if err := hub.Apply(ctx, append(roles, managedCluster(name, spec))...); err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	if err := WaitAccepted(ctx, hub, name); err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	return nil
}

// WaitAccepted returns when a hub says that it has accepted a cluster: then the
// cluster's agents have their access. It takes two minutes at most.
func WaitAccepted(ctx context.Context, hub *Cluster, name string) error {
	client, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, func(ctx context.Context) (retry, final error) {
		cluster, err := client.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err, nil
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
		switch {
		case condition == nil:
			return errors.New("the hub has not said that it accepts the cluster"), nil
		case condition.Status != metav1.ConditionTrue:
			return fmt.Errorf("%s: %s", condition.Reason, condition.Message), nil
		}
		return nil, nil
	})
}

// JoinAsOCM does for a cluster what the controllers of Open Cluster Management do on
// a hub that runs them, whose ManagedClusters are custom resources: its namespace, its
// ManagedCluster, and the agents' right to its works, its accounts and its inventory.
func JoinAsOCM(ctx context.Context, hub *Cluster, name string) error {
	objects, err := ReadManifests(filepath.Join(Root(), "artifacts", "agent", "hub"))
	if err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	objects = append(objects,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1",
			"kind":       "Namespace",
			"metadata": map[string]any{
				"name":   name,
				"labels": map[string]any{"open-cluster-management.io/cluster-name": name},
			},
		}},
		managedCluster(name, map[string]any{"hubAcceptsClient": true}),
		// The agent needs the access for as long as there are works.
		agentBinding(name, "work", "cluster.open-cluster-management.io/manifest-work-cleanup"),
		agentBinding(name, "serviceaccounts"),
		agentBinding(name, "namespaces"),
		agentBinding(name, "inventory"),
	)
	if err := hub.Apply(ctx, objects...); err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	return nil
}

func managedCluster(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.open-cluster-management.io/v1",
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}}
}

// agentBinding gives a cluster's agents one of the roles of artifacts/agent/hub
// in the cluster's namespace.
func agentBinding(cluster, role string, finalizers ...any) *unstructured.Unstructured {
	metadata := map[string]any{
		"namespace": cluster,
		"name":      "open-cluster-management:managedcluster:" + cluster + ":" + role,
		"labels":    map[string]any{"open-cluster-management.io/cluster-name": cluster},
	}
	if len(finalizers) > 0 {
		metadata["finalizers"] = finalizers
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind":       "RoleBinding",
		"metadata":   metadata,
		"subjects": []any{map[string]any{
			"apiGroup": "rbac.authorization.k8s.io",
			"kind":     "Group",
			"name":     AgentGroup(cluster),
		}},
		"roleRef": map[string]any{
			"apiGroup": "rbac.authorization.k8s.io",
			"kind":     "ClusterRole",
			"name":     "open-cluster-management:managedcluster:" + role,
		},
	}}
}
