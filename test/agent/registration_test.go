package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestRegistration runs agents against a hub that behaves like an upstream OCM hub and grants the same
// permissions.
func TestRegistration(t *testing.T) {
	t.Parallel()
	f := shared(t)
	hub := newPublicHub(t, f.control)
	for name, test := range map[string]func(*testing.T, *joiner){
		"first":          testFirstJoin,
		"restart":        testRestartKeepsRequestAndIdentity,
		"renewal":        testRenewal,
		"denied":         testDeniedAndAcceptedAgain,
		"deniedrequest":  testDeniedRequest,
		"deleted":        testDeleted,
		"deletedrestart": testDeletedWhileTheAgentRestarts,
		"deletedfirst":   testDeletedBeforeManifestWorks,
		"unauthorized":   testUnauthorized,
		"missing":        testMissing,
		"accessrevoked":  testAccessRevoked,
		"secretdeleted":  testIdentityDeleted,
		"foreignsecret":  testIdentityOfAnotherCluster,
		"upstreamsecret": testSecretOfUpstreamAgent,
		"namespaces":     testManagedNamespaces,
		"claims":         testClusterClaims,
		"byname":         testBootstrapByName,
	} {
		t.Run(name, func(t *testing.T) { test(t, f.joiner(t, hub)) })
	}
}

func testFirstJoin(t *testing.T, j *joiner) {
	j.config.ManagedEndpoint = "https://first.example.com:6443"
	j.run()
	j.says("waiting for the hub to accept first")
	if created := j.hub.cluster(j.name); created.Spec.HubAcceptsClient || len(created.Spec.ManagedClusterClientConfigs) != 1 ||
		created.Spec.ManagedClusterClientConfigs[0].URL != "https://first.example.com:6443" || len(created.Spec.ManagedClusterClientConfigs[0].CABundle) == 0 {
		t.Errorf("spec of the created ManagedCluster = %+v, want it not accepted and one client config with URL and CA bundle", created.Spec)
	}
	j.hub.approve(j.name, bootstrapUser)
	// A certificate alone gives no access.
	j.says("waiting for the hub to accept first")
	j.hub.accept(j.name)
	j.ready()
	j.applies("one", nil)

	eventually(t, "the status and the Lease are reported", func(ctx context.Context) error {
		cluster := j.hub.cluster(j.name)
		lease, err := j.hub.kube.CoordinationV1().Leases(j.name).Get(ctx, "managed-cluster-lease", metav1.GetOptions{})
		if err != nil {
			return err
		}
		claims := map[string]string{}
		for _, claim := range cluster.Status.ClusterClaims {
			claims[claim.Name] = claim.Value
		}
		system, err := j.kube.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch {
		case !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionJoined),
			!meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable),
			!meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted):
			return fmt.Errorf("conditions = %+v, want Joined, Available and HubAccepted True", cluster.Status.Conditions)
		case cluster.Status.Version.Kubernetes == "", claims["id.k8s.io"] != string(system.UID),
			claims["kubeversion.open-cluster-management.io"] != cluster.Status.Version.Kubernetes, claims[clusterv1.AgentVersionClaim] == "":
			return fmt.Errorf("version = %q, claims = %v, want the UID %s of kube-system, the version, and that of the agent", cluster.Status.Version.Kubernetes, claims, system.UID)
		case lease.Spec.RenewTime == nil, time.Since(lease.Spec.RenewTime.Time) > time.Hour:
			return fmt.Errorf("spec of the Lease = %+v, want a renewTime within one hour", lease.Spec)
		}
		return nil
	})

	secret := j.secret()
	info, err := os.Stat(j.config.Registration.Dir)
	if err != nil {
		t.Error(err)
	} else if info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory = %v, want 0700", info.Mode())
	}
	for _, key := range []string{"kubeconfig", "cluster-name", "agent-name", "tls.crt", "tls.key"} {
		path := filepath.Join(j.config.Registration.Dir, key)
		content, err := os.ReadFile(path)
		if err != nil || string(content) != string(secret.Data[key]) || len(content) == 0 {
			t.Errorf("content of file %s differs from the Secret or is empty (error %v), want the content of the Secret", key, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of file %s = %v, %v, want 0600", key, info.Mode(), err)
		}
	}
	if want := "system:open-cluster-management:first:" + string(secret.Data["agent-name"]); j.user() != want {
		t.Errorf("user of the agent = %s, want %s", j.user(), want)
	}
}

