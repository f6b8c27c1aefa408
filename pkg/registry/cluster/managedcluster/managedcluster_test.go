package managedcluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

// fakeRegistration records its calls, and refuses the cluster "refused".
type fakeRegistration struct {
	mu    sync.Mutex
	calls []string
}

func (f *fakeRegistration) record(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeRegistration) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fakeRegistration) AdmitCreate(_ context.Context, mc *clusterv1.ManagedCluster, dryRun bool) error {
	f.record("AdmitCreate %s %v", mc.Name, dryRun)
	if mc.Name == "refused" {
		return apierrors.NewForbidden(clusterv1.Resource("managedclusters"), mc.Name, errors.New("refused"))
	}
	return nil
}

func (f *fakeRegistration) Created(_ context.Context, mc *clusterv1.ManagedCluster) {
	f.record("Created %s", mc.Name)
}

func (f *fakeRegistration) NotStored(_ context.Context, mc *clusterv1.ManagedCluster, cause error) {
	f.record("NotStored %s %s", mc.Name, apierrors.ReasonForError(cause))
}

func (f *fakeRegistration) AdmitUpdate(_ context.Context, mc, _ *clusterv1.ManagedCluster, decided, dryRun bool) error {
	f.record("AdmitUpdate %s %v %v", mc.Name, decided, dryRun)
	if mc.Annotations["refused"] != "" {
		return apierrors.NewForbidden(clusterv1.Resource("managedclusters"), mc.Name, errors.New("refused"))
	}
	return nil
}

func (f *fakeRegistration) Updated(_ context.Context, mc, _ *clusterv1.ManagedCluster, decided bool) {
	f.record("Updated %s %v", mc.Name, decided)
}

func (f *fakeRegistration) Deleted(_ context.Context, mc *clusterv1.ManagedCluster, gone bool) {
	f.record("Deleted %s %v", mc.Name, gone)
}

type fixture struct {
	server       registrytest.Server
	registration *fakeRegistration
	decisions    *managedcluster.Decisions
}

