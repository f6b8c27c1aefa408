package localhub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// The probes are those of artifacts/deploy/base/deployment.yaml, with the default timeout of a probe.
const (
	probeTimeout      = time.Second
	readinessPeriod   = 2 * time.Second
	readinessFailures = 2
	livenessPeriod    = 10 * time.Second
	livenessFailures  = 6
	gracePeriod       = 90 * time.Second
	// nodeLeasePeriod and ReplicaControllerArgs make Kubernetes notice a lost node in 8 seconds instead of 50.
	nodeLeasePeriod = time.Second
)

var (
	// ReplicaControllers are the controllers of Kubernetes that maintain the endpoints of replicas.
	ReplicaControllers = []string{"endpointslice-controller", "node-lifecycle-controller"}
	// ReplicaControllerArgs are arguments of their controller manager.
	ReplicaControllerArgs = []string{"--node-monitor-grace-period=6s", "--node-monitor-period=1s"}
)

// Replica is an APIServer that runs as a Pod of its own node. It does what a kubelet does: it reports the Pod and the
// Lease of the node, runs the probes, restarts the process when it ends or its liveness probe fails, and terminates it
// after the Pod is deleted. The controllers of Kubernetes do the rest: requests reach the replica by the endpoints of
// its Service.
type Replica struct {
	*APIServer
	// Node is the name of the Pod and of the node.
	Node string

	kubelet kubernetes.Interface
	probes  rest.Interface
	mu      sync.Mutex
	// stop ends the kubelet, and ended is closed when it has ended.
	stop  context.CancelFunc
	ended chan struct{}
	ready bool
}

// NewReplica returns a replica without starting it.
func NewReplica(opts APIServerOptions) (*Replica, error) {
	server, err := NewAPIServer(opts)
	if err != nil {
		return nil, err
	}
	config := opts.Hub.AdminConfig()
	if opts.Host != nil {
		// A node that cannot reach the hub cannot report the state of its Pods.
		config.Dial = opts.Host.Local
	}
	config.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	probes, err := server.config(&rest.Config{Timeout: probeTimeout})
	if err != nil {
		return nil, err
	}
	// A kubelet does not verify the certificate.
	probes.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	probes.Dial = config.Dial
	probing, err := kubernetes.NewForConfig(probes)
	if err != nil {
		return nil, err
	}
	return &Replica{APIServer: server, Node: opts.Name, kubelet: client, probes: probing.RESTClient()}, nil
}

// Start creates the Pod and returns when it is ready.
func (r *Replica) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, await.Patience)
	defer cancel()
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("start %s: %w", r.Node, err)
	}
	if err := r.create(ctx); err != nil {
		return fmt.Errorf("start %s: %w", r.Node, err)
	}
	if err := r.Launch(); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	r.mu.Lock()
	r.stop, r.ended = stop, ended
	r.mu.Unlock()
	go func() {
		defer close(ended)
		r.run(running)
	}()
	return await.Poll(ctx, func() error {
		if r.PodReady() {
			return nil
		}
		return errors.New("the Pod " + r.Node + " is not ready" + r.LogTail())
	})
}

// PodReady reports whether the last probe of the kubelet succeeded.
func (r *Replica) PodReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// create creates the node and the Pod.
func (r *Replica) create(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Node}}
	if _, err := r.kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := r.report(ctx); err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: HubNamespace, Name: r.Node, Labels: map[string]string{"app": ServerName}},
		Spec: corev1.PodSpec{
			NodeName: r.Node, ServiceAccountName: ServerName, TerminationGracePeriodSeconds: ptr.To(int64(gracePeriod / time.Second)),
			Containers: []corev1.Container{{Name: "apiserver", Image: ServerName, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true),
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}},
			// Nothing evicts the Pod of a lost node from it, as with the default of five minutes.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	_, err := r.kubelet.CoreV1().Pods(HubNamespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// report renews the Lease of the node, and reports that it is ready.
func (r *Replica) report(ctx context.Context) error {
	leases := r.kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, r.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.Node}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &r.Node, LeaseDurationSeconds: ptr.To[int32](6), RenewTime: &now,
		}}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) { // the namespace is created after the start of the hub
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return r.reportNode(ctx) })
}

