// Package demo fills a hub with a believable fleet, for people who look at the product and for the pictures of docs/.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fleetgen"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// Clusters is the number of clusters of the fleet, without the one that waits for acceptance.
	Clusters = 40
	// Waiting is the name of the cluster that waits for acceptance.
	Waiting = "store-0121"
	// Broken is the name of a ManifestWork that is not applied, in the namespace of BrokenOn.
	Broken, BrokenOn = "ingress-nginx", "prod-tokyo-1"

	// perCluster is the number of reported resources; the hub counts them without Secrets.
	perCluster = 580
	// joining bounds the clusters that join at the same time.
	joining  = 8
	leaseFor = "managed-cluster-lease"
	// heartbeat is the interval at which a Fleet renews the Leases of its clusters. The hub declares a cluster unknown
	// after five minutes without.
	heartbeat = time.Minute
	setLabel  = "cluster.open-cluster-management.io/clusterset"
)

// site is a place with clusters.
type site struct {
	set, name, region, environment, product, version string
	nodes                                            int
}

// sites returns the clusters of the fleet: two in each region, those of tests, and one for each store.
func sites() []site {
	var all []site
	regions := []struct{ city, region, version string }{
		{"frankfurt", "eu-central-1", "v1.36.3"}, {"dublin", "eu-west-1", "v1.36.3"}, {"virginia", "us-east-1", "v1.36.3"},
		{"oregon", "us-west-2", "v1.35.7"}, {"mumbai", "ap-south-1", "v1.35.7"}, {"tokyo", "ap-northeast-1", "v1.36.3"}, {"saopaulo", "sa-east-1", "v1.35.7"},
	}
	for i, r := range regions {
		for n := range 2 {
			all = append(all, site{"production", fmt.Sprintf("prod-%s-%d", r.city, n+1), r.region, "prod", "EKS", r.version, 9 + 3*n})
		}
		if i < 6 {
			all = append(all, site{"staging", "staging-" + r.city, r.region, "staging", "EKS", "v1.37.2", 3})
		}
	}
	for n := 1; len(all) < Clusters; n++ {
		version := "v1.35.7+k3s1"
		if n > 14 {
			version = "v1.36.3+k3s1"
		}
		all = append(all, site{"stores", "store-" + fmt.Sprintf("%04d", 100+n), "edge", "prod", "K3s", version, 1})
	}
	return all
}

// Away reports whether a cluster of the fleet does not respond.
func Away(name string) bool { return name == "prod-mumbai-2" || name == "store-0113" }

// Fleet is a fleet that Fill has created. This process acts for the agents of its clusters, which have no API servers.
type Fleet struct {
	hub    *localhub.Cluster
	admin  *versioned.Clientset
	agents []*agent
}

// agent acts for the agent of a cluster.
type agent struct {
	site
	ocm  *versioned.Clientset
	kube *kubernetes.Clientset
}

