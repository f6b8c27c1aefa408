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
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestRegistration runs agents against a hub that does and grants what a public one does.
func TestRegistration(t *testing.T) {
	f := newFixture(t)
	hub := newPublicHub(t, f.control)
	for name, test := range map[string]func(*testing.T, *joiner){
		"first":          testFirstJoin,
		"restart":        testRestartKeepsRequestAndIdentity,
		"renewal":        testRenewal,
		"denied":         testDeniedAndAcceptedAgain,
		"deniedrequest":  testDeniedRequest,
		"deleted":        testDeleted,
		"deletedrestart": testDeletedWhileTheAgentRestarts,
		"publicdelete":   testDeletedOnAHubThatWaits,
		"unauthorized":   testUnauthorized,
		"missing":        testMissing,
		"thrownout":      testThrownOut,
		"secretdeleted":  testIdentityDeleted,
		"foreignsecret":  testIdentityOfAnotherCluster,
		"publicsecret":   testSecretOfThePublicAgent,
		"namespaces":     testManagedNamespaces,
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
		t.Errorf("the ManagedCluster was created as %+v", created.Spec)
	}
	j.hub.approve(j.name, bootstrapUser)
	// A certificate alone gives no access.
	j.says("waiting for the hub to accept first")
	j.hub.accept(j.name)
	j.ready()
	j.applies("one", nil)

	eventually(t, "the status is reported", func(ctx context.Context) error {
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
			return fmt.Errorf("conditions are %+v", cluster.Status.Conditions)
		case cluster.Status.Version.Kubernetes == "", claims["id.k8s.io"] != string(system.UID),
			claims["kubeversion.open-cluster-management.io"] != cluster.Status.Version.Kubernetes:
			return fmt.Errorf("version %q, claims %v", cluster.Status.Version.Kubernetes, claims)
		case lease.Spec.RenewTime == nil, time.Since(lease.Spec.RenewTime.Time) > time.Hour:
			return fmt.Errorf("the lease is %+v", lease.Spec)
		}
		return nil
	})

	secret := j.secret()
	info, err := os.Stat(j.config.Registration.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v (%v), want 0700", info.Mode(), err)
	}
	for _, key := range []string{"kubeconfig", "cluster-name", "agent-name", "tls.crt", "tls.key"} {
		path := filepath.Join(j.config.Registration.Dir, key)
		content, err := os.ReadFile(path)
		if err != nil || string(content) != string(secret.Data[key]) || len(content) == 0 {
			t.Errorf("file %s is not what the Secret has (%v)", key, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("file %s: mode %v (%v), want 0600", key, info.Mode(), err)
		}
	}
	if want := "system:open-cluster-management:first:" + string(secret.Data["agent-name"]); j.user() != want {
		t.Errorf("the agent is %s, want %s", j.user(), want)
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

	// Without the bootstrap kubeconfig, and without the files.
	j.config.Registration.BootstrapKubeconfig = filepath.Join(t.TempDir(), "none")
	j.config.Registration.Dir = filepath.Join(t.TempDir(), "other")
	j.run()
	j.ready()
	j.applies("two", nil)
	if got := string(j.secret().Data["agent-name"]); got != name || j.certificate().SerialNumber.Cmp(serial) != 0 {
		t.Errorf("the agent is %s with certificate %s after a restart, before it was %s with %s", got, j.certificate().SerialNumber, name, serial)
	}
}

func testRenewal(t *testing.T, j *joiner) {
	clock := clocktesting.NewFakeClock(time.Now())
	j.config.Clock = clock
	j.config.Registration.CertificateLifetime = 10 * time.Minute
	j.join()
	before, user, running := j.certificate(), j.user(), j.agent
	if left := time.Until(before.NotAfter); left > 11*time.Minute {
		t.Fatalf("the certificate is valid for %s", left)
	}
	eventually(t, "the renewal is planned", func(context.Context) error {
		if !clock.HasWaiters() {
			return errors.New("nothing waits for the clock")
		}
		return nil
	})
	clock.SetTime(before.NotAfter.Add(-time.Minute))
	// It asks with its own certificate, which is how a hub knows a renewal.
	j.hub.approve(j.name, user)
	eventually(t, "the certificate is renewed", func(context.Context) error {
		if j.certificate().SerialNumber.Cmp(before.SerialNumber) == 0 {
			return errors.New("it is the former one")
		}
		return nil
	})
	if j.user() != user {
		t.Errorf("the agent was %s and is %s", user, j.user())
	}
	eventually(t, "the files are renewed", func(context.Context) error {
		content, err := os.ReadFile(filepath.Join(j.config.Registration.Dir, "tls.crt"))
		if err == nil && string(content) != string(j.secret().Data["tls.crt"]) {
			err = errors.New("the file has the former certificate")
		}
		return err
	})
	j.applies("after", nil)
	if err := running.Ready(); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
	if _, ok := j.secret().Data["pending-tls.key"]; ok {
		t.Error("the key of the request is still in the Secret")
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
		t.Error("what was applied is gone after the hub has denied the cluster")
	}
	j.hub.apply(j.name, j.object("two"), j.target(), nil)
	j.hub.accept(j.name)
	j.ready()
	j.applies("three", nil)
	if !j.has("one") {
		t.Error("what was applied before is gone after the hub has accepted the cluster again")
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
	// The agent may have found first that no ManagedServiceAccount has it.
	if err != nil {
		t.Fatal(err)
	}
	// All access but the sight of the own ManagedCluster goes before it is deleted.
	j.hub.setRules(j.name, j.hub.rules(j.name, false))
	j.hub.dropBindings(j.name)
	j.hub.remove(j.name)
	j.hasGone("one")
	j.says("the hub has deleted deleted; to register it again, delete the Secret")
	if !j.has("kept") {
		t.Error("what was to be orphaned is gone")
	}
	if _, err := j.kube.CoreV1().ServiceAccounts(account.Namespace).Get(t.Context(), account.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ServiceAccount is still there (%v)", err)
	}
	j.hub.forget(j.name)

	// To delete the Secret is how to register again.
	if err := j.kube.CoreV1().Secrets(agentNamespace).Delete(t.Context(), j.config.Registration.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
}

// identity is what marks the ServiceAccounts of the agent.
func (j *joiner) identity() string {
	return serviceaccount.Identity(agent.HubHash(j.hub.control.AdminConfig().Host), j.name)
}

func testDeletedWhileTheAgentRestarts(t *testing.T, j *joiner) {
	j.join()
	j.hub.hold(j.name)
	j.applies("one", nil)
	j.applies("kept", orphan)
	// Something keeps an object, so that the agent is not done when it is restarted.
	held, err := j.kube.CoreV1().ConfigMaps(j.target()).Get(t.Context(), j.object("one"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/held"}
	if held, err = j.kube.CoreV1().ConfigMaps(j.target()).Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.remove(j.name)
	j.says("what it had applied is being removed")
	eventually(t, "the deletion is on record", func(context.Context) error {
		if _, ok := j.secret().Annotations["agent.open-cluster-management.io/deleted-on-hub"]; !ok {
			return errors.New("it is not")
		}
		return nil
	})
	j.kill()
	j.hub.forget(j.name)
	j.run()
	j.says("what it had applied is being removed")
	eventually(t, "the object is released", func(ctx context.Context) error {
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
		t.Error("what was to be orphaned is gone")
	}
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Get(t.Context(), j.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster has registered again by itself (%v)", err)
	}
}

// testDeletedOnAHubThatWaits has a hub that forgets a cluster only after its agent has let
// go of all works.
func testDeletedOnAHubThatWaits(t *testing.T, j *joiner) {
	j.join()
	j.hub.hold(j.name)
	j.applies("one", nil)
	j.hub.remove(j.name)
	j.hasGone("one")
	if err := j.hub.ocm.WorkV1().ManifestWorks(j.name).Delete(t.Context(), j.object("one"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the work is gone", func(ctx context.Context) error {
		_, err := j.hub.ocm.WorkV1().ManifestWorks(j.name).Get(ctx, j.object("one"), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%w)", err)
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
	// A certificate that looks right, of an authority that the hub does not trust.
	key, certificate := strangersCertificate(t, user, 24*time.Hour)
	j.changeSecret(func(secret *corev1.Secret) { secret.Data["tls.key"], secret.Data["tls.crt"] = key, certificate })
	j.run()
	j.hub.approve(j.name, bootstrapUser)
	j.ready()
	j.applies("two", nil)
	if got := string(j.secret().Data["agent-name"]); got != name || j.user() != user {
		t.Errorf("it has registered again as %s, agent %s; it was %s, agent %s", j.user(), got, user, name)
	}
	after, err := j.ocm.WorkV1().AppliedManifestWorks().Get(t.Context(), record.Name, metav1.GetOptions{})
	if err != nil || after.UID != record.UID || after.Spec != record.Spec {
		t.Errorf("the record of the work was %+v and is %+v (%v)", record.Spec, after.Spec, err)
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

func testThrownOut(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	j.hub.setRules(j.name, nil)
	j.hub.dropBindings(j.name)
	// The agent notices by its lease, or when its watch ends.
	j.hub.change(j.name, "", func(cluster *clusterv1.ManagedCluster) { cluster.Spec.LeaseDurationSeconds = new(int32(1)) })
	j.kill()
	j.run()
	j.says("it has no access to the hub")
	if !j.has("one") {
		t.Error("what was applied is gone")
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
	eventually(t, "the Secret is there again", func(ctx context.Context) error {
		again, err := j.kube.CoreV1().Secrets(agentNamespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if again.UID == before.UID || string(again.Data["tls.crt"]) != string(before.Data["tls.crt"]) || string(again.Data["agent-name"]) != string(before.Data["agent-name"]) {
			return fmt.Errorf("it has other content, or is the former one")
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
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the agent does not end")
	}
	if got := j.secret().Data; len(got) != 1 || string(got["cluster-name"]) != "another" {
		t.Errorf("the Secret was changed: it has %d keys", len(got))
	}
}

// testSecretOfThePublicAgent takes over from a public agent: the Secret that it leaves has
// all that is needed.
func testSecretOfThePublicAgent(t *testing.T, j *joiner) {
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
		t.Error("it has registered again")
	}
}

// TestRegistrationWithTwoHubs has one managed cluster join two hubs, of which the second is
// away at first.
func TestRegistrationWithTwoHubs(t *testing.T) {
	f := newFixture(t)
	first := f.joinerNamed(t, newPublicHub(t, f.control), "twohubs")
	first.join()
	first.applies("one", nil)

	control, err := localhub.NewCluster(localhub.ClusterOptions{Name: "hub2", Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := control.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
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

	// What one hub deletes is no business of the other.
	second.hub.hold(second.name)
	second.hub.remove(second.name)
	second.hasGone("two")
	second.says("the hub has deleted twohubs")
	if !first.has("one") || first.agent.Ready() != nil {
		t.Errorf("the first hub is affected: %v", first.agent.Ready())
	}
}
