package clusteradm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// member is a cluster that has joined a hub. The test acts as its agent.
type member struct {
	hub, managed *localhub.Cluster
	name         string
	namespace    string
	server       string
}

// joined joins a cluster with clusteradm. It stores the credentials of the agent in files next to
// the kubeconfig, as an agent does with the credentials that the hub issues.
func joined(t *testing.T, name string) *member {
	t.Helper()
	hub, server, token, ca := publicHub(t)
	managed := clusters.cluster(t, "managed", false)
	m := &member{hub: hub, managed: managed, name: name, namespace: "agent-of-" + name, server: server}
	run(t, managed, joinArgs(server, token, ca, name, "--agent-namespace", m.namespace)...).done(t)
	createCluster(t, hub, name, nil)
	setAccepted(t, hub, name, true)
	group := "system:open-cluster-management:" + name
	config, err := hub.UserConfig(group+":agent", group)
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	grantOwnCluster(t, hub, name, group)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["agent"] = &clientcmdapi.AuthInfo{ClientCertificate: "tls.crt", ClientKey: "tls.key"}
	kubeconfig.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "agent"}
	kubeconfig.CurrentContext = "hub"
	m.keep(t, kubeconfig, map[string][]byte{"tls.crt": config.CertData, "tls.key": config.KeyData})
	return m
}

// keep writes the Secret of the agent.
func (m *member) keep(t *testing.T, kubeconfig *clientcmdapi.Config, more map[string][]byte) {
	t.Helper()
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: hubSecret},
		Data:       map[string][]byte{kubeconfigKey: content, clusterNameKey: []byte(m.name)},
	}
	for key, value := range more {
		secret.Data[key] = value
	}
	if _, err := kubeOf(t, m.managed).CoreV1().Secrets(m.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// hubHash returns the agent's identifier of the hub.
func (m *member) hubHash() string {
	sum := sha256.Sum256([]byte(m.server))
	return hex.EncodeToString(sum[:])
}

// applied records that the agent has applied a ManifestWork.
func (m *member) applied(t *testing.T, work string) string {
	t.Helper()
	record, err := ocmOf(t, m.managed).WorkV1().AppliedManifestWorks().Create(t.Context(), &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: m.hubHash() + "-" + work},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: m.hubHash(), ManifestWorkName: work},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return record.Name
}

func (m *member) unjoin(t *testing.T, more ...string) outcome {
	t.Helper()
	return run(t, m.managed, append([]string{"unjoin", "--cluster-name", m.name, "--agent-namespace", m.namespace}, more...)...)
}

// verifyGone checks that no objects of the agent remain.
func (m *member) verifyGone(t *testing.T) {
	t.Helper()
	kube := kubeOf(t, m.managed)
	namespace, err := kube.CoreV1().Namespaces().Get(t.Context(), m.namespace, metav1.GetOptions{})
	if err == nil && namespace.DeletionTimestamp == nil {
		t.Errorf("Namespace %s exists without deletionTimestamp, want it deleted", m.namespace)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	for _, secret := range []string{bootstrapSecret, hubSecret} {
		if _, err := kube.CoreV1().Secrets(m.namespace).Get(t.Context(), secret, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get(Secret %s) = %v, want NotFound", secret, err)
		}
	}
	bindings, err := kube.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		for _, subject := range binding.Subjects {
			if subject.Namespace == m.namespace {
				t.Errorf("ClusterRoleBinding %s binds the agent after unjoin, want it deleted", binding.Name)
			}
		}
	}
}

