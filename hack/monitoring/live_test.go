package monitoring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

const metricsAccount = "hub-apiserver-metrics"

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// suite is a hub with one cluster and two servers: the server of the fleet, and a replica that stores its data in the
// etcd of the first, searches in PostgreSQL, and creates its serving certificate.
type suite struct {
	*framework.Fleet
	*prometheus

	server, agent *manifests
	replica       *localhub.APIServer
	// onReplica is a client of the replica.
	onReplica *versioned.Clientset
	// token is the token with which Prometheus reads the metrics of the servers.
	token    string
	database string
	// agentURL is the address of the metrics of the agent.
	agentURL string
}

// testLive runs the queries of the dashboards and the rules on a hub, and makes the causes of the alerts happen there,
// one after the other. testSeries has the others.
func testLive(t *testing.T, fired map[string]bool) {
	s := newSuite(t)
	s.fired = fired
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"nothing else fires", s.quiet},
		{"expressions", s.expressions},
		{"panels", s.showData},
		{"HubAPIServerSearchDatabaseUnavailable", s.databaseAway},
		{"HubAPIServerQuotaNearLimit", s.quota},
		{"HubAgentWorksFail", s.refusedWork},
		{"HubAPIServerPermissionMissing", s.permissionMissing},
		{"HubAgentNotJoined", s.denied},
		{"HubAPIServerClustersUnavailable", s.agentDown},
		{"HubAPIServerEtcdFull", s.etcdFull},
		{"HubAPIServerDown", s.serverDown},
	} {
		if !t.Run(part.name, part.test) {
			return
		}
	}
}

func newSuite(t *testing.T) *suite {
	t.Helper()
	s := &suite{server: load(t, serverBase, serverComponent), agent: load(t, agentBase, agentComponent), database: postgrestest.Start(t)}
	s.Fleet = framework.OwnFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration,
		APIServerArgs: []string{"--data-quota-bytes=16777216", "--namespace-quota-objects=addondeploymentconfigs=2"},
		// The certificate of the agent expires soon.
		AgentArgs: []string{"--csr-expiration=24h"},
	})
	for _, object := range s.server.objects {
		if object.GetName() == metricsAccount || object.GetName() == "open-cluster-management:hub-apiserver:metrics" {
			framework.Apply(t, s.Hub, object)
		}
	}
	framework.Eventually(t, "the hub has written the token of Prometheus", func(ctx context.Context) error {
		secret, err := s.HubClient.CoreV1().Secrets(localhub.HubNamespace).Get(ctx, metricsAccount, metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = errors.New("no token")
		}
		if err == nil {
			s.token = string(secret.Data[corev1.ServiceAccountTokenKey])
		}
		return err
	})
	s.startReplica(t)
	s.prometheus = newPrometheus(t, s.server, s.agent)
	s.addServer(t, s.Server)
	s.addServer(t, s.replica)
	s.agentURL = "http://" + framework.Argument(t, s.Members[0].Agent.Args, "--health-bind-address=") + "/metrics"
	s.targets = append(s.targets, &target{
		labels: map[string]string{"job": "open-cluster-management-agent", "pod": "agent", "instance": "agent"},
		scrape: func(ctx context.Context) ([]byte, error) { return get(ctx, http.DefaultClient, s.agentURL) },
	})
	return s
}

