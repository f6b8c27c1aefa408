package registration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	faultsSequences = 20
	// faultsClusters is the number of concurrent clusters.
	faultsClusters = 20
	// faultsPerKill is roughly the average number of sequences between two kills of the server.
	faultsPerKill = 8
	// faultsRequest is the timeout of a request. It is longer than any request takes, so the server
	// completes no request after its caller has continued.
	faultsRequest = 90 * time.Second
)

// faultsPatience is the timeout of retries. After many failures, the backoff of the server is one
// minute. An identity that a killed request reserved must also become free.
var faultsPatience = 2 * await.Patience

// TestRegistrationFaults creates, accepts, denies and deletes clusters in random order. Meanwhile, AWS
// returns all kinds of errors, an intruder creates roles and access entries before the server does, and
// the server is killed. At the end, AWS and the hub contain the objects of the accepted clusters only.
func TestRegistrationFaults(t *testing.T) {
	t.Parallel()
	h := startAWSHub(t)
	count, seed := framework.Environment(t, "REGISTRATION_SEQUENCES", faultsSequences), framework.Environment(t, "REGISTRATION_SEED", int(time.Now().UnixNano()%1_000_000))
	t.Logf("%d sequences; REGISTRATION_SEED=%d repeats these choices", count, seed)

	storm := &awsStorm{random: rand.New(rand.NewPCG(uint64(seed), 0)), intruder: h.newIntruder(t), injected: map[string]int{}}
	h.aws.SetFaults(storm.fault)

	var done atomic.Int64
	var members []*stormMember
	for i := range faultsClusters {
		members = append(members, newStormMember(t, h, i, rand.New(rand.NewPCG(uint64(seed), uint64(i+1)))))
	}
	watching, stopWatching := context.WithCancel(t.Context())
	var watcher, running sync.WaitGroup
	var seen int
	watcher.Go(func() { seen = h.watchStorm(watching, t, members) })
	for i, m := range members {
		share := count / faultsClusters
		if i < count%faultsClusters {
			share++
		}
		running.Go(func() {
			for n := range share {
				if err := m.sequence(t.Context()); err != nil {
					t.Errorf("sequence %d of %s: %v", n, m.name, err)
					return
				}
				done.Add(1)
			}
			if err := m.finish(t.Context(), i); err != nil {
				t.Errorf("last sequence of %s: %v", m.name, err)
			}
		})
	}
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()
	kills := h.killNowAndThen(t, storm, rand.New(rand.NewPCG(uint64(seed), 1000)), &done, count, finished)
	<-finished
	stopWatching()
	watcher.Wait()
	if t.Failed() {
		t.FailNow()
	}
	h.aws.SetFaults(nil)
	t.Logf("%d sequences, %d kills, %d checks of settled clusters, faults: %v", done.Load(), kills, seen, storm.counts())
	if seen == 0 {
		t.Error("checks of settled clusters = 0, want at least one")
	}
	h.afterTheStorm(t, members)
}

// killNowAndThen kills the server while the sequences run, at a random moment or during a call that
// changes AWS. It returns the number of kills.
func (h *awsHub) killNowAndThen(t *testing.T, storm *awsStorm, random *rand.Rand, done *atomic.Int64, count int, finished <-chan struct{}) (kills int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for due := int64(random.IntN(faultsPerKill)); ; due += int64(1 + random.IntN(2*faultsPerKill)) {
		for done.Load() < min(due, int64(count)-1) {
			select {
			case <-finished:
				return kills
			case <-tick.C:
			}
		}
		if due >= int64(count) {
			return kills
		}
		if random.IntN(2) == 0 {
			select {
			case <-storm.nextChange():
			case <-finished:
				return kills
			}
		}
		if err := h.Server.Restart(t.Context()); err != nil {
			t.Error(err)
			return kills
		}
		kills++
	}
}

