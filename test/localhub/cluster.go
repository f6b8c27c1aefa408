package localhub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// controllers are those that the controller manager runs: what our API relies
// on (namespace deletion, garbage collection, certificate signing for
// registration) and what a plain cluster's objects need. Without nodes, the
// rest would only take memory.
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

// ClusterOptions says how a [Cluster] is made. Name and Dir are required.
type ClusterOptions struct {
	// Name is used in errors, in the names of the logs and as the kubeconfig's context.
	Name string
	// Dir keeps the cluster's keys, certificates, kubeconfigs and data.
	Dir string
	// LogDir receives the logs; <Dir>/logs if empty.
	LogDir string
	// BinDir has etcd, kube-apiserver and kube-controller-manager; [BinDir]() if
	// empty. Another directory gives another Kubernetes version.
	BinDir string
	// NoControllerManager leaves the controller manager out.
	NoControllerManager bool
	// NoFsync makes etcd faster on a slow disk. Its data then outlasts a kill,
	// but not a crash of the machine.
	NoFsync bool
	// EKS makes it a cluster of EKS, if set.
	EKS *EKS
	// AuditPolicy is the audit policy of kube-apiserver, in YAML. It logs to
	// [Cluster.AuditLog]; without a policy, nothing is logged.
	AuditPolicy string
	// APIServerArgs are further arguments of kube-apiserver.
	APIServerArgs []string
}

// Cluster is one Kubernetes control plane: etcd, kube-apiserver and
// kube-controller-manager. Each of the three may be killed and restarted on
// its own.
type Cluster struct {
	// Name is that of the options.
	Name string
	// Etcd is the cluster's storage.
	Etcd *Etcd
	// APIServer is kube-apiserver.
	APIServer *Process
	// ControllerManager is kube-controller-manager; nil if left out.
	ControllerManager *Process

	dir    string
	host   string
	issuer string
	pki    *controlPlanePKI
	admin  *rest.Config
	eks    *EKS
}

// NewCluster makes or finds the cluster's keys and data in Dir and chooses its
// port. It starts nothing.
func NewCluster(opts ClusterOptions) (*Cluster, error) {
	c, err := newCluster(opts)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", opts.Name, err)
	}
	return c, nil
}

func newCluster(opts ClusterOptions) (*Cluster, error) {
	if opts.BinDir == "" {
		opts.BinDir = BinDir()
	}
	if opts.LogDir == "" {
		opts.LogDir = filepath.Join(opts.Dir, "logs")
	}
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
		Name: opts.Name, dir: dir, eks: opts.EKS,
		host: "https://127.0.0.1:" + strconv.Itoa(port), issuer: "https://kubernetes.default.svc",
	}
	if c.pki, err = loadControlPlanePKI(filepath.Join(dir, "pki")); err != nil {
		return nil, err
	}
	if c.admin, err = c.UserConfig("admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := c.WriteAdminKubeconfig(c.adminKubeconfig()); err != nil {
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
	c.Etcd, err = NewEtcd(opts.Name+" etcd", filepath.Join(dir, "etcd"), opts.BinDir, logFile("etcd"), !opts.NoFsync)
	if err != nil {
		return nil, err
	}
	if err := c.defineAPIServer(opts, port, logFile("kube-apiserver")); err != nil {
		return nil, err
	}
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
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	c.APIServer = &Process{
		Name: c.Name + " kube-apiserver",
		Path: path,
		Args: append([]string{
			"--etcd-servers=" + c.Etcd.Endpoint,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			// There are no nodes that would need the kubernetes Service's endpoints,
			// and a loopback address is not a valid endpoint.
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none",
			"--tls-cert-file=" + c.pki.servingCert,
			"--tls-private-key-file=" + c.pki.servingKey,
			"--client-ca-file=" + c.pki.client.certFile,
			"--service-cluster-ip-range=10.0.0.0/24",
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
		Ready:   readyz(client.RESTClient()),
	}
	return nil
}

func (c *Cluster) defineControllerManager(opts ClusterOptions, logFile string) error {
	path, err := Binary(opts.BinDir, "kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.dir, "controller-manager.kubeconfig")
	if err := c.WriteKubeconfig(kubeconfig, "system:kube-controller-manager"); err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return err
	}
	config := c.AnonymousConfig()
	config.Host = "https://127.0.0.1:" + strconv.Itoa(port)
	health, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c.ControllerManager = &Process{
		Name: c.Name + " kube-controller-manager",
		Path: path,
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--controllers=" + strings.Join(controllers, ","),
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			"--tls-cert-file=" + c.pki.servingCert,
			"--tls-private-key-file=" + c.pki.servingKey,
			// Without these it tries, and logs, a cluster that it is not in.
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			// As in production: each controller is a user of its own, with only its own role.
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + c.pki.serviceAccountKey,
			"--root-ca-file=" + c.pki.serving.certFile,
			"--cluster-signing-cert-file=" + c.pki.client.certFile,
			"--cluster-signing-key-file=" + c.pki.client.keyFile,
			// Deleting one namespace takes over a hundred requests; at the default
			// of 20 a second, tests would wait for little else.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		},
		LogFile: logFile,
		// Healthy is not yet at work: the default ServiceAccount of a new cluster
		// is made by one of the controllers.
		Ready: func(ctx context.Context) error {
			if _, err := health.RESTClient().Get().AbsPath("/healthz").DoRaw(ctx); err != nil {
				return err
			}
			_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err
		},
	}
	return nil
}

// readyz returns a readiness check that asks the server's /readyz.
func readyz(client rest.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := client.Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil && len(body) > 0 {
			return fmt.Errorf("%w: %s", err, failedChecks(string(body)))
		}
		return err
	}
}

// failedChecks shortens the answer of /readyz to the checks that fail.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	return strings.Join(failed, ", ")
}

// Start starts what does not run yet of the three processes and returns when
// the cluster is ready. If one fails, those that were started run on; call Stop.
func (c *Cluster) Start(ctx context.Context) error {
	for _, p := range c.Processes() {
		if p.Running() {
			continue
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop stops the three processes in the reverse order. It is no error if some
// or all of them do not run.
func (c *Cluster) Stop(ctx context.Context) error {
	var errs []error
	if c.ControllerManager != nil {
		errs = append(errs, c.ControllerManager.Stop(ctx))
	}
	errs = append(errs, c.APIServer.Stop(ctx), c.Etcd.Stop(ctx))
	return errors.Join(errs...)
}

// Processes returns the cluster's processes in the order in which they start.
func (c *Cluster) Processes() []*Process {
	processes := []*Process{c.Etcd.Process, c.APIServer}
	if c.ControllerManager != nil {
		processes = append(processes, c.ControllerManager)
	}
	return processes
}