// reportNode reports that the node is ready.
func (r *Replica) reportNode(ctx context.Context) error {
	node, err := r.kubelet.CoreV1().Nodes().Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return nil
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	_, err = r.kubelet.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// run does the work of the kubelet until ctx ends.
func (r *Replica) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	// The Lease is independent of the Pod.
	running.Go(func() { wait.UntilWithContext(ctx, func(ctx context.Context) { _ = r.report(ctx) }, nodeLeasePeriod) })
	ready, alive := 0, 0
	set := func(now bool) {
		r.mu.Lock()
		r.ready = now
		r.mu.Unlock()
		// The next probe reports it again if the hub does not respond, or a controller has changed it.
		_ = r.reportPod(ctx, now)
	}
	began, lastLiveness := time.Now(), time.Now()
	tick := time.NewTicker(readinessPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Exited():
			set(false)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) < readinessPeriod { // back off if it exits at once
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
			began, lastLiveness, ready, alive = time.Now(), time.Now(), 0, 0
			if err := r.Launch(); err != nil {
				continue
			}
		case <-tick.C:
			err := r.probe(ctx, "/readyz")
			switch {
			case err == nil:
				ready = 0
				set(true)
			case ready < readinessFailures-1:
				ready++
			default:
				set(false)
			}
			if time.Since(lastLiveness) < livenessPeriod {
				continue
			}
			lastLiveness = time.Now()
			if r.probe(ctx, "/livez?exclude=etcd") == nil {
				alive = 0
			} else if alive++; alive == livenessFailures {
				_ = r.Process.Kill()
			}
		}
	}
}

// probe runs a probe from the node of the replica.
func (r *Replica) probe(ctx context.Context, path string) error {
	_, err := r.probes.Get().RequestURI(path).DoRaw(ctx)
	return err
}

// reportPod reports the state of the container.
func (r *Replica) reportPod(ctx context.Context, ready bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	pods := r.kubelet.CoreV1().Pods(HubNamespace)
	pod, err := pods.Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == status }) {
		return nil
	}
	address := r.Process.Host.address()
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = nil
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		value := status
		if condition == corev1.PodScheduled || condition == corev1.PodInitialized {
			value = corev1.ConditionTrue
		}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: value, LastTransitionTime: metav1.Now()})
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// Terminate deletes the Pod as kubectl delete does: its endpoint is removed while the process gets SIGTERM. It returns
// when the process has ended.
func (r *Replica) Terminate(ctx context.Context) error {
	r.mu.Lock()
	stop, ended := r.stop, r.ended
	r.mu.Unlock()
	if stop == nil {
		return nil
	}
	pods := r.kubelet.CoreV1().Pods(HubNamespace)
	if err := pods.Delete(ctx, r.Node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	stop()
	<-ended
	stopping, cancel := context.WithTimeout(ctx, gracePeriod)
	defer cancel()
	err := r.Process.Stop(stopping)
	r.mu.Lock()
	r.ready, r.stop = false, nil
	r.mu.Unlock()
	return errors.Join(err, await.Within(ctx, await.Patience, func(ctx context.Context) error {
		err := pods.Delete(ctx, r.Node, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}))
}

// Stop ends the process without the hub, which may be down.
func (r *Replica) Stop(ctx context.Context) error {
	r.mu.Lock()
	stop, ended := r.stop, r.ended
	r.stop = nil
	r.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	return r.Process.Kill()
}

// IssueServing replaces the serving certificate, which the server reloads. It expires at a time, or in a year if the
// time is zero.
func (r *Replica) IssueServing(expires time.Time) error {
	_, _, err := r.issueServing(expires, r.Process.Host)
	return err
}

// ServedCertificate returns the certificate that the server serves to a new connection.
func (s *APIServer) ServedCertificate(ctx context.Context) (*x509.Certificate, error) {
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.cert)
	dial := (&net.Dialer{}).DialContext
	if s.Process.Host != nil {
		dial = s.Process.Host.Dial
	}
	plain, err := dial(ctx, "tcp", net.JoinHostPort(s.Process.Host.address(), strconv.Itoa(s.Port)))
	if err != nil {
		return nil, err
	}
	connection := tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: ServerName + "." + HubNamespace + ".svc", MinVersion: tls.VersionTLS12})
	defer func() { _ = connection.Close() }()
	if err := connection.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return connection.ConnectionState().PeerCertificates[0], nil
}
