package clusteradm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// A cluster joins a hub, is accepted, and leaves the hub with clusteradm commands only. The server
// and the agent run outside of the clusters.
func TestClusterJoinsAndLeaves(t *testing.T) {
	hub := clusters.cluster(t, "hub", true)
	managed := clusters.cluster(t, "managed", false)
	server, err := localhub.NewAPIServer(localhub.APIServerOptions{Hub: hub, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	defer cancel()
	words := joinWords(t, run(t, hub, "init", "--apiserver=external").done(t).out)
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := server.Register(ctx); err != nil {
		t.Fatal(err)
	}

	const name, namespace = "visitor", "agent-of-visitor"
	run(t, managed, joinArgs(words["--hub-apiserver"], words["--hub-token"], words["--ca-data"], name, "--agent=external", "--agent-namespace", namespace)...).done(t)
	startAgent(t, managed, name, namespace)
	run(t, hub, "accept", "--clusters", name, "--wait", "--reason=expected").done(t).shows(t, name+": accepted by csr", "has access to the hub")
	kube := kubeOf(t, managed)
	await.Eventually(t, "the agent has stored its hub kubeconfig", func(ctx context.Context) error {
		secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, hubSecret, metav1.GetOptions{})
		if err == nil && len(secret.Data[kubeconfigKey]) == 0 {
			err = fmt.Errorf("Secret %s has no key %s", hubSecret, kubeconfigKey)
		}
		return err
	})
	cluster, err := ocmOf(t, hub).ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if decision := cluster.Status.Acceptance; decision == nil || decision.Reason != "expected" {
		t.Errorf("status.acceptance = %+v, want one with reason expected", decision)
	}

	run(t, managed, "unjoin", "--cluster-name", name, "--agent-namespace", namespace, "--timeout=1m").done(t)
	ocm, hubKube := ocmOf(t, hub), kubeOf(t, hub)
	await.Eventually(t, "all objects of the cluster on the hub are deleted", func(ctx context.Context) error {
		_, cluster := ocm.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		_, record := ocm.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
		_, hubNamespace := hubKube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(cluster) && apierrors.IsNotFound(record) && apierrors.IsNotFound(hubNamespace) {
			return nil
		}
		return fmt.Errorf("Get(ManagedCluster) = %v, Get(ManagedClusterRegistration) = %v, Get(Namespace) = %v, want NotFound", cluster, record, hubNamespace)
	})
}

// startAgent runs the agent of a namespace outside of its cluster, with the permissions and the
// bootstrap kubeconfig that join creates.
func startAgent(t *testing.T, managed *localhub.Cluster, name, namespace string) {
	t.Helper()
	dir := t.TempDir()
	secret, err := kubeOf(t, managed).CoreV1().Secrets(namespace).Get(t.Context(), bootstrapSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, kubeconfig := filepath.Join(dir, "bootstrap"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(bootstrap, secret.Data[kubeconfigKey], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := managed.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+namespace+":"+agentName); err != nil {
		t.Fatal(err)
	}
	program, err := localhub.Binary(localhub.BinDir(), "agent")
	if err != nil {
		t.Fatal(err)
	}
	agent := &localhub.Process{
		Name: name + " agent", Path: program, LogFile: filepath.Join(dir, "agent.log"),
		Args: []string{
			"--bootstrap-kubeconfig=" + bootstrap, "--kubeconfig=" + kubeconfig, "--cluster-name=" + name, "--registration-namespace=" + namespace,
			"--hub-kubeconfig-dir=" + filepath.Join(dir, "hub"), "--health-bind-address=0",
		},
		Ready: func(context.Context) error { return nil },
	}
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			content, err := os.ReadFile(agent.LogFile)
			t.Logf("%s %v", content, err)
		}
	})
}