func testRestartKeepsRequestAndIdentity(t *testing.T, j *joiner) {
	j.run()
	before := j.hub.request(j.name, bootstrapUser)
	j.kill()
	j.run()
	j.says("waiting for the hub to accept " + j.name + ": CertificateSigningRequest " + before.Name)
	j.hub.decide(before, certificatesv1.CertificateApproved)
	j.hub.accept(j.name)
	j.ready()
	j.applies("one", nil)
	name, serial := string(j.secret().Data["agent-name"]), j.certificate().SerialNumber
	j.kill()

	// The Secret is sufficient for a restart, without the bootstrap kubeconfig and the files.
	j.config.Registration.BootstrapKubeconfig = filepath.Join(t.TempDir(), "none")
	j.config.Registration.Dir = filepath.Join(t.TempDir(), "other")
	j.run()
	j.ready()
	j.applies("two", nil)
	if got := string(j.secret().Data["agent-name"]); got != name || j.certificate().SerialNumber.Cmp(serial) != 0 {
		t.Errorf("agent name and serial number after a restart = %s, %s, want %s, %s", got, j.certificate().SerialNumber, name, serial)
	}
}

func testRenewal(t *testing.T, j *joiner) {
	clock := clocktesting.NewFakeClock(time.Now())
	j.config.Clock = clock
	j.config.Registration.CertificateLifetime = 10 * time.Minute
	j.join()
	before, user, running := j.certificate(), j.user(), j.agent
	if left := time.Until(before.NotAfter); left > 11*time.Minute {
		t.Fatalf("remaining lifetime of the certificate = %s, want at most 11m", left)
	}
	eventually(t, "the agent waits for the time of the renewal", func(context.Context) error {
		if !clock.HasWaiters() {
			return errors.New("nothing waits for the clock")
		}
		return nil
	})
	clock.SetTime(before.NotAfter.Add(-time.Minute))
	// The agent requests the renewal as its own user. The clock is set back before the hub decides;
	// otherwise the agent would renew the new certificate at once.
	request := j.hub.request(j.name, user)
	clock.SetTime(time.Now())
	j.hub.decide(request, certificatesv1.CertificateApproved)
	eventually(t, "the certificate is renewed", func(context.Context) error {
		if j.certificate().SerialNumber.Cmp(before.SerialNumber) == 0 {
			return errors.New("the Secret contains the previous certificate")
		}
		return nil
	})
	if j.user() != user {
		t.Errorf("user of the agent after the renewal = %s, want %s", j.user(), user)
	}
	eventually(t, "file tls.crt contains the certificate of the Secret", func(context.Context) error {
		content, err := os.ReadFile(filepath.Join(j.config.Registration.Dir, "tls.crt"))
		if err == nil && string(content) != string(j.secret().Data["tls.crt"]) {
			err = errors.New("the file contains another certificate")
		}
		return err
	})
	j.applies("after", nil)
	if err := running.Ready(); err != nil {
		t.Errorf("Ready() after the renewal = %v, want nil", err)
	}
	if _, ok := j.secret().Data["pending-tls.key"]; ok {
		t.Error("the Secret contains pending-tls.key after the renewal, want none")
	}
}

func testDeniedAndAcceptedAgain(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	j.hub.deny(j.name)
	j.says("the hub has denied denied")
	j.kill()
	j.run()
	j.says("waiting for the hub to accept denied")
	if !j.has("one") {
		t.Error("ConfigMap one does not exist after the hub denied the cluster, want it kept")
	}
	j.hub.apply(j.name, j.object("two"), j.target(), nil)
	j.hub.accept(j.name)
	j.ready()
	j.applies("three", nil)
	if !j.has("one") {
		t.Error("ConfigMap one does not exist after the hub accepted the cluster again, want it kept")
	}
}

