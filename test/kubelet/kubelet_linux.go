package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	nodeName = "machine"
	// resync is how often a Kubelet lists the Pods of its cluster.
	resync = 200 * time.Millisecond
)

// Image is the content of a container image: one program.
type Image struct {
	// Program is the path of the program on this machine, and Path its path in the image.
	Program, Path string
}

// Options are the options of a Kubelet.
type Options struct {
	// Dir is an existing directory for volumes and logs.
	Dir string
	// Images are the images by the names in the manifests.
	Images map[string]Image
	// Outside maps the ports that containers may connect to on 127.0.0.1 to addresses of this machine, or to
	// paths of unix sockets.
	Outside map[int]string
	// Names are host names that containers resolve to 127.0.0.1.
	Names []string
}

// Kubelet runs the Pods of one cluster.
type Kubelet struct {
	Options
	// proxy is the socket of the proxy. Its path is short, because the paths of sockets are limited.
	proxy  string
	config *rest.Config
	client kubernetes.Interface

	mu   sync.Mutex
	pods map[types.UID]*pod
	work sync.WaitGroup
}

// New returns a Kubelet of a cluster that is started with APIServerArgs.
func New(opts Options) (*Kubelet, error) {
	sockets, err := os.MkdirTemp("", "pods")
	if err != nil {
		return nil, err
	}
	k := &Kubelet{Options: opts, proxy: filepath.Join(sockets, "proxy"), pods: map[types.UID]*pod{}}
	config := fmt.Sprintf(`{"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration", "egressSelections": [
{"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": %q}}}}]}`, k.proxy)
	return k, os.WriteFile(k.egress(), []byte(config), 0o600)
}

func (k *Kubelet) egress() string { return filepath.Join(k.Dir, "egress.yaml") }

// APIServerArgs returns the arguments with which kube-apiserver connects to the Services and Pods of the Kubelet.
func (k *Kubelet) APIServerArgs() []string {
	return []string{"--egress-selector-config-file=" + k.egress()}
}

// Run runs the Pods of the cluster until ctx is done, and then stops them. config is that of an administrator.
func (k *Kubelet) Run(ctx context.Context, config *rest.Config) error {
	defer func() { _ = os.RemoveAll(filepath.Dir(k.proxy)) }()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	k.config, k.client = config, client
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	listener, err := net.Listen("unix", k.proxy)
	if err != nil {
		return err
	}
	proxy := &http.Server{Handler: http.HandlerFunc(k.connect), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = proxy.Serve(listener) }()
	defer func() { _ = proxy.Close() }()
	defer k.work.Wait()
	for {
		// An unavailable hub stops no Pod.
		if list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err == nil {
			k.sync(ctx, list.Items)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resync):
		}
	}
}

// sync starts new Pods and stops deleted ones.
func (k *Kubelet) sync(ctx context.Context, list []corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[types.UID]bool{}
	for i := range list {
		object := &list[i]
		seen[object.UID] = true
		p := k.pods[object.UID]
		if p == nil {
			inside, cancel := context.WithCancel(ctx)
			p = &pod{kubelet: k, object: object, cancel: cancel}
			k.pods[object.UID] = p
			k.work.Go(func() { p.run(inside) })
		}
		if object.DeletionTimestamp != nil {
			p.deleted.Store(true)
			p.cancel()
		}
	}
	for uid, p := range k.pods {
		if !seen[uid] {
			p.cancel()
			delete(k.pods, uid)
		}
	}
}

// connect serves the CONNECT requests of kube-apiserver to the addresses of Services.
func (k *Kubelet) connect(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is supported", http.StatusMethodNotAllowed)
		return
	}
	target, err := k.dialService(request.Context(), request.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = target.Close()
		return
	}
	if _, err := connection.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		_ = errors.Join(connection.Close(), target.Close())
		return
	}
	join(connection, target)
}

// dialService connects to a ready Pod of the Service with this address.
func (k *Kubelet) dialService(ctx context.Context, address string) (net.Conn, error) {
	services, err := k.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, service := range services.Items {
		for _, p := range service.Spec.Ports {
			if net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(p.Port))) != address {
				continue
			}
			for _, pod := range k.pods {
				if pod.object.Namespace == service.Namespace && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.object.Labels)) && pod.ready.Load() && !pod.deleted.Load() {
					return pod.dial(ctx, p.TargetPort)
				}
			}
			return nil, fmt.Errorf("no Pod of the Service %s/%s is ready", service.Namespace, service.Name)
		}
	}
	return nil, fmt.Errorf("no Service has the address %s", address)
}

// forward connects each connection of a listener to another one, until the listener is closed.
func forward(listener net.Listener, dial func() (net.Conn, error)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			other, err := dial()
			if err != nil {
				_ = connection.Close()
				return
			}
			join(connection, other)
		}()
	}
}

// join copies between two connections until one of them is closed.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}
