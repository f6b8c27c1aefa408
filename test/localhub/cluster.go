package localhub

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// controllers are the controllers that the controller manager runs: those that our
// API relies on (namespace deletion, garbage collection, certificate signing for
// registration), and those that the objects of any cluster need. The others would
// only use memory, because most clusters have no nodes.
var controllers = []string{
	"namespace-controller",
	"garbage-collector-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"root-ca-certificate-publisher-controller",
	"clusterrole-aggregation-controller",
	"certificatesigningrequest-signing-controller",
	"certificatesigningrequest-cleaner-controller",
	"validatingadmissionpolicy-status-controller",
}

// ClusterOptions are the options of a [Cluster]. Name and Dir are required.
type ClusterOptions struct {
	// Name is used in errors, in the names of the logs and as the kubeconfig's context.
	Name string
	// Dir contains the cluster's keys, certificates, kubeconfigs and data.
	Dir string
	// LogDir receives the logs; <Dir>/logs if empty.
	LogDir string
	// BinDir contains etcd, kube-apiserver and kube-controller-manager; [BinDir]() if
	// empty. Use another directory for another Kubernetes version.
	BinDir string
	// NoControllerManager disables the controller manager.
	NoControllerManager bool
	// Controllers are controllers that the controller manager runs in addition to those that all
	// clusters need.
	Controllers []string
	// NoFsync makes etcd faster on a slow disk. Its data then survives a kill,
	// but not a crash of the machine.
	NoFsync bool
	// EKS makes the cluster an EKS cluster, if set.
	EKS *EKS
	// ControllerArgs are additional arguments of the controller manager.
	ControllerArgs []string
	// AuditPolicy is the audit policy of kube-apiserver, in YAML. It logs to
	// [Cluster.AuditLog]. Without a policy, there is no audit log.
	AuditPolicy string
	// APIServerArgs are additional arguments of kube-apiserver.
	APIServerArgs []string
	// Host is the host of the cluster's processes. Nil means this machine.
	Host *Host
	// Nodes means that the cluster has nodes, which test/node starts. The Host is then the first of them.
	Nodes bool
}

// Cluster is one Kubernetes control plane: etcd, kube-apiserver and
// kube-controller-manager. Each process can be killed and restarted separately.
type Cluster struct {
	// Name is the name in the options.
	Name string
	// Etcd is the cluster's storage.
	Etcd *Etcd
	// APIServer is kube-apiserver.
	APIServer *Process
	// ControllerManager is kube-controller-manager; nil if disabled.
	ControllerManager *Process

	dir    string
	host   string
	issuer string
	pki    *controlPlanePKI
	admin  *rest.Config
	client kubernetes.Interface // with the credentials of admin
	eks    *EKS
	on     *Host
	slot   slot
}

// NewCluster creates the cluster's keys in Dir, or uses the existing keys and data, and
// chooses its port. It starts no process.
func NewCluster(opts ClusterOptions) (*Cluster, error) {
	c, err := newCluster(opts)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", opts.Name, err)
	}
	return c, nil
}

