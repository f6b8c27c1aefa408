package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// annotate returns a merge patch that sets annotations.
func annotate(annotations map[string]string) []byte {
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		panic(err) // a map of strings can always be encoded
	}
	return content
}

// says waits until the condition HubAcceptedManagedCluster of a cluster has a status and a reason, and
// returns the condition.
func (h *awsHub) says(t *testing.T, name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var condition *metav1.Condition
	framework.Eventually(t, fmt.Sprintf("condition HubAcceptedManagedCluster of %s is %s with reason %s", name, status, reason), func(ctx context.Context) error {
		mc, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		condition = meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("conditions = %v", mc.Status.Conditions)
		}
		return nil
	})
	return condition
}

// cleanedUp waits until the condition CleanedUp of the registration of a denied cluster is True.
func (h *awsHub) cleanedUp(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "the registration of "+name+" is CleanedUp", func(ctx context.Context) error {
		record, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(record.Status.Conditions, registerv1alpha1.RegistrationCleanedUp) {
			return fmt.Errorf("conditions = %v", record.Status.Conditions)
		}
		return nil
	})
}

// unharmed fails the test if AWS received a call about the identity of a cluster since the last reset,
// or if the cluster lacks its identity or its access.
func (h *awsHub) unharmed(t *testing.T, victim irsa.Desired) {
	t.Helper()
	if calls := h.callsFor(victim); len(calls) > 0 {
		t.Errorf("calls to AWS about the identity of %s = %v, want none", victim.ClusterName, calls)
	}
	if err := errors.Join(h.inAWS(victim), h.hubAccepts(t.Context(), victim.ClusterName), h.hasAccess(t.Context(), victim.ClusterName, fullAccess)); err != nil {
		t.Error(err)
	}
}

// A1: a cluster annotates its own ManagedCluster with the identity of another cluster. It then leaves,
// or is denied or deleted. The other cluster keeps its role and its access entry.
func TestAnnotationsOfMemberClaimNothing(t *testing.T) {
	h := members(t)
	victim := h.joinEKS(t, "a1-victim")
	for what, end := range map[string]func(t *testing.T, name string, own *versioned.Clientset){
		"leaves": func(t *testing.T, name string, own *versioned.Clientset) {
			_, err := own.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "all objects of "+name+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, name) })
		},
		"denied": func(t *testing.T, name string, _ *versioned.Clientset) {
			h.deny(t, name)
			h.cleanedUp(t, name)
			if record := h.record(t, name); record.Spec.Driver != registerv1alpha1.DriverCSR || record.Spec.IRSA != nil || record.Status.IRSA != nil {
				t.Errorf("registration of %s = %+v, want driver csr without an identity", name, record)
			}
		},
		"deleted": func(t *testing.T, name string, _ *versioned.Clientset) {
			if err := h.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "all objects of "+name+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, name) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := "a1-" + what
			own := framework.Must(versioned.NewForConfig(h.join(t, name)))(t)
			h.aws.ResetCalls()
			for _, annotations := range []map[string]string{
				{registration.RoleSuffixAnnotation: victim.Identity.Hash()},
				{registration.ARNAnnotation: victim.Managed.String(), registration.EKSARNAnnotation: victim.Managed.String()},
			} {
				mc := framework.Must(own.ClusterV1().ManagedClusters().Patch(t.Context(), name, types.MergePatchType, annotate(annotations), metav1.PatchOptions{}))(t)
				for key, value := range annotations {
					if mc.Annotations[key] != value {
						t.Errorf("annotation %s = %q, want %q", key, mc.Annotations[key], value)
					}
				}
			}
			end(t, name, own)
			if calls := h.callsToAWS(false); len(calls) > 0 {
				t.Errorf("calls to AWS = %v, want none", calls)
			}
			h.unharmed(t, victim)
		})
	}
}