func TestUnjoinLeavesTheHub(t *testing.T) {
	m := joined(t, "leaver")
	record := m.applied(t, "web")
	finished := started(t, m.managed, "unjoin", "--cluster-name", m.name, "--agent-namespace", m.namespace, "--timeout=1m")
	await.Eventually(t, "ManagedCluster "+m.name+" is not accepted", func(context.Context) error {
		if isAccepted(t, m.hub, m.name) {
			return errors.New("spec.hubAcceptsClient = true, want false")
		}
		return nil
	})
	// The agent runs until it has removed the objects that it applied.
	kube := kubeOf(t, m.managed)
	if _, err := kube.AppsV1().Deployments(m.namespace).Get(t.Context(), agentName, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(Deployment of the agent) before its objects are removed = %v, want nil", err)
	}
	if err := ocmOf(t, m.managed).WorkV1().AppliedManifestWorks().Delete(t.Context(), record, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-finished:
		got.done(t).shows(t, "the hub is notified that leaver leaves", "deployment.apps/agent in agent-of-leaver deleted", "The cluster leaver has left the hub.")
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	m.verifyGone(t)
	// A second unjoin succeeds and changes nothing.
	m.unjoin(t).done(t)
}

func TestUnjoinNamesTheRemainingObjects(t *testing.T) {
	m := joined(t, "stuck")
	record := m.applied(t, "db")
	kube := kubeOf(t, m.managed)
	account, err := kube.CoreV1().ServiceAccounts(accountsNamespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "of-stuck", Labels: map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: serviceaccount.Identity(m.hubHash(), m.name)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.unjoin(t, "--timeout=1s").refused(t, "the objects of ManifestWork db", "ServiceAccount "+accountsNamespace+"/of-stuck", "--force")
	if _, err := kube.AppsV1().Deployments(m.namespace).Get(t.Context(), agentName, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(Deployment of the agent) before its objects are removed = %v, want nil", err)
	}
	m.unjoin(t, "--timeout=1s", "--force", "--purge").done(t).shows(t, "Warning: ", "AppliedManifestWorks is kept")
	m.verifyGone(t)
	if _, err := ocmOf(t, m.managed).WorkV1().AppliedManifestWorks().Get(t.Context(), record, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(AppliedManifestWork) after --force = %v, want nil", err)
	}
	if err := ocmOf(t, m.managed).WorkV1().AppliedManifestWorks().Delete(t.Context(), record, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kube.CoreV1().ServiceAccounts(accountsNamespace).Delete(t.Context(), account.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func TestUnjoinWithoutAHub(t *testing.T) {
	m := joined(t, "orphan")
	kube := kubeOf(t, m.managed)
	if err := kube.CoreV1().Secrets(m.namespace).Delete(t.Context(), hubSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := clientcmdapi.NewConfig()
	gone.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	gone.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: "token"}
	gone.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "agent"}
	gone.CurrentContext = "hub"
	m.keep(t, gone, nil)
	m.unjoin(t).refused(t, "could not be notified", "--force", "kubectl delete managedclusters")
	if _, err := kube.AppsV1().Deployments(m.namespace).Get(t.Context(), agentName, metav1.GetOptions{}); err != nil {
		t.Errorf("Get(Deployment of the agent) after the failed unjoin = %v, want nil", err)
	}
	m.unjoin(t, "--force").done(t).shows(t, "Warning: the hub https://127.0.0.1:1 could not be notified")
	m.verifyGone(t)
}

func TestUnjoinKeepsTheHub(t *testing.T) {
	m := joined(t, "kept")
	record := m.applied(t, "cache")
	m.unjoin(t, "--keep-hub").done(t).shows(t, "the hub is not notified", "remaining on this cluster: the objects of ManifestWork cache")
	m.verifyGone(t)
	if !isAccepted(t, m.hub, m.name) {
		t.Error("the cluster is denied after --keep-hub, want it accepted")
	}
	if err := ocmOf(t, m.managed).WorkV1().AppliedManifestWorks().Delete(t.Context(), record, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Unjoining the last agent removes all objects that serve agents. A namespace that existed before
// stays.
func TestUnjoinOfTheLastAgent(t *testing.T) {
	hub, server, token, ca := publicHub(t)
	kube := kubeOf(t, hub)
	if err := framework.MakeNamespace(t.Context(), kube, accountsNamespace); err != nil {
		t.Fatal(err)
	}
	run(t, hub, joinArgs(server, token, ca, "alone", "--agent=external")...).done(t).shows(t, "agent --cluster-name=alone", "--bootstrap-kubeconfig=")
	if _, err := kube.AppsV1().Deployments(defaultAgentNamespace).Get(t.Context(), agentName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get(Deployment of an external agent) = %v, want NotFound", err)
	}
	run(t, hub, "unjoin", "--cluster-name=alone", "--purge").done(t).
		shows(t, "the agent has not joined the hub yet", "namespace/"+accountsNamespace+" stays")
	for _, name := range []string{agentClusterRole, agentClusterRole + ":apply", agentClusterRole + ":inventory"} {
		if _, err := kube.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get(ClusterRole %s) = %v, want NotFound", name, err)
		}
	}
	ocm := ocmOf(t, hub)
	await.Eventually(t, "AppliedManifestWorks are not served", func(ctx context.Context) error {
		_, err := ocm.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("List(AppliedManifestWorks) is served, want NotFound"), err)
	})
	namespace, err := kube.CoreV1().Namespaces().Get(t.Context(), defaultAgentNamespace, metav1.GetOptions{})
	if err != nil || namespace.DeletionTimestamp == nil {
		t.Errorf("Get(namespace of the agent) = %v, %v, want one with deletionTimestamp", namespace, err)
	}
}

// A denied agent does not remove the objects that it applied, so unjoin must not wait for it.
func TestUnjoinOfADeniedCluster(t *testing.T) {
	m := joined(t, "denied")
	setAccepted(t, m.hub, "denied", false)
	m.unjoin(t).refused(t, "it has denied the cluster")
	m.unjoin(t, "--force").done(t)
	m.verifyGone(t)
}

// A user with permission to write the Secret of the agent must not make the administrator's machine
// run a program or send a file.
func TestUnjoinRunsNoCommandOfTheSecret(t *testing.T) {
	m := joined(t, "hostile")
	kube := kubeOf(t, m.managed)
	if err := kube.CoreV1().Secrets(m.namespace).Delete(t.Context(), hubSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	marker := t.TempDir() + "/ran"
	config.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "touch", Args: []string{marker}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "agent"}
	config.CurrentContext = "hub"
	m.keep(t, config, nil)
	m.unjoin(t).refused(t, "only a running Pod of the agent can assume the IAM role of the cluster")
	if exists(marker) {
		t.Error("unjoin ran the exec command of the Secret, want no command run")
	}
}
