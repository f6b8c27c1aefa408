package registration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/awsirsa"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// eventually is await.Eventually.
var eventually = await.Eventually[func(context.Context) error]

// realHub is a Kubernetes control plane that stores ManagedClusters, ManifestWorks and registrations
// as custom resources.
type realHub struct {
	*localhub.Cluster
	admin kubernetes.Interface
	ours  versioned.Interface
	// rights is the identity of the server on the hub, with the permissions that the manifests grant.
	rights *rest.Config
}

func startHub(t *testing.T) *realHub {
	t.Helper()
	cluster := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub"})
	var err error
	h := &realHub{Cluster: cluster}
	if h.admin, err = kubernetes.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if h.ours, err = versioned.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	err = cluster.Apply(t.Context(),
		customResource("cluster.open-cluster-management.io", "v1", "managedclusters", "ManagedCluster", "Cluster", true),
		customResource("register.open-cluster-management.io", "v1alpha1", "managedclusters", "ManagedClusterRegistration", "Cluster", false),
		customResource("work.open-cluster-management.io", "v1", "manifestworks", "ManifestWork", "Namespaced", true),
		customResource("addon.open-cluster-management.io", "v1alpha1", "managedclusteraddons", "ManagedClusterAddOn", "Namespaced", true))
	if err != nil {
		t.Fatal(err)
	}
	if h.rights, err = cluster.ServiceAccountConfig(t.Context(), localhub.HubNamespace, localhub.ServerName); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"rbac", filepath.Join("agent", "hub")} {
		manifests, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), manifests...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the custom resources are served", func(ctx context.Context) error {
		_, err := h.ours.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
		_, err2 := h.ours.WorkV1().ManifestWorks("default").List(ctx, metav1.ListOptions{})
		_, err3 := h.ours.RegisterV1alpha1().ManagedClusterRegistrations().List(ctx, metav1.ListOptions{})
		_, err4 := h.ours.AddonV1alpha1().ManagedClusterAddOns("default").List(ctx, metav1.ListOptions{})
		return errors.Join(err, err2, err3, err4)
	})
	return h
}

func customResource(group, version, plural, kind, scope string, status bool) *unstructured.Unstructured {
	served := map[string]any{
		"name": version, "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
	}
	if status {
		served["subresources"] = map[string]any{"status": map[string]any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name": plural + "." + group,
		},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": []any{served},
			"names": map[string]any{"plural": plural, "kind": kind, "singular": strings.ToLower(kind), "listKind": kind + "List"},
		},
	}}
}

// fate ends a server after a number of writes. From then on its requests have no effect, as after a
// crash. If the number is zero, the server does not crash.
type fate struct {
	mu     sync.Mutex
	writes []string
	last   int
	kill   context.CancelFunc
}

var errCrashed = errors.New("the server has crashed")

func (f *fate) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last == 0 || len(f.writes) < f.last
}

// wrote records a write, and reports whether the server still receives the answer.
func (f *fate) wrote(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, what)
	if f.last > 0 && len(f.writes) >= f.last {
		f.kill()
		return false
	}
	return true
}

func (f *fate) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.writes)
}

// mortal is the transport of a server that may crash.
type mortal struct {
	fate *fate
	next http.RoundTripper
}

func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if !m.fate.alive() {
		return nil, errCrashed
	}
	response, err := m.next.RoundTrip(r)
	written := r.Method != http.MethodGet && err == nil && response.StatusCode < http.StatusBadRequest
	if written && !m.fate.wrote(r.Method+" "+r.URL.Path) {
		_ = response.Body.Close()
		return nil, errCrashed
	}
	return response, err
}

// account is an AWS account that stores the desired state by the name of the role.
type account struct {
	mu       sync.Mutex
	has      map[string]irsa.Desired
	fail     error
	fails    int
	made     int
	observed int
	stuck    chan struct{}
}

func (a *account) Provision(ctx context.Context, desired irsa.Desired, fresh bool) error {
	a.mu.Lock()
	stuck := a.stuck
	a.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		a.fails++
		if a.fails == 1 {
			a.has[desired.HubRoleName()] = desired // the first failed call creates the role
		}
		return a.fail
	}
	if fresh {
		a.made++
	} else {
		a.observed++
	}
	a.has[desired.HubRoleName()] = desired
	return nil
}

func (a *account) Remove(_ context.Context, desired irsa.Desired) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.has, desired.HubRoleName())
	return nil
}

func (a *account) set(change func(*account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *account) roles() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.has)
}

// mortalCloud is an account as a server that may crash sees it.
type mortalCloud struct {
	fate    *fate
	account *account
}

func (m mortalCloud) call(cluster string, do func() error) error {
	if !m.fate.alive() {
		return errCrashed
	}
	err := do()
	if err == nil && !m.fate.wrote("AWS "+cluster) {
		return errCrashed
	}
	return err
}

func (m mortalCloud) Provision(ctx context.Context, desired irsa.Desired, fresh bool) error {
	return m.call(desired.ClusterName, func() error { return m.account.Provision(ctx, desired, fresh) })
}

