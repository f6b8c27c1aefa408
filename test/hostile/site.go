package hostile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// The bounds of the cost of an input, for the server and for the agent.
const (
	MaxCPU    = time.Second
	MaxMemory = 64 << 20
)

// answerTimeout bounds the wait for a response or a report of the agent on a busy
// machine. The cost of an input is its CPU time.
var answerTimeout = await.Patience

const (
	// burned is the CPU time after which the process is killed and started again.
	burned = 10 * time.Second
	// inventory is the number of resources that searches find.
	inventory = 20_000
)

// Site is a hub with a managed cluster with an agent, and a managed cluster without one.
type Site struct {
	Fleet *localhub.Fleet

	host    string
	clients map[Identity]*http.Client
	managed *kubernetes.Clientset
	// server and agent measure the processes.
	server, agent *meter
}

// NewSite starts a site. The server and the agent have the memory limits of their manifests.
func NewSite(ctx context.Context, dir string) (*Site, error) {
	fleet, err := localhub.NewFleet(localhub.FleetOptions{Dir: filepath.Join(dir, "fleet"), Clusters: []string{AgentCluster}, NoFsync: true})
	if err != nil {
		return nil, err
	}
	agent := fleet.Members[0].Agent
	if fleet.Server.Env, err = ServerEnvironment(); err != nil {
		return nil, err
	}
	if agent.Env, err = environment("agent"); err != nil {
		return nil, err
	}
	s := &Site{
		Fleet: fleet, clients: map[Identity]*http.Client{},
		server: &meter{process: fleet.Server.Process}, agent: &meter{process: agent.Process},
	}
	if err := fleet.Start(ctx); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// ServerEnvironment returns the memory settings in the manifest of the server.
func ServerEnvironment() ([]string, error) { return environment("deploy", "base") }

// environment returns the memory settings of the Deployment in a directory of artifacts.
func environment(dir ...string) (out []string, err error) {
	manifests, err := localhub.ReadManifests(filepath.Join(append([]string{localhub.Root(), "artifacts"}, dir...)...))
	if err != nil {
		return nil, err
	}
	for _, manifest := range manifests {
		if manifest.GetKind() != "Deployment" {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, &deployment); err != nil {
			return nil, err
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			// As a resourceFieldRef with the divisor 1Mi returns it.
			limit := strconv.FormatInt(container.Resources.Limits.Memory().Value()>>20, 10)
			for _, variable := range container.Env {
				if variable.Value != "" && (variable.Name == "GOMEMLIMIT" || variable.Name == "GOGC") {
					out = append(out, variable.Name+"="+strings.ReplaceAll(variable.Value, "$(MEMORY_LIMIT_MI)", limit))
				}
			}
		}
	}
	return out, nil
}

// connect creates the identities and the objects for their requests, and reports an inventory for searches.
func (s *Site) connect(ctx context.Context) error {
	hub := s.Fleet.Hub
	s.host = hub.AdminConfig().Host
	for _, dir := range []string{"artifacts/rbac", "test/hostile/testdata"} {
		objects, err := localhub.ReadManifests(filepath.Join(localhub.Root(), filepath.FromSlash(dir)))
		if err == nil {
			err = hub.Apply(ctx, objects...)
		}
		if err != nil {
			return err
		}
		// The roles of testdata are in the namespace of the cluster.
		if err := localhub.JoinCluster(ctx, hub, BareCluster); err != nil {
			return err
		}
	}
	for identity, who := range map[Identity][]string{
		Administrator: {"admin", "system:masters"},
		Tenant:        {"hostile-tenant"},
		Agent:         {localhub.AgentUser(BareCluster), localhub.AgentGroup(BareCluster)},
		Applicant:     {"hostile-applicant", "system:bootstrappers:managedcluster"},
	} {
		config, err := hub.UserConfig(who[0], who[1:]...)
		if err == nil {
			s.clients[identity], err = rest.HTTPClientFor(config)
		}
		if err != nil {
			return err
		}
	}
	var err error
	if s.managed, err = kubernetes.NewForConfig(s.Fleet.Members[0].AdminConfig()); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := s.managed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return s.await(ctx, time.Minute, http.StatusOK, reporting(Inventory(inventory)))
}

// await sends a request until the response has a status code.
func (s *Site) await(ctx context.Context, limit time.Duration, want int, request Request) error {
	return await.Within(ctx, limit, func(ctx context.Context) error {
		code, answer, err := s.send(ctx, request)
		if code == want {
			return nil
		}
		return errors.Join(fmt.Errorf("%s %s = %d %s", request.Method, cut(request.Path, 300), code, cut(string(answer), 300)), err)
	})
}

// Stop stops the site.
func (s *Site) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Fleet.Stop(ctx)
}