func newCluster(opts ClusterOptions) (*Cluster, error) {
	opts.BinDir = cmp.Or(opts.BinDir, BinDir())
	opts.LogDir = cmp.Or(opts.LogDir, filepath.Join(opts.Dir, "logs"))
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, err
	}
	port, err := rememberedPort(filepath.Join(dir, "port"))
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Name: opts.Name, dir: dir, eks: opts.EKS, on: opts.Host,
		host: "https://" + opts.Host.address() + ":" + strconv.Itoa(port), issuer: "https://kubernetes.default.svc",
	}
	if c.pki, err = loadControlPlanePKI(filepath.Join(dir, "pki"), opts.Host.address()); err != nil {
		return nil, err
	}
	if c.admin, err = c.UserConfig("admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := c.WriteAdminKubeconfig(c.adminKubeconfig()); err != nil {
		return nil, err
	}
	if c.admin.CAData, err = cert.EncodeCertificates(c.pki.serving.cert, c.pki.nextServing.cert); err != nil {
		return nil, err
	}
	if c.client, err = kubernetes.NewForConfig(c.AdminConfig()); err != nil {
		return nil, err
	}
	if c.eks != nil {
		args, err := c.enterAWS()
		if err != nil {
			return nil, fmt.Errorf("as a cluster of EKS: %w", err)
		}
		opts.APIServerArgs = append(args, opts.APIServerArgs...)
		c.issuer = "https://" + c.eks.Issuer()
	}
	logFile := func(program string) string {
		return filepath.Join(opts.LogDir, opts.Name+"-"+program+".log")
	}
	audit, err := auditArgs(dir, opts.AuditPolicy)
	if err != nil {
		return nil, err
	}
	opts.APIServerArgs = append(audit, opts.APIServerArgs...)
	if opts.Nodes {
		args, err := c.forNodes()
		if err != nil {
			return nil, err
		}
		opts.APIServerArgs = append(args, opts.APIServerArgs...)
		opts.Controllers = append(opts.Controllers, "*")
	}
	c.Etcd, err = NewEtcd(opts.Name+" etcd", filepath.Join(dir, "etcd"), opts.BinDir, logFile("etcd"), !opts.NoFsync)
	if err != nil {
		return nil, err
	}
	if err := c.defineAPIServer(opts, port, logFile("kube-apiserver")); err != nil {
		return nil, err
	}
	c.Etcd.Host = opts.Host
	if !opts.NoControllerManager {
		if err := c.defineControllerManager(opts, logFile("kube-controller-manager")); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) defineAPIServer(opts ClusterOptions, port int, logFile string) error {
	path, err := Binary(opts.BinDir, "kube-apiserver")
	if err != nil {
		return err
	}
	c.APIServer = &Process{
		Name: c.Name + " kube-apiserver",
		Path: path,
		Host: c.on,
		Args: append([]string{
			"--etcd-servers=" + c.Etcd.Endpoint,
			"--bind-address=" + c.on.address(),
			"--secure-port=" + strconv.Itoa(port),
			// A cluster without nodes does not need the endpoints of the Service
			// kubernetes, and a loopback address is not a valid endpoint.
			"--advertise-address=" + c.on.address(),
			"--endpoint-reconciler-type=none",
			"--tls-cert-file=" + c.pki.servingCert,
			"--tls-private-key-file=" + c.pki.servingKey,
			"--client-ca-file=" + c.pki.client.certFile,
			"--service-cluster-ip-range=" + serviceRange,
			"--service-account-issuer=" + c.issuer,
			"--service-account-key-file=" + c.pki.serviceAccountKey,
			"--service-account-signing-key-file=" + c.pki.serviceAccountKey,
			"--authorization-mode=RBAC",
			"--requestheader-client-ca-file=" + c.pki.frontProxy.certFile,
			"--requestheader-allowed-names=" + frontProxyName,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + c.pki.frontProxyCert,
			"--proxy-client-key-file=" + c.pki.frontProxyKey,
			"--profiling=false",
		}, opts.APIServerArgs...),
		LogFile: logFile,
		Ready:   readyz(c.client.Discovery().RESTClient()),
	}
	return nil
}

// forNodes returns the arguments with which kube-apiserver serves nodes and connects to them.
func (c *Cluster) forNodes() ([]string, error) {
	certPEM, keyPEM, err := c.pki.client.issueClient(time.Time{}, "kube-apiserver-kubelet-client", []string{"system:masters"})
	if err != nil {
		return nil, err
	}
	certFile, keyFile, err := writePair(filepath.Join(c.dir, "pki"), "kubelet-client", certPEM, keyPEM)
	return []string{
		"--endpoint-reconciler-type=lease",
		// In addition to RBAC: the flags of a list add up.
		"--authorization-mode=Node",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--kubelet-client-certificate=" + certFile,
		"--kubelet-client-key=" + keyFile,
		"--kubelet-preferred-address-types=InternalIP",
	}, err
}

// ClientCAFile returns the path of the authority of client certificates.
func (c *Cluster) ClientCAFile() string { return c.pki.client.certFile }

