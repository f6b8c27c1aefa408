package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/kubelet"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
	"open-cluster-management.io/hub-apiserver/test/release"
)

const (
	hubNamespace   = "open-cluster-management-hub"
	agentNamespace = "open-cluster-management-agent"
	serverRole     = "open-cluster-management:hub-apiserver"
	agentRole      = "open-cluster-management:managedcluster:"
	agentAddonRole = "open-cluster-management-agent-addon/open-cluster-management:agent:serviceaccounts"
	etcdName       = "etcd." + hubNamespace + ".svc"
	postgresName   = "postgres." + hubNamespace + ".svc"
)

func TestMain(m *testing.M) {
	kubelet.Main()
	os.Exit(postgrestest.Main(m))
}

// site is a cluster whose Pods run.
type site struct {
	*localhub.Cluster
	dir        string
	kubeconfig string
	kube       kubernetes.Interface
	ocm        versioned.Interface
	// limit bounds each command; await.Patience if 0.
	limit time.Duration
}

// newSite starts a cluster. outside are ports of this machine that its Pods may connect to, in addition
// to that of its kube-apiserver.
func newSite(t testing.TB, name string, outside map[int]string) *site {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("running containers requires root")
	}
	framework.UseSlots(t, 1)
	dir := t.TempDir()
	program := func(name string) string {
		path, err := localhub.Binary(localhub.BinDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	ports := maps.Clone(outside)
	if ports == nil {
		ports = map[int]string{}
	}
	pods, err := kubelet.New(kubelet.Options{
		Dir: dir, Outside: ports, Names: []string{etcdName, postgresName, "kubernetes.default.svc"},
		Images: map[string]kubelet.Image{
			"hub-apiserver:dev":                                          {Program: program("apiserver"), Path: "/apiserver"},
			"hub-apiserver-agent:dev":                                    {Program: program("agent"), Path: "/agent"},
			release.Loaded + "hub-apiserver:" + release.Version(t):       {Program: program("apiserver"), Path: "/apiserver"},
			release.Loaded + "hub-apiserver-agent:" + release.Version(t): {Program: program("agent"), Path: "/agent"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := localhub.NewCluster(localhub.ClusterOptions{
		Name: name, Dir: filepath.Join(dir, "cluster"), NoFsync: true, APIServerArgs: pods.APIServerArgs(), AuditPolicy: allRequests,
		Controllers: []string{"deployment-controller", "replicaset-controller", "endpointslice-controller"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Cluster: cluster, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	own := portOf(t, s)
	ports[own] = net.JoinHostPort("127.0.0.1", strconv.Itoa(own))
	ports[443] = ports[own]
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		stop()
		if err := cluster.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, log := range logs {
				content, _ := os.ReadFile(log)
				t.Logf("%s ends:\n%s", filepath.Base(log), content[max(0, len(content)-4000):])
			}
		}
	})
	starting, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := cluster.Start(starting); err != nil {
		t.Fatal(err)
	}
	if err := cluster.WriteAdminKubeconfig(s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if s.ocm, err = versioned.NewForConfig(cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	class := &storagev1.StorageClass{Provisioner: "kubernetes.io/no-provisioner"} // the Pods get their volumes from test/kubelet
	class.Name, class.Annotations = "default", map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	if _, err := s.kube.StorageV1().StorageClasses().Create(starting, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() { running <- pods.Run(ctx, cluster.AdminConfig()) }()
	// Before the cluster stops, because cleanups run in reverse order.
	t.Cleanup(func() {
		stop()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
	return s
}

// portOf returns the port of the kube-apiserver of a site.
func portOf(t testing.TB, s *site) int {
	t.Helper()
	address, err := url.Parse(s.AdminConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// run runs a command on a site as its administrator.
func (s *site) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := s.try(t, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// try does the same as run, and returns the error of the command.
func (s *site) try(t testing.TB, program string, args ...string) (string, error) {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(s.limit, await.Patience))
	defer cancel()
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = localhub.Root()
	command.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "KUBECACHEDIR="+filepath.Join(s.dir, "cache"), "KUBERC=off")
	out, err := command.CombinedOutput()
	return string(out), err
}

// replacePod deletes a Pod of a namespace that has the given number of them, and waits until a new one is ready,
// and all APIs are served.
func (s *site) replacePod(t *testing.T, namespace string, replicas int) {
	t.Helper()
	before := s.ready(t, namespace, replicas)
	begin := time.Now()
	if err := s.kube.CoreV1().Pods(namespace).Delete(t.Context(), before[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the Pod "+before[0].Name+" is gone", func(ctx context.Context) error {
		if _, err := s.kube.CoreV1().Pods(namespace).Get(ctx, before[0].Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(Pod) = %v, want NotFound", err)
		}
		return nil
	})
	s.ready(t, namespace, replicas)
	t.Logf("Pod in %s replaced after %s", namespace, time.Since(begin).Round(100*time.Millisecond))
}

// ready waits until the Pods of a namespace are ready, and all APIs are served, and returns the Pods.
func (s *site) ready(t testing.TB, namespace string, replicas int) []corev1.Pod {
	t.Helper()
	var list *corev1.PodList
	await.Eventually(t, "the Pods in "+namespace+" are ready", func(ctx context.Context) (err error) {
		if list, err = s.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		if len(list.Items) != replicas {
			return fmt.Errorf("Pods = %d, want %d", len(list.Items), replicas)
		}
		for _, pod := range list.Items {
			if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("the Pod %s is not ready", pod.Name)
			}
		}
		_, err = s.kube.Discovery().ServerPreferredResources()
		return err
	})
	// The hub checks its APIServices again when a Pod becomes ready, and on a busy machine a check can fail.
	s.run(t, "kubectl", "wait", "apiservices", "--all", "--for=condition=Available", "--timeout="+await.Patience.String())
	return list.Items
}

func bindsOnCall(binding rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects, func(subject rbacv1.Subject) bool { return subject.Name == "on-call" })
}

// TestInstall installs a hub and a managed cluster with the commands of docs/air-gapped.md, until the managed cluster
// has the first ClusterPermission. All containers run as in the manifests.
func TestInstall(t *testing.T) {
	t.Parallel()
	framework.Slots(t, 2)
	hub := newSite(t, "hub", nil)
	hubPort := portOf(t, hub)
	managed := newSite(t, "managed", map[int]string{hubPort: net.JoinHostPort("127.0.0.1", strconv.Itoa(hubPort))})

	begin := time.Now()
	last := release.New(t, map[string]*rest.Config{"hub": hub.AdminConfig(), "cluster1": managed.AdminConfig()}, "").Follow(t)
	if want := "ClusterRole/view"; !strings.Contains(last, want) {
		t.Errorf("the last command of the page printed %q, want a ClusterRoleBinding with %s", last, want)
	}
	t.Logf("from the archive to the first ClusterPermission on the managed cluster: %s", time.Since(begin).Round(100*time.Millisecond))

	server := hub.newAccess(t, serverRole, hubNamespace+"/open-cluster-management:hub-apiserver:leases")
	bootstrap := hub.newAccess(t, "open-cluster-management:bootstrap")
	agentOnHub := hub.newAccess(t, agentRole+"registration", agentRole+"work",
		agentRole+"serviceaccounts", agentRole+"namespaces",
		agentRole+"inventory", agentRole+"cluster1")
	agent := managed.newAccess(t, "open-cluster-management:agent", "open-cluster-management:agent:apply", "open-cluster-management:agent:executor",
		"open-cluster-management:agent:inventory", "open-cluster-management:agent:namespaces",
		agentNamespace+"/open-cluster-management:agent:registration", agentAddonRole)

	hub.useAll(t, managed)

	// The data of the server outlive its Pod, and the agent its restart.
	hub.replacePod(t, hubNamespace, 1)
	managed.replacePod(t, agentNamespace, 1)
	await.Eventually(t, "the ClusterPermission exists in the new Pod", func(ctx context.Context) error {
		_, err := hub.ocm.RbacV1alpha1().ClusterPermissions("cluster1").Get(ctx, "on-call", metav1.GetOptions{})
		return err
	})
	const reviewsTokens = "open-cluster-management:agent: create tokenreviews.authentication.k8s.io"
	await.Eventually(t, "the new agent reviews the token of the account", func(context.Context) error {
		agent.read(t, managed.AuditLog(), isAccount(agentNamespace, "agent"))
		if _, unused := agent.unused[reviewsTokens]; unused {
			return errors.New("it created no TokenReview")
		}
		return nil
	})
	hub.run(t, "kubectl", "delete", "-f", "artifacts/example/managedserviceaccount.yaml")
	await.Eventually(t, "the server deletes the Secret of the account", func(ctx context.Context) error {
		if _, err := hub.kube.CoreV1().Secrets("cluster1").Get(ctx, "example", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(Secret) = %v, want NotFound", err)
		}
		return nil
	})
	hub.run(t, "kubectl", "delete", "-f", "artifacts/example/clusterpermission.yaml")
	await.Eventually(t, "the new agent removes the ClusterPermission", func(ctx context.Context) error {
		bindings, err := managed.kube.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(bindings.Items, bindsOnCall) {
			err = errors.New("the ClusterRoleBinding of on-call exists")
		}
		return err
	})
	managed.run(t, "clusteradm", "unjoin", "--cluster-name", "cluster1")
	await.Eventually(t, "the hub has no ManagedCluster", func(ctx context.Context) error {
		if _, err := hub.ocm.ClusterV1().ManagedClusters().Get(ctx, "cluster1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(ManagedCluster) = %v, want NotFound", err)
		}
		return nil
	})
	server.check(t, "the server", hub.AuditLog(), isAccount(hubNamespace, "hub-apiserver"), map[string]string{
		serverRole + ": change events.events.k8s.io":                                                         "only for an Event that is repeated while its object is unchanged",
		serverRole + ": execute-as manifestworks.work.open-cluster-management.io":                            "only with --work-executor: test/executor",
		serverRole + ": read mutatingadmissionpolicies.admissionregistration.k8s.io":                         "only with --enable-admission-plugins=MutatingAdmissionPolicy",
		serverRole + ": read mutatingadmissionpolicybindings.admissionregistration.k8s.io":                   "as above",
		serverRole + ": read placementdecisions.cluster.open-cluster-management.io":                          "only if the hub serves them: test/roleassignment",
		serverRole + ": change apiservices.apiregistration.k8s.io v1alpha1.proxy.open-cluster-management.io": "only with artifacts/apiservice/optional",
	})
	bootstrap.check(t, "the joining agent", hub.AuditLog(), isAccount("open-cluster-management", "agent-registration-bootstrap"), map[string]string{
		"open-cluster-management:bootstrap: create managedclusters/irsa.register.open-cluster-management.io": "only on EKS: test/registration",
	})
	const forUpstream = "upstream agents of add-ons and of OCM"
	agentOnHub.check(t, "the agent on the hub", hub.AuditLog(), isMember(clusterv1.AllAgentsGroup), map[string]string{
		agentRole + "registration: create events":                                                                     forUpstream,
		agentRole + "registration: change events":                                                                     forUpstream,
		agentRole + "registration: create events.events.k8s.io":                                                       forUpstream,
		agentRole + "registration: change events.events.k8s.io":                                                       forUpstream,
		agentRole + "registration: read managedclusteraddons.addon.open-cluster-management.io":                        forUpstream,
		agentRole + "registration: change managedclusteraddons/status.addon.open-cluster-management.io":               forUpstream,
		agentRole + "work: create events":                                                                             forUpstream,
		agentRole + "work: change events":                                                                             forUpstream,
		agentRole + "work: create events.events.k8s.io":                                                               forUpstream,
		agentRole + "work: change events.events.k8s.io":                                                               forUpstream,
		agentRole + "cluster1: create certificatesigningrequests.certificates.k8s.io":                                 "only to renew the certificate: test/registration",
		agentRole + "cluster1: renew managedclusters/clientcertificates.register.open-cluster-management.io":          "as above",
		agentRole + "cluster1: renew managedclusters/clientcertificates.register.open-cluster-management.io cluster1": "as above",
	})
	agent.check(t, "the agent on its cluster", managed.AuditLog(), isAccount(agentNamespace, "agent"), map[string]string{
		"open-cluster-management:agent: create customresourcedefinitions.apiextensions.k8s.io":                                                      "if somebody removes it: test/agent",
		"open-cluster-management:agent: change customresourcedefinitions.apiextensions.k8s.io appliedmanifestworks.work.open-cluster-management.io": "after an upgrade: test/agent",
		"open-cluster-management:agent: change appliedmanifestworks/finalizers.work.open-cluster-management.io":                                     "checked by the admission plugin OwnerReferencesPermissionEnforcement",
		agentAddonRole + ": change serviceaccounts":                                                                                                 "if the identity of the agent has changed: test/serviceaccount",
	})
}

// useAll uses all features of a hub with the cluster cluster1.
func (s *site) useAll(t *testing.T, managed *site) {
	t.Helper()
	s.run(t, "kubectl", "label", "managedclusters", "cluster1", "region=north")
	for _, example := range []string{"managedclusterset", "managedserviceaccount", "clusterpermission", "clusterpermission-account", "manifestwork", "executor", "managedclusteraddon"} {
		path := "artifacts/example/" + example
		if example != "executor" {
			path += ".yaml"
		}
		s.run(t, "kubectl", "apply", "-f", path)
	}
	// Permissions that the agent lacks.
	s.apply(t, `{"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "metadata": {"namespace": "cluster1", "name": "metrics"}, "spec": {
"clusterRole": {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}, "clusterRoleBinding": {"subject": {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prometheus"}},
"roles": [{"namespace": "default", "rules": [{"apiGroups": ["example.com"], "resources": ["policies"], "verbs": ["use"]}]}]}}`)
	await.Eventually(t, "everything is delivered", func(ctx context.Context) error {
		_, account := managed.kube.CoreV1().ServiceAccounts("open-cluster-management-agent-addon").Get(ctx, "example", metav1.GetOptions{})
		_, token := s.kube.CoreV1().Secrets("cluster1").Get(ctx, "example", metav1.GetOptions{})
		_, welcome := managed.kube.CoreV1().ConfigMaps("default").Get(ctx, "welcome", metav1.GetOptions{})
		_, greeting := managed.kube.CoreV1().ConfigMaps("default").Get(ctx, "greeting", metav1.GetOptions{})
		_, namespace := managed.kube.CoreV1().Namespaces().Get(ctx, "monitoring", metav1.GetOptions{})
		_, metrics := managed.kube.RbacV1().ClusterRoles().Get(ctx, "metrics", metav1.GetOptions{})
		return errors.Join(account, token, welcome, greeting, namespace, metrics)
	})

	// The hub follows the namespaces of the cluster.
	managed.run(t, "kubectl", "create", "namespace", "team-a")
	managed.run(t, "kubectl", "label", "namespace", "team-a", "team=a")
	await.Eventually(t, "the hub has the label of the namespace", func(ctx context.Context) error {
		reported, err := s.ocm.RbacV1alpha1().ClusterNamespaces("cluster1").Get(ctx, "team-a", metav1.GetOptions{})
		if err == nil && reported.Labels["team"] != "a" {
			err = fmt.Errorf("labels = %v, want team=a", reported.Labels)
		}
		return err
	})
	managed.run(t, "kubectl", "delete", "namespace", "team-a")
	await.Eventually(t, "the hub does not have the namespace", func(ctx context.Context) error {
		if _, err := s.ocm.RbacV1alpha1().ClusterNamespaces("cluster1").Get(ctx, "team-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Get(ClusterNamespace) = %v, want NotFound", err)
		}
		return nil
	})

	// The server restores the access of an agent, and leaves a namespace that is older than its cluster.
	access := agentRole + "cluster1"
	s.run(t, "kubectl", "patch", "clusterrolebinding", access, "--type=json", `--patch=[{"op": "remove", "path": "/subjects"}]`)
	await.Eventually(t, "the server restores the ClusterRoleBinding of the agent", func(ctx context.Context) error {
		binding, err := s.kube.RbacV1().ClusterRoleBindings().Get(ctx, access, metav1.GetOptions{})
		if err == nil && len(binding.Subjects) == 0 {
			err = errors.New("it has no subjects")
		}
		return err
	})
	s.run(t, "kubectl", "create", "namespace", "older")
	s.apply(t, `{"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "older"}, "spec": {"hubAcceptsClient": true}}`)
	await.Eventually(t, "the server labels the namespace", s.isMarked("older", "older"))
	s.run(t, "kubectl", "delete", "managedclusters", "older")
	await.Eventually(t, "the server removes its label", s.isMarked("older", ""))
}

// isMarked returns a check of the cluster to which a namespace of the hub belongs.
func (s *site) isMarked(name, cluster string) func(context.Context) error {
	return func(ctx context.Context) error {
		namespace, err := s.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && namespace.Labels[clusterv1.ClusterNameLabel] != cluster {
			err = fmt.Errorf("labels of namespace %s = %v, want %s=%s", name, namespace.Labels, clusterv1.ClusterNameLabel, cluster)
		}
		return err
	}
}

// apply applies an object in JSON.
func (s *site) apply(t testing.TB, object string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object.json")
	if err := os.WriteFile(path, []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(t, "kubectl", "apply", "-f", path)
}

// TestInstallReplicas installs two replicas that store their data in an etcd cluster with TLS, and search in PostgreSQL.
func TestInstallReplicas(t *testing.T) {
	t.Parallel()
	certificates := t.TempDir()
	if err := localhub.WriteTLS(certificates, etcdName); err != nil {
		t.Fatal(err)
	}
	etcd := startEtcd(t, certificates)
	socket, database := postgresOf(t)
	hub := newSite(t, "hub", map[int]string{2379: etcd, 5432: socket})
	hub.run(t, "kubectl", "create", "namespace", hubNamespace)
	hub.run(t, "kubectl", "-n", hubNamespace, "create", "secret", "generic", "hub-apiserver-etcd",
		"--from-file="+filepath.Join(certificates, "ca.crt"), "--from-file="+filepath.Join(certificates, "tls.crt"), "--from-file="+filepath.Join(certificates, "tls.key"))
	hub.run(t, "kubectl", "-n", hubNamespace, "create", "secret", "generic", "hub-apiserver-postgres", "--from-literal=url="+database)
	hub.run(t, "clusteradm", "init", "--wait", "--etcd-servers=https://"+etcdName+":2379")
	hub.ready(t, hubNamespace, 2)

	// Objects and requests outlive the Pods: one replica serves while the other is replaced.
	hub.run(t, "kubectl", "create", "-f", "artifacts/example/managedclusterset.yaml")
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if _, err := hub.ocm.ClusterV1beta2().ManagedClusterSets().List(ctx, metav1.ListOptions{}); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
		}
	}()
	for range 2 {
		hub.replacePod(t, hubNamespace, 2)
	}
	stop()
	if err := <-failed; err != nil {
		t.Errorf("List(ManagedClusterSets) while Pods are replaced: %v", err)
	}
	hub.run(t, "kubectl", "get", "--raw", "/apis/search.open-cluster-management.io/v1alpha1/fleetresources?limit=1")

	// Init without the flags of the installation keeps the replicas and their data.
	out := hub.run(t, "clusteradm", "init", "--wait", "--csr-probe-timeout=0")
	if strings.Contains(out, " configured\n") || strings.Contains(out, " created\n") {
		t.Errorf("clusteradm init without flags printed\n%s\nwant all objects unchanged", out)
	}
	hub.ready(t, hubNamespace, 2)
	hub.run(t, "kubectl", "get", "-f", "artifacts/example/managedclusterset.yaml")
}

// startEtcd starts an etcd that accepts only clients with a certificate, and returns its address.
func startEtcd(t *testing.T, certificates string) string {
	t.Helper()
	etcd, err := localhub.NewEtcd("external etcd", t.TempDir(), localhub.BinDir(), filepath.Join(certificates, "etcd.log"), false)
	if err != nil {
		t.Fatal(err)
	}
	port, err := localhub.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	etcd.Args = append(etcd.Args, "--listen-client-urls=https://"+address, "--client-cert-auth",
		"--trusted-ca-file="+filepath.Join(certificates, "ca.crt"), "--cert-file="+filepath.Join(certificates, "tls.crt"), "--key-file="+filepath.Join(certificates, "tls.key"))
	etcd.Ready = nil
	if err := etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		if err := etcd.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return address
}

// postgresOf starts PostgreSQL, and returns its socket and the URL of a database for containers.
func postgresOf(t *testing.T) (socket, database string) {
	t.Helper()
	config, err := pgx.ParseConfig(postgrestest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(config.Host, fmt.Sprintf(".s.PGSQL.%d", config.Port))
	return socket, fmt.Sprintf("postgres://%s@%s:5432/%s?sslmode=disable", config.User, postgresName, config.Database)
}
