package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestPublicRegistration checks that upstream agents, the upstream clusteradm, kubectl and GitOps
// tools work with this hub unchanged.
func TestPublicRegistration(t *testing.T) {
	t.Parallel()
	h := startAWSHub(t)
	if err := h.Hub.WriteAdminKubeconfig(h.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T){
		"agent with certificates":            h.publicCertificates,
		"agent with IAM roles":               h.publicRoles,
		"cluster accepted by GitOps":         h.publicGitOps,
		"upstream agent and this clusteradm": h.publicAndOurs,
		"namespaces of cluster sets":         h.publicNamespaces,
		"kubectl with impersonation":         h.impersonatedDecisions,
		"resource names in kubectl":          h.publicNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func (h *awsHub) publicCertificates(t *testing.T) {
	p := newPublicRegistration(t, h.Hub, "public-csr", bootstrapAccount(t, h.Hub))
	watched := p.begin(t, map[string]string{"agent.open-cluster-management.io/team": "blue"})
	name, key := p.request(t, p.bootstrap)
	if conditions := conditionsOf(watched()); len(conditions) > 0 {
		t.Errorf("conditions before a decision = %v, want none", conditions)
	}
	if approved := publicAccept(t, h.Hub, p.cluster); !slices.Equal(approved, []string{name}) {
		t.Errorf("approved CertificateSigningRequests = %v, want %s only", approved, name)
	}
	var reason string
	if p.own, reason = p.certificate(t, p.bootstrap, name, key); reason != publicApproval {
		t.Errorf("reason of the approval = %s, want %s", reason, publicApproval)
	}
	watched = p.joins(t, h)

	// The agent renews its certificate with its own identity.
	name, key = p.request(t, p.own)
	renewed, reason := p.certificate(t, p.own, name, key)
	if reason != csr.ReasonAutoApproved {
		t.Errorf("reason of the approval of the renewal = %s, want %s", reason, csr.ReasonAutoApproved)
	}
	framework.Must(renewed.clusters().Get(t.Context(), p.cluster, metav1.GetOptions{}))(t)

	table := framework.Must(h.Kubectl(t, "", "get", "managedclusters", p.cluster))(t)
	if got, want := columns(table), []string{"NAME", "HUB ACCEPTED", "MANAGED CLUSTER URLS", "JOINED", "AVAILABLE", "AGE"}; !slices.Equal(got, want) {
		t.Errorf("columns = %q, want %q", got, want)
	}
	if row := strings.Fields(strings.Split(table, "\n")[1]); len(row) != 6 || !slices.Equal(row[:5], []string{p.cluster, "true", "https://public-csr.example:6443", "True", "True"}) {
		t.Errorf("row = %v, want an accepted, joined and available cluster", row)
	}

	// A denied agent can read its ManagedCluster only.
	framework.Must(h.Kubectl(t, "", "patch", "managedcluster", p.cluster, "--type=merge", `--patch={"spec":{"hubAcceptsClient":false}}`))(t)
	leases := p.own.kube.CoordinationV1().Leases(p.cluster)
	if _, err := leases.Get(t.Context(), registration.LeaseName, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Get(Lease) after the denial = %v, want Forbidden", err)
	}
	framework.Eventually(t, "the agent reads the denial", func(context.Context) error {
		if accepted, _, _ := unstructured.NestedBool(watched().Object, "spec", "hubAcceptsClient"); accepted {
			return errors.New("hubAcceptsClient = true, want false")
		}
		return says(watched(), clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied)
	})
	if err := patch(t.Context(), p.own.clusters(), watched(), map[string]any{"status": map[string]any{"version": map[string]any{"kubernetes": "v0"}}}, "status"); !apierrors.IsForbidden(err) {
		t.Errorf("Patch(status) after the denial = %v, want Forbidden", err)
	}

	// After another acceptance, the agent continues with the same certificate and the same watch.
	framework.Must(h.Kubectl(t, acceptance(p.cluster), "replace", "--raw", acceptPath(p.cluster), "--filename=-"))(t)
	framework.Eventually(t, "the agent reads the acceptance", func(context.Context) error {
		return says(watched(), clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted)
	})
	framework.Eventually(t, "the agent can read its Lease again", func(ctx context.Context) error {
		_, err := leases.Get(ctx, registration.LeaseName, metav1.GetOptions{})
		return err
	})
	p.removesWorks(t, h, watched)
	framework.Eventually(t, "all objects of "+p.cluster+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, p.cluster) })
}