func (c *Cluster) defineControllerManager(opts ClusterOptions, logFile string) error {
	path, err := Binary(opts.BinDir, "kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig, err := c.writeControllerManagerKubeconfig()
	if err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	config := c.AnonymousConfig()
	config.Host = "https://" + c.on.address() + ":" + strconv.Itoa(port)
	health, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c.ControllerManager = &Process{
		Name: c.Name + " kube-controller-manager",
		Path: path,
		Host: c.on,
		Args: append([]string{
			"--kubeconfig=" + kubeconfig,
			"--controllers=" + strings.Join(append(slices.Clone(controllers), opts.Controllers...), ","),
			"--leader-elect=false",
			"--bind-address=" + c.on.address(),
			"--secure-port=" + strconv.Itoa(port),
			"--tls-cert-file=" + c.pki.servingCert,
			"--tls-private-key-file=" + c.pki.servingKey,
			// Without these flags it tries to use an in-cluster configuration, and logs errors.
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			// As in production, each controller is a separate user with its own role.
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + c.pki.serviceAccountKey,
			"--root-ca-file=" + c.pki.serving.certFile,
			"--cluster-signing-cert-file=" + c.pki.client.certFile,
			"--cluster-signing-key-file=" + c.pki.client.keyFile,
			// Deleting a namespace takes more than a hundred requests. At the default of
			// 20 requests per second, this would take most of the time of the tests.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}, opts.ControllerArgs...),
		LogFile: logFile,
		// /healthz succeeds before the controllers work. One of the controllers
		// creates the default ServiceAccount of a new cluster.
		Ready: func(ctx context.Context) error {
			if _, err := health.RESTClient().Get().AbsPath("/healthz").DoRaw(ctx); err != nil {
				return err
			}
			_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		},
	}
	return nil
}

// readyz returns a readiness check that requests the server's /readyz.
func readyz(client rest.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := client.Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil && len(body) > 0 {
			return fmt.Errorf("%w: %s", err, failedChecks(string(body)))
		}
		return err
	}
}

// failedChecks returns the failing checks in the response of /readyz.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	return strings.Join(failed, ", ")
}

// IssueFrontProxy replaces the client certificate of the aggregation layer. It expires at a time, or in a year if the
// time is zero. The cluster uses it for all requests after its kube-apiserver has restarted.
func (c *Cluster) IssueFrontProxy(expires time.Time) error {
	return c.pki.issueFrontProxy(filepath.Join(c.dir, "pki"), expires)
}

// ReplaceFrontProxyAuthority does the same with a new authority.
func (c *Cluster) ReplaceFrontProxyAuthority() error {
	if err := errors.Join(os.Remove(c.pki.frontProxy.certFile), os.Remove(c.pki.frontProxy.keyFile)); err != nil {
		return err
	}
	var err error
	if c.pki.frontProxy, err = loadAuthority(filepath.Join(c.dir, "pki"), "front-proxy-ca"); err != nil {
		return err
	}
	return c.IssueFrontProxy(time.Time{})
}

func (c *Cluster) writeControllerManagerKubeconfig() (string, error) {
	path := filepath.Join(c.dir, "controller-manager.kubeconfig")
	return path, c.WriteKubeconfig(path, "system:kube-controller-manager")
}

// TrustNextServing makes the kubeconfigs of the administrator and of the controller manager, and those that the cluster
// writes from now on, trust the next authority of serving certificates in addition to the current one.
func (c *Cluster) TrustNextServing() error {
	c.pki.trusted = []*x509.Certificate{c.pki.serving.cert, c.pki.nextServing.cert}
	bundle, err := cert.EncodeCertificates(c.pki.trusted...)
	if err != nil {
		return err
	}
	_, err = c.writeControllerManagerKubeconfig()
	// The controller manager publishes the content of the file to all namespaces.
	return errors.Join(err, c.WriteAdminKubeconfig(c.adminKubeconfig()), writeFile(c.pki.serving.certFile, bundle))
}

// ReplaceServing replaces the serving certificate by one of the next authority.
func (c *Cluster) ReplaceServing() error {
	c.pki.serving = c.pki.nextServing
	return c.pki.issueServing(filepath.Join(c.dir, "pki"), c.on.address())
}

// Start starts the processes that do not run yet and returns when the cluster is
// ready. If a process fails, the others keep running; call Stop. In a test, the cluster
// needs a slot of [Reserve].
func (c *Cluster) Start(ctx context.Context) error {
	return c.start(ctx, c.Processes()...)
}

// startAPI starts the cluster without its controllers.
func (c *Cluster) startAPI(ctx context.Context) error {
	return c.start(ctx, c.Etcd.Process, c.APIServer)
}

func (c *Cluster) start(ctx context.Context, processes ...*Process) error {
	if err := c.slot.take(); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	return startAll(ctx, processes...)
}

// startAll starts processes that do not run yet, each when the one before it is ready.
func startAll(ctx context.Context, processes ...*Process) error {
	for _, p := range processes {
		if p.Running() {
			continue
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops the processes in reverse order. It ignores processes that do not run.
func (c *Cluster) Stop(ctx context.Context) error {
	defer c.slot.leave()
	var errs []error
	if c.ControllerManager != nil {
		errs = append(errs, c.ControllerManager.Stop(ctx))
	}
	errs = append(errs, c.APIServer.Stop(ctx), c.Etcd.Stop(ctx))
	return errors.Join(errs...)
}

// Kill kills the processes, as at the end of a test, when nobody reads their data again.
func (c *Cluster) Kill() error {
	defer c.slot.leave()
	var errs []error
	for _, p := range slices.Backward(c.Processes()) {
		errs = append(errs, p.Kill())
	}
	return errors.Join(append(errs, c.Etcd.removeSockets())...)
}

// Processes returns the cluster's processes in the order in which they start.
func (c *Cluster) Processes() []*Process {
	processes := []*Process{c.Etcd.Process, c.APIServer}
	if c.ControllerManager != nil {
		processes = append(processes, c.ControllerManager)
	}
	return processes
}