// serve serves ManagedClusters. Only the user admin may change the clusters of a set.
func serve(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{registration: &fakeRegistration{}, decisions: &managedcluster.Decisions{}}
	f.server = registrytest.StartDatabase(t).Serve(t, nil, managedcluster.Definition(managedcluster.Options{
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "admin" || a.GetName() == clusterv1beta2.DefaultClusterSet {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
		Registration: f.registration, Decisions: f.decisions,
	}))
	return f
}

func (f *fixture) as(t *testing.T, name string) clusterclient.ManagedClusterInterface {
	t.Helper()
	return f.server.As(t, name).ClusterV1().ManagedClusters()
}

func newCluster(name string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (f *fixture) create(t *testing.T, mc *clusterv1.ManagedCluster) *clusterv1.ManagedCluster {
	t.Helper()
	created, err := f.as(t, "admin").Create(t.Context(), mc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.registration.take()
	return created
}

func (f *fixture) get(t *testing.T, name string) *clusterv1.ManagedCluster {
	t.Helper()
	stored, err := f.as(t, "admin").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestCreate(t *testing.T) {
	for name, test := range map[string]struct {
		user    string
		cluster func() *clusterv1.ManagedCluster
		field   string // of the error, if it is 422
		reason  metav1.StatusReason
		calls   []string
	}{
		"pending": {
			user: "agent", cluster: func() *clusterv1.ManagedCluster { return newCluster("c1") },
			calls: []string{"AdmitCreate c1 false", "Created c1"},
		},
		"accepted": {
			user: "admin", cluster: func() *clusterv1.ManagedCluster {
				mc := newCluster("c2")
				mc.Spec.HubAcceptsClient = true
				return mc
			},
			calls: []string{"AdmitCreate c2 false", "Created c2"},
		},
		"a name that is not a namespace name": {
			user: "admin", cluster: func() *clusterv1.ManagedCluster { return newCluster("c.1") },
			field: "metadata.name", reason: metav1.StatusReasonInvalid,
		},
		"a URL without https": {
			user: "admin", cluster: func() *clusterv1.ManagedCluster {
				mc := newCluster("c3")
				mc.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "http://a"}}
				return mc
			},
			field: "spec.managedClusterClientConfigs[0].url", reason: metav1.StatusReasonInvalid,
		},
		"in a set without permission": {
			user: "agent", cluster: func() *clusterv1.ManagedCluster {
				mc := newCluster("c4")
				mc.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: "prod"}
				return mc
			},
			reason: metav1.StatusReasonForbidden,
		},
		"refused by the registration": {
			user: "agent", cluster: func() *clusterv1.ManagedCluster { return newCluster("refused") },
			reason: metav1.StatusReasonForbidden, calls: []string{"AdmitCreate refused false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			mc := test.cluster()
			created, err := f.as(t, test.user).Create(t.Context(), mc, metav1.CreateOptions{})
			if got := apierrors.ReasonForError(err); err != nil && got != test.reason || err == nil && test.reason != "" {
				t.Fatalf("Create(%s) = %v, want %q", mc.Name, err, test.reason)
			}
			if test.field != "" && !strings.Contains(err.Error(), test.field+": ") {
				t.Errorf("Create(%s) = %v, want an error of %s", mc.Name, err, test.field)
			}
			if got := f.registration.take(); !slices.Equal(got, test.calls) {
				t.Errorf("calls of the registration = %q, want %q", got, test.calls)
			}
			if test.reason != "" {
				if _, err := f.as(t, "admin").Get(t.Context(), mc.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("Get(%s) after a refusal = %v, want 404", mc.Name, err)
				}
				return
			}
			if created.Generation != 1 || created.Labels[clusterv1beta2.ClusterSetLabel] != clusterv1beta2.DefaultClusterSet ||
				created.Annotations[registration.RequestedByAnnotation] != test.user || !slices.Contains(created.Finalizers, clusterv1.ManagedClusterFinalizer) {
				t.Errorf("Create(%s) stores %+v, want the default set, the requesting user and the finalizer", mc.Name, created.ObjectMeta)
			}
			if acceptance := created.Status.Acceptance; created.Spec.HubAcceptsClient != (acceptance != nil) || acceptance != nil && acceptance.DecidedBy != test.user {
				t.Errorf("Create(%s) stores the acceptance %+v, want one by %s if it is accepted", mc.Name, acceptance, test.user)
			}
		})
	}
}

func TestCreateDryRunAndConflict(t *testing.T) {
	f := serve(t)
	if _, err := f.as(t, "admin").Create(t.Context(), newCluster("c1"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	if got, want := f.registration.take(), []string{"AdmitCreate c1 true"}; !slices.Equal(got, want) {
		t.Errorf("calls of a dry run = %q, want %q", got, want)
	}
	if _, err := f.as(t, "admin").Get(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after a dry run = %v, want 404", err)
	}
	f.create(t, newCluster("c1"))
	if _, err := f.as(t, "admin").Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create() of an existing cluster = %v, want 409", err)
	}
	if got, want := f.registration.take(), []string{"AdmitCreate c1 false", "NotStored c1 AlreadyExists"}; !slices.Equal(got, want) {
		t.Errorf("calls of a conflict = %q, want %q", got, want)
	}
}

func TestUpdate(t *testing.T) {
	f := serve(t)
	old := metav1.NewTime(time.Unix(1_000_000_000, 0))
	for name, test := range map[string]struct {
		user       string
		change     func(*clusterv1.ManagedCluster)
		reason     metav1.StatusReason
		generation int64
		check      func(*clusterv1.ManagedCluster) bool
	}{
		"accept": {
			change: func(mc *clusterv1.ManagedCluster) { mc.Spec.HubAcceptsClient = true }, generation: 2,
			check: func(mc *clusterv1.ManagedCluster) bool {
				return mc.Status.Acceptance != nil && mc.Status.Acceptance.Accepted && mc.Status.Acceptance.DecidedBy == "admin"
			},
		},
		"the time of a taint": {
			change: func(mc *clusterv1.ManagedCluster) {
				mc.Spec.Taints = []clusterv1.Taint{{Key: "a", Effect: clusterv1.TaintEffectNoSelect, TimeAdded: old}}
			},
			generation: 2,
			check: func(mc *clusterv1.ManagedCluster) bool {
				return len(mc.Spec.Taints) == 1 && time.Since(mc.Spec.Taints[0].TimeAdded.Time) < time.Hour
			},
		},
		"an invalid taint": {
			change: func(mc *clusterv1.ManagedCluster) {
				mc.Spec.Taints = []clusterv1.Taint{{Effect: clusterv1.TaintEffectNoSelect}}
			},
			reason: metav1.StatusReasonInvalid, generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool { return len(mc.Spec.Taints) == 0 },
		},
		"the finalizers": {
			change: func(mc *clusterv1.ManagedCluster) { mc.Finalizers = nil }, generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool { return len(mc.Finalizers) == 1 },
		},
		"the requesting user": {
			change: func(mc *clusterv1.ManagedCluster) { mc.Annotations = nil }, generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool {
				return mc.Annotations[registration.RequestedByAnnotation] == "admin"
			},
		},
		"the acceptance": {
			change:     func(mc *clusterv1.ManagedCluster) { mc.Status.Acceptance = &clusterv1.Acceptance{Accepted: true} },
			generation: 1,
			check:      func(mc *clusterv1.ManagedCluster) bool { return mc.Status.Acceptance == nil },
		},
		"the set, without permission": {
			user: "agent",
			change: func(mc *clusterv1.ManagedCluster) {
				mc.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: "prod"}
			},
			reason: metav1.StatusReasonForbidden, generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool {
				return mc.Labels[clusterv1beta2.ClusterSetLabel] == clusterv1beta2.DefaultClusterSet
			},
		},
		"the set, with permission": {
			change: func(mc *clusterv1.ManagedCluster) {
				mc.Labels = map[string]string{clusterv1beta2.ClusterSetLabel: "prod"}
			},
			generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool {
				return mc.Labels[clusterv1beta2.ClusterSetLabel] == "prod"
			},
		},
		"refused by the registration": {
			change: func(mc *clusterv1.ManagedCluster) { mc.Annotations["refused"] = "true" },
			reason: metav1.StatusReasonForbidden, generation: 1,
			check: func(mc *clusterv1.ManagedCluster) bool { return mc.Annotations["refused"] == "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			update := f.create(t, newCluster(strings.NewReplacer(" ", "-", ",", "").Replace(name))).DeepCopy()
			test.change(update)
			caller := test.user
			if caller == "" {
				caller = "admin"
			}
			_, err := f.as(t, caller).Update(t.Context(), update, metav1.UpdateOptions{})
			if got := apierrors.ReasonForError(err); err != nil && got != test.reason || err == nil && test.reason != "" {
				t.Errorf("Update() = %v, want %q", err, test.reason)
			}
			stored := f.get(t, update.Name)
			if !test.check(stored) {
				t.Errorf("Update() stores %+v, %+v, %+v, want the object that the check of %q accepts", stored.ObjectMeta, stored.Spec, stored.Status, name)
			}
			if stored.Generation != test.generation {
				t.Errorf("generation = %d, want %d", stored.Generation, test.generation)
			}
			calls := f.registration.take()
			if updated := slices.Contains(calls, "Updated "+update.Name+" false"); updated != (test.reason == "") {
				t.Errorf("calls of the registration = %q, want Updated only if the change is stored", calls)
			}
		})
	}
}

// TestUpdateStatus writes the status as the agent, which may not write the conditions of the server.
func TestUpdateStatus(t *testing.T) {
	f := serve(t)
	mc := newCluster("c1")
	mc.Spec.HubAcceptsClient = true
	f.create(t, mc)
	denied := f.get(t, "c1")
	denied.Spec.HubAcceptsClient = false
	if _, err := f.as(t, "admin").Update(t.Context(), denied, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	report := f.get(t, "c1")
	report.Labels["a"] = "b"
	report.Spec.HubAcceptsClient = true
	report.Status.Acceptance = &clusterv1.Acceptance{Accepted: true, DecidedBy: "agent"}
	report.Status.Version.Kubernetes = "v1.36.3"
	report.Status.ManagedNamespaces = []clusterv1.ClusterSetManagedNamespaceConfig{{ClusterSet: "prod", Name: "kube-system"}}
	for _, conditionType := range []string{clusterv1.ManagedClusterConditionHubAccepted, clusterv1.ManagedClusterConditionAvailable} {
		meta.SetStatusCondition(&report.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Reported"})
	}
	if _, err := f.as(t, "agent").UpdateStatus(t.Context(), report, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := f.get(t, "c1")
	if stored.Labels["a"] != "" || stored.Spec.HubAcceptsClient || stored.Generation != 2 {
		t.Errorf("UpdateStatus() stores %+v, %+v, want the stored metadata and spec", stored.ObjectMeta, stored.Spec)
	}
	if stored.Status.Version.Kubernetes != "v1.36.3" || !meta.IsStatusConditionTrue(stored.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
		t.Errorf("UpdateStatus() stores the status %+v, want the report", stored.Status)
	}
	accepted := meta.FindStatusCondition(stored.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.Message != "Denied by admin." || accepted.ObservedGeneration != 2 {
		t.Errorf("condition %s = %+v, want the denial", clusterv1.ManagedClusterConditionHubAccepted, accepted)
	}
	if stored.Status.Acceptance.Accepted || stored.Status.Acceptance.DecidedBy != "admin" || len(stored.Status.ManagedNamespaces) != 0 {
		t.Errorf("UpdateStatus() stores %+v, %v, want the acceptance and the namespaces of the server", stored.Status.Acceptance, stored.Status.ManagedNamespaces)
	}

	stored.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: ""}}
	if _, err := f.as(t, "agent").UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.clusterClaims[0].name: ") {
		t.Errorf("UpdateStatus() with an invalid claim = %v, want an error of status.clusterClaims[0].name", err)
	}
}

// TestRatcheting updates a cluster with a stored spec that became invalid later.
func TestRatcheting(t *testing.T) {
	database := registrytest.StartDatabase(t)
	row := managedcluster.Definition(managedcluster.Options{Authorizer: authorizer.AuthorizerFunc(registrytest.AllowAll)})
	lenient := row
	strategy := *row.Strategy.(*definition.Strategy[*cluster.ManagedCluster])
	strategy.Rules.Spec = nil
	lenient.Strategy = &strategy
	mc := newCluster("c1")
	mc.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "http://old"}}
	stored, err := database.Serve(t, nil, lenient).As(t, "admin").ClusterV1().ManagedClusters().Create(t.Context(), mc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	clusters := database.Serve(t, nil, row).As(t, "admin").ClusterV1().ManagedClusters()
	stored.Spec.LeaseDurationSeconds = ptr.To[int32](90)
	if stored, err = clusters.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Update() with an old invalid URL = %v, want no error", err)
	}
	stored.Spec.ManagedClusterClientConfigs[0].URL = "http://new"
	if _, err := clusters.Update(t.Context(), stored, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.managedClusterClientConfigs[0].url: ") {
		t.Errorf("Update() to another invalid URL = %v, want an error of the URL", err)
	}
}

