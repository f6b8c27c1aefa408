package differential_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	triplesEnv     = "EXECUTOR_TRIPLES"
	defaultTriples = 1_000

	// executors is the number of concurrent executors.
	executors = 16
	// worksOfExecutor is the number of ManifestWorks per policy. newWorks of them are new for
	// each policy.
	worksOfExecutor = 20
	newWorks        = 6

	// maxWrong is the number of wrong decisions after which the test stops.
	maxWrong = 5
)

// TestExecutorDecisionsMatchAPIServer compares, for random triples, the decision of the agent
// with the responses of the API server.
func TestExecutorDecisionsMatchAPIServer(t *testing.T) {
	total, chosen := number(t, triplesEnv, defaultTriples), seed.Of(t)
	d := newDifferential(t)
	left := &atomic.Int64{}
	left.Store(int64(total))
	started := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range executors {
		group.Go(func() error { return d.compare(ctx, newWorld(chosen, i), left) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	d.report(t, time.Since(started))
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("%s = %q, want a positive number", name, given)
	}
	return n
}

// differential is a managed cluster with the agent's check of executors.
type differential struct {
	kube      *kubernetes.Clientset
	admin     dynamic.Interface
	managed   *rest.Config
	executors *executor.Executors
	// reviews counts the SubjectAccessReviews of the agent.
	reviews atomic.Int64

	mu sync.Mutex
	// triples, admitted and decisions count ManifestWorks, admitted ManifestWorks, and
	// decisions.
	triples, admitted, decisions int
	// flips counts the decisions that a policy change reversed.
	flips int
	// wrongDenies counts wrong denials by cause.
	wrongDenies map[string]int
	wrong       []string
}

func newDifferential(t *testing.T) *differential {
	t.Helper()
	control := framework.OwnCluster(t, localhub.ClusterOptions{Name: "managed"})
	var err error
	for _, dir := range []string{filepath.Join(localhub.Root(), "artifacts", "agent", "managed"), "testdata"} {
		manifests, err := localhub.ReadManifests(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := control.Apply(t.Context(), manifests...); err != nil {
			t.Fatal(err)
		}
	}
	d := &differential{wrongDenies: map[string]int{}}
	// The agent has only the permissions of its own ServiceAccount.
	if d.managed, err = control.ServiceAccountConfig(t.Context(), localhub.AgentNamespace, "agent"); err != nil {
		t.Fatal(err)
	}
	if d.kube, err = kubernetes.NewForConfig(control.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if d.admin, err = dynamic.NewForConfig(control.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	asking := rest.CopyConfig(d.managed)
	asking.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &counter{RoundTripper: inner, reviews: &d.reviews}
	})
	own, err := kubernetes.NewForConfig(asking)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(d.managed)
	if err != nil {
		t.Fatal(err)
	}
	d.executors = executor.New(executor.Config{Managed: d.managed, Own: objects, Authorization: own.AuthorizationV1()})
	return d
}

// counter counts SubjectAccessReviews.
type counter struct {
	http.RoundTripper
	reviews *atomic.Int64
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/subjectaccessreviews") {
		c.reviews.Add(1)
	}
	return c.RoundTripper.RoundTrip(request)
}

// subject is one executor with its policy and its ManifestWorks.
type subject struct {
	*differential
	*policy
	*cluster
	name  types.NamespacedName
	works []*triple
}

// compare tests one executor under a sequence of policies.
func (d *differential) compare(ctx context.Context, w *world, left *atomic.Int64) error {
	for _, namespace := range w.namespaces {
		if _, err := d.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	s := &subject{
		differential: d, policy: newPolicy(w, d.kube.RbacV1()), cluster: &cluster{admin: d.admin},
		name: types.NamespacedName{Namespace: w.executorNamespace, Name: w.executorName},
	}
	impersonating := rest.CopyConfig(d.managed)
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(s.name.Namespace, s.name.Name)}
	var err error
	if s.executor, err = dynamic.NewForConfig(impersonating); err != nil {
		return err
	}
	if err := s.markers(ctx); err != nil {
		return err
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	for left.Add(-worksOfExecutor) > -worksOfExecutor {
		if err := s.round(ctx); err != nil {
			return fmt.Errorf("executor %s, policy %d: %w", s.name, s.step, err)
		}
	}
	return nil
}

// round changes the policy and checks every ManifestWork twice. The second check uses the
// cache, so that the cache is not empty when the policy changes.
func (s *subject) round(ctx context.Context) error {
	if len(s.works) > 0 {
		s.works = slices.Delete(s.works, 0, newWorks)
	}
	for len(s.works) < worksOfExecutor {
		s.works = append(s.works, s.triple())
	}
	for range 1 + s.rng.IntN(4) {
		if err := s.change(ctx); err != nil {
			return err
		}
	}
	if err := s.settle(ctx, s.kube); err != nil {
		return err
	}
	flips := 0
	for _, c := range s.works {
		before, known := c.admitted, c.judged
		if err := s.judge(ctx, c); err != nil {
			return err
		}
		if known && before != c.admitted {
			flips++
		}
	}
	for _, c := range s.works {
		if slices.ContainsFunc(c.manifests, func(m *manifest) bool { return !m.remembered() }) {
			continue
		}
		if err := s.agree(ctx, c, c.expected, false); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.flips += flips
	s.mu.Unlock()
	return nil
}

// judge sends the requests of a ManifestWork, and checks that the decision of the agent matches the
// responses.
func (s *subject) judge(ctx context.Context, c *triple) error {
	fates := make([]fate, len(c.manifests))
	var err error
	for i, m := range c.manifests {
		if m.delivers != nil {
			// The role is applied before the binding.
			if err := s.deliver(ctx, m.delivers, m.delivers.after()); err != nil {
				return err
			}
		}
		if fates[i], err = s.try(ctx, m); err != nil {
			return err
		}
		if m.delivers != nil {
			if err := s.deliver(ctx, m.delivers, m.delivers.before()); err != nil {
				return err
			}
		}
	}
	expected := map[int]string{}
	for i, m := range c.manifests {
		if lacking := forbidden(fates[i], m.wanted()); len(lacking) > 0 {
			expected[i] = strings.Join(lacking, "; ")
		}
	}
	c.expected = expected
	if err := s.agree(ctx, c, expected, true); err != nil {
		return err
	}
	s.count(c, fates)
	for _, m := range c.manifests {
		if err := s.place(ctx, m, nil); err != nil {
			return err
		}
	}
	return nil
}

// deliver writes a role to the cluster, and waits until the API server uses it.
func (s *subject) deliver(ctx context.Context, role *manifest, as *unstructured.Unstructured) error {
	if err := s.place(ctx, role, as); err != nil {
		return err
	}
	s.touched[role.resource.kind] = true
	return s.settle(ctx, s.kube)
}

// forbidden returns the denied requests, each with its reason.
func forbidden(f fate, verbs []string) []string {
	var reasons []string
	for _, verb := range verbs {
		if f[verb] != "" {
			reasons = append(reasons, f[verb])
		}
	}
	return reasons
}

// agree retries until the agent denies exactly the expected manifests. If it does not, agree records
// the last decision as wrong.
func (s *subject) agree(ctx context.Context, c *triple, expected map[int]string, fresh bool) error {
	var got map[int]string
	asked := 0
	disagreement := await.Poll(ctx, func(ctx context.Context) error {
		asked++
		now, err := s.admit(ctx, c, fresh)
		if err != nil {
			return err
		}
		got = now
		if slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(expected))) {
			return nil
		}
		if c.byName, err = s.byName(ctx, c, got, expected); err == nil && !c.byName {
			err = errors.New("the agent and the cluster deny different manifests")
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decisions += asked
	if disagreement == nil {
		c.judged, c.admitted = true, len(got) == 0
		return nil
	}
	if got == nil {
		return fmt.Errorf("%s: %w", c, disagreement)
	}
	s.wrong = append(s.wrong, fmt.Sprintf("%s as %s, policy %d:\n\tdenied by the agent: %v\n\tdenied by the cluster: %v", c, s.name, s.step, got, expected))
	c.judged = false
	if len(s.wrong) >= maxWrong {
		return fmt.Errorf("the agent and the cluster disagree on %d ManifestWorks:\n%s", len(s.wrong), strings.Join(s.wrong, "\n"))
	}
	return ctx.Err()
}

// byName reports whether the agent denies more than the cluster, and only roles for which the
// executor has escalate by name. See costs for the reason.
func (s *subject) byName(ctx context.Context, c *triple, got, expected map[int]string) (bool, error) {
	for i := range expected {
		if _, refused := got[i]; !refused {
			return false, nil
		}
	}
	for i := range got {
		if _, refused := expected[i]; refused {
			continue
		}
		m := c.manifests[i]
		if m.remembered() || m.resource.binds() || m.target.Strategy != workv1.UpdateStrategyTypeUpdate {
			return false, nil
		}
		answer, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceaccount.MakeUsername(s.name.Namespace, s.name.Name), Groups: append(serviceaccount.MakeGroupNames(s.name.Namespace), "system:authenticated"),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "escalate", Group: m.resource.Group, Resource: m.resource.Resource, Namespace: m.target.Namespace, Name: m.target.Name,
			},
		}}, metav1.CreateOptions{})
		if err != nil || !answer.Status.Allowed {
			return false, err
		}
	}
	return true, nil
}

// admit returns the denials of the agent, by manifest. If fresh is false, the agent may use earlier answers.
func (s *subject) admit(ctx context.Context, c *triple, fresh bool) (map[int]string, error) {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "work"}}
	w.Spec.Workload.Manifests = make([]workv1.Manifest, len(c.manifests))
	w.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: s.name.Namespace, Name: s.name.Name},
	}}
	client, err := s.executors.Admit(ctx, work.AdmitRequest{Work: w, Targets: c.targets(), Fresh: fresh})
	var refusal *work.Refusal
	switch {
	case errors.As(err, &refusal):
		if len(refusal.Manifests) == 0 {
			return nil, fmt.Errorf("denied without a denied manifest: %w", err)
		}
		return refusal.Manifests, nil
	case err != nil:
		return nil, err
	case client == nil:
		return nil, errors.New("admitted without a client")
	}
	return map[int]string{}, nil
}
