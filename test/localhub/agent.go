package localhub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AgentOptions says how an [Agent] is made. Hub, Managed and Dir are required.
type AgentOptions struct {
	// Hub is the cluster whose works the agent applies.
	Hub *Cluster
	// Managed is the cluster that it applies them to.
	Managed *Cluster
	// ClusterName is the managed cluster's name on the hub; that of Managed if empty.
	ClusterName string
	// Dir keeps the agent's kubeconfigs.
	Dir string
	// LogDir receives the log; <Dir>/logs if empty.
	LogDir string
	// BinDir has the program agent; [BinDir]() if empty.
	BinDir string
	// Args are further arguments, which win over the defaults.
	Args []string
}

// Agent is our agent of one managed cluster.
type Agent struct {
	*Process

	hub, managed                     *Cluster
	clusterName                      string
	hubKubeconfig, clusterKubeconfig string
}

// NewAgent returns an agent, not started.
func NewAgent(opts AgentOptions) (*Agent, error) {
	if opts.LogDir == "" {
		opts.LogDir = filepath.Join(opts.Dir, "logs")
	}
	if opts.BinDir == "" {
		opts.BinDir = BinDir()
	}
	if opts.ClusterName == "" {
		opts.ClusterName = opts.Managed.Name
	}
	path, err := Binary(opts.BinDir, "agent")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	name := opts.ClusterName + " agent"
	a := &Agent{
		hub:               opts.Hub,
		managed:           opts.Managed,
		clusterName:       opts.ClusterName,
		hubKubeconfig:     filepath.Join(dir, "hub.kubeconfig"),
		clusterKubeconfig: filepath.Join(dir, "cluster.kubeconfig"),
	}
	a.Process = &Process{
		Name: name,
		Path: path,
		Args: append([]string{
			"--hub-kubeconfig=" + a.hubKubeconfig,
			"--kubeconfig=" + a.clusterKubeconfig,
			"--cluster-name=" + opts.ClusterName,
			"--health-bind-address=" + address,
		}, opts.Args...),
		LogFile: filepath.Join(opts.LogDir, opts.ClusterName+"-agent.log"),
		Ready:   func(ctx context.Context) error { return httpOK(ctx, "http://"+address+"/readyz") },
	}
	return a, nil
}

func httpOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// Start grants the agent's identities what artifacts/agent says and nothing
// else, writes its kubeconfigs, and starts it as [Process.Start]. Both clusters
// must be running, and the managed cluster must have been accepted by
// [JoinCluster].
func (a *Agent) Start(ctx context.Context) error {
	if err := a.prepare(ctx); err != nil {
		return fmt.Errorf("start %s: %w", a.Name, err)
	}
	return a.Process.Start(ctx)
}

func (a *Agent) prepare(ctx context.Context) error {
	user := AgentUser(a.clusterName)
	if err := a.hub.WriteKubeconfig(a.hubKubeconfig, user, AgentGroup(a.clusterName)); err != nil {
		return err
	}
	grants, err := ReadManifests(filepath.Join(Root(), "artifacts", "agent", "managed"))
	if err != nil {
		return err
	}
	if err := a.managed.Apply(ctx, grants...); err != nil {
		return err
	}
	for _, object := range grants {
		if object.GetKind() != "ServiceAccount" {
			continue
		}
		config, err := a.managed.ServiceAccountConfig(ctx, object.GetNamespace(), object.GetName())
		if err != nil {
			return err
		}
		return writeKubeconfig(a.clusterKubeconfig, a.managed.Name, object.GetName(), config)
	}
	return errors.New("artifacts/agent/managed has no ServiceAccount for the agent")
}

// AgentUser returns the user name of a managed cluster's agent on the hub.
func AgentUser(cluster string) string {
	return AgentGroup(cluster) + ":agent"
}

// AgentGroup returns the group of a managed cluster's agents on the hub.
func AgentGroup(cluster string) string {
	return "system:open-cluster-management:" + cluster
}

// JoinCluster accepts a managed cluster on the hub: its namespace, its
// ManagedCluster, and the agents' right to its works, its accounts and its inventory. The hub
// must serve ManagedClusters. Joining again changes nothing.
func JoinCluster(ctx context.Context, hub *Cluster, name string) error {
	return join(ctx, hub, name, map[string]any{"hubAcceptsClient": true})
}

// JoinRunning is [JoinCluster] for a cluster that has an API server. Its
// ManagedCluster says where that is and what verifies it, as an administrator would.
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
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.open-cluster-management.io/v1",
			"kind":       "ManagedCluster",
			"metadata":   map[string]any{"name": name},
			"spec":       spec,
		}},
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