// A2: a user with permission to create ManagedClusters cannot claim the identity of another cluster. If
// a cluster was never accepted, its deletion revokes nothing.
func TestForeignIdentityCannotBeClaimed(t *testing.T) {
	h := members(t)
	victim := h.joinEKS(t, "a2-victim")
	bootstrap := framework.Must(versioned.NewForConfig(h.bootstrap(t)))(t)
	own := h.desired("a2-attacker", "a2-attacker")
	elsewhere := victim.Managed
	elsewhere.Region = "eu-west-1"
	h.aws.ResetCalls()
	path := func(key string) []string { return []string{"metadata.annotations[" + key + "]"} }
	cases := map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"the suffix alone": {map[string]string{registration.RoleSuffixAnnotation: victim.Identity.Hash()}, path(registration.ARNAnnotation)},
		"the suffix and the own ARN": {map[string]string{
			registration.ARNAnnotation: own.Managed.String(), registration.RoleSuffixAnnotation: victim.Identity.Hash(),
		}, path(registration.RoleSuffixAnnotation)},
		"the ARN": {map[string]string{registration.ARNAnnotation: victim.Managed.String()}, path(registration.ARNAnnotation)},
		"both": {map[string]string{
			registration.ARNAnnotation: victim.Managed.String(), registration.RoleSuffixAnnotation: victim.Identity.Hash(),
		}, path(registration.ARNAnnotation)},
		"in the other spelling": {map[string]string{registration.EKSARNAnnotation: victim.Managed.String()}, path(registration.EKSARNAnnotation)},
		// Role names do not contain the region, so both clusters would have the same roles.
		"in another region": {map[string]string{registration.EKSARNAnnotation: elsewhere.String()}, path(registration.EKSARNAnnotation)},
	}
	refused := func(t *testing.T, what string, err error, want []string) {
		t.Helper()
		if got := framework.InvalidFields(err); !apierrors.IsInvalid(err) || !slices.Equal(got, want) {
			t.Errorf("%s: error = %v for %v, want 422 for %v", what, err, got, want)
		}
		if err != nil && strings.Contains(err.Error(), victim.ClusterName) {
			t.Errorf("%s: error = %v, want no name of the cluster that has the identity", what, err)
		}
	}
	for what, test := range cases {
		mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: own.ClusterName, Annotations: test.annotations}}
		_, err := bootstrap.ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		refused(t, what+", on dry-run", err, test.want)
		_, err = bootstrap.ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{})
		refused(t, what, err, test.want)
	}
	if _, err := h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), own.ClusterName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("Get(%s) = %v, want NotFound", own.ClusterName, err)
	}

	// A cluster without a claim cannot be given the identity later. A cluster with a claim of its own
	// is deleted without calls to AWS.
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: own.ClusterName}})
	for what, test := range cases {
		_, err := h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), own.ClusterName, types.MergePatchType, annotate(test.annotations), metav1.PatchOptions{})
		refused(t, what+", later", err, test.want)
	}
	claims := bootstrap.RegisterV1alpha1().ManagedClusterRegistrations()
	for _, arn := range []irsa.ARN{victim.Managed, elsewhere} {
		claim := &registerv1alpha1.ManagedClusterIRSA{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: arn.String()}}
		if _, err := claims.ClaimIRSA(t.Context(), own.ClusterName, claim, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("ClaimIRSA(%s) = %v, want 409", arn, err)
		}
	}
	claim := &registerv1alpha1.ManagedClusterIRSA{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: own.Managed.String()}}
	if _, err := claims.ClaimIRSA(t.Context(), own.ClusterName, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.OCM.ClusterV1().ManagedClusters().Delete(t.Context(), own.ClusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "all objects of "+own.ClusterName+" are deleted", func(ctx context.Context) error { return h.isGone(ctx, own.ClusterName) })
	if calls := h.callsToAWS(false); len(calls) > 0 {
		t.Errorf("calls to AWS = %v, want none", calls)
	}
	h.unharmed(t, victim)
}

