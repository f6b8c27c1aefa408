package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/child"
	"open-cluster-management.io/hub-apiserver/test/network"
)

// requestTimeout bounds the requests of a Pod to its cluster.
const requestTimeout = 10 * time.Second

// pod is a running Pod.
type pod struct {
	kubelet *Kubelet
	object  *corev1.Pod
	cancel  context.CancelFunc
	// node is the network of the running container.
	node  atomic.Pointer[network.Node]
	ready atomic.Bool
	// deleted is true once the Pod is being deleted: Services no longer use it.
	deleted  atomic.Bool
	restarts int32
}

func (p *pod) dir() string { return filepath.Join(p.kubelet.Dir, "pods", string(p.object.UID)) }

// run runs the container, and restarts it when it ends, until ctx is done.
func (p *pod) run(ctx context.Context) {
	if p.object.Spec.NodeName == "" {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.object.Name, UID: p.object.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
		if err := p.kubelet.client.CoreV1().Pods(p.object.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			p.report(ctx, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Unscheduled", Message: err.Error()}})
		}
	}
	for delay := time.Second; ctx.Err() == nil; delay = min(2*delay, 10*time.Second) {
		err := p.start(ctx)
		p.ready.Store(false)
		if ctx.Err() != nil {
			break
		}
		p.report(ctx, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprint(err)}})
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	// The Pod can be gone already, and the cluster can be stopped.
	_ = p.kubelet.client.CoreV1().Pods(p.object.Namespace).Delete(background, p.object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &p.object.UID},
	})
	_ = os.RemoveAll(p.dir())
}

// start runs the container once, and returns the reason of its end.
func (p *pod) start(ctx context.Context) error {
	if err := p.supported(); err != nil {
		return err
	}
	described, refresh, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.kubelet.Dir, p.object.Namespace+"_"+p.object.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self)
	command.Env = []string{sandboxEnv + "=1"}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	ended, err := child.Start(command, syscall.SIGKILL, nil)
	if err != nil {
		return err
	}
	disconnect, err := p.connect(command.Process.Pid)
	if err == nil {
		defer disconnect()
		err = errors.Join(json.NewEncoder(input).Encode(described), input.Close())
	}
	exited := false
	if err == nil {
		p.report(ctx, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
		err, exited = p.watch(ctx, ended, refresh)
	}
	if !exited {
		// The grace period begins, after an unsuccessful probe too.
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Duration(ptr.Deref(p.object.Spec.TerminationGracePeriodSeconds, 30)) * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
	}
	p.restarts++
	return err
}

// connect enters the network of a process, and forwards its connections to the ports outside.
func (p *pod) connect(pid int) (disconnect func(), err error) {
	node, err := network.Of(pid)
	if err != nil {
		return nil, err
	}
	var listeners []net.Listener
	disconnect = func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
		p.node.Store(nil)
		_ = node.Close()
	}
	for port, address := range p.kubelet.Outside {
		kind := "tcp"
		if filepath.IsAbs(address) {
			kind = "unix"
		}
		err := node.Do(func() error {
			listener, err := net.Listen("tcp", net.JoinHostPort(node.Address, strconv.Itoa(port)))
			if err == nil {
				listeners = append(listeners, listener)
				go forward(listener, func() (net.Conn, error) { return net.Dial(kind, address) })
			}
			return err
		})
		if err != nil {
			disconnect()
			return nil, err
		}
	}
	p.node.Store(node)
	return disconnect, nil
}

// dial connects to a port of the container with this number or name.
func (p *pod) dial(ctx context.Context, port intstr.IntOrString) (net.Conn, error) {
	node, number := p.node.Load(), port.IntValue()
	for _, named := range p.object.Spec.Containers[0].Ports {
		if port.Type == intstr.String && named.Name == port.StrVal {
			number = int(named.ContainerPort)
		}
	}
	if node == nil || number == 0 {
		return nil, fmt.Errorf("Pod %s has no port %s", p.object.Name, port.String())
	}
	return node.DialContext(ctx, "tcp", net.JoinHostPort(node.Address, strconv.Itoa(number)))
}

