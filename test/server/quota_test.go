package server

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	quotaOfReports = 20
	quotaOfWorks   = 8
)

// agentConfig returns the credentials of a cluster's agent on the hub, without a client-side rate
// limit.
func (f *fleet) agentConfig(t *testing.T, cluster string) *rest.Config {
	t.Helper()
	config := framework.Must(f.Hub.UserConfig(localhub.AgentUser(cluster), localhub.AgentGroup(cluster)))(t)
	config.QPS = -1
	return config
}

// report returns a ClusterNamespace with the given number of labels of a hundred bytes each.
func report(cluster, name string, labels int) *rbacv1alpha1.ClusterNamespace {
	out := &rbacv1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: map[string]string{}}}
	for i := range labels {
		out.Labels[fmt.Sprintf("label-%044d", i)] = strings.Repeat("v", 50)
	}
	return out
}

// isLimited checks that err is a 422 response whose message names the field path and the flag of the
// limit.
func isLimited(t *testing.T, what string, err error, path, flag string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), flag) {
		t.Errorf("%s: error = %.300v, want 422 for %s that names %s", what, err, path, flag)
	}
}

// isOverQuota checks that err is a 403 response that reports an exceeded quota and names its flag.
func isOverQuota(t *testing.T, what string, err error, flag string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !refusal.IsQuotaExceeded(err) || !strings.Contains(err.Error(), flag) {
		t.Errorf("%s: error = %.300v, want 403 that names %s", what, err, flag)
	}
}