func TestDelete(t *testing.T) {
	f := serve(t)
	created := f.create(t, newCluster("c1"))
	for _, test := range []struct {
		options metav1.DeleteOptions
		calls   []string
		reason  metav1.StatusReason
	}{
		{metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, nil, ""},
		{metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}, nil, metav1.StatusReasonConflict},
		{metav1.DeleteOptions{}, []string{"Deleted c1 false"}, ""},
	} {
		err := f.as(t, "admin").Delete(t.Context(), "c1", test.options)
		if got := apierrors.ReasonForError(err); err != nil && got != test.reason || err == nil && test.reason != "" {
			t.Errorf("Delete(%v) = %v, want %q", test.options, err, test.reason)
		}
		if got := f.registration.take(); !slices.Equal(got, test.calls) {
			t.Errorf("calls of Delete(%v) = %q, want %q", test.options, got, test.calls)
		}
	}
	deleted := f.get(t, "c1")
	if deleted.UID != created.UID || deleted.DeletionTimestamp == nil {
		t.Errorf("Get() of a deleted cluster = %+v, want a deletionTimestamp", deleted.ObjectMeta)
	}
	deleted.Finalizers = nil
	if _, err := f.as(t, "admin").Update(t.Context(), deleted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.as(t, "admin").Get(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after the last finalizer = %v, want 404", err)
	}
}