func (mortalCloud) CheckAccessEntries(context.Context, irsa.ARN) (string, error) { return "", nil }

func (m mortalCloud) Remove(ctx context.Context, desired irsa.Desired) error {
	return m.call(desired.ClusterName, func() error { return m.account.Remove(ctx, desired) })
}

// csrDriver needs only RBAC.
type csrDriver struct{}

func (csrDriver) Name() registerv1alpha1.RegistrationDriver { return registerv1alpha1.DriverCSR }
func (csrDriver) Groups(r *registerv1alpha1.ManagedClusterRegistration) []string {
	return clusterv1.AgentGroups(r.Name)[:1]
}
func (csrDriver) Rules(*registerv1alpha1.ManagedClusterRegistration) []rbacv1.PolicyRule { return nil }
func (csrDriver) Check(context.Context) ([]string, error)                                { return nil, nil }
func (csrDriver) Refuses(*registerv1alpha1.ManagedClusterRegistration) string            { return "" }
func (csrDriver) Provision(context.Context, *registerv1alpha1.ManagedClusterRegistration, bool) error {
	return nil
}
func (csrDriver) Revoke(context.Context, *registerv1alpha1.ManagedClusterRegistration) error {
	return nil
}

var hubARN = irsa.ARN{Partition: "aws", Region: "us-east-1", AccountID: "111122223333", ClusterName: "hub"}

// fleet contains the clusters with a prefix in their names. Each test has its own fleet.
type fleet struct {
	*realHub
	account *account
	records *storedRecords
	auto    registration.AutoApproval
	drivers func([]registration.Driver) []registration.Driver
	// drain is the time that deleted clusters keep their access, and events receives events.
	drain  time.Duration
	events *events.FakeRecorder
	// only is the one cluster that the server sees. If it is empty, the server sees all clusters.
	only string
}

func (h *realHub) fleet(only string) *fleet {
	return &fleet{
		realHub: h, only: only, events: events.NewFakeRecorder(100), account: &account{has: map[string]irsa.Desired{}},
		records: &storedRecords{client: h.ours.RegisterV1alpha1().RESTClient(), read: h.ours, reserved: map[string]types.UID{}},
	}
}

// running is a running server.
type running struct {
	fate *fate
	stop func()
	done chan struct{}
	// clusters are the ManagedClusters that the server sees.
	clusters clusterlisters.ManagedClusterLister
}

// serve runs the controller until the test ends or the caller stops it. If crashAfter is greater than
// zero, the server crashes after that number of writes.
func (f *fleet) serve(t *testing.T, crashAfter int) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{fate: &fate{last: crashAfter, kill: cancel}, done: make(chan struct{})}
	mortal := func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(config)
		config.QPS = -1
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{fate: r.fate, next: next} })
		return config
	}
	hub, err := kubernetes.NewForConfig(mortal(f.rights))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := versioned.NewForConfig(mortal(f.AdminConfig()))
	if err != nil {
		t.Fatal(err)
	}
	records := &mortalRecords{storedRecords: &storedRecords{client: ours.RegisterV1alpha1().RESTClient(), read: ours}, shared: f.records}
	own := externalversions.NewSharedInformerFactoryWithOptions(ours, 0, externalversions.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", f.only).String()
	}))
	r.clusters = own.Cluster().V1().ManagedClusters().Lister()
	labelled := kubeinformers.NewSharedInformerFactoryWithOptions(hub, 0, kubeinformers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = clusterv1.ClusterNameLabel + "=" + f.only
	}))
	aws := awsirsa.New(awsirsa.Options{
		HubARN: hubARN, Mapping: irsa.AccessEntry, ManageRoles: true, Hub: hub, Records: records, Cloud: mortalCloud{fate: r.fate, account: f.account},
	})
	drivers := []registration.Driver{csrDriver{}, aws}
	if f.drivers != nil {
		drivers = f.drivers(drivers)
	}
	works := externalversions.NewSharedInformerFactoryWithOptions(ours, 0, externalversions.WithNamespace(f.only))
	controller := registration.NewController(registration.Options{
		Clusters: ours.ClusterV1(), ClusterInformer: own.Cluster().V1().ManagedClusters(),
		Registrations: own.Register().V1alpha1().ManagedClusterRegistrations(), Records: records,
		Drivers: drivers, Access: registration.NewAccess(hub, labelled), Hub: hub,
		HubInformers: labelled, Works: ours.WorkV1(), Addons: ours.AddonV1alpha1(), Decisions: decider{ours},
		CachedWorks: works.Work().V1().ManifestWorks().Lister(), DrainTimeout: f.drain, Events: f.events,
		EnsureRecord: func(ctx context.Context, mc *clusterv1.ManagedCluster) error {
			_, err := records.Create(ctx, recordOf(mc, ""))
			return err
		},
		AutoApproval: f.auto,
	})
	own.Start(ctx.Done())
	labelled.Start(ctx.Done())
	works.Start(ctx.Done())
	go func() {
		defer close(r.done)
		controller.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-r.done
		own.Shutdown()
		labelled.Shutdown()
	}
	t.Cleanup(r.stop)
	return r
}

