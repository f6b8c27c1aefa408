package agent_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/pkg/agent"
	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

const agentNamespace = "open-cluster-management-agent"

// joiner is an agent that registers with a hub, and its managed cluster.
type joiner struct {
	*fixture
	t    testing.TB
	hub  *publicHub
	name string
	// config is the configuration of the next agent.
	config agent.Config
	agent  *agent.Agent
	ended  chan error
	cancel context.CancelFunc
}

// joiner returns a joiner that does not run. Its cluster has the name of the test.
func (f *fixture) joiner(t testing.TB, hub *publicHub) *joiner {
	t.Helper()
	hub.t = t
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	return f.joinerNamed(t, hub, name)
}

func (f *fixture) joinerNamed(t testing.TB, hub *publicHub, name string) *joiner {
	t.Helper()
	dir := t.TempDir()
	bootstrap := filepath.Join(dir, "bootstrap.kubeconfig")
	hub.bootstrapKubeconfig(bootstrap)
	managed := rest.CopyConfig(f.account)
	managed.QPS, managed.Burst = -1, 0
	settings := agent.DefaultSettings()
	settings.ClusterName, settings.HealthBindAddress, settings.EvictionGracePeriod = name, "", 0
	settings.Workers, settings.WorkersPerTenant, settings.PriorityWorkers = 2, 2, 2
	j := &joiner{fixture: f, t: t, hub: hub, name: name, config: agent.Config{
		Settings: settings, Managed: managed,
		Registration: &membership.Config{
			Driver: registerv1alpha1.DriverCSR, BootstrapKubeconfig: bootstrap,
			Namespace: agentNamespace, SecretName: name + "-hub-kubeconfig", Dir: filepath.Join(dir, "files"),
		},
	}}
	if _, err := f.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: j.target()}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.kill)
	return j
}

// target returns the namespace of applied objects. It is not the name of the cluster, because one
// cluster is both the hub and the managed cluster.
func (j *joiner) target() string { return j.name + "-target" }

func (j *joiner) run() {
	j.t.Helper()
	config := j.config
	register := *config.Registration
	config.Registration = &register
	var err error
	if j.agent, err = config.New(); err != nil {
		j.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(j.t.Context()))
	ended, running := make(chan error, 1), j.agent
	go func() { ended <- running.Run(ctx) }()
	j.ended, j.cancel = ended, cancel
}

// kill stops the agent if it runs.
func (j *joiner) kill() {
	if j.cancel == nil {
		return
	}
	j.cancel()
	j.cancel = nil
	select {
	case err := <-j.ended:
		if err != nil {
			j.t.Errorf("Run() of the agent = %v, want nil", err)
		}
	case <-time.After(await.Patience):
		j.t.Error("Run() of the agent did not return after its context was canceled")
	}
}

// says waits until Ready returns an error that contains a reason.
func (j *joiner) says(reason string) {
	j.t.Helper()
	eventually(j.t, fmt.Sprintf("Ready returns an error that contains %q", reason), func(context.Context) error {
		if err := j.agent.Ready(); err == nil || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("Ready() = %v", err)
		}
		return nil
	})
}

func (j *joiner) ready() {
	j.t.Helper()
	eventually(j.t, "the agent is ready", func(context.Context) error { return j.agent.Ready() })
}

// join starts the agent, and approves and accepts it on the hub as an administrator does.
func (j *joiner) join() {
	j.t.Helper()
	j.run()
	j.hub.approve(j.name, bootstrapUser)
	j.hub.accept(j.name)
	j.ready()
}

func (j *joiner) secret() *corev1.Secret {
	j.t.Helper()
	secret, err := j.kube.CoreV1().Secrets(agentNamespace).Get(j.t.Context(), j.config.Registration.SecretName, metav1.GetOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	return secret
}

func (j *joiner) changeSecret(change func(*corev1.Secret)) {
	j.t.Helper()
	secret := j.secret()
	change(secret)
	if _, err := j.kube.CoreV1().Secrets(agentNamespace).Update(j.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		j.t.Fatal(err)
	}
}

func (j *joiner) certificate() *x509.Certificate {
	j.t.Helper()
	certificates, err := cert.ParseCertsPEM(j.secret().Data["tls.crt"])
	if err != nil {
		j.t.Fatal(err)
	}
	return certificates[0]
}

func (j *joiner) user() string { return j.certificate().Subject.CommonName }

// object returns the name of a ManifestWork and of its ConfigMap. The tests share one managed cluster,
// on which the names of the ManifestWorks of a hub must be unique.
func (j *joiner) object(work string) string { return j.name + "-" + work }

// applies creates a ManifestWork on the hub and waits until it is applied.
func (j *joiner) applies(work string, option *workv1.DeleteOption) {
	j.t.Helper()
	work = j.object(work)
	j.hub.apply(j.name, work, j.target(), option)
	eventually(j.t, "ConfigMap "+work+" exists", func(ctx context.Context) error {
		_, err := j.kube.CoreV1().ConfigMaps(j.target()).Get(ctx, work, metav1.GetOptions{})
		return err
	})
}

func (j *joiner) has(configMap string) bool {
	j.t.Helper()
	_, err := j.kube.CoreV1().ConfigMaps(j.target()).Get(j.t.Context(), j.object(configMap), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		j.t.Fatal(err)
	}
	return err == nil
}

func (j *joiner) hasGone(configMap string) {
	j.t.Helper()
	eventually(j.t, "ConfigMap "+configMap+" does not exist", func(context.Context) error {
		if j.has(configMap) {
			return errors.New("the ConfigMap exists")
		}
		return nil
	})
}

var orphan = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
