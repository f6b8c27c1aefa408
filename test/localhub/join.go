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
	"open-cluster-management.io/hub-apiserver/test/await"
)

// JoinCluster creates an accepted ManagedCluster, as an administrator may do before the agent
// exists. It returns when the agents of the cluster have access to its ManifestWorks, accounts
// and inventory on the hub. Our server must serve the hub's ManagedClusters. A second call
// changes nothing.
func JoinCluster(ctx context.Context, hub *Cluster, name string) error {
	return join(ctx, hub, name, map[string]any{"hubAcceptsClient": true})
}

// joinRunning joins a cluster with an API server as [JoinCluster] does. The ManagedCluster contains
// the URL and the CA of the API server, as an agent reports them.
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

// WaitAccepted returns when a hub reports that it has accepted a cluster and that the cluster's
// agents have access. It waits two minutes at most.
func WaitAccepted(ctx context.Context, hub *Cluster, name string) error {
	client, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		cluster, err := client.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
		switch {
		case condition == nil:
			return errors.New("the ManagedCluster has no condition HubAcceptedManagedCluster")
		case condition.Status != metav1.ConditionTrue:
			return fmt.Errorf("%s: %s", condition.Reason, condition.Message)
		}
		return nil
	})
}

// JoinAsOCM creates what the controllers of Open Cluster Management create for a cluster on a hub
// that runs them: the namespace, the ManagedCluster (a custom resource), and the permissions of
// the agents for ManifestWorks, accounts and inventory.
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
		// The agent needs this access until the last ManifestWork is removed.
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

// agentBinding binds a role of artifacts/agent/hub to a cluster's agents in the cluster's namespace.
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