// watch probes the container until it ends, fails its liveness probe, or ctx is done. It returns the reason, and whether
// the container has ended.
func (p *pod) watch(ctx context.Context, ended <-chan error, refresh func(context.Context) error) (reason error, exited bool) {
	container := &p.object.Spec.Containers[0]
	startup, live, ready := newProber(container.StartupProbe), newProber(container.LivenessProbe), newProber(container.ReadinessProbe)
	tick := time.NewTicker(resync)
	defer tick.Stop()
	refreshed := time.Now()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the container ended: %w", errors.Join(err, errors.New("see its log"))), true
		case <-ctx.Done():
			return ctx.Err(), false
		case <-tick.C:
		}
		if time.Since(refreshed) > time.Second {
			refreshed = time.Now()
			// The cluster can be unavailable for a while.
			_ = refresh(ctx)
		}
		if !startup.passed(ctx, p) {
			if startup.failed() {
				return fmt.Errorf("startup probe: %w", startup.last), false
			}
			continue
		}
		live.passed(ctx, p)
		if live.failed() {
			return fmt.Errorf("liveness probe: %w", live.last), false
		}
		if now := ready.passed(ctx, p); now != p.ready.Load() && (now || ready.failed()) {
			p.ready.Store(now)
			p.report(ctx, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
		}
	}
}

// prober keeps the results of a probe.
type prober struct {
	probe    *corev1.Probe
	next     time.Time
	failures int32
	success  bool
	last     error
}

func newProber(probe *corev1.Probe) *prober { return &prober{probe: probe, success: probe == nil} }

func (r *prober) failed() bool { return r.probe != nil && r.failures >= r.probe.FailureThreshold }

// passed runs the probe if its period is over, and returns its last result.
func (r *prober) passed(ctx context.Context, p *pod) bool {
	if r.probe == nil || time.Now().Before(r.next) {
		return r.success
	}
	r.next = time.Now().Add(time.Duration(r.probe.PeriodSeconds) * time.Second)
	if r.last = p.get(ctx, r.probe); r.last != nil {
		r.failures++
		r.success = false
		return false
	}
	r.failures, r.success = 0, true
	return true
}

// get sends the request of a probe.
func (p *pod) get(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	address, err := url.Parse(probe.HTTPGet.Path)
	if err != nil {
		return err
	}
	address.Scheme, address.Host = "http", "pod"
	if probe.HTTPGet.Scheme == corev1.URISchemeHTTPS {
		address.Scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return err
	}
	// As the kubelet, which has no certificate authority of the container.
	transport := &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx, probe.HTTPGet.Port) },
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", probe.HTTPGet.Path, response.Status)
	}
	return nil
}

// report writes the status of the Pod.
func (p *pod) report(ctx context.Context, state corev1.ContainerState) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ready := corev1.ConditionFalse
	if p.ready.Load() {
		ready = corev1.ConditionTrue
	}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.244.0.1", PodIPs: []corev1.PodIP{{IP: "10.244.0.1"}}, StartTime: ptr.To(metav1.Now()),
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: p.object.Spec.Containers[0].Name, Image: p.object.Spec.Containers[0].Image, State: state,
			Ready: p.ready.Load(), Started: ptr.To(state.Running != nil), RestartCount: p.restarts,
		}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: ready, LastTransitionTime: metav1.Now()})
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status})
	if err != nil {
		return
	}
	// The next change is reported too, if this one cannot be.
	_, _ = p.kubelet.client.CoreV1().Pods(p.object.Namespace).Patch(ctx, p.object.Name, types.StrategicMergePatchType, content, metav1.PatchOptions{}, "status")
}

// supported returns an error if the Pod has a setting that the package would ignore.
func (p *pod) supported() error {
	spec := &p.object.Spec
	container := spec.Containers[0]
	var errs []error
	for name, used := range map[string]bool{
		"several containers":  len(spec.Containers) != 1,
		"initContainers":      len(spec.InitContainers) > 0,
		"ephemeralContainers": len(spec.EphemeralContainers) > 0,
		"hostNetwork":         spec.HostNetwork,
		"hostAliases":         len(spec.HostAliases) > 0,
		"envFrom":             len(container.EnvFrom) > 0,
		"lifecycle":           container.Lifecycle != nil,
		"workingDir":          container.WorkingDir != "",
		"volumeDevices":       len(container.VolumeDevices) > 0,
		"no command":          len(container.Command) == 0,
		"privileged":          container.SecurityContext != nil && ptr.Deref(container.SecurityContext.Privileged, false),
		"capabilities other than none": container.SecurityContext == nil || container.SecurityContext.Capabilities == nil ||
			!slices.Equal(container.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(container.SecurityContext.Capabilities.Add) > 0,
	} {
		if used {
			errs = append(errs, fmt.Errorf("test/kubelet does not support %s", name))
		}
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe != nil && (probe.HTTPGet == nil || len(probe.HTTPGet.HTTPHeaders) > 0 || probe.HTTPGet.Host != "" || probe.SuccessThreshold > 1 || probe.InitialDelaySeconds > 0) {
			errs = append(errs, errors.New("test/kubelet supports only probes with httpGet, period, timeout and failureThreshold"))
		}
	}
	return errors.Join(errs...)
}