func (s *suite) startReplica(t *testing.T) {
	t.Helper()
	dir := framework.OwnDir(t) + "-replica"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	urlFile := filepath.Join(dir, "url")
	if err := os.WriteFile(urlFile, []byte(s.database), 0o600); err != nil {
		t.Fatal(err)
	}
	s.replica = framework.Must(localhub.NewAPIServer(localhub.APIServerOptions{
		Hub: s.Hub, Name: "replica", Dir: dir, Granted: true,
		EtcdServers: []string{"unix://" + filepath.Join(framework.Argument(t, s.Server.Args, "--data-dir="), "client")},
		Args: []string{
			// A certificate that expires soon.
			"--tls-cert-file=", "--tls-private-key-file=", "--serving-certificate-secret=replica-serving", "--serving-certificate-validity=24h",
			"--search-engine=postgres", "--search-postgres-url-file=" + urlFile,
		},
	}))(t)
	admin := insecure(framework.Must(s.replica.UserConfig("admin", "system:masters"))(t))
	s.onReplica = framework.Must(versioned.NewForConfig(admin))(t)
	s.replica.Ready = func(ctx context.Context) error {
		return s.onReplica.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	framework.KillLater(t, s.replica.Kill)
	if err := s.replica.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// insecure is for the replica, which creates its certificate authority.
func insecure(config *rest.Config) *rest.Config {
	config.CAData, config.Insecure = nil, true
	return config
}

// addServer adds the endpoints of a server, as the ServiceMonitor does. Before each scrape of the results of the
// readiness checks, it sends the probe that the kubelet would send.
func (s *suite) addServer(t *testing.T, server *localhub.APIServer) {
	t.Helper()
	anonymous := insecure(framework.Must(server.AnonymousConfig())(t))
	probe := framework.Must(kubernetes.NewForConfig(anonymous))(t).RESTClient()
	config := rest.CopyConfig(anonymous)
	config.BearerToken = s.token
	client := framework.Must(kubernetes.NewForConfig(config))(t).RESTClient()
	for _, path := range s.metricsPaths(t) {
		s.targets = append(s.targets, &target{
			labels: map[string]string{
				"job": "hub-apiserver", "metrics_path": path, "pod": server.Name, "namespace": localhub.HubNamespace, "instance": server.Name,
			},
			scrape: func(ctx context.Context) ([]byte, error) {
				if path != "/metrics" {
					_ = probe.Get().AbsPath("/readyz").Do(ctx).Error() // its result is a metric
				}
				return client.Get().AbsPath(path).SetHeader("Accept", "text/plain").DoRaw(ctx)
			},
		})
	}
}

// metricsPaths returns the paths of the ServiceMonitor.
func (s *suite) metricsPaths(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, object := range s.server.objects {
		if object.GetKind() != "ServiceMonitor" {
			continue
		}
		for _, endpoint := range object.Object["spec"].(map[string]any)["endpoints"].([]any) {
			path, ok := endpoint.(map[string]any)["path"].(string)
			if !ok {
				path = "/metrics"
			}
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		t.Fatal("endpoints of the ServiceMonitor = 0, want at least 1")
	}
	return paths
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}

// use sends requests of all kinds that the dashboards show.
func (s *suite) use(ctx context.Context) {
	// A request waits for a database that is away. The pace of the scrapes must not depend on it.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	touch := fmt.Appendf(nil, `{"metadata":{"labels":{"now":"%d"}}}`, s.now.Unix())
	// What is not there yet, or not available, shows in the metrics.
	_, _ = s.ManagedClient.CoreV1().ConfigMaps("default").Patch(ctx, "touched", types.ApplyPatchType, fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"touched","labels":{"now":"%d"}}}`, s.now.Unix()), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
	for _, client := range []*versioned.Clientset{s.OCM, s.onReplica} {
		_, _ = client.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{}, metav1.CreateOptions{})
		_, _ = client.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{})
	}
	_, _ = s.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Patch(ctx, "shown", types.MergePatchType, touch, metav1.PatchOptions{})
}

// always are the alerts that the short lifetimes of the certificates cause.
var always = []string{"HubAPIServerCertificateExpires", "HubAgentCertificateExpires"}

// quiet checks that a hub without problems has no alerts, and that certificates that expire soon have.
func (s *suite) quiet(t *testing.T) {
	framework.CreatePermission(t, s.OCM, framework.PermissionIn(framework.Cluster1, "shown"))
	// On a clock that runs faster, a busy start lasts long. Alerts that it causes must end.
	s.until(t, s.use, "only the certificates of a hub without problems cause alerts", func() error {
		// An agent reports every minute, but the clock of the test runs faster. testSeries has this alert.
		got := slices.DeleteFunc(s.firing(), func(name string) bool { return name == "HubAPIServerReportsLag" })
		if !slices.Equal(got, always) {
			return fmt.Errorf("firing alerts = %q, want %q", got, always)
		}
		for _, alert := range always {
			s.fired[alert] = true
		}
		return nil
	})
}

// expressions checks that all metrics and labels that the rules and the dashboards use exist.
func (s *suite) expressions(t *testing.T) {
	check := func(where, expression string) {
		missing, err := s.unknown(t.Context(), expression)
		if err != nil || len(missing) > 0 {
			t.Errorf("%s: unknown metrics and labels = %q, error %v, want none", where, missing, err)
		}
	}
	for _, component := range []*manifests{s.server, s.agent} {
		for where, expression := range component.expressions() {
			check(where, expression)
		}
	}
}

// showData checks that each query of the dashboards returns data.
func (s *suite) showData(t *testing.T) {
	for _, component := range []*manifests{s.server, s.agent} {
		for title, expressions := range component.panels {
			for _, expression := range expressions {
				s.until(t, s.use, fmt.Sprintf("panel %q: %s returns data", title, expression), func() error {
					result, err := s.query(t.Context(), expression)
					if err == nil && len(result) == 0 {
						err = errors.New("no data")
					}
					return err
				})
			}
		}
	}
}

func (s *suite) databaseAway(t *testing.T) {
	config := framework.Must(pgx.ParseConfig(s.database))(t)
	name := config.Database
	config.Database = "postgres"
	admin := framework.Must(pgx.ConnectConfig(t.Context(), config))(t)
	framework.StopLater(t, admin.Close)
	framework.Must(admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", name)))(t)
	framework.Must(admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'"))(t)
	s.fires(t, s.use, "HubAPIServerSearchDatabaseUnavailable")
	framework.Must(admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", name)))(t)
}

func (s *suite) quota(t *testing.T) {
	configs := s.OCM.AddonV1alpha1().AddOnDeploymentConfigs("default")
	for i := range 2 {
		framework.Must(configs.Create(t.Context(), &addonv1alpha1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("config-", i)}}, metav1.CreateOptions{}))(t)
	}
	s.fires(t, nil, "HubAPIServerQuotaNearLimit")
}

// refusedWork delivers a ManifestWork of a kind that the cluster does not serve.
func (s *suite) refusedWork(t *testing.T) {
	work := framework.ConfigMapWork("unknown-kind")
	work.Namespace = framework.Cluster1
	work.Spec.Workload.Manifests[0].Raw = []byte(`{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{"name":"x","namespace":"default"}}`)
	framework.Must(s.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	s.fires(t, nil, "HubAgentWorksFail")
}

// permissionMissing removes a permission of the server. Its controller cannot grant access to another cluster then.
func (s *suite) permissionMissing(t *testing.T) {
	roles := s.HubClient.RbacV1().ClusterRoles()
	role := framework.Must(roles.Get(t.Context(), framework.ServerRole, metav1.GetOptions{}))(t)
	all := role.DeepCopy().Rules
	for i, rule := range role.Rules {
		if slices.Contains(rule.Resources, "rolebindings") {
			role.Rules[i].Verbs = []string{"get", "list", "watch"}
		}
	}
	role = framework.Must(roles.Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	framework.Must(s.OCM.ClusterV1().ManagedClusters().Create(t.Context(), cluster, metav1.CreateOptions{}))(t)
	s.fires(t, nil, "HubAPIServerPermissionMissing", "HubAPIServerObjectsFail")
	role.Rules = all
	framework.Must(roles.Update(t.Context(), role, metav1.UpdateOptions{}))(t)
}

func (s *suite) accept(t *testing.T, accepted bool) {
	t.Helper()
	framework.Must(s.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), framework.Cluster1, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%t}}`, accepted), metav1.PatchOptions{}))(t)
}

