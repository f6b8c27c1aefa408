// Package doctor makes the problems that clusteradm doctor reports happen on a real hub.
package doctor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
	"open-cluster-management.io/hub-apiserver/test/postgrestest"
)

const (
	bad     = "Bad"
	unknown = "Unknown"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// suite is a hub with one cluster, a small storage and small quotas.
type suite struct {
	*framework.Fleet
	hub, managed string // kubeconfigs
}

type finding struct{ State, Subject, Cause, Remedy string }

func (f finding) String() string {
	return fmt.Sprintf("%s %s: %s; to do: %s", f.State, f.Subject, f.Cause, f.Remedy)
}

// doctor runs clusteradm doctor, and returns its findings and its error.
func doctor(ctx context.Context, kubeconfig string, args ...string) ([]finding, error, error) {
	var out, errOut bytes.Buffer
	command := clusteradm.New(strings.NewReader(""), &out, &errOut)
	command.SilenceErrors = true
	command.SetArgs(append([]string{"--kubeconfig", kubeconfig, "doctor"}, append(args, "-o", "json")...))
	failure := command.ExecuteContext(ctx)
	var report struct{ Findings []finding }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return nil, nil, fmt.Errorf("%w: %s%s: %w", err, out.String(), errOut.String(), failure)
	}
	return report.Findings, failure, nil
}

// says waits until the doctor reports a finding in a state that contains the texts. A bad one makes it fail.
func says(t *testing.T, kubeconfig string, args []string, state string, texts ...string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("clusteradm doctor reports %s %q", state, texts), func(ctx context.Context) error {
		findings, failure, err := doctor(ctx, kubeconfig, args...)
		if err != nil {
			return err
		}
		for _, f := range findings {
			matches := f.State == state
			for _, text := range texts {
				matches = matches && strings.Contains(f.String(), text)
			}
			if matches && (f.Remedy == "" || state == bad && failure == nil) {
				return fmt.Errorf("%v has no remedy, or the command succeeded", f)
			}
			if matches {
				return nil
			}
		}
		return fmt.Errorf("findings = %v", findings)
	})
}

// isHealthy waits until the doctor reports nothing bad.
func isHealthy(t *testing.T, kubeconfig string, args ...string) {
	t.Helper()
	framework.Eventually(t, "clusteradm doctor reports nothing bad", func(ctx context.Context) error {
		findings, failure, err := doctor(ctx, kubeconfig, args...)
		if err != nil {
			return err
		}
		if failure != nil || len(findings) < 5 {
			return fmt.Errorf("clusteradm doctor = %v, want no error: %v", failure, findings)
		}
		return nil
	})
}

// TestDoctorNamesTheCause makes each problem happen on one hub, one after the other.
func TestDoctorNamesTheCause(t *testing.T) {
	t.Parallel()
	database := postgrestest.Start(t)
	urlFile := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(urlFile, []byte(database), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &suite{Fleet: framework.OwnFleet(t, localhub.FleetOptions{
		Clusters: []string{framework.Cluster1}, Join: localhub.JoinByRegistration,
		APIServerArgs: []string{"--data-quota-bytes=16777216", "--namespace-quota-objects=addondeploymentconfigs=2", "--search-engine=postgres", "--search-postgres-url-file=" + urlFile},
	})}
	dir := t.TempDir()
	s.hub, s.managed = filepath.Join(dir, "hub"), filepath.Join(dir, "managed")
	for path, cluster := range map[string]*localhub.Cluster{s.hub: s.Hub, s.managed: s.Members[0].Cluster} {
		if err := cluster.WriteAdminKubeconfig(path); err != nil {
			t.Fatal(err)
		}
	}
	isHealthy(t, s.hub)
	isHealthy(t, s.managed, "agent")

	for _, problem := range []struct {
		name string
		test func(*testing.T)
	}{
		{"hub unreachable", s.unreachable},
		{"expired client certificate", s.expiredClient},
		{"clock off", s.clock},
		{"few permissions", s.fewPermissions},
		{"role missing", s.roles},
		{"database away", func(t *testing.T) { s.databaseAway(t, database) }},
		{"quota reached", s.quota},
		{"agent down", s.agentDown},
		{"APIService without CA", s.withoutCA},
		{"etcd full", s.etcdFull},
		{"server down", s.serverDown},
		{"expired serving certificate", s.expiredServing},
	} {
		if !t.Run(problem.name, problem.test) {
			return
		}
	}
}

func (s *suite) unreachable(t *testing.T) {
	listener := framework.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, kubeconfig(t, &clientcmdapi.Cluster{Server: "https://" + address}, &clientcmdapi.AuthInfo{}), nil, bad, "hub API server", address, "cannot be reached")
}