// TestQuotas checks that quotas, object limits and write rates stop a hostile cluster and a hostile
// tenant, that the errors name the limit, and that other clusters and tenants are not affected.
func TestQuotas(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{APIServerArgs: []string{
		fmt.Sprintf("--namespace-quota-objects=clusternamespaces=%d,manifestworks=%d", quotaOfReports, quotaOfWorks),
		"--namespace-quota-bytes=clusternamespaces=128Ki",
		"--write-rates=caller-burst=256Ki,caller-per-second=1,namespace-burst=512Ki,namespace-per-second=1",
	}})
	const evil, good = "evil", "good"
	for _, cluster := range []string{evil, good} {
		if err := localhub.JoinCluster(t.Context(), f.Hub, cluster); err != nil {
			t.Fatal(err)
		}
	}
	agent := framework.Must(versioned.NewForConfig(f.agentConfig(t, evil)))(t)
	reports := agent.RbacV1alpha1().ClusterNamespaces(evil)
	create := metav1.CreateOptions{}

	t.Run("labels", func(t *testing.T) {
		_, err := reports.Create(t.Context(), report(evil, "labels", 10_000), create)
		isLimited(t, "10,000 labels", err, "metadata.labels", "--object-limits=clusternamespaces.labels=256")
		large := report(evil, "labels", 0)
		large.Annotations = map[string]string{"a": strings.Repeat("x", 20<<10)}
		_, err = reports.Create(t.Context(), large, create)
		isLimited(t, "20 KiB of annotations", err, "metadata.annotations", "--object-limits=clusternamespaces.annotation-bytes=16384")
	})

	t.Run("objects", func(t *testing.T) {
		var stored atomic.Int64
		var running sync.WaitGroup
		for worker := range 8 {
			running.Go(func() {
				for i := range 5 {
					_, err := reports.Create(t.Context(), report(evil, fmt.Sprintf("n-%d-%d", worker, i), 1), create)
					if err == nil {
						stored.Add(1)
						continue
					}
					isOverQuota(t, "create", err, fmt.Sprintf("--namespace-quota-objects=clusternamespaces=%d", quotaOfReports))
				}
			})
		}
		running.Wait()
		listed := framework.Must(reports.List(t.Context(), metav1.ListOptions{}))(t)
		if stored.Load() != quotaOfReports || len(listed.Items) != quotaOfReports {
			t.Fatalf("stored = %d, listed = %d, want %d", stored.Load(), len(listed.Items), quotaOfReports)
		}
		_, err := reports.Create(t.Context(), report(evil, "dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		isOverQuota(t, "dry run", err, "--namespace-quota-objects")
		_, err = reports.Create(t.Context(), &rbacv1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, create)
		isOverQuota(t, "generated name", err, "--namespace-quota-objects")
		_, err = f.OCM.RbacV1alpha1().ClusterNamespaces(evil).Patch(t.Context(), "applied", types.ApplyPatchType,
			[]byte(`{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterNamespace","metadata":{"name":"applied"}}`),
			metav1.PatchOptions{FieldManager: "test"})
		isOverQuota(t, "server-side apply", err, "--namespace-quota-objects")

		if _, err := f.OCM.RbacV1alpha1().ClusterNamespaces(good).Create(t.Context(), report(good, "n", 1), create); err != nil {
			t.Errorf("create for another cluster: error = %v, want none", err)
		}
		first := &listed.Items[0]
		if err := reports.Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := reports.Create(t.Context(), report(evil, "instead", 1), create); err != nil {
			t.Errorf("create after a deletion: error = %v, want none", err)
		}
	})

	t.Run("bytes", func(t *testing.T) {
		listed := framework.Must(reports.List(t.Context(), metav1.ListOptions{}))(t)
		var grown *rbacv1alpha1.ClusterNamespace
		var refused error
		for i := range listed.Items {
			item := &listed.Items[i]
			item.Labels = report(evil, item.Name, 100).Labels
			updated, err := reports.Update(t.Context(), item, metav1.UpdateOptions{})
			if err != nil {
				refused = err
				break
			}
			grown = updated
		}
		isOverQuota(t, "growth", refused, "--namespace-quota-bytes=clusternamespaces=131072")
		if grown == nil {
			t.Fatal("no update succeeded, want some within the quota")
		}
		grown.Labels = nil
		if _, err := reports.Update(t.Context(), grown, metav1.UpdateOptions{}); err != nil {
			t.Errorf("update that makes an object smaller: error = %v, want none", err)
		}
		for i := range listed.Items {
			if err := reports.Delete(t.Context(), listed.Items[i].Name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
	})

	t.Run("ManagedCluster", func(t *testing.T) {
		clusters := agent.ClusterV1().ManagedClusters()
		_, err := clusters.Patch(t.Context(), evil, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"a":"`+strings.Repeat("x", 200<<10)+`"}}}`), metav1.PatchOptions{})
		isLimited(t, "annotations", err, "metadata.annotations", "--object-limits=managedclusters.annotation-bytes=131072")
		cluster := framework.Must(clusters.Get(t.Context(), evil, metav1.GetOptions{}))(t)
		for i := range 2000 {
			cluster.Status.ClusterClaims = append(cluster.Status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: fmt.Sprintf("claim-%d", i), Value: "x"})
		}
		_, err = clusters.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
		isLimited(t, "claims", err, "status", "--object-limits=managedclusters.status-items=1500")
		cluster.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "claim", Value: strings.Repeat("x", 300<<10)}}
		_, err = clusters.UpdateStatus(t.Context(), cluster, metav1.UpdateOptions{})
		isLimited(t, "a large claim", err, "status", "--object-limits=managedclusters.status-bytes=262144")
	})

	t.Run("ManifestWorks", func(t *testing.T) {
		works := f.OCM.WorkV1().ManifestWorks(evil)
		for i := range quotaOfWorks {
			work := framework.ConfigMapWork(fmt.Sprintf("work-%d", i))
			work.Namespace = evil
			framework.Must(works.Create(t.Context(), work, create))(t)
		}
		work := framework.ConfigMapWork("more")
		work.Namespace = evil
		_, err := works.Create(t.Context(), work, create)
		isOverQuota(t, "create", err, fmt.Sprintf("--namespace-quota-objects=manifestworks=%d", quotaOfWorks))

		// The server's own ManifestWorks are allowed beyond the quota, up to a reserve.
		granted := framework.Permission("permission")
		granted.Namespace = evil
		framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions(evil).Create(t.Context(), granted, create))(t)
		framework.Eventually(t, "the ManifestWork of the ClusterPermission is created", func(ctx context.Context) error {
			all, err := works.List(ctx, metav1.ListOptions{})
			if err == nil && len(all.Items) != quotaOfWorks+1 {
				err = fmt.Errorf("ManifestWorks = %d, want %d", len(all.Items), quotaOfWorks+1)
			}
			return err
		})

		of := agent.WorkV1().ManifestWorks(evil)
		reported := framework.Must(of.Get(t.Context(), "work-0", metav1.GetOptions{}))(t)
		reported.Status.Conditions = condition(workv1.WorkApplied)
		reported = framework.Must(of.UpdateStatus(t.Context(), reported, metav1.UpdateOptions{}))(t)
		for i := range 100 {
			told := condition(workv1.WorkApplied)
			told[0].Message = strings.Repeat("m", 15_000)
			reported.Status.ResourceStatus.Manifests = append(reported.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
				ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i)}, Conditions: told,
			})
		}
		_, err = of.UpdateStatus(t.Context(), reported, metav1.UpdateOptions{})
		isLimited(t, "status", err, "status", "--object-limits=manifestworks.status-bytes=1048576")
		if err := works.Delete(t.Context(), "work-1", metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete: %v", err)
		}
	})

	t.Run("write rates", func(t *testing.T) {
		writing := rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"create", "update", "patch"}}
		greedy, other := framework.NewCaller(t, f.Hub, framework.Unique("greedy")), framework.NewCaller(t, f.Hub, framework.Unique("other"))
		for _, c := range []*framework.Caller{greedy, other} {
			defer c.May(t, good, writing)()
		}
		// patch changes a ManifestWork of more than 64 KiB, without retries.
		patch := func(c *framework.Caller, name, value string, options metav1.PatchOptions) error {
			return c.OCM.WorkV1().RESTClient().Patch(types.MergePatchType).Namespace(good).Resource("manifestworks").Name(name).MaxRetries(0).
				VersionedParams(&options, metav1.ParameterCodec).
				Body(fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"a"},"data":{"fill":%q,"value":%q}}]}}}`,
					strings.Repeat("x", 64<<10), value)).Do(t.Context()).Error()
		}
		create := func(c *framework.Caller, name string) {
			t.Helper()
			work := framework.ConfigMapWork(name)
			work.Namespace = good
			framework.Must(c.OCM.WorkV1().ManifestWorks(good).Create(t.Context(), work, metav1.CreateOptions{}))(t)
		}
		create(greedy, "greedy")
		if err := patch(greedy, "greedy", "0", metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		// A patch without a change is not stored, so it does not use up the write rate.
		for range 20 {
			if err := patch(greedy, "greedy", "0", metav1.PatchOptions{}); err != nil {
				t.Fatalf("patch without a change: error = %v, want none", err)
			}
			if err := patch(greedy, "greedy", "dry", metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatalf("dry run of a patch: error = %v, want none", err)
			}
		}
		// Fewer than (256 + 512) / 64 patches exceed the bursts of the caller and of the namespace.
		var err error
		for i := 1; i < 12 && err == nil; i++ {
			err = patch(greedy, "greedy", fmt.Sprint(i), metav1.PatchOptions{})
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds < 1 || !strings.Contains(err.Error(), "--write-rates") {
			t.Errorf("patches above the write rate: error = %v, Retry-After %d, want 429 that names --write-rates", err, seconds)
		}
		create(other, "other")
		if err := patch(other, "other", "0", metav1.PatchOptions{}); err != nil {
			t.Errorf("patch by another caller: error = %v, want none", err)
		}
		if err := f.OCM.WorkV1().ManifestWorks(good).Delete(t.Context(), "greedy", metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete: %v", err)
		}
	})

	t.Run("metrics", func(t *testing.T) {
		refusedWrites := regexp.MustCompile(`hub_apiserver_caller_refused_total\{what="written bytes"\} [1-9]`)
		direct := framework.Must(kubernetes.NewForConfig(framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)))(t)
		framework.Eventually(t, "/metrics contains the quotas and the rejections", func(ctx context.Context) error {
			text, err := direct.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err != nil {
				return err
			}
			for _, want := range []string{
				fmt.Sprintf(`hub_apiserver_quota_limit{limit="objects",resource="manifestworks"} %d`, quotaOfWorks),
				fmt.Sprintf(`hub_apiserver_quota_used_max{limit="objects",resource="manifestworks"} %d`, quotaOfWorks),
				`hub_apiserver_quota_namespaces_near_limit{limit="objects",resource="manifestworks"} 1`,
				`hub_apiserver_quota_refusals_total{limit="objects",resource="clusternamespaces"}`,
				`hub_apiserver_quota_refusals_total{limit="labels",resource="clusternamespaces"}`,
			} {
				if !strings.Contains(string(text), want) {
					err = errors.Join(err, fmt.Errorf("metric %s is missing", want))
				}
			}
			// Clients that retry, such as the agent, may have been refused too.
			if !refusedWrites.Match(text) {
				err = errors.Join(err, fmt.Errorf("metric %s is missing", refusedWrites))
			}
			return err
		})
	})
}

func condition(kind string) []metav1.Condition {
	var out []metav1.Condition
	meta.SetStatusCondition(&out, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
	return out
}