// Calibrate measures the server and the agent when they are idle and when they handle usual
// requests.
func (s *Site) Calibrate(ctx context.Context) error {
	// The tenant can grant only what it holds on the managed cluster.
	if err := s.await(ctx, 3*answerTimeout, http.StatusCreated, usualPermission().Requests[0]); err != nil {
		return err
	}
	start := func() error { return errors.Join(s.server.start(), s.agent.start()) }
	for _, m := range s.meters() {
		m.busy, m.memory = 0, 0
	}
	if err := start(); err != nil {
		return err
	}
	for i := range 10 {
		for _, input := range usual() {
			verdict, err := s.judge(ctx, input)
			if err == nil && i == 0 && verdict.Outcome != Answered {
				err = fmt.Errorf("outcome of usual input = %s (%s), want answered", verdict.Outcome, verdict.Message)
			}
			for _, m := range s.meters() {
				var peak int64
				if err == nil {
					peak, err = m.peak()
				}
				m.memory = max(m.memory, peak)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := start(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(3 * time.Second):
	}
	for _, m := range s.meters() {
		used, err := m.used()
		if err != nil {
			return err
		}
		m.busy = used.Seconds() / time.Since(m.began).Seconds()
	}
	return nil
}

func (s *Site) meters() []*meter { return []*meter{s.server, s.agent} }

// usualPermission is a ClusterPermission of usual cost, which grants what the tenant holds on the managed cluster.
func usualPermission() Input {
	return permission(`"clusterRole":{"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`)
}

// usual returns inputs of usual cost.
func usual() []Input {
	reports := func(n int) Input {
		return Input{Requests: []Request{reporting(added(n, func(i int) string { return resourceJSON(i, "") }))}}
	}
	return []Input{
		work(simple(fields{"manifestConfigs": []any{fields{
			"resourceIdentifier": fields{"resource": "configmaps", "namespace": Namespace, "name": object}, "conditionRules": []any{fields{"condition": "Usual", "type": "CEL", "celExpressions": []string{"object.data.a == 'b'"}}},
		}}}), "Usual"),
		searching("/searches", "Search", fields{"query": "kind:Pod name:n1*", "limit": 100}),
		// This input has the maximum usual size, and leaves as much garbage as a usual input.
		work(fields{"workload": fields{"manifests": []any{configMap(fields{"a": strings.Repeat("a", 500_000)})}}}),
		reports(2_000), usualPermission(), reports(1),
	}
}

// Outcome is the outcome of an input.
type Outcome string

// The outcomes of inputs.
const (
	Refused  Outcome = "refused"
	Answered Outcome = "answered"
	// Failed means no response, a server error, or no report of the agent.
	Failed Outcome = "failed"
)

// Verdict is the cost of an input.
type Verdict struct {
	Outcome Outcome
	// Message is the response to the last request.
	Message string
	// CPU and Memory are the maximum that the server or the agent needed for one request, or
	// for the ManifestWork that the request created.
	CPU    time.Duration
	Memory int64
	// Over are the reasons why the input is over the bound.
	Over []string
	// broken is true if the processes must be restarted.
	broken bool
}

func (v *Verdict) over(format string, args ...any) {
	v.Over = append(v.Over, cut(fmt.Sprintf(format, args...), 300))
}

// Run sends an input and measures its cost. If the input appears to need too much memory, Run sends
// it again to new processes, which contain no garbage of other inputs.
func (s *Site) Run(ctx context.Context, input Input) (*Verdict, error) {
	verdict, err := s.judge(ctx, input)
	if err != nil {
		return verdict, err
	}
	if !verdict.broken && verdict.Memory <= MaxMemory {
		return verdict, nil
	}
	if err := s.restart(ctx); err != nil || verdict.broken {
		return verdict, err
	}
	verdict, err = s.judge(ctx, input)
	if err == nil && verdict.broken {
		err = s.restart(ctx)
	}
	return verdict, err
}

// judge sends an input and measures its cost.
func (s *Site) judge(ctx context.Context, input Input) (*Verdict, error) {
	return s.attempt(ctx, input, true, func(verdict *Verdict, what string, send func()) (bool, error) {
		if err := errors.Join(s.server.start(), s.agent.start()); err != nil {
			return false, err
		}
		send()
		s.stop(verdict, what)
		return !verdict.broken, nil
	})
}

// Try sends an input without measuring it. It may be called concurrently for inputs with
// different names.
func (s *Site) Try(ctx context.Context, input Input) (*Verdict, error) {
	return s.attempt(ctx, input, false, func(_ *Verdict, _ string, send func()) (bool, error) {
		send()
		return true, nil
	})
}

// attempt sends the requests of an input until one is refused, waits for the report of the
// agent, checks the effect of the input if checked is true, and deletes the created object. It runs
// each step except the check by calling step, which reports whether to continue.
func (s *Site) attempt(ctx context.Context, input Input, checked bool, step func(verdict *Verdict, what string, send func()) (bool, error)) (*Verdict, error) {
	verdict := &Verdict{Outcome: Answered}
	if len(input.Reported) > 0 {
		if err := s.present(ctx); err != nil {
			return nil, err
		}
	}
	created := false
	for i, request := range input.Requests {
		what, dry := request.Method, strings.Contains(request.Path, "dryRun=All")
		if dry {
			what = "dry run of " + what
		}
		more, err := step(verdict, what, func() {
			s.request(ctx, verdict, what, request)
			if verdict.Outcome != Answered || dry {
				return
			}
			created = true
			if i == len(input.Requests)-1 && len(input.Reported) > 0 {
				if err := s.reported(ctx, input); err != nil {
					verdict.Outcome = Failed
					verdict.over("%v", err)
				}
			}
		})
		if err != nil || ctx.Err() != nil || !more {
			return verdict, errors.Join(err, context.Cause(ctx))
		}
		if verdict.Outcome != Answered {
			break
		}
	}
	if checked && input.Check != nil {
		reason, err := input.Check(ctx, s)
		if err != nil {
			return verdict, fmt.Errorf("checking the effect: %w", err)
		}
		if reason != "" {
			verdict.over("%s", reason)
		}
	}
	if !created || input.Created == "" {
		return verdict, nil
	}
	_, err := step(verdict, http.MethodDelete, func() {
		if err := s.remove(ctx, input.Created); err != nil {
			verdict.over("DELETE: %v", err)
			verdict.broken = true
		}
	})
	return verdict, err
}

// request sends one request and records its outcome.
func (s *Site) request(ctx context.Context, verdict *Verdict, what string, request Request) {
	code, answer, err := s.send(ctx, request)
	verdict.Message = fmt.Sprintf("%d %s", code, answer)
	// A url.Error contains the URL of the request, which may be very long.
	if failed := (&url.Error{}); errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		verdict.Message = err.Error()
	}
	// As in all of Kubernetes, a resource version in the future is rejected with a 504.
	future := code == http.StatusGatewayTimeout && bytes.Contains(answer, []byte(metav1.CauseTypeResourceVersionTooLarge))
	switch {
	case err != nil || code >= 500 && code != http.StatusNotImplemented && !future:
		verdict.Outcome = Failed
		verdict.over("%s: %s", what, verdict.Message)
	case code >= 400:
		verdict.Outcome = Refused
	}
}

// stop ends the measurement of a request for both processes.
func (s *Site) stop(verdict *Verdict, what string) {
	for _, m := range s.meters() {
		idle, err := m.settle(burned)
		var used time.Duration
		var peak int64
		if err == nil {
			used, err = m.used()
		}
		if err == nil {
			peak, err = m.peak()
		}
		if err != nil || !m.process.Running() {
			verdict.over("%s: %s has ended", what, m.process.Name)
			verdict.broken = true
			continue
		}
		if verdict.CPU = max(verdict.CPU, used); used > MaxCPU {
			verdict.over("%s: %s used %.1f s of CPU", what, m.process.Name, used.Seconds())
		}
		if !idle {
			verdict.over("%s: %s is still busy", what, m.process.Name)
			verdict.broken = true
		}
		above := max(0, peak-m.memory)
		if verdict.Memory = max(verdict.Memory, above); above > MaxMemory && m.memory > 0 {
			verdict.over("%s: %s used %d MB above idle", what, m.process.Name, above>>20)
		}
	}
}

// restart starts both processes again, without the garbage of the last input, and measures them idle.
func (s *Site) restart(ctx context.Context) error {
	for _, m := range s.meters() {
		if err := m.process.Kill(); err != nil {
			return err
		}
	}
	if err := s.server.process.Start(ctx); err != nil {
		return err
	}
	for _, path := range []string{worksPath + "?limit=1", searchPath + "/inventories?limit=1"} {
		if err := s.await(ctx, time.Minute, http.StatusOK, Request{Method: http.MethodGet, Path: path}); err != nil {
			return fmt.Errorf("the hub does not serve requests after a restart: %w", err)
		}
	}
	for _, path := range []string{worksPath + "/" + object, permissionsPath + "/" + object, accountsPath + "/" + object} {
		// The restarted agent would process the object again.
		if _, _, err := s.send(ctx, Request{Method: http.MethodPatch, Path: path, Body: []byte(`{"metadata":{"finalizers":null}}`)}); err != nil {
			return err
		}
		if err := s.remove(ctx, path); err != nil {
			return err
		}
	}
	if err := s.agent.process.Start(ctx); err != nil {
		return err
	}
	return s.Calibrate(ctx)
}

// present creates the object to which the expressions apply.
func (s *Site) present(ctx context.Context) error {
	target := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: object}, Data: map[string]string{"k": "v"}}
	if _, err := s.managed.CoreV1().ConfigMaps(Namespace).Create(ctx, target, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// reported waits until the agent has reported on the ManifestWork of an input.
func (s *Site) reported(ctx context.Context, input Input) error {
	err := await.Within(ctx, answerTimeout, func(ctx context.Context) error {
		code, answer, err := s.send(ctx, Request{Method: http.MethodGet, Path: input.Created})
		work := &workv1.ManifestWork{}
		if err != nil || code != http.StatusOK || json.Unmarshal(answer, work) != nil {
			return errors.Join(fmt.Errorf("GET of the ManifestWork = %d", code), err)
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.ObservedGeneration < work.Generation {
			return errors.New("it has no condition Applied")
		}
		if applied.Status != metav1.ConditionTrue {
			return nil
		}
		for _, condition := range input.Reported {
			if !slices.ContainsFunc(work.Status.ResourceStatus.Manifests, func(manifest workv1.ManifestCondition) bool {
				return meta.FindStatusCondition(manifest.Conditions, condition) != nil
			}) {
				return fmt.Errorf("its manifest has no condition %s", condition)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the agent has not reported: %w", err)
	}
	return nil
}

// remove deletes an object as an administrator, and waits until it does not exist. Meanwhile, it does what the controllers of
// finalizers in manifests would do: a ManifestWork stays until they have removed these.
func (s *Site) remove(ctx context.Context, path string) error {
	if _, _, err := s.send(ctx, Request{Method: http.MethodDelete, Path: path}); err != nil {
		return err
	}
	return await.Within(ctx, answerTimeout, func(ctx context.Context) error {
		code, answer, err := s.send(ctx, Request{Method: http.MethodGet, Path: path})
		if err != nil {
			return err
		}
		if code == http.StatusNotFound {
			return nil
		}
		return errors.Join(fmt.Errorf("GET %s = %d %s", path, code, cut(string(answer), 200)), s.finalize(ctx))
	})
}

// finalize removes the finalizers of the ConfigMaps that are being deleted.
func (s *Site) finalize(ctx context.Context) error {
	objects, err := s.managed.CoreV1().ConfigMaps(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range objects.Items {
		if o := &objects.Items[i]; o.DeletionTimestamp != nil && len(o.Finalizers) > 0 {
			_, err := s.managed.CoreV1().ConfigMaps(Namespace).Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// send sends a request to the hub and returns the status code and the beginning of the response.
func (s *Site) send(ctx context.Context, r Request) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, r.Method, s.host+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return 0, nil, err
	}
	usual := "application/json"
	if r.Method == http.MethodPatch {
		usual = "application/merge-patch+json"
	}
	request.Header.Set("Content-Type", cmp.Or(r.ContentType, usual))
	if r.Gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	request.Header.Set("Accept", "application/json")
	response, err := s.clients[r.As].Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err != nil {
		return 0, nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, answer, err
}

// cut shortens a text to at most the given number of bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