// Fill creates the fleet on a hub that has none of its clusters, or completes it.
func Fill(ctx context.Context, hub *localhub.Cluster) (*Fleet, error) {
	admin, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return nil, err
	}
	f := &Fleet{hub: hub, admin: admin}
	roles, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", "hub"))
	if err != nil {
		return nil, err
	}
	if err := hub.Apply(ctx, roles...); err != nil {
		return nil, err
	}
	for _, set := range []string{"production", "staging", "stores"} {
		_, err := admin.ClusterV1beta2().ManagedClusterSets().Create(ctx, &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: set}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("demo: ManagedClusterSet %s: %w", set, err)
		}
	}
	all := sites()
	f.agents = make([]*agent, len(all))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(joining)
	for i, s := range all {
		group.Go(func() error {
			if err := f.join(within, i, s); err != nil {
				return fmt.Errorf("demo: cluster %s: %w", s.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := f.create(ctx, site{name: Waiting}, false); err != nil {
		return nil, err
	}
	return f, f.deliver(ctx)
}

// create creates a ManagedCluster.
func (f *Fleet) create(ctx context.Context, s site, accept bool) error {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: accept}}
	if s.set != "" {
		cluster.Labels = map[string]string{setLabel: s.set, "region": s.region, "environment": s.environment, "vendor": s.product}
	}
	_, err := f.admin.ClusterV1().ManagedClusters().Create(ctx, cluster, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// join creates an accepted cluster, and reports for it.
func (f *Fleet) join(ctx context.Context, index int, s site) error {
	if err := f.create(ctx, s, true); err != nil {
		return err
	}
	if err := localhub.WaitAccepted(ctx, f.hub, s.name); err != nil {
		return err
	}
	config, err := f.hub.UserConfig(localhub.AgentUser(s.name), localhub.AgentGroup(s.name), clusterv1.AllAgentsGroup)
	if err != nil {
		return err
	}
	a := &agent{site: s}
	if a.ocm, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	f.agents[index] = a
	return errors.Join(a.report(ctx), a.renew(ctx), a.inventory(ctx, index+1))
}

// report writes the status of the ManagedCluster.
func (a *agent) report(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		clusters := a.ocm.ClusterV1().ManagedClusters()
		cluster, err := clusters.Get(ctx, a.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		capacity := func(percent int64) clusterv1.ResourceList {
			nodes := int64(a.nodes)
			return clusterv1.ResourceList{
				"cpu":    *resource.NewMilliQuantity(nodes*80*percent, resource.DecimalSI),
				"memory": *resource.NewQuantity(nodes*percent*32<<20, resource.BinarySI),
			}
		}
		cluster.Status.Version.Kubernetes, cluster.Status.Capacity, cluster.Status.Allocatable = a.version, capacity(100), capacity(94)
		cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{
			{Name: "id.k8s.io", Value: "demo-" + a.name}, {Name: "kubeversion.open-cluster-management.io", Value: a.version},
			{Name: "product.open-cluster-management.io", Value: a.product}, {Name: "region.open-cluster-management.io", Value: a.region},
			{Name: "nodes.example.com", Value: strconv.Itoa(a.nodes)},
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, condition(clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, "ManagedClusterJoined", "The agent of the cluster has joined the hub"))
		available := condition(clusterv1.ManagedClusterConditionAvailable, metav1.ConditionTrue, "ManagedClusterAvailable", "The cluster's API server is healthy")
		if Away(a.name) {
			// The hub says so five minutes after the last renewal that it has seen.
			available.Status, available.Reason, available.Message = metav1.ConditionUnknown, "ManagedClusterLeaseUpdateStopped", "The agent has not renewed its Lease"
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, available)
		_, err = clusters.UpdateStatus(ctx, cluster, metav1.UpdateOptions{})
		return err
	})
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// renew writes the Lease by which the hub notices that a cluster is away.
func (a *agent) renew(ctx context.Context) error {
	leases, renewed := a.kube.CoordinationV1().Leases(a.name), metav1.NowMicro()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease, err := leases.Get(ctx, leaseFor, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseFor}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, metav1.CreateOptions{})
			return err
		}
		if err == nil {
			lease.Spec.RenewTime = &renewed
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		return err
	})
}

// inventory reports the resources of the cluster.
func (a *agent) inventory(ctx context.Context, index int) error {
	body, err := fleetgen.Sync(fleetgen.Cluster(fleetgen.Options{Clusters: Clusters + 1, PerCluster: perCluster, Name: a.name, Now: time.Now()}, index))
	if err != nil {
		return err
	}
	// The agent's permission is as new as the cluster.
	return await.Poll(ctx, func(ctx context.Context) error {
		return a.ocm.SearchV1alpha1().RESTClient().Post().Namespace(a.name).Resource("inventories").Name(a.name).SubResource("sync").
			SetHeader("Content-Type", "application/json").SetHeader(inventory.OverwriteHeader, "true").Body(body).Do(ctx).Error()
	})
}

// deliver creates ClusterPermissions and ManifestWorks, and reports on them.
func (f *Fleet) deliver(ctx context.Context) error {
	for i, a := range f.agents {
		if a.set == "production" {
			if err := f.permit(ctx, a.name, "on-call", &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "on-call"}); err != nil {
				return err
			}
		}
		if a.set != "stores" || i%4 == 0 {
			if err := f.work(ctx, a.name, "monitoring-agent", "monitoring"); err != nil {
				return err
			}
		}
	}
	if err := f.work(ctx, BrokenOn, Broken, "ingress-nginx"); err != nil {
		return err
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(joining)
	for _, a := range f.agents {
		group.Go(func() error { return a.apply(within) })
	}
	return group.Wait()
}

// permit creates a ClusterPermission by which a subject may read a cluster, and restart workloads in namespace payments.
func (f *Fleet) permit(ctx context.Context, cluster, name string, subject *rbacv1.Subject) error {
	read := []string{"get", "list", "watch"}
	_, err := f.admin.RbacV1alpha1().ClusterPermissions(cluster).Create(ctx, &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces", "events"}, Verbs: read}}},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: subject},
			Roles: &[]rbacv1alpha1.Role{{Namespace: "payments", Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods", "pods/log"}, Verbs: read},
				{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: append(read, "patch")},
			}}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{Namespace: "payments", RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: subject}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// work creates a ManifestWork with a Deployment.
func (f *Fleet) work(ctx context.Context, cluster, name, namespace string) error {
	labels := map[string]any{"app.kubernetes.io/name": name}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
		"spec": map[string]any{"replicas": 2, "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "registry.example.com/" + name + ":2.4.1"}}},
		}},
	})
	if err != nil {
		return err
	}
	_, err = f.admin.WorkV1().ManifestWorks(cluster).Create(ctx, &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: manifest}}}}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// apply reports that the ManifestWorks of the cluster are applied, but for the broken one.
func (a *agent) apply(ctx context.Context) error {
	works := a.ocm.WorkV1().ManifestWorks(a.name)
	list, err := works.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		w := &list.Items[i]
		for _, c := range []metav1.Condition{
			condition("Applied", metav1.ConditionTrue, "AppliedManifestWorkComplete", "All manifests are applied"),
			condition("Available", metav1.ConditionTrue, "ResourcesAvailable", "All objects exist"),
		} {
			if w.Name == Broken {
				c = condition(c.Type, metav1.ConditionFalse, "AppliedManifestWorkFailed",
					"deployments.apps ingress-nginx/ingress-nginx: admission webhook \"policy.example.com\" denied the request: image must come from the mirror of the region")
			}
			c.ObservedGeneration = w.Generation
			meta.SetStatusCondition(&w.Status.Conditions, c)
		}
		if _, err := works.UpdateStatus(ctx, w, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// Live keeps the clusters of the fleet available until ctx ends.
func (f *Fleet) Live(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, a := range f.agents {
			if !Away(a.name) {
				// The next heartbeat repeats it.
				_ = a.renew(ctx)
			}
		}
	}
}