// awsStorm injects random faults into AWS.
type awsStorm struct {
	intruder *intruder

	mu       sync.Mutex
	random   *rand.Rand
	injected map[string]int
	// changed is closed at the next call that changes AWS. It is nil if no caller waits.
	changed chan struct{}
}

func (s *awsStorm) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *awsStorm) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.injected
}

func (s *awsStorm) fault(call fakeaws.Call) fakeaws.Fault {
	if call.Caller == s.intruder.arn {
		return fakeaws.Fault{}
	}
	name, fault := s.draw(call)
	switch name {
	case "foreign role":
		// The error is ignored: if the role exists already, it is not foreign.
		_ = s.intruder.makeRole(context.Background(), call.Parameters["RoleName"])
	case "foreign entry":
		_ = s.intruder.makeEntry(context.Background(), call.Parameters["principalArn"])
	}
	return fault
}

func (s *awsStorm) draw(call fakeaws.Call) (string, fakeaws.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil && (call.Operation == "CreateRole" || call.Operation == "CreateAccessEntry" || call.Operation == "DeleteRole") {
		close(s.changed)
		s.changed = nil
	}
	name, fault := "", fakeaws.Fault{}
	switch dice := s.random.IntN(100); {
	case dice < 6:
		name, fault = "throttled", fakeaws.Throttle()
	case dice < 9:
		name, fault = "500", fakeaws.ServerError(http.StatusInternalServerError)
	case dice < 12:
		name, fault = "503", fakeaws.ServerError(http.StatusServiceUnavailable)
	case dice < 18:
		name, fault = "lost response", fakeaws.LostResponse()
	case dice < 22:
		name, fault = "lost request", fakeaws.LostRequest()
	case dice < 30 && call.Operation == "PutRolePolicy":
		name, fault = "role not seen by IAM yet", fakeaws.Error("NoSuchEntity")
	case dice < 30 && call.Operation == "CreateAccessEntry":
		name, fault = "role not seen by EKS yet", fakeaws.Error("InvalidParameterException")
	case dice < 36 && call.Operation == "CreateRole":
		name = "foreign role"
	case dice < 36 && call.Operation == "CreateAccessEntry":
		name = "foreign entry"
	default:
		return "", fault
	}
	s.injected[name]++
	return name, fault
}

// stormMember is a cluster that is repeatedly created, accepted, denied and deleted.
type stormMember struct {
	*awsHub
	name   string
	random *rand.Rand
	client *versioned.Clientset
	// itself is a client with the identity of the cluster.
	itself *versioned.Clientset
	// identities are the EKS clusters that it claims to be, one at a time.
	identities []irsa.Desired

	// generation is odd while a change is in progress.
	generation atomic.Int64
	mu         sync.Mutex
	// claim is the current claim, or nil. exists and accepted are the state that the last change
	// requested.
	claim            *irsa.Desired
	exists, accepted bool
	everAccepted     bool
}

func newStormMember(t *testing.T, h *awsHub, i int, random *rand.Rand) *stormMember {
	t.Helper()
	m := &stormMember{awsHub: h, name: fmt.Sprintf("storm-%d", i), random: random}
	for n := range 2 {
		m.identities = append(m.identities, h.desired(m.name, fmt.Sprintf("%s-%d", m.name, n)))
	}
	config := h.Hub.AdminConfig()
	config.Timeout = faultsRequest
	m.client = framework.OCMClient(t, config, nil)
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: m.name, Groups: append(clusterv1.AgentGroups(m.name), "system:authenticated")}
	m.itself = framework.OCMClient(t, config, nil)
	return m
}