// A3: the server rejects a malformed ARN in the request that contains it. If a member writes malformed
// annotations later, administrators can still accept and deny it and other clusters.
func TestMalformedARNs(t *testing.T) {
	h := members(t)
	process := h.Server.PID()
	bootstrap := framework.Must(versioned.NewForConfig(h.bootstrap(t)))(t)
	claims := bootstrap.RegisterV1alpha1().ManagedClusterRegistrations()
	h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "a3-claiming"}})
	bad := []string{
		"", " ", "x", ":", ":::::", "arn", "arn:aws:eks", "arn:aws:eks:us-west-2", "arn:aws:eks:us-west-2:123456789012", "arn:aws:eks:us-west-2:123456789012:",
		"arn:aws:eks:us-west-2:123456789012:cluster", "arn:aws:eks:us-west-2:123456789012:cluster/", "arn:aws:eks:us-west-2:123456789012:cluster/a/b",
		"arn:aws:eks:us-west-2:1234:cluster/a", "arn:aws:eks::123456789012:cluster/a", "arn:aws:iam::123456789012:role/a", "arn:azure:eks:us-west-2:123456789012:cluster/a",
		"arn:aws-cn:eks:cn-north-1:123456789012:cluster/a", "arn:aws:eks:us-west-2:123456789012:cluster/a\n", "arn:aws:eks:us-west-2:123456789012:cluster/a#b",
		"arn:aws:eks:us-west-2:123456789012:cluster/" + strings.Repeat("a", 101), strings.Repeat(":", 5000),
	}
	for _, arn := range bad {
		for _, key := range []string{registration.ARNAnnotation, registration.EKSARNAnnotation} {
			want := []string{"metadata.annotations[" + key + "]"}
			mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "a3-new", Annotations: map[string]string{key: arn}}}
			_, created := bootstrap.ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{})
			_, updated := h.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), "a3-claiming", types.MergePatchType, annotate(mc.Annotations), metav1.PatchOptions{})
			for what, err := range map[string]error{"create": created, "update": updated} {
				if got := framework.InvalidFields(err); !apierrors.IsInvalid(err) || !slices.Equal(got, want) {
					t.Errorf("%s with %q: error = %v, want 422 for %v", what, arn, err, want)
				}
			}
		}
		_, err := claims.ClaimIRSA(t.Context(), "a3-claiming",
			&registerv1alpha1.ManagedClusterIRSA{Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: arn}}, metav1.CreateOptions{})
		if got := framework.InvalidFields(err); !apierrors.IsInvalid(err) || !slices.Equal(got, []string{"spec.managedClusterARN"}) {
			t.Errorf("ClaimIRSA(%q) = %v, want 422 for spec.managedClusterARN", arn, err)
		}
	}

	own := framework.Must(versioned.NewForConfig(h.join(t, "a3-member")))(t)
	garbage := map[string]string{registration.ARNAnnotation: ":::", registration.EKSARNAnnotation: "x", registration.RoleSuffixAnnotation: "../.."}
	if _, err := own.ClusterV1().ManagedClusters().Patch(t.Context(), "a3-member", types.MergePatchType, annotate(garbage), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	h.deny(t, "a3-member")
	h.says(t, "a3-member", metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied)
	h.accept(t, "a3-member")
	h.joinEKS(t, "a3-other")
	if got := h.Server.PID(); got != process || !h.Server.Running() {
		t.Errorf("process ID of the server = %d, running %v, want %d", got, h.Server.Running(), process)
	}
	if log := string(framework.Must(os.ReadFile(h.Server.LogFile))(t)); strings.Contains(log, "Observed a panic") || strings.Contains(log, "goroutine 1 [") {
		t.Error("the log of the server contains a panic, want none")
	}
}

