package agent_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// testMissing has a hub delete a cluster while its agent is away, and refuse what it had
// issued: first with 401, then because it has expired.
func testMissing(t *testing.T, j *joiner) {
	j.join()
	j.applies("one", nil)
	name := string(j.secret().Data["agent-name"])

	j.losesItsMembership(24 * time.Hour)
	// It goes on with a ManagedCluster that somebody else has made.
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: j.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
	if got := string(j.secret().Data["agent-name"]); got != name {
		t.Errorf("it has registered as agent %s; it was %s", got, name)
	}

	j.losesItsMembership(-time.Minute)
	// To delete the Secret is how to register again.
	if err := j.kube.CoreV1().Secrets(agentNamespace).Delete(t.Context(), j.config.Registration.SecretName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
	if got := string(j.secret().Data["agent-name"]); got == name {
		t.Errorf("it has registered as agent %s, which was in the Secret that was deleted", got)
	}
}

// losesItsMembership restarts the agent with credentials that the hub refuses, and that
// last so long, after its ManagedCluster was deleted. It returns when the agent waits.
func (j *joiner) losesItsMembership(lasts time.Duration) {
	t := j.t.(*testing.T)
	t.Helper()
	user := j.user()
	j.kill()
	j.hub.remove(j.name)
	key, certificate := strangersCertificate(t, user, lasts)
	j.changeSecret(func(secret *corev1.Secret) { secret.Data["tls.key"], secret.Data["tls.crt"] = key, certificate })
	j.run()
	j.says("To register anew, delete the Secret " + agentNamespace + "/" + j.config.Registration.SecretName)
	if _, err := j.hub.ocm.ClusterV1().ManagedClusters().Get(t.Context(), j.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster has registered again by itself (%v)", err)
	}
	if !j.has("one") {
		t.Error("what was applied is gone")
	}
}