// persist calls try until it returns nil, for at most faultsPatience.
func persist(ctx context.Context, what string, try func(context.Context) error) error {
	if err := await.Within(ctx, faultsPatience, try); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// change changes the cluster with try. note then records the requested state.
func (m *stormMember) change(ctx context.Context, what string, try func(context.Context) error, note func()) error {
	m.generation.Add(1)
	err := persist(ctx, what, try)
	m.mu.Lock()
	note()
	m.mu.Unlock()
	m.generation.Add(1)
	return err
}

// sequence runs a random sequence of changes. Some changes start before the previous one takes effect.
func (m *stormMember) sequence(ctx context.Context) error {
	steps := [][]func(context.Context) error{
		{m.accept, m.settle, m.deny},
		{m.accept, m.deny},
		{m.accept, m.settle, m.deny, m.accept, m.settle},
		{m.accept, m.deny, m.accept, m.settle},
		{m.accept, m.settle, m.remove},
		{m.accept, m.remove},
		{m.remove},
		{m.accept, m.settle, m.removeByForce},
		{m.accept, m.removeByForce},
		{m.accept, m.settle, m.leave},
		{m.accept, m.settle, m.withdraw, m.accept},
		{m.accept, m.withdraw},
	}[m.random.IntN(12)]
	for _, step := range append([]func(context.Context) error{m.make}, steps...) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finish leaves a quarter of the clusters accepted, a quarter denied, a quarter deleted and a
// quarter new.
func (m *stormMember) finish(ctx context.Context, i int) error {
	steps := [][]func(context.Context) error{
		{m.remove, m.make, m.accept},
		{m.accept, m.deny},
		{m.accept, m.remove},
		{m.remove, m.make},
	}[i%4]
	for _, step := range append([]func(context.Context) error{m.make}, steps...) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// make creates the cluster if it does not exist. It waits until the previous cluster is removed.
func (m *stormMember) make(ctx context.Context) error {
	if m.exists {
		return nil
	}
	identity := m.identities[m.random.IntN(len(m.identities))]
	return m.change(ctx, "creating the cluster", func(ctx context.Context) error {
		_, err := m.client.ClusterV1().ManagedClusters().Create(ctx, claiming(identity), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The response to the previous request was lost, or the previous cluster still exists.
		cluster, readErr := m.client.ClusterV1().ManagedClusters().Get(ctx, m.name, metav1.GetOptions{})
		if readErr != nil || cluster.DeletionTimestamp != nil || cluster.Status.Acceptance != nil ||
			cluster.Annotations[registration.EKSARNAnnotation] != identity.Managed.String() {
			return errors.Join(err, readErr)
		}
		return nil
	}, func() { m.exists, m.accepted, m.everAccepted, m.claim = true, false, false, &identity })
}

// decideSomehow accepts or denies the cluster with a patch of its spec or with the subresource accept.
func (m *stormMember) decideSomehow(ctx context.Context, accepted bool) error {
	bySpec := m.random.IntN(2) == 0
	return m.change(ctx, fmt.Sprintf("setting accepted to %t", accepted), func(ctx context.Context) error {
		if bySpec {
			patch := fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%t}}`, accepted)
			_, err := m.client.ClusterV1().ManagedClusters().Patch(ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
		_, err := m.client.RegisterV1alpha1().ManagedClusterRegistrations().Accept(ctx, m.name, &registerv1alpha1.ManagedClusterAcceptance{
			ObjectMeta: metav1.ObjectMeta{Name: m.name},
			Spec:       registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: accepted, Reason: "storm"},
		}, metav1.UpdateOptions{})
		return err
	}, func() { m.accepted, m.everAccepted = accepted, m.everAccepted || accepted })
}

func (m *stormMember) accept(ctx context.Context) error { return m.decideSomehow(ctx, true) }
func (m *stormMember) deny(ctx context.Context) error   { return m.decideSomehow(ctx, false) }

// settle waits until the condition of the cluster reports that it is accepted. Its role and its
// access entry must then exist.
func (m *stormMember) settle(ctx context.Context) error {
	err := persist(ctx, "waiting until the cluster is accepted", func(ctx context.Context) error { return m.hubAccepts(ctx, m.name) })
	if err != nil {
		return err
	}
	if m.claim == nil {
		return nil
	}
	if err := m.inAWS(*m.claim); err != nil {
		return fmt.Errorf("the cluster is accepted, want its identity in AWS: %w", err)
	}
	return nil
}

func (m *stormMember) delete(ctx context.Context) error {
	err := m.client.ClusterV1().ManagedClusters().Delete(ctx, m.name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (m *stormMember) noteRemoval() { m.exists, m.accepted, m.claim = false, false, nil }

func (m *stormMember) remove(ctx context.Context) error {
	return m.change(ctx, "deleting the cluster", m.delete, m.noteRemoval)
}

// removeByForce deletes the cluster and removes its finalizers.
func (m *stormMember) removeByForce(ctx context.Context) error {
	return m.change(ctx, "deleting the cluster and its finalizers", func(ctx context.Context) error {
		if err := m.delete(ctx); err != nil {
			return err
		}
		_, err := m.client.ClusterV1().ManagedClusters().Patch(ctx, m.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}, m.noteRemoval)
}

// leave has the cluster itself leave the hub, which deletes it.
func (m *stormMember) leave(ctx context.Context) error {
	return m.change(ctx, "leaving", func(ctx context.Context) error {
		cluster, err := m.client.ClusterV1().ManagedClusters().Get(ctx, m.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && cluster.DeletionTimestamp != nil:
			return nil
		case err != nil:
			return err
		case !cluster.Spec.HubAcceptsClient:
			return fmt.Errorf("cluster is not deleted, acceptance = %+v", cluster.Status.Acceptance)
		}
		_, err = m.itself.ClusterV1().ManagedClusters().Patch(ctx, m.name, types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":false}}`), metav1.PatchOptions{})
		return errors.Join(err, errors.New("cluster has left and is not deleted yet"))
	}, m.noteRemoval)
}

// withdraw withdraws the claim and waits until it has ended. It then claims an EKS cluster in half
// of the cases.
func (m *stormMember) withdraw(ctx context.Context) error {
	if m.claim == nil {
		return nil
	}
	resource := func() *rest.Request {
		return m.client.RegisterV1alpha1().RESTClient().Delete().Resource("managedclusters").Name(m.name).SubResource("irsa")
	}
	err := m.change(ctx, "withdrawing its claim", func(ctx context.Context) error {
		err := resource().Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("claim still exists")
		}
		return err
	}, func() { m.accepted, m.claim = false, nil })
	if err != nil || m.random.IntN(2) == 0 {
		return err
	}
	identity := m.identities[m.random.IntN(len(m.identities))]
	return m.change(ctx, "claiming again", func(ctx context.Context) error {
		_, err := m.client.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(ctx, m.name, &registerv1alpha1.ManagedClusterIRSA{
			ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: identity.Managed.String()},
		}, metav1.CreateOptions{})
		return err
	}, func() { m.claim = &identity })
}