// A4: if the acceptance of a cluster failed partially, a denial removes the objects and the access that
// the cluster got.
func TestDenyAfterFailedAcceptance(t *testing.T) {
	h := members(t)
	t.Run("in AWS", func(t *testing.T) {
		desired := h.desired("a4-aws", "a4-aws")
		h.request(t, claiming(desired))
		h.aws.SetFaults(func(call fakeaws.Call) fakeaws.Fault {
			if call.Operation == "CreateAccessEntry" {
				return fakeaws.Error("InvalidRequestException")
			}
			return fakeaws.Fault{}
		})
		defer h.aws.SetFaults(nil)
		if err := h.decide(t.Context(), desired.ClusterName, true); err != nil {
			t.Fatal(err)
		}
		condition := h.says(t, desired.ClusterName, metav1.ConditionFalse, clusterv1.ReasonError)
		if !strings.Contains(condition.Message, "CreateAccessEntry") {
			t.Errorf("condition message = %q, want the failed operation CreateAccessEntry", condition.Message)
		}
		if !h.hasRole(desired) || !h.record(t, desired.ClusterName).Status.IRSA.Provisioned {
			t.Error("the hub has no role for the cluster or does not report it as provisioned, want a partial identity")
		}
		if err := h.hasAccess(t.Context(), desired.ClusterName, noAccess); err != nil {
			t.Errorf("access of %s without an identity: %v, want none", desired.ClusterName, err)
		}
		code, _ := newRawCaller(t, h.entryConfig(t, desired)).must(t, rawRequest{method: "GET", path: clustersPath + "/" + desired.ClusterName})
		if code != 403 {
			t.Errorf("GET of its ManagedCluster without an identity = %d, want 403", code)
		}
		h.deny(t, desired.ClusterName)
		h.says(t, desired.ClusterName, metav1.ConditionFalse, clusterv1.ReasonHubClusterAdminDenied)
		h.cleanedUp(t, desired.ClusterName)
		if h.hasRole(desired) || h.record(t, desired.ClusterName).Status.IRSA.Provisioned {
			t.Error("AWS has the role of a denied cluster, want no role")
		}
	})
	t.Run("on the hub", func(t *testing.T) {
		const name, work = "a4-hub", "open-cluster-management:managedcluster:a4-hub:work"
		if err := framework.MakeNamespace(t.Context(), h.HubClient, name); err != nil {
			t.Fatal(err)
		}
		bindings := h.HubClient.RbacV1().RoleBindings(name)
		// The binding refers to another role. The server cannot replace it while it has a finalizer.
		framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: work, Finalizers: []string{"example.com/hold"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:managedcluster:namespaces"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: localhub.AgentGroup(name)}},
		}, metav1.CreateOptions{}))(t)
		h.request(t, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		agent := newRawCaller(t, framework.Must(h.Hub.UserConfig(localhub.AgentUser(name), localhub.AgentGroup(name)))(t))
		if err := h.decide(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
		h.says(t, name, metav1.ConditionFalse, clusterv1.ReasonError)
		framework.Eventually(t, "the agent can list Leases", func(ctx context.Context) error {
			return answers(ctx, agent, rawRequest{method: "GET", path: leasesPath(name)}, 200)
		})
		h.deny(t, name)
		h.cleanedUp(t, name)
		if err := h.hasAccess(t.Context(), name, deniedAccess); err != nil {
			t.Error(err)
		}
		for _, path := range []string{leasesPath(name), "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + name + "/clusternamespaces", worksPath(name)} {
			framework.Eventually(t, "the agent cannot read "+path, func(ctx context.Context) error {
				return answers(ctx, agent, rawRequest{method: "GET", path: path}, 403)
			})
		}
		held := framework.Must(bindings.Get(t.Context(), work, metav1.GetOptions{}))(t)
		if len(held.Subjects) > 0 {
			t.Errorf("subjects of the binding with a finalizer = %v, want none", held.Subjects)
		}
		held.Finalizers = nil
		framework.Must(bindings.Update(t.Context(), held, metav1.UpdateOptions{}))(t)
	})
}

func (h *awsHub) hasRole(desired irsa.Desired) bool {
	return slices.ContainsFunc(h.aws.Roles(faultsHubAccount), func(r fakeaws.Role) bool { return r.Name == desired.HubRoleName() })
}

// answers returns an error if the status code of a response is not want.
func answers(ctx context.Context, who *rawCaller, r rawRequest, want int) error {
	code, text, err := who.do(ctx, r)
	if err != nil {
		return err
	}
	if code != want {
		return fmt.Errorf("%s = %d, want %d: %.300s", r, code, want, text)
	}
	return nil
}

func leasesPath(cluster string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + cluster + "/leases"
}

func worksPath(cluster string) string {
	return "/apis/work.open-cluster-management.io/v1/namespaces/" + cluster + "/manifestworks"
}