// removesWorks has the upstream work agent remove its ManifestWorks while its cluster is deleted.
// The server deletes them in the order of their priorities, and the agent keeps its access
// meanwhile.
func (p *publicRegistration) removesWorks(t *testing.T, h *awsHub, watched func() *unstructured.Unstructured) {
	t.Helper()
	admin := newPublicClient(t, h.Hub.AdminConfig()).dynamic.Resource(publicWorks).Namespace(p.cluster)
	works := p.own.dynamic.Resource(publicWorks).Namespace(p.cluster)
	for name, priority := range map[string]string{"instance": "", "operator": "100"} {
		work := &unstructured.Unstructured{}
		if err := work.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork",
			"metadata":{"name":%q,"namespace":%q,"annotations":{"open-cluster-management.io/cleanup-priority":%q}},
			"spec":{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"}}]}}}`, name, p.cluster, priority, name)); err != nil {
			t.Fatal(err)
		}
		created := framework.Must(admin.Create(t.Context(), work, metav1.CreateOptions{}))(t)
		if err := patch(t.Context(), works, created, map[string]any{"metadata": map[string]any{"finalizers": []string{workv1.ManifestWorkFinalizer}}}); err != nil {
			t.Fatal(err)
		}
	}
	framework.Must(h.Kubectl(t, "", "delete", "managedcluster", p.cluster, "--wait=false"))(t)
	for _, name := range []string{"instance", "operator"} {
		var deleted *unstructured.Unstructured
		framework.Eventually(t, "the agent reads that ManifestWork "+name+" is being deleted", func(ctx context.Context) (err error) {
			if deleted, err = works.Get(ctx, name, metav1.GetOptions{}); err == nil && deleted.GetDeletionTimestamp() == nil {
				err = errors.New("deletionTimestamp is not set")
			}
			return err
		})
		if later, err := works.Get(t.Context(), "operator", metav1.GetOptions{}); name == "instance" && (err != nil || later.GetDeletionTimestamp() != nil) {
			t.Errorf("Get(ManifestWork operator) = %v, deleted at %s, want it kept until instance is removed", err, later.GetDeletionTimestamp())
		}
		framework.Eventually(t, "condition Deleting names ManifestWork "+name, func(context.Context) error {
			condition := meta.FindStatusCondition(conditionsOf(watched()), clusterv1.ManagedClusterConditionDeleting)
			if condition == nil || condition.Reason != clusterv1.ReasonResourceRemaining || !strings.Contains(condition.Message, name) {
				return fmt.Errorf("condition Deleting = %v", condition)
			}
			return nil
		})
		p.beats(t)
		if err := patch(t.Context(), works, deleted, map[string]any{"metadata": map[string]any{"finalizers": nil}}); err != nil {
			t.Fatal(err)
		}
	}
}

// deleted deletes a cluster as an administrator, and waits until all its objects are deleted.
func (h *awsHub) deleted(t *testing.T, cluster string, watched func() *unstructured.Unstructured) {
	t.Helper()
	framework.Must(h.Kubectl(t, "", "delete", "managedcluster", cluster, "--wait=false"))(t)
	framework.Eventually(t, "all objects of "+cluster+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, cluster) })
	framework.Eventually(t, "the watch of the agent reports the deletion", func(context.Context) error {
		if object := watched(); object != nil && object.GetDeletionTimestamp() == nil {
			return errors.New("cached ManagedCluster is not deleted")
		}
		return nil
	})
}

func acceptPath(cluster string) string {
	return "/apis/" + registerv1alpha1.SchemeGroupVersion.String() + "/managedclusters/" + cluster + "/accept"
}