// watchStorm checks clusters without a change in progress: if the condition reports that a cluster is
// accepted, its role and its access entry must exist. It returns the number of checks.
func (h *awsHub) watchStorm(ctx context.Context, t *testing.T, members []*stormMember) (seen int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return seen
		case <-tick.C:
		}
		m := members[i%len(members)]
		before := m.generation.Load()
		m.mu.Lock()
		claim, accepted := m.claim, m.accepted
		m.mu.Unlock()
		if before%2 == 1 || !accepted || claim == nil || h.hubAccepts(ctx, m.name) != nil {
			continue
		}
		err := h.inAWS(*claim)
		if m.generation.Load() != before {
			continue
		}
		seen++
		if err != nil {
			t.Errorf("%s is accepted, want its identity in AWS: %v", m.name, err)
		}
	}
}

// afterTheStorm waits until AWS and the hub have the requested state, and checks that no other objects
// remain.
func (h *awsHub) afterTheStorm(t *testing.T, members []*stormMember) {
	t.Helper()
	ctx := t.Context()
	var owners []irsa.Desired
	for _, m := range members {
		if m.exists && m.accepted && m.claim != nil {
			owners = append(owners, *m.claim)
		}
	}
	err := persist(ctx, "waiting for the requested state", func(ctx context.Context) error {
		errs := []error{h.inAWSAreOnly(owners)}
		for _, m := range members {
			errs = append(errs, m.isAsAsked(ctx))
		}
		for _, owner := range owners {
			errs = append(errs, h.inAWS(owner))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	clusters := framework.Must(h.OCM.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{}))(t)
	records := framework.Must(h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().List(ctx, metav1.ListOptions{}))(t)
	uids := map[string]types.UID{}
	for _, cluster := range clusters.Items {
		uids[cluster.Name] = cluster.UID
	}
	for _, record := range records.Items {
		if uid, known := uids[record.Name]; !known || uid != record.Spec.ManagedClusterUID {
			t.Errorf("registration of %s exists without its ManagedCluster, want it deleted", record.Name)
		}
	}
	if len(records.Items) != len(clusters.Items) {
		t.Errorf("registrations = %d, want one for each of %d clusters", len(records.Items), len(clusters.Items))
	}
	for _, m := range members {
		for n, identity := range m.identities {
			if err := h.isFreeUnlessHeld(ctx, fmt.Sprintf("%s-heir-%d", m.name, n), identity, m.claim); err != nil {
				t.Error(err)
			}
		}
	}

	// A restarted server finds nothing to change.
	h.aws.ResetCalls()
	if err := h.Server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	for _, owner := range owners {
		framework.Eventually(t, "the server has read the access entry of "+owner.ClusterName, func(context.Context) error {
			if about := h.callsAbout(owner); !slices.Contains(about, "DescribeAccessEntry") {
				return fmt.Errorf("calls = %v", about)
			}
			return nil
		})
	}
	if writes := h.callsToAWS(true); len(writes) > 0 {
		t.Errorf("writes to AWS after a restart = %v, want none", writes)
	}
}

func (m *stormMember) isAsAsked(ctx context.Context) error {
	switch {
	case !m.exists:
		return m.isGone(ctx, m.name)
	case m.accepted:
		return errors.Join(m.hubAccepts(ctx, m.name), m.hasAccess(ctx, m.name, fullAccess))
	case m.everAccepted:
		// A cluster that was denied before the server created objects for it has no access objects.
		if m.hasAccess(ctx, m.name, noAccess) == nil {
			return nil
		}
		return m.isDenied(ctx, m.name)
	}
	return m.hasAccess(ctx, m.name, noAccess)
}

// isFreeUnlessHeld has another cluster claim an identity, and returns an error unless the claim is
// accepted. If held is the same identity, the claim must be rejected.
func (h *awsHub) isFreeUnlessHeld(ctx context.Context, heir string, identity irsa.Desired, held *irsa.Desired) error {
	identity.ClusterName = heir
	create := func(ctx context.Context) error {
		_, err := h.OCM.ClusterV1().ManagedClusters().Create(ctx, claiming(identity), metav1.CreateOptions{})
		return err
	}
	if held != nil && held.Managed == identity.Managed {
		if err := create(ctx); !apierrors.IsInvalid(err) {
			return fmt.Errorf("claim of %s for the identity of %s = %w, want 422", heir, held.ClusterName, err)
		}
		return nil
	}
	if err := persist(ctx, "claim of "+heir+" for a free identity", create); err != nil {
		return err
	}
	record, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, heir, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if record.Spec.IRSA == nil || record.Spec.IRSA.ManagedClusterARN != identity.Managed.String() {
		return fmt.Errorf("claim of %s = %+v, want %s", heir, record.Spec.IRSA, identity.Managed)
	}
	return nil
}