// A5: a denial revokes the access and the identity of a cluster immediately, although the cluster has
// ManifestWorks. Its agent can no longer read them, even with an open watch.
func TestDenyWithManifestWorks(t *testing.T) {
	h := members(t)
	for name, joined := range map[string]func(t *testing.T, name string) (*rest.Config, *irsa.Desired){
		"a5-csr": func(t *testing.T, name string) (*rest.Config, *irsa.Desired) { return h.join(t, name), nil },
		"a5-eks": func(t *testing.T, name string) (*rest.Config, *irsa.Desired) {
			desired := h.joinEKS(t, name)
			return h.entryConfig(t, desired), &desired
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, desired := joined(t, name)
			agent, raw := framework.Must(versioned.NewForConfig(config))(t).WorkV1().ManifestWorks(name), newRawCaller(t, config)
			work := framework.ConfigMapWork("a5")
			work.Namespace = name
			framework.Must(h.OCM.WorkV1().ManifestWorks(name).Create(t.Context(), work, metav1.CreateOptions{}))(t)
			work = framework.Must(agent.Get(t.Context(), "a5", metav1.GetOptions{}))(t)
			work.Finalizers = []string{workv1.ManifestWorkFinalizer}
			framework.Must(agent.Update(t.Context(), work, metav1.UpdateOptions{}))(t)
			watching := framework.Must(agent.Watch(t.Context(), metav1.ListOptions{}))(t)
			defer watching.Stop()
			h.aws.ResetCalls()

			h.deny(t, name)
			// The first requests after the denial are rejected.
			for _, r := range []rawRequest{
				{method: "GET", path: worksPath(name)}, {method: "GET", path: worksPath(name) + "/a5"},
				{method: "GET", path: worksPath(name) + "?watch=true&timeoutSeconds=1"},
				{method: "PATCH", path: worksPath(name) + "/a5/status", contentType: mergePatch, body: `{"status":{"conditions":[]}}`},
				{method: "PATCH", path: clustersPath + "/" + name + "/status", contentType: mergePatch, body: `{"status":{"version":{"kubernetes":"v1.0.0"}}}`},
				{method: "PATCH", path: clustersPath + "/" + name, contentType: mergePatch, body: `{"spec":{"hubAcceptsClient":true}}`},
			} {
				if code, text := raw.must(t, r); code != 403 {
					t.Errorf("%s = %d, want 403: %s", r, code, text)
				}
			}
			mc := h.cluster(t, name)
			if condition := meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted); condition == nil ||
				condition.Status != metav1.ConditionFalse || condition.Reason != clusterv1.ReasonHubClusterAdminDenied {
				t.Errorf("conditions immediately after the denial = %v, want HubAcceptedManagedCluster False", mc.Status.Conditions)
			}
			if code, text := raw.must(t, rawRequest{method: "GET", path: clustersPath + "/" + name}); code != 200 || !strings.Contains(text, clusterv1.ReasonHubClusterAdminDenied) {
				t.Errorf("GET of the denied ManagedCluster by its agent = %d %s, want 200 with the denial", code, text)
			}
			framework.Must(h.OCM.WorkV1().ManifestWorks(name).Patch(t.Context(), "a5", types.MergePatchType, annotate(map[string]string{"edited": "after the denial"}), metav1.PatchOptions{}))(t)
			end := time.After(await.Patience)
			for open := true; open; {
				select {
				case event, more := <-watching.ResultChan():
					if open = more; more {
						if seen, ok := event.Object.(*workv1.ManifestWork); ok && seen.Annotations["edited"] != "" {
							t.Error("the watch returns a change after the denial, want no further events")
						}
					}
				case <-end:
					t.Fatal("the watch is open after the denial, want it closed")
				}
			}
			for _, refused := range []rawRequest{
				{method: "GET", path: leasesPath(name)},
				{method: "POST", path: "/apis/certificates.k8s.io/v1/certificatesigningrequests", body: "{}"},
			} {
				framework.Eventually(t, "the agent cannot "+refused.method+" "+refused.path, func(ctx context.Context) error {
					return answers(ctx, raw, refused, 403)
				})
			}
			h.cleanedUp(t, name)
			if err := h.hasAccess(t.Context(), name, deniedAccess); err != nil {
				t.Error(err)
			}
			if desired != nil {
				if calls := h.callsFor(*desired); !slices.Equal(calls, []string{"DeleteAccessEntry", "DeleteRolePolicy", "DeleteRole"}) {
					t.Errorf("calls to AWS = %v, want DeleteAccessEntry, DeleteRolePolicy and DeleteRole", calls)
				}
				if h.hasRole(*desired) {
					t.Error("AWS has the role of a denied cluster, want no role")
				}
			}
			work = framework.Must(h.OCM.WorkV1().ManifestWorks(name).Get(t.Context(), "a5", metav1.GetOptions{}))(t)
			if !slices.Equal(work.Finalizers, []string{workv1.ManifestWorkFinalizer}) || work.DeletionTimestamp != nil {
				t.Errorf("ManifestWork of the denied cluster = %+v, want it unchanged", work.ObjectMeta)
			}

			h.accept(t, name)
			if desired != nil {
				if err := h.inAWS(*desired); err != nil {
					t.Error(err)
				}
			}
			framework.Eventually(t, "the agent reads the edited ManifestWork", func(ctx context.Context) error {
				seen, err := agent.Get(ctx, "a5", metav1.GetOptions{})
				if err == nil && seen.Annotations["edited"] == "" {
					err = errors.New("annotation edited is missing")
				}
				return err
			})
		})
	}
}