func testDeniedRequest(t *testing.T, j *joiner) {
	j.run()
	j.hub.decide(j.hub.request(j.name, bootstrapUser), certificatesv1.CertificateDenied)
	j.says("the hub has denied CertificateSigningRequest")
}

func testDeleted(t *testing.T, j *joiner) {
	j.join()
	j.hub.hold(j.name)
	j.applies("one", nil)
	j.applies("kept", orphan)
	account, err := j.kube.CoreV1().ServiceAccounts(agent.DefaultServiceAccountNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: j.name, Labels: map[string]string{"authentication.open-cluster-management.io/is-managed-serviceaccount": j.identity()},
	}}, metav1.CreateOptions{})
	// The agent may delete the ServiceAccount earlier, because it has no ManagedServiceAccount.
	if err != nil {
		t.Fatal(err)
	}
	// The hub revokes all permissions, except to read the ManagedCluster, before it deletes the
	// ManagedCluster.
	j.hub.setRules(j.name, j.hub.rules(j.name, false))
	j.hub.dropBindings(j.name)
	j.hub.remove(j.name)
	j.hasGone("one")
	j.says("the hub has deleted deleted; to register it again, delete the Secret")
	if !j.has("kept") {
		t.Error("ConfigMap kept does not exist, want it orphaned")
	}
	if _, err := j.kube.CoreV1().ServiceAccounts(account.Namespace).Get(t.Context(), account.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ServiceAccount %s) = %v, want NotFound", account.Name, err)
	}
	j.hub.forget(j.name)

	// After the Secret is deleted, the agent registers again.
	if err := j.kube.CoreV1().Secrets(agentNamespace).Delete(t.Context(), j.config.Registration.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
}

// identity returns the value of the label that marks the ServiceAccounts of the agent.
func (j *joiner) identity() string {
	return serviceaccount.Identity(agent.HubHash(j.hub.control.AdminConfig().Host), j.name)
}