func TestDecisions(t *testing.T) {
	if _, err := (&managedcluster.Decisions{}).Get(t.Context(), "c1", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("Get() before the row is served = %v, want 503", err)
	}
	f := serve(t)
	created := f.create(t, newCluster("c1"))
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "admin"})
	denial := clusterv1.Acceptance{Reason: "unknown", DecidedBy: "bob"}
	decided, err := f.decisions.Apply(ctx, registration.Decision{Cluster: "c1", UID: created.UID, Acceptance: denial})
	if err != nil {
		t.Fatal(err)
	}
	condition := meta.FindStatusCondition(decided.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	if condition == nil || condition.Message != "Denied by bob. Reason: unknown" || decided.Status.Acceptance.DecidedBy != "bob" {
		t.Errorf("Decide() stores %+v, %+v, want the denial of bob", decided.Status.Acceptance, condition)
	}
	if got, want := f.registration.take(), []string{"AdmitUpdate c1 true false", "Updated c1 true"}; !slices.Equal(got, want) {
		t.Errorf("calls of the registration = %q, want %q", got, want)
	}
	for _, decision := range []registration.Decision{
		{Cluster: "c1", UID: types.UID("other")},
		{Cluster: "c1", UID: created.UID, ResourceVersion: created.ResourceVersion},
	} {
		if _, err := f.decisions.Apply(ctx, decision); !apierrors.IsConflict(err) {
			t.Errorf("Apply(%+v) = %v, want 409", decision, err)
		}
	}
	dry := registration.Decision{Cluster: "c1", UID: created.UID, Acceptance: clusterv1.Acceptance{Accepted: true}, DryRun: true}
	if applied, err := f.decisions.Apply(ctx, dry); err != nil || !applied.Spec.HubAcceptsClient || f.get(t, "c1").Spec.HubAcceptsClient {
		t.Errorf("Apply() with dry run = %v, want an accepted cluster that is not stored", err)
	}
}

func TestColumnsAndSelectors(t *testing.T) {
	f := serve(t)
	mc := newCluster("accepted")
	mc.Spec = clusterv1.ManagedClusterSpec{HubAcceptsClient: true, ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://a"}, {URL: "https://b"}}}
	f.create(t, mc)
	f.create(t, newCluster("pending"))
	list, err := f.as(t, "admin").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.hubAcceptsClient=true"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "accepted" {
		t.Errorf("List(spec.hubAcceptsClient=true) = %v, %v, want the accepted cluster", list, err)
	}
	row := managedcluster.Definition(managedcluster.Options{})
	var cells []any
	for _, column := range row.Columns.(definition.Columns[*cluster.ManagedCluster]) {
		cells = append(cells, column.Cell(&cluster.ManagedCluster{
			Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://a"}, {URL: "https://b"}}},
			Status: clusterv1.ManagedClusterStatus{Conditions: []metav1.Condition{
				{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue},
			}},
		}))
	}
	if want := []any{"true", "https://a,https://b", "True", "Unknown"}; !slices.Equal(cells, want) {
		t.Errorf("cells = %q, want %q", cells, want)
	}
}