// A6: an acceptance takes three calls to AWS. Later changes of the ManagedCluster take none.
func TestAcceptanceRunsItsPlanOnce(t *testing.T) {
	h := members(t)
	h.aws.ResetCalls()
	desired := h.joinEKS(t, "a6")
	if calls := h.callsFor(desired); !slices.Equal(calls, []string{"CreateRole", "PutRolePolicy", "CreateAccessEntry"}) {
		t.Errorf("calls for the acceptance = %v, want CreateRole, PutRolePolicy and CreateAccessEntry", calls)
	}
	h.aws.ResetCalls()
	own := framework.Must(versioned.NewForConfig(h.entryConfig(t, desired)))(t).ClusterV1().ManagedClusters()
	for i := range 25 {
		changes := annotate(map[string]string{"touched": fmt.Sprint(i), registration.RoleSuffixAnnotation: fmt.Sprint(i)})
		framework.Must(own.Patch(t.Context(), "a6", types.MergePatchType, changes, metav1.PatchOptions{}))(t)
		framework.Must(own.Patch(t.Context(), "a6", types.MergePatchType, fmt.Appendf(nil, `{"status":{"version":{"kubernetes":"v1.%d.0"}}}`, i), metav1.PatchOptions{}, "status"))(t)
	}
	// The acceptance of a later cluster proves that the server has processed these events.
	h.joinEKS(t, "a6-next")
	if calls := h.callsFor(desired); len(calls) > 0 {
		t.Errorf("calls for the changes = %v, want none", calls)
	}
}

// A7: the server corrects an access entry with wrong groups and a role with another trust policy,
// when it accepts the cluster and after later changes.
func TestWrongGroupsAreCorrected(t *testing.T) {
	h := members(t)
	key := framework.Must(h.aws.AddUser(faultsHubAccount, "administrator", fakeaws.AdminPolicy))(t)
	config := aws.Config{
		Region: faultsRegion, BaseEndpoint: aws.String(h.aws.URL()),
		Credentials: credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
	}
	roles, entries := iam.NewFromConfig(config), eks.NewFromConfig(config)
	anybody := aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`)
	desired := h.desired("a7", "a7")
	h.request(t, claiming(desired))
	framework.Must(roles.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String(desired.HubRoleName()), AssumeRolePolicyDocument: anybody}))(t)
	framework.Must(entries.CreateAccessEntry(t.Context(), &eks.CreateAccessEntryInput{
		ClusterName: aws.String(h.arn.ClusterName), PrincipalArn: aws.String(desired.HubRoleARN()),
		Username: aws.String("administrator"), KubernetesGroups: []string{"open-cluster-management:another", "administrators"},
	}))(t)
	h.accept(t, "a7")
	if err := h.inAWS(desired); err != nil {
		t.Errorf("identity of the accepted cluster a7: %v, want it corrected", err)
	}

	framework.Must(entries.UpdateAccessEntry(t.Context(), &eks.UpdateAccessEntryInput{
		ClusterName: aws.String(h.arn.ClusterName), PrincipalArn: aws.String(desired.HubRoleARN()),
		KubernetesGroups: append(desired.Groups(), "administrators"),
	}))(t)
	framework.Must(roles.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(desired.HubRoleName()), PolicyDocument: anybody}))(t)
	if h.inAWS(desired) == nil {
		t.Fatal("the identity is as desired, want a changed role and access entry")
	}
	// The server verifies identities periodically and when it starts.
	if err := h.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Server.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the role and the access entry in AWS are corrected", func(context.Context) error { return h.inAWS(desired) })
	if err := h.hubAccepts(t.Context(), "a7"); err != nil {
		t.Error(err)
	}
}