func (s *suite) expiredClient(t *testing.T) {
	config := s.Hub.AdminConfig()
	certificate, key := expired(t)
	path := kubeconfig(t, &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData},
		&clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
	says(t, path, nil, bad, "client certificate", "expired at")
}

func (s *suite) clock(t *testing.T) {
	config := s.Hub.AdminConfig()
	proxy := httputil.NewSingleHostReverseProxy(framework.Must(url.Parse(config.Host))(t))
	proxy.Transport = framework.Must(rest.TransportFor(config))(t)
	proxy.ModifyResponse = func(answer *http.Response) error {
		answer.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(proxy)
	defer server.Close()
	says(t, kubeconfig(t, &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.AuthInfo{}), nil, bad, "clock of the hub", "1h0m0s behind")
}

func (s *suite) fewPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.Hub.WriteKubeconfig(path, "nobody-special"); err != nil {
		t.Fatal(err)
	}
	says(t, path, nil, unknown, "APIServices", "forbidden", "grant the permission")
	says(t, path, nil, unknown, "ManagedClusters", "forbidden", "grant the permission")
}

func (s *suite) roles(t *testing.T) {
	roles := s.HubClient.RbacV1().ClusterRoles()
	role := framework.Must(roles.Get(t.Context(), framework.ServerRole, metav1.GetOptions{}))(t)
	changed := role.DeepCopy()
	changed.Rules = nil
	for _, rule := range role.Rules {
		if rule.APIGroups[0] != "flowcontrol.apiserver.k8s.io" {
			changed.Rules = append(changed.Rules, rule)
		}
	}
	changed = framework.Must(roles.Update(t.Context(), changed, metav1.UpdateOptions{}))(t)
	says(t, s.hub, nil, bad, "permissions of the server", "list/watch flowschemas.flowcontrol.apiserver.k8s.io")
	says(t, s.hub, nil, bad, "server", "hub-permissions", "list")
	changed.Rules = role.Rules
	framework.Must(roles.Update(t.Context(), changed, metav1.UpdateOptions{}))(t)

	const work = "open-cluster-management:managedcluster:work"
	removed := framework.Must(roles.Get(t.Context(), work, metav1.GetOptions{}))(t)
	if err := roles.Delete(t.Context(), work, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(t, s.hub, nil, bad, "roles of the agents", "role missing: ClusterRole "+work)
	removed.ResourceVersion = ""
	framework.Must(roles.Create(t.Context(), removed, metav1.CreateOptions{}))(t)
	isHealthy(t, s.hub)

	// The role for manifests allows everything, including what the agent itself needs.
	managed := s.ManagedClient.RbacV1().ClusterRoleBindings()
	for _, name := range []string{"open-cluster-management:agent", "open-cluster-management:agent:apply"} {
		binding := framework.Must(managed.Get(t.Context(), name, metav1.GetOptions{}))(t)
		if err := managed.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			binding.ResourceVersion = ""
			framework.Must(managed.Create(context.WithoutCancel(t.Context()), binding, metav1.CreateOptions{}))(t)
		}()
	}
	says(t, s.managed, []string{"agent"}, bad, "permissions of the agent", "appliedmanifestworks")
}