func acceptance(cluster string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"ManagedClusterAcceptance","metadata":{"name":%q},"spec":{"accepted":true,"reason":"known"}}`,
		registerv1alpha1.SchemeGroupVersion, cluster)
}

// columns returns the column titles of a table.
func columns(table string) []string {
	var out []string
	for _, title := range strings.Split(strings.Split(table, "\n")[0], "   ") {
		if title = strings.TrimSpace(title); title != "" {
			out = append(out, title)
		}
	}
	return out
}

// joins makes the requests of upstream agents after the cluster has its identity, and the
// permission checks of their operator.
func (p *publicRegistration) joins(t *testing.T, h *awsHub) (watched func() *unstructured.Unstructured) {
	t.Helper()
	framework.Eventually(t, "ManagedCluster "+p.cluster+" is accepted", func(ctx context.Context) error { return h.hubAccepts(ctx, p.cluster) })
	p.own.mayAll(t, []review{
		{group: certificatesGroup, resource: requestsResource, verbs: "get list watch"},
		{group: clusterv1.GroupName, resource: "managedclusters", name: p.cluster, verbs: "get list update watch"},
		{group: clusterv1.GroupName, resource: "managedclusters/status", name: p.cluster, verbs: "patch update"},
		{group: registerv1alpha1.GroupName, resource: "managedclusters/clientcertificates", verbs: "renew"},
		{group: "coordination.k8s.io", resource: "leases", name: registration.LeaseName, namespace: p.cluster, verbs: "get update"},
		{resource: "events", namespace: p.cluster, verbs: "create patch update"},
		{group: "events.k8s.io", resource: "events", namespace: p.cluster, verbs: "create patch update"},
		{group: workv1.GroupName, resource: "manifestworks", namespace: p.cluster, verbs: "get list watch update"},
		{group: workv1.GroupName, resource: "manifestworks/status", namespace: p.cluster, verbs: "patch update"},
	})
	watched = p.own.watch(t, p.cluster)
	framework.Eventually(t, "the agent reads the acceptance", func(context.Context) error {
		return says(watched(), clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted)
	})

	stale := watched()
	p.own.patchStatus(t, watched, map[string]any{}, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue, Reason: "ManagedClusterJoined", Message: "Managed cluster joined",
	})
	framework.Eventually(t, "the agent reads that its cluster has joined", func(context.Context) error {
		return says(watched(), clusterv1.ManagedClusterConditionJoined, metav1.ConditionTrue, "")
	})
	version := map[string]any{"status": map[string]any{"version": map[string]any{"kubernetes": "v1.30.0"}}}
	if err := patch(t.Context(), p.own.clusters(), stale, version, "status"); !apierrors.IsConflict(err) {
		t.Errorf("Patch(status) of an outdated version = %v, want Conflict", err)
	}
	other := watched()
	other.SetUID("d9607e19-f88f-11e6-a518-42010a800195")
	if err := patch(t.Context(), p.own.clusters(), other, version, "status"); !apierrors.IsInvalid(err) {
		t.Errorf("Patch(status) with another UID = %v, want Invalid", err)
	}

	framework.Eventually(t, "the cluster has the taint unreachable before its first report", func(context.Context) error {
		taints, _, _ := unstructured.NestedSlice(watched().Object, "spec", "taints")
		if !slices.ContainsFunc(taints, func(taint any) bool {
			t, _ := taint.(map[string]any)
			return t["key"] == "cluster.open-cluster-management.io/unreachable" && t["effect"] == "NoSelect" && t["timeAdded"] != nil
		}) {
			return fmt.Errorf("taints = %v", taints)
		}
		return nil
	})
	p.beats(t)
	p.own.patchStatus(t, watched, map[string]any{
		"version":       map[string]any{"kubernetes": "v1.34.1"},
		"capacity":      map[string]any{"cpu": "8", "memory": "32Gi"},
		"allocatable":   map[string]any{"cpu": "7", "memory": "30Gi"},
		"clusterClaims": []any{map[string]any{"name": "id.k8s.io", "value": "b1d3"}},
		// The server ignores namespaces that no cluster set requires.
		"managedNamespaces": []any{map[string]any{"name": "shared", "clusterSet": "default"}},
	}, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "ManagedClusterAvailable", Message: "Managed cluster is available",
	})
	framework.Eventually(t, "the cluster has no taints and its reported status", func(context.Context) error {
		object := watched()
		if taints, _, _ := unstructured.NestedSlice(object.Object, "spec", "taints"); len(taints) > 0 {
			return fmt.Errorf("taints = %v", taints)
		}
		if kubernetes, _, _ := unstructured.NestedString(object.Object, "status", "version", "kubernetes"); kubernetes != "v1.34.1" {
			return fmt.Errorf("Kubernetes version = %q, want v1.34.1", kubernetes)
		}
		if list := listOf(object); len(list) > 0 {
			return fmt.Errorf("managed namespaces = %v, want none", list)
		}
		return errors.Join(
			says(object, clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted),
			says(object, clusterv1.ManagedClusterConditionClockSynced, metav1.ConditionTrue, "ManagedClusterClockSynced"))
	})

	p.describes(t, watched)
	p.reports(t, watched())
	p.reportsAddons(t, h)
	p.worksOn(t, h)
	return watched
}

// beats renews the Lease as the agent does. The agent requires that the Lease has a renewTime.
func (p *publicRegistration) beats(t *testing.T) {
	t.Helper()
	leases := p.own.kube.CoordinationV1().Leases(p.cluster)
	lease := framework.Must(leases.Get(t.Context(), registration.LeaseName, metav1.GetOptions{}))(t)
	if lease.Spec.RenewTime == nil {
		t.Fatal("renewTime of the Lease is nil, want a time, because agents dereference it")
	}
	lease.Spec.RenewTime = now()
	framework.Must(leases.Update(t.Context(), lease, metav1.UpdateOptions{}))(t)
}

// describes changes the labels, the annotations and the spec of the ManagedCluster.
func (p *publicRegistration) describes(t *testing.T, watched func() *unstructured.Unstructured) {
	t.Helper()
	framework.Eventually(t, "the agent has patched its labels and annotations", func(ctx context.Context) error {
		return patch(ctx, p.own.clusters(), watched(), map[string]any{"metadata": map[string]any{
			"labels": map[string]any{"feature.open-cluster-management.io/x": "y"}, "annotations": map[string]any{"agent.open-cluster-management.io/zone": "a"},
		}})
	})
	framework.Eventually(t, "the agent has patched its spec", func(ctx context.Context) error {
		object := watched()
		if object.GetLabels()["feature.open-cluster-management.io/x"] != "y" || object.GetAnnotations()["agent.open-cluster-management.io/zone"] != "a" {
			return fmt.Errorf("labels = %v, annotations = %v, want the patched ones", object.GetLabels(), object.GetAnnotations())
		}
		return patch(ctx, p.own.clusters(), object, map[string]any{"spec": map[string]any{"leaseDurationSeconds": 61}})
	})
	framework.Eventually(t, "the agent has updated its ManagedCluster", func(ctx context.Context) error {
		object := watched()
		object.SetAnnotations(map[string]string{"agent.open-cluster-management.io/zone": "b"})
		_, err := p.own.clusters().Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// reports creates the Events of the agents, in the core API group and in events.k8s.io.
func (p *publicRegistration) reports(t *testing.T, cluster *unstructured.Unstructured) {
	t.Helper()
	about := corev1.ObjectReference{
		APIVersion: cluster.GetAPIVersion(), Kind: cluster.GetKind(), Name: p.cluster, Namespace: p.cluster, UID: cluster.GetUID(),
	}
	framework.Must(p.own.kube.EventsV1().Events(p.cluster).Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: p.cluster + ".available", Namespace: p.cluster},
		EventTime:  *now(), ReportingController: "registration-agent", ReportingInstance: "registration-agent-x", Action: "Available",
		Reason: "Available", Regarding: about, Note: "Its API server is available.", Type: corev1.EventTypeNormal,
	}, metav1.CreateOptions{}))(t)
	event := framework.Must(p.own.kube.CoreV1().Events(p.cluster).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: p.cluster + ".applied", Namespace: p.cluster}, InvolvedObject: about,
		Reason: "ResourceApplied", Message: "applied", Type: corev1.EventTypeNormal, Count: 1,
	}, metav1.CreateOptions{}))(t)
	framework.Must(p.own.kube.CoreV1().Events(p.cluster).Patch(t.Context(), event.Name, types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{}))(t)
}

// reportsAddons lists the addons of the cluster and reports their health, as the upstream registration
// agent does. The agent exits if these requests fail. It uses v1beta1, or v1alpha1 in older releases.
func (p *publicRegistration) reportsAddons(t *testing.T, h *awsHub) {
	t.Helper()
	admin := newPublicClient(t, h.Hub.AdminConfig())
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		resource := schema.GroupVersionResource{Group: "addon.open-cluster-management.io", Version: version, Resource: "managedclusteraddons"}
		addon := &unstructured.Unstructured{}
		if err := addon.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"addon.open-cluster-management.io/%s","kind":"ManagedClusterAddOn","metadata":{"name":"of-%[1]s","namespace":%[2]q},"spec":{}}`, version, p.cluster)); err != nil {
			t.Fatal(err)
		}
		framework.Must(admin.dynamic.Resource(resource).Namespace(p.cluster).Create(t.Context(), addon, metav1.CreateOptions{}))(t)
		own := p.own.dynamic.Resource(resource).Namespace(p.cluster)
		list := framework.Must(own.List(t.Context(), metav1.ListOptions{}))(t)
		framework.Must(own.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))(t).Stop()
		read := framework.Must(own.Get(t.Context(), addon.GetName(), metav1.GetOptions{}))(t)
		if err := patch(t.Context(), own, read, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Available", "status": "True", "reason": "ManagedClusterAddOnLeaseUpdated", "message": "", "lastTransitionTime": now().UTC().Format(time.RFC3339),
		}}}}, "status"); err != nil {
			t.Fatalf("Patch(status of the addon) in %s = %v, want nil", version, err)
		}
		// Only the manager of the addon may change the spec.
		if err := patch(t.Context(), own, read, map[string]any{"spec": map[string]any{"configs": []any{}}}); !apierrors.IsForbidden(err) {
			t.Errorf("Patch(spec of the addon) in %s = %v, want Forbidden", version, err)
		}
	}
}