func (s *suite) denied(t *testing.T) {
	s.accept(t, false)
	s.fires(t, nil, "HubAgentNotJoined")
	s.accept(t, true)
	s.until(t, nil, "the cluster has joined again", func() error {
		if slices.Contains(s.firing(), "HubAgentNotJoined") {
			return errors.New("HubAgentNotJoined fires")
		}
		return nil
	})
}

// agentDown stops the agent. With a short lease, its silence shows soon.
func (s *suite) agentDown(t *testing.T) {
	if err := s.Members[0].Agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Must(s.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), framework.Cluster1, types.MergePatchType,
		[]byte(`{"spec":{"leaseDurationSeconds":1}}`), metav1.PatchOptions{}))(t)
	s.fires(t, nil, "HubAPIServerClustersUnavailable", "HubAgentDown")
	if err := s.Members[0].Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// etcdFull fills the etcd. The rejected writes are server errors.
func (s *suite) etcdFull(t *testing.T) {
	// The client must not wait between its requests.
	config := s.Hub.AdminConfig()
	config.QPS = -1
	works := framework.Must(versioned.NewForConfig(config))(t).WorkV1().ManifestWorks("default")
	content := make([]byte, 150<<10)
	framework.Must(rand.Read(content))(t)
	write := func(ctx context.Context) {
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				work := framework.ConfigMapWork("")
				work.Namespace, work.GenerateName = "default", "large-"
				work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large","namespace":"default"},"data":{"content":"%x"}}`, content)
				if _, err := works.Create(ctx, work, metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "database space exceeded") && ctx.Err() == nil {
					t.Errorf("Create(large ManifestWork) = %v, want success or that etcd is full", err)
				}
			})
		}
		running.Wait()
	}
	s.fires(t, write, "HubAPIServerEtcdNearQuota", "HubAPIServerEtcdFull", "HubAPIServerErrors")
	if err := works.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// serverDown stops the server of the fleet, with the etcd of the replica, and then the replica.
func (s *suite) serverDown(t *testing.T) {
	if err := s.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fires(t, s.use, "HubAPIServerEtcdUnavailable", "HubAgentReportsFail")
	if slices.Contains(s.firing(), "HubAPIServerDown") {
		t.Error("HubAPIServerDown fires while a replica runs, want it not to")
	}
	if err := s.replica.Kill(); err != nil {
		t.Fatal(err)
	}
	s.fires(t, nil, "HubAPIServerDown")
}