func (s *suite) databaseAway(t *testing.T, dsn string) {
	config := framework.Must(pgx.ParseConfig(dsn))(t)
	name := config.Database
	config.Database = "postgres"
	admin := framework.Must(pgx.ConnectConfig(t.Context(), config))(t)
	framework.StopLater(t, admin.Close)
	framework.Must(admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", name)))(t)
	framework.Must(admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'"))(t)
	says(t, s.hub, nil, bad, "search", "database unavailable", "PostgreSQL")
	framework.Must(admin.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS true", name)))(t)
	isHealthy(t, s.hub)
}

func (s *suite) quota(t *testing.T) {
	configs := s.OCM.AddonV1alpha1().AddOnDeploymentConfigs("default")
	for i := range 2 {
		framework.Must(configs.Create(t.Context(), &addonv1alpha1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("config-", i)}}, metav1.CreateOptions{}))(t)
	}
	says(t, s.hub, nil, bad, "quota reached", "2 of 2 objects of addondeploymentconfigs in namespace default", "--namespace-quota-objects")
	for i := range 2 {
		if err := configs.Delete(t.Context(), fmt.Sprint("config-", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	isHealthy(t, s.hub)
}

// agentDown stops the agent. With a short lease, its silence shows soon.
func (s *suite) agentDown(t *testing.T) {
	agent := s.Members[0].Agent
	if err := agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := func(seconds string) {
		t.Helper()
		framework.Must(s.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), framework.Cluster1, types.MergePatchType,
			[]byte(`{"spec":{"leaseDurationSeconds":`+seconds+`}}`), metav1.PatchOptions{}))(t)
	}
	lease("1")
	says(t, s.hub, nil, bad, "ManagedCluster "+framework.Cluster1, "agent down")

	leases := s.HubClient.CoordinationV1().Leases(framework.Cluster1)
	future := time.Now().Add(time.Hour).UTC().Format(metav1.RFC3339Micro)
	framework.Must(leases.Patch(t.Context(), "managed-cluster-lease", types.MergePatchType, []byte(`{"spec":{"renewTime":"`+future+`"}}`), metav1.PatchOptions{}))(t)
	says(t, s.hub, nil, bad, "ManagedCluster "+framework.Cluster1, "clock off")

	secrets := s.ManagedClient.CoreV1().Secrets(localhub.AgentNamespace)
	secret := framework.Must(secrets.Get(t.Context(), "hub-kubeconfig-secret", metav1.GetOptions{}))(t)
	previous := secret.DeepCopy().Data
	secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = expired(t)
	secret = framework.Must(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	says(t, s.managed, []string{"agent"}, bad, "client certificate for the hub, as the agent", "expired at")
	bootstrap := framework.Must(secrets.Get(t.Context(), "bootstrap-hub-kubeconfig", metav1.GetOptions{}))(t)
	registers := framework.Must(clientcmd.Load(bootstrap.Data["kubeconfig"]))(t)
	for _, user := range registers.AuthInfos {
		user.Token = "expired"
	}
	bootstrap.Data["kubeconfig"] = framework.Must(clientcmd.Write(*registers))(t)
	framework.Must(secrets.Update(t.Context(), bootstrap, metav1.UpdateOptions{}))(t)
	says(t, s.managed, []string{"agent"}, bad, "bootstrap-hub-kubeconfig", "token has expired", "clusteradm join")
	secret.Data = previous
	framework.Must(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)

	lease("60")
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	isHealthy(t, s.hub)
	isHealthy(t, s.managed, "agent")
}

func (s *suite) withoutCA(t *testing.T) {
	services := framework.Must(aggregator.NewForConfig(s.Hub.AdminConfig()))(t).ApiregistrationV1().APIServices()
	const name = "v1.work.open-cluster-management.io"
	bundle := framework.Must(services.Get(t.Context(), name, metav1.GetOptions{}))(t).Spec.CABundle
	set := func(content []byte) {
		t.Helper()
		patch := framework.Must(json.Marshal(map[string]any{"spec": map[string]any{"caBundle": content}}))(t)
		framework.Must(services.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	}
	set(nil)
	says(t, s.hub, nil, bad, "APIServices "+name, "without CA")
	other, _ := expired(t)
	set(other)
	says(t, s.hub, nil, bad, "APIServices "+name, "wrong CA")
	set(bundle)
	isHealthy(t, s.hub)
}

func (s *suite) etcdFull(t *testing.T) {
	works := s.OCM.WorkV1().ManifestWorks("default")
	content := make([]byte, 150<<10)
	framework.Must(rand.Read(content))(t)
	framework.Eventually(t, "etcd rejects writes", func(ctx context.Context) error {
		raw := framework.Must(json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "large", "namespace": "default"}, "binaryData": map[string]any{"content": content},
		}))(t)
		_, err := works.Create(ctx, &workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "large-"},
			Spec:       workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}}},
		}, metav1.CreateOptions{})
		if err == nil {
			return fmt.Errorf("the write succeeded")
		}
		if !strings.Contains(err.Error(), "database space exceeded") {
			return err
		}
		return nil
	})
	says(t, s.hub, nil, bad, "storage", "etcd full", "--data-quota-bytes")
	// The remedy works: deletions are not rejected.
	if err := works.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func (s *suite) serverDown(t *testing.T) {
	if err := s.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(t, s.hub, nil, bad, "APIServices", "the server does not run")
	says(t, s.managed, []string{"agent"}, bad, "ManagedCluster cluster1 on the hub", "not available", "clusteradm doctor")
}

func (s *suite) expiredServing(t *testing.T) {
	dir := t.TempDir()
	certificate, key := expired(t)
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Server.Args = append(s.Server.Args, "--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-private-key-file="+filepath.Join(dir, "tls.key"))
	if err := s.Server.Launch(); err != nil {
		t.Fatal(err)
	}
	says(t, s.hub, nil, bad, "serving certificate of the server", "certificate has expired")
}

// expired returns a certificate that has expired, and its key.
func expired(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private := framework.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "expired"}, DNSNames: []string{"hub-apiserver.open-cluster-management-hub.svc"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der := framework.Must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	certificate = framework.Must(cert.EncodeCertificates(framework.Must(x509.ParseCertificate(der))(t)))(t)
	return certificate, framework.Must(keyutil.MarshalPrivateKeyToPEM(private))(t)
}

// kubeconfig writes a kubeconfig and returns its path.
func kubeconfig(t *testing.T, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = cluster, user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