func testDeletedWhileTheAgentRestarts(t *testing.T, j *joiner) {
	j.join()
	j.hub.hold(j.name)
	j.applies("one", nil)
	j.applies("kept", orphan)
	// A finalizer keeps one object, so that the removal has not ended when the agent restarts.
	held, err := j.kube.CoreV1().ConfigMaps(j.target()).Get(t.Context(), j.object("one"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/held"}
	if held, err = j.kube.CoreV1().ConfigMaps(j.target()).Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.remove(j.name)
	j.says("removing the applied objects")
	eventually(t, "an annotation of the Secret records the deletion", func(context.Context) error {
		if _, ok := j.secret().Annotations["agent.open-cluster-management.io/deleted-on-hub"]; !ok {
			return errors.New("the annotation is missing")
		}
		return nil
	})
	j.kill()
	j.hub.forget(j.name)
	j.run()
	j.says("removing the applied objects")
	eventually(t, "the finalizer of ConfigMap "+held.Name+" is removed", func(ctx context.Context) error {
		live, err := j.kube.CoreV1().ConfigMaps(j.target()).Get(ctx, held.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Finalizers = nil
		_, err = j.kube.CoreV1().ConfigMaps(j.target()).Update(ctx, live, metav1.UpdateOptions{})
		return err
	})
	j.hasGone("one")
	j.says("to register it again, delete the Secret")
	if !j.has("kept") {
		t.Error("ConfigMap kept does not exist, want it orphaned")
	}
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Get(t.Context(), j.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ManagedCluster %s) = %v, want NotFound", j.name, err)
	}
}

// testDeletedBeforeManifestWorks checks a hub that keeps a deleted ManagedCluster until the agent has
// finalized all its ManifestWorks.
func testDeletedBeforeManifestWorks(t *testing.T, j *joiner) {
	j.join()
	j.hub.hold(j.name)
	j.applies("one", nil)
	j.hub.remove(j.name)
	j.hasGone("one")
	if err := j.hub.ocm.WorkV1().ManifestWorks(j.name).Delete(t.Context(), j.object("one"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ManifestWork "+j.object("one")+" does not exist", func(ctx context.Context) error {
		_, err := j.hub.ocm.WorkV1().ManifestWorks(j.name).Get(ctx, j.object("one"), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Get() = %v, want NotFound", err)
	})
	j.hub.forget(j.name)
	j.says("to register it again, delete the Secret")
}

func testUnauthorized(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	user, name := j.user(), string(j.secret().Data["agent-name"])
	record, err := j.ocm.WorkV1().AppliedManifestWorks().Get(t.Context(), agent.HubHash(j.hub.control.AdminConfig().Host)+"-"+j.object("one"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.kill()
	// The certificate has the right subject, but a CA that the hub does not trust.
	key, certificate := strangersCertificate(t, user, 24*time.Hour)
	j.changeSecret(func(secret *corev1.Secret) { secret.Data["tls.key"], secret.Data["tls.crt"] = key, certificate })
	j.run()
	j.hub.approve(j.name, bootstrapUser)
	j.ready()
	j.applies("two", nil)
	if got := string(j.secret().Data["agent-name"]); got != name || j.user() != user {
		t.Errorf("user and agent name after registering again = %s, %s, want %s, %s", j.user(), got, user, name)
	}
	after, err := j.ocm.WorkV1().AppliedManifestWorks().Get(t.Context(), record.Name, metav1.GetOptions{})
	if err != nil || after.UID != record.UID || after.Spec != record.Spec {
		t.Errorf("AppliedManifestWork = UID %s, %+v, %v, want UID %s, %+v", after.UID, after.Spec, err, record.UID, record.Spec)
	}
}

func strangersCertificate(t *testing.T, user string, lasts time.Duration) (key, certificate []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// testBootstrapByName checks that an agent joins with a bootstrap identity that may only create objects and get them by name.
// It then deletes the Secret of this identity, works without it, and says what to do if it needs another one.
func testBootstrapByName(t *testing.T, j *joiner) {
	const user = "bootstrap-by-name"
	register := j.config.Registration
	register.BootstrapSecret = j.name + "-bootstrap"
	secrets := j.kube.CoreV1().Secrets(agentNamespace)
	j.hub.mayBootstrapByName(user)
	mount := func() {
		t.Helper()
		if err := j.hub.control.WriteKubeconfig(register.BootstrapKubeconfig, user); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(register.BootstrapKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: register.BootstrapSecret}, Data: map[string][]byte{filepath.Base(register.BootstrapKubeconfig): content}}
		if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A kubelet removes the file when the Secret is deleted.
	unmount := func() {
		t.Helper()
		eventually(t, "the agent deletes the Secret with the bootstrap kubeconfig", func(ctx context.Context) error {
			_, err := secrets.Get(ctx, register.BootstrapSecret, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("get of the Secret = %v, want NotFound", err)
		})
		if err := os.Remove(register.BootstrapKubeconfig); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	j.run()
	j.says("waiting for the hub to accept " + j.name)
	if _, err := secrets.Get(t.Context(), register.BootstrapSecret, metav1.GetOptions{}); err != nil {
		t.Errorf("get of the Secret before the hub accepts the cluster = %v, want nil", err)
	}
	j.hub.approve(j.name, user)
	j.hub.accept(j.name)
	j.ready()
	unmount()

	j.kill()
	j.run()
	j.ready()
	j.applies("one", nil)

	j.kill()
	key, certificate := strangersCertificate(t, j.user(), -time.Minute)
	j.changeSecret(func(secret *corev1.Secret) { secret.Data["tls.key"], secret.Data["tls.crt"] = key, certificate })
	j.run()
	j.says("because the certificate expired")
	j.says("run clusteradm join again with a new token")
	mount()
	j.hub.approve(j.name, user)
	j.ready()
	unmount()
	j.applies("two", nil)
}

func testAccessRevoked(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	j.hub.setRules(j.name, nil)
	j.hub.dropBindings(j.name)
	// The agent detects the revocation when it renews its Lease or when its watch ends.
	j.hub.change(j.name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Spec.LeaseDurationSeconds = new(int32(1)) })
	j.kill()
	j.run()
	j.says("it has no access to the hub")
	if !j.has("one") {
		t.Error("ConfigMap one does not exist, want it kept")
	}
	j.hub.accept(j.name)
	j.ready()
}

func testIdentityDeleted(t *testing.T, j *joiner) {
	j.join()
	before := j.secret()
	if err := j.kube.CoreV1().Secrets(agentNamespace).Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Secret is recreated with the same identity", func(ctx context.Context) error {
		again, err := j.kube.CoreV1().Secrets(agentNamespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if again.UID == before.UID || string(again.Data["tls.crt"]) != string(before.Data["tls.crt"]) || string(again.Data["agent-name"]) != string(before.Data["agent-name"]) {
			return fmt.Errorf("the Secret has other content or the UID of the previous Secret")
		}
		return nil
	})
	j.applies("one", nil)
}

func testIdentityOfAnotherCluster(t *testing.T, j *joiner) {
	data := map[string][]byte{"cluster-name": []byte("another")}
	_, err := j.kube.CoreV1().Secrets(agentNamespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: j.config.Registration.SecretName}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j.run()
	defer j.cancel()
	select {
	case err := <-j.ended:
		j.ended <- nil
		if err == nil || !strings.Contains(err.Error(), `holds the identity of cluster "another", not of "foreignsecret"`) {
			t.Errorf("Run() = %v, want an error about the identity of another cluster", err)
		}
	case <-time.After(await.Patience):
		t.Error("Run() did not return, want an error")
	}
	if got := j.secret().Data; len(got) != 1 || string(got["cluster-name"]) != "another" {
		t.Errorf("Secret has %d keys, want only cluster-name=another", len(got))
	}
}

// testSecretOfUpstreamAgent checks that the Secret of an upstream OCM agent is sufficient for the agent
// to take over the registration.
func testSecretOfUpstreamAgent(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	serial := j.certificate().SerialNumber
	j.kill()
	j.changeSecret(func(secret *corev1.Secret) { delete(secret.Data, "hub-hash") })
	j.config.Registration.BootstrapKubeconfig = ""
	j.run()
	j.ready()
	j.applies("two", nil)
	if j.certificate().SerialNumber.Cmp(serial) != 0 {
		t.Errorf("serial number of the certificate = %s, want %s", j.certificate().SerialNumber, serial)
	}
}

// TestRegistrationWithTwoHubs registers one managed cluster with two hubs. The second hub does not run
// at first.
func TestRegistrationWithTwoHubs(t *testing.T) {
	t.Parallel()
	framework.UseSlots(t, 1)
	f := shared(t)
	first := f.joinerNamed(t, newPublicHub(t, f.control), "twohubs")
	first.join()
	first.applies("one", nil)

	control, err := localhub.NewCluster(localhub.ClusterOptions{Name: "hub2", Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, control.Kill)
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	second := *first
	second.cancel = nil
	register := *first.config.Registration
	register.BootstrapKubeconfig, register.SecretName, register.Dir = bootstrap, "twohubs-second", filepath.Join(t.TempDir(), "files")
	second.config.Registration = &register
	t.Cleanup(second.kill)
	second.run()
	second.says("no such file")
	if err := control.WriteKubeconfig(bootstrap, bootstrapUser, "system:bootstrappers:managedcluster"); err != nil {
		t.Fatal(err)
	}
	second.says("connection refused")
	if err := control.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects, err := localhub.ReadManifests("testdata")
	if err != nil {
		t.Fatal(err)
	}
	roles, err := localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", "hub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Apply(t.Context(), append(objects, roles...)...); err != nil {
		t.Fatal(err)
	}
	second.hub = newPublicHub(t, control)
	second.hub.approve(second.name, bootstrapUser)
	second.hub.accept(second.name)
	second.ready()
	second.applies("two", nil)

	// The deletion on one hub must not affect the other.
	second.hub.hold(second.name)
	second.hub.remove(second.name)
	second.hasGone("two")
	second.says("the hub has deleted twohubs")
	if !first.has("one") || first.agent.Ready() != nil {
		t.Errorf("first hub: ConfigMap one exists = %t, Ready() = %v, want true, nil", first.has("one"), first.agent.Ready())
	}
}
