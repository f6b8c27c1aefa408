package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: Metadata
  verbs: ["create"]
  resources:
  - group: rbac.open-cluster-management.io
`

// serverUnderTest is an apiserver with a hub. Its only cluster, cluster1, has joined, but neither the
// cluster nor an agent runs.
type serverUnderTest struct {
	*fleet
	// direct sends requests directly to the apiserver, not through the hub.
	direct *versioned.Clientset
	config *rest.Config
	dir    string
}

// TestServer checks an apiserver through the operations and outages of its lifecycle.
func TestServer(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{ServerAuditPolicy: auditPolicy, APIServerArgs: []string{"--shutdown-delay-duration=2s"}})
	if err := localhub.JoinCluster(t.Context(), f.Hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	config := framework.Must(f.Server.UserConfig("admin", "system:masters"))(t)
	s := &serverUnderTest{fleet: f, direct: framework.OCMClient(t, config, nil), config: config, dir: framework.OwnDir(t)}

	t.Run("audit log names the creator", s.audits)
	t.Run("the hub authorizes what it forwards", s.trustsHub)
	t.Run("data and watches survive a kill", s.outlastsKill)
	t.Run("hub outage", s.outlastsHub)
	t.Run("a second server with other data does not start", s.refusesSecond)
	t.Run("a renewed certificate is served", s.renewsCertificate)
	t.Run("ManifestWork is created after failed writes", s.deliversLater)
	t.Run("graceful stop", s.stopsGracefully)
}

func (s *serverUnderTest) audits(t *testing.T) {
	config := s.Hub.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: "carla", Groups: []string{"system:masters"}}
	framework.CreatePermission(t, framework.OCMClient(t, config, nil), framework.Permission("audited"))
	framework.Eventually(t, "the audit log contains the create request of carla", func(context.Context) error {
		events, _, err := localhub.ReadAudit(s.Server.AuditLog(), 0)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(event auditv1.Event) bool {
			return event.Verb == "create" && event.User.Username == "carla" && event.ObjectRef.Resource == "clusterpermissions" && event.ObjectRef.Name == "audited"
		}) {
			return fmt.Errorf("audit events = %+v", events)
		}
		return nil
	})
}

// trustsHub checks that the server reviews a request that a client sends directly, and leaves the decision to the hub for a
// request that the hub forwards.
func (s *serverUnderTest) trustsHub(t *testing.T) {
	caller := framework.NewCaller(t, s.Hub, framework.Unique("carla")).IsAdmin(t).IsGranter(t)
	framework.CreatePermission(t, caller.OCM, framework.Permission("forwarded"))
	framework.CreatePermission(t, caller.At(t, s.Server), framework.Permission("direct"))
	const annotation = "authorization.k8s.io/reason"
	reasons := map[string]string{}
	framework.Eventually(t, "the audit log contains both requests", func(context.Context) error {
		events, _, err := localhub.ReadAudit(s.Server.AuditLog(), 0)
		if err != nil {
			return err
		}
		for _, event := range events {
			if event.User.Username == caller.Name && event.ObjectRef.Resource == "clusterpermissions" {
				reasons[event.ObjectRef.Name] = event.Annotations[annotation]
			}
		}
		if len(reasons) < 2 {
			return fmt.Errorf("reasons = %v", reasons)
		}
		return nil
	})
	if !strings.Contains(reasons["forwarded"], "the hub authorized") {
		t.Errorf("reason for the forwarded request = %q, want that of the hub", reasons["forwarded"])
	}
	if !strings.Contains(reasons["direct"], "RBAC: allowed") {
		t.Errorf("reason for the direct request = %q, want that of a SubjectAccessReview", reasons["direct"])
	}
}

func (s *serverUnderTest) outlastsKill(t *testing.T) {
	before := framework.CreatePermission(t, s.OCM, framework.Permission("kept"))
	// After the restart, an informer of a client must receive new objects.
	factory := externalversions.NewSharedInformerFactory(s.OCM, 0)
	seen := factory.Rbac().V1alpha1().ClusterPermissions().Lister().ClusterPermissions(framework.Cluster1)
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	if err := s.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermission kept is served with the same UID", func(ctx context.Context) error {
		after, err := s.GetPermission(ctx, "kept")
		if err == nil && after.UID != before.UID {
			return fmt.Errorf("UID = %s, want %s", after.UID, before.UID)
		}
		return err
	})
	framework.CreatePermission(t, s.OCM, framework.Permission("after-restart"))
	framework.Eventually(t, "the informer contains ClusterPermission after-restart", func(context.Context) error {
		_, err := seen.Get("after-restart")
		return err
	})
	if _, err := seen.Get("kept"); err != nil {
		t.Error(err)
	}
}

func (s *serverUnderTest) outlastsHub(t *testing.T) {
	pid := s.Server.PID()
	if err := s.Hub.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	// The server authorizes an administrator with a client certificate without a request to the hub.
	if _, err := s.direct.RbacV1alpha1().ClusterPermissions(framework.Cluster1).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list without the hub: error = %v, want none", err)
	}
	if err := s.Hub.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermissions can be created through the hub", func(ctx context.Context) error {
		_, err := s.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission("after-outage"), metav1.CreateOptions{})
		return err
	})
	framework.DeletePermissionLater(t, s.OCM, framework.Cluster1, "after-outage")
	s.reported(t, "after-outage", metav1.ConditionTrue)
	if !s.Server.Running() || s.Server.PID() != pid {
		t.Errorf("apiserver running = %t with PID %d, want running with PID %d", s.Server.Running(), s.Server.PID(), pid)
	}
}

// reported waits until the condition RBACManifestWorkCreated of a ClusterPermission has the given
// status.
func (s *serverUnderTest) reported(t *testing.T, name string, want metav1.ConditionStatus) {
	t.Helper()
	framework.Eventually(t, "condition RBACManifestWorkCreated of ClusterPermission "+name+" is "+string(want), func(ctx context.Context) error {
		cp, err := s.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionRBACManifestWorkCreated, want)
	})
}

func (s *serverUnderTest) refusesSecond(t *testing.T) {
	second := framework.NewServer(t, localhub.APIServerOptions{Hub: s.Hub, Name: "second", Dir: filepath.Join(s.dir, "second")})
	if err := second.Start(t.Context()); err == nil {
		t.Fatal("start of a second server with other data for the same hub succeeded, want an error")
	} else if !strings.Contains(err.Error(), "--etcd-servers") || !strings.Contains(err.Error(), "embedded etcd") {
		t.Errorf("start of a second server: error = %v, want one that names --etcd-servers and embedded etcd", err)
	}
	if _, err := s.GetPermission(t.Context(), "kept"); err == nil {
		return
	}
	framework.CreatePermission(t, s.OCM, framework.Permission("still-first"))
}

func (s *serverUnderTest) renewsCertificate(t *testing.T) {
	before := s.servingCertificate(t)
	// A server in another directory with the same certificate authority gets another certificate.
	other := framework.NewServer(t, localhub.APIServerOptions{
		Hub: s.Hub, Name: "other", Dir: filepath.Join(s.dir, "other"), PKIDir: filepath.Join(s.dir, "apiserver", "pki"),
	})
	for _, flag := range []string{"--tls-private-key-file=", "--tls-cert-file="} {
		content := framework.Must(os.ReadFile(framework.Argument(t, other.Args, flag)))(t)
		target := framework.Argument(t, s.Server.Args, flag)
		if err := os.WriteFile(target+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(target+".new", target); err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "the server uses the new certificate", func(context.Context) error {
		if s.servingCertificate(t).Equal(before) {
			return errors.New("the server uses the old certificate")
		}
		return nil
	})
	if _, err := s.GetPermission(t.Context(), "nothing"); framework.IsGone(err) != nil {
		t.Errorf("request through the hub: error = %v, want none", err)
	}
}

func (s *serverUnderTest) servingCertificate(t *testing.T) *x509.Certificate {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.config.CAData)
	connection, err := tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(s.Server.Port), &tls.Config{RootCAs: roots, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	return connection.ConnectionState().PeerCertificates[0]
}

// If the server cannot create the ManifestWork of a ClusterPermission, it stores the
// ClusterPermission and reports the failure in its status. It creates the ManifestWork as soon as
// that is possible. A crash between the two writes has the same result.
func (s *serverUnderTest) deliversLater(t *testing.T) {
	const name = "delivered-later"
	forbidWorks(t, s.HubClient)
	framework.Eventually(t, "the hub's policy denies new ManifestWorks", func(ctx context.Context) error {
		_, err := s.direct.WorkV1().ManifestWorks(framework.Cluster1).Create(ctx, framework.ConfigMapWork("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), worksForbidden) {
			return fmt.Errorf("create of a ManifestWork: error = %w, want %q", err, worksForbidden)
		}
		return nil
	})
	cp := framework.CreatePermission(t, s.OCM, framework.Permission(name))
	s.reported(t, name, metav1.ConditionFalse)
	if works := framework.Must(framework.WorksOf(t.Context(), s.OCM, name))(t); len(works) > 0 {
		t.Fatalf("%d ManifestWorks of ClusterPermission %s exist, want none", len(works), name)
	}
	allowWorks(t, s.HubClient)
	s.reported(t, name, metav1.ConditionTrue)
	if _, err := s.GetWork(t.Context(), cp); err != nil {
		t.Error(err)
	}
}

// On SIGTERM, the server completes the requests in progress, ends watches, and exits with status 0.
func (s *serverUnderTest) stopsGracefully(t *testing.T) {
	watcher, err := s.direct.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	client := framework.Must(rest.HTTPClientFor(s.config))(t)

	// The request is in progress until its body is complete.
	body, unfinished := io.Pipe()
	request := framework.Must(http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.config.Host+"/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/"+framework.Cluster1+"/clusterpermissions", body))(t)
	request.Header.Set("Content-Type", "application/json")
	answered := make(chan error, 1)
	go func() {
		response, err := client.Do(request)
		if err == nil {
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusCreated {
				content, _ := io.ReadAll(response.Body)
				err = fmt.Errorf("%s: %s", response.Status, content)
			}
		}
		answered <- err
	}()
	cp := framework.Permission("under-way")
	cp.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"}
	content := framework.Must(json.Marshal(cp))(t)
	if _, err := unfinished.Write(content[:len(content)/2]); err != nil {
		t.Fatal(err)
	}

	stopped := make(chan error, 1)
	go func() { stopped <- s.Server.Stop(context.WithoutCancel(t.Context())) }()
	framework.Eventually(t, "the server is no longer ready", func(ctx context.Context) error {
		if s.Server.Ready(ctx) == nil {
			return errors.New("the server is ready")
		}
		return nil
	})
	// Load balancers may not have observed the readiness yet, so the server must still answer.
	if _, err := s.direct.RbacV1alpha1().ClusterPermissions(framework.Cluster1).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("request right after SIGTERM: error = %v, want none", err)
	}
	if _, err := unfinished.Write(content[len(content)/2:]); err != nil {
		t.Fatal(err)
	}
	if err := unfinished.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("request in progress at SIGTERM: error = %v, want none", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if reason := s.Server.Failure().Error(); !strings.Contains(reason, "exit status 0") {
		t.Errorf("the server stopped with %q, want exit status 0", reason)
	}
	if err := s.Server.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermission under-way is stored", func(ctx context.Context) error {
		_, err := s.GetPermission(ctx, "under-way")
		return err
	})
}