// mortalRecords share reservations with other servers.
type mortalRecords struct {
	*storedRecords
	shared *storedRecords
}

func (m *mortalRecords) Release(ctx context.Context, hash string, uid types.UID) error {
	return m.shared.Release(ctx, hash, uid)
}

// decider writes decisions as the server does for a request.
type decider struct{ ours versioned.Interface }

func (d decider) Apply(ctx context.Context, decision registration.Decision) (out *clusterv1.ManagedCluster, err error) {
	cluster, acceptance := decision.Cluster, decision.Acceptance
	clusters := d.ours.ClusterV1().ManagedClusters()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		mc, err := clusters.Get(ctx, cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mc.UID != decision.UID || mc.DeletionTimestamp != nil {
			return apierrors.NewConflict(clusterv1.Resource("managedclusters"), cluster, errors.New("the cluster has another UID or is being deleted"))
		}
		before := mc.Status.Acceptance
		acceptance.EverAccepted = acceptance.Accepted || before != nil && before.EverAccepted
		mc.Status.Acceptance = &acceptance
		if mc, err = clusters.UpdateStatus(ctx, mc, metav1.UpdateOptions{}); err != nil {
			return err
		}
		mc.Spec.HubAcceptsClient = acceptance.Accepted
		if acceptance.Accepted && !slices.Contains(mc.Finalizers, clusterv1.ManagedClusterFinalizer) {
			mc.Finalizers = append(mc.Finalizers, clusterv1.ManagedClusterFinalizer)
		}
		out, err = clusters.Update(ctx, mc, metav1.UpdateOptions{})
		return err
	})
	return out, err
}

func recordOf(mc *clusterv1.ManagedCluster, arn string) *registerv1alpha1.ManagedClusterRegistration {
	record := &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: mc.Name},
		Spec: registerv1alpha1.ManagedClusterRegistrationSpec{
			ManagedClusterUID: mc.UID, Driver: registerv1alpha1.DriverCSR, RequestedBy: registerv1alpha1.Requester{Username: "bootstrap"},
		},
	}
	if arn != "" {
		record.Spec.Driver, record.Spec.IRSA = registerv1alpha1.DriverAWSIRSA, &registerv1alpha1.IRSAClaim{ManagedClusterARN: arn}
		if managed, err := irsa.ParseARN(arn); err == nil {
			record.Status.IRSA = &registerv1alpha1.IRSAStatus{Hash: irsa.Identity{Hub: hubARN, Managed: managed}.Hash()}
		}
	}
	return record
}

func arnOf(cluster string) string { return "arn:aws:eks:us-east-1:444455556666:cluster/" + cluster }

// create makes a cluster with its registration. If the cluster has an ARN, the registration has a
// claim.
func (f *fleet) create(t *testing.T, name, arn string) *clusterv1.ManagedCluster {
	t.Helper()
	mc, err := f.ours.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{LeaseDurationSeconds: new(int32(60))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record := recordOf(mc, arn)
	if record.Status.IRSA != nil {
		if err := f.records.Reserve(t.Context(), record.Status.IRSA.Hash, registration.Holder{ClusterName: name, ClusterUID: mc.UID}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.records.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	return mc
}

func (f *fleet) decide(t *testing.T, name string, acceptance clusterv1.Acceptance) {
	t.Helper()
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if acceptance.DecidedBy == "" {
		acceptance.DecidedBy = "admin"
	}
	if _, err := (decider{f.ours}).Apply(t.Context(), registration.Decision{Cluster: name, UID: mc.UID, Acceptance: acceptance}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) accept(t *testing.T, name string) {
	t.Helper()
	f.decide(t, name, clusterv1.Acceptance{Accepted: true})
}

func (f *fleet) deny(t *testing.T, name string) {
	t.Helper()
	f.decide(t, name, clusterv1.Acceptance{Reason: "stolen"})
}

// hubAccepted returns an error if the condition HubAcceptedManagedCluster differs from the arguments.
func (f *fleet) hubAccepted(ctx context.Context, name string, status metav1.ConditionStatus, reason string) error {
	mc, err := f.ours.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(mc.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != mc.Generation {
		return fmt.Errorf("condition HubAcceptedManagedCluster = %v, want %s with reason %s for generation %d", got, status, reason, mc.Generation)
	}
	return nil
}

// recordSays returns an error if a condition of a registration differs from the arguments.
func (f *fleet) recordSays(ctx context.Context, name, kind string, status metav1.ConditionStatus, reason string) error {
	record, err := f.records.Get(ctx, name)
	if err != nil {
		return err
	}
	got := meta.FindStatusCondition(record.Status.Conditions, kind)
	if got == nil || got.Status != status || got.Reason != reason {
		return fmt.Errorf("conditions of registration %s = %v, want %s %s with reason %s", name, record.Status.Conditions, kind, status, reason)
	}
	return nil
}