// worksOn processes a ManifestWork from its creation to its deletion, as the upstream work agent does.
func (p *publicRegistration) worksOn(t *testing.T, h *awsHub) {
	t.Helper()
	works := p.own.dynamic.Resource(publicWorks).Namespace(p.cluster)
	work := &unstructured.Unstructured{}
	if err := work.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"one","namespace":%q},
		"spec":{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"default"}}]}}}`, p.cluster)); err != nil {
		t.Fatal(err)
	}
	admin := newPublicClient(t, h.Hub.AdminConfig())
	framework.Must(admin.dynamic.Resource(publicWorks).Namespace(p.cluster).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	list := framework.Must(works.List(t.Context(), metav1.ListOptions{}))(t)
	if len(list.Items) != 1 {
		t.Fatalf("list of ManifestWorks has %d items, want 1", len(list.Items))
	}
	framework.Must(works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))(t).Stop()
	err := patch(t.Context(), works, &list.Items[0], map[string]any{"metadata": map[string]any{"finalizers": []string{workv1.ManifestWorkFinalizer}}})
	if err != nil {
		t.Fatal(err)
	}
	held := framework.Must(works.Get(t.Context(), "one", metav1.GetOptions{}))(t)
	if err := patch(t.Context(), works, held, map[string]any{"status": statusOfWork(held)}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), works, held, map[string]any{"status": statusOfWork(held)}, "status"); !apierrors.IsConflict(err) {
		t.Errorf("Patch(status) of an outdated ManifestWork = %v, want Conflict", err)
	}
	if err := admin.dynamic.Resource(publicWorks).Namespace(p.cluster).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := framework.Must(works.Get(t.Context(), "one", metav1.GetOptions{}))(t)
	if deleted.GetDeletionTimestamp() == nil {
		t.Error("deletionTimestamp of the ManifestWork is not set, want it set")
	}
	if err := patch(t.Context(), works, deleted, map[string]any{"metadata": map[string]any{"finalizers": nil}}); err != nil {
		t.Fatal(err)
	}
	if _, err := works.Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ManifestWork without finalizers) = %v, want NotFound", err)
	}
}

func statusOfWork(work *unstructured.Unstructured) map[string]any {
	return map[string]any{"conditions": []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete, Message: "Applied.",
		ObservedGeneration: work.GetGeneration(), LastTransitionTime: metav1.Now(),
	}}}
}

func (h *awsHub) publicRoles(t *testing.T) {
	desired := h.desired("public-irsa", "public-eks")
	p := newPublicRegistration(t, h.Hub, desired.ClusterName, bootstrapAccount(t, h.Hub))
	watched := p.begin(t, map[string]string{registration.ARNAnnotation: desired.Managed.String(), registration.RoleSuffixAnnotation: desired.Identity.Hash()})
	// The agent continues as soon as the condition exists, regardless of its status.
	if condition := meta.FindStatusCondition(conditionsOf(watched()), clusterv1.ManagedClusterConditionHubAccepted); condition != nil {
		t.Errorf("condition HubAcceptedManagedCluster before a decision = %+v, want none", condition)
	}
	publicAccept(t, h.Hub, p.cluster)
	framework.Eventually(t, "the agent reads the acceptance", func(context.Context) error {
		return says(watched(), clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionTrue, clusterv1.ReasonHubClusterAdminAccepted)
	})
	if err := h.inAWS(desired); err != nil {
		t.Error(err)
	}
	// EKS authenticates the agent as the user and groups of its access entry.
	p.own = newPublicClient(t, framework.Must(h.Hub.UserConfig(desired.Username(), desired.Groups()...))(t))
	watched = p.joins(t, h)
	wide := framework.Must(h.Kubectl(t, "", "get", "mclr", p.cluster, "--output=wide"))(t)
	for _, want := range []string{"DRIVER", "ACCESS", "IDENTITY", "ARN", "aws-irsa", desired.Managed.String()} {
		if !strings.Contains(wide, want) {
			t.Errorf("kubectl get --output=wide prints no %s:\n%s", want, wide)
		}
	}
	h.deleted(t, p.cluster, watched)
	if h.inAWS(desired) == nil || len(h.aws.AccessEntries(h.arn.String())) > 0 {
		t.Error("AWS has a role or an access entry of the deleted cluster, want none")
	}
}
