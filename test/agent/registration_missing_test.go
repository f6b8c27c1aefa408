package agent_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// testMissing checks a cluster that is deleted on the hub while its agent is stopped. The certificate
// of the agent is first rejected by the hub with 401, and then expired.
func testMissing(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	name := string(j.secret().Data["agent-name"])

	j.losesItsMembership(24 * time.Hour)
	// The agent continues with a ManagedCluster that another client has created.
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: j.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
	if got := string(j.secret().Data["agent-name"]); got != name {
		t.Errorf("agent name after the registration = %s, want %s", got, name)
	}

	j.losesItsMembership(-time.Minute)
	// After the Secret is deleted, the agent registers again.
	if err := j.kube.CoreV1().Secrets(agentNamespace).Delete(t.Context(), j.config.Registration.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
	if got := string(j.secret().Data["agent-name"]); got == name {
		t.Errorf("agent name after the deletion of the Secret = %s, want another", got)
	}
}

// losesItsMembership deletes the ManagedCluster and restarts the agent with a certificate that the hub
// rejects and that has the given lifetime. It returns when the agent waits for the deletion of its
// Secret.
func (j *joiner) losesItsMembership(lasts time.Duration) {
	t := j.t.(*testing.T)
	t.Helper()
	user := j.user()
	j.kill()
	j.hub.remove(j.name)
	key, certificate := strangersCertificate(t, user, lasts)
	j.changeSecret(func(secret *corev1.Secret) { secret.Data["tls.key"], secret.Data["tls.crt"] = key, certificate })
	j.run()
	j.says("To register it again, delete the Secret " + agentNamespace + "/" + j.config.Registration.SecretName)
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Get(t.Context(), j.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(ManagedCluster %s) = %v, want NotFound", j.name, err)
	}
	if !j.has("one") {
		t.Error("ConfigMap one does not exist, want it kept")
	}
}
