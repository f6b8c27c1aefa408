package clusteradm_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// The names of the objects that clusteradm installs.
const (
	hubNamespace  = "open-cluster-management-hub"
	serverName    = "hub-apiserver"
	servingSecret = "hub-apiserver-serving"
	dataDir       = "/var/lib/hub-apiserver"

	agentName               = "agent"
	agentClusterRole        = "open-cluster-management:agent"
	defaultAgentNamespace   = "open-cluster-management-agent"
	accountsNamespace       = "open-cluster-management-agent-addon"
	bootstrapSecret         = "bootstrap-hub-kubeconfig"
	bootstrapKubeconfigFile = "/etc/bootstrap/kubeconfig"
	hubSecret               = "hub-kubeconfig-secret"
	kubeconfigKey           = "kubeconfig"
	clusterNameKey          = "cluster-name"
	roleARNAnnotation       = "eks.amazonaws.com/role-arn"
)

// sharedClusters are the names of the clusters that all tests share. Each other one belongs to one test.
var sharedClusters = []string{"public", "managed"}

// clusters are the running clusters of these tests. The first test that needs a cluster starts it.
var clusters = &fleet{running: map[string]*localhub.Cluster{}}

type fleet struct {
	mu      sync.Mutex
	dir     string
	running map[string]*localhub.Cluster
}

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "clusteradm")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	clusters.dir = dir
	// Do not use the kubeconfig or the caches of the user who runs the tests.
	for name, value := range map[string]string{"HOME": dir, "KUBECONFIG": filepath.Join(dir, "none"), "KUBECACHEDIR": filepath.Join(dir, "cache")} {
		if err := os.Setenv(name, value); err != nil {
			log.Print(err)
			return 1
		}
	}
	if err := localhub.ReserveShared(len(sharedClusters), 2); err != nil {
		log.Print(err)
		return 1
	}
	defer func() {
		for _, cluster := range clusters.running {
			if err := cluster.Kill(); err != nil {
				log.Print(err)
				code = 1
			}
		}
	}()
	return m.Run()
}

// cluster returns a running cluster. Without kube-controller-manager it signs no
// certificates and removes no namespaces.
func (f *fleet) cluster(t *testing.T, name string, controllers bool) *localhub.Cluster {
	t.Helper()
	return f.clusterWith(t, name, localhub.ClusterOptions{NoControllerManager: !controllers})
}

// clusterWith returns a running cluster with options. Its owner is the test, unless it is one of sharedClusters.
func (f *fleet) clusterWith(t *testing.T, name string, options localhub.ClusterOptions) *localhub.Cluster {
	t.Helper()
	if slices.Contains(sharedClusters, name) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if cluster := f.running[name]; cluster != nil {
			return cluster
		}
	} else {
		framework.UseSlots(t, 1)
		name = framework.Unique(name)
	}
	options.Name, options.Dir, options.NoFsync = name, filepath.Join(f.dir, name), true
	cluster, err := localhub.NewCluster(options)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(sharedClusters, name) {
		f.running[name] = cluster
	} else {
		framework.KillLater(t, func() error { return errors.Join(cluster.Kill(), os.RemoveAll(options.Dir)) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	defer cancel()
	if err := cluster.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(sharedClusters, name) {
		// Unjoin leaves a namespace that clusteradm has not created. Without a controller manager, a deleted one would never
		// disappear, and no other test could join.
		if err := framework.MakeNamespace(ctx, kubeOf(t, cluster), accountsNamespace); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// applyFile applies a manifest of the repository.
func applyFile(t *testing.T, cluster *localhub.Cluster, path ...string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{localhub.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func kubeOf(t *testing.T, cluster *localhub.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func ocmOf(t *testing.T, cluster *localhub.Cluster) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// outcome is the visible result of a command.
type outcome struct {
	out, errOut string
	err         error
}

// shows fails the test unless the output of the command contains all of the texts.
func (o outcome) shows(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.out+o.errOut, text) {
			t.Errorf("clusteradm printed\n%s%s\nwant output that contains %q; error %v", o.out, o.errOut, text, o.err)
		}
	}
}

// run runs clusteradm on a cluster, as its administrator.
func run(t *testing.T, cluster *localhub.Cluster, args ...string) outcome {
	t.Helper()
	return <-started(t, cluster, args...)
}

// started runs the command concurrently with the test, and returns a channel that receives its outcome.
func started(t *testing.T, cluster *localhub.Cluster, args ...string) <-chan outcome {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteAdminKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	finished := make(chan outcome, 1)
	go func() { finished <- runCommand(t, append([]string{"--kubeconfig", kubeconfig}, args...)...) }()
	return finished
}

func runCommand(t *testing.T, args ...string) outcome {
	var out, errOut bytes.Buffer
	command := clusteradm.New(strings.NewReader(""), &out, &errOut)
	command.SilenceErrors = true
	command.SetArgs(args)
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	defer cancel()
	err := command.ExecuteContext(ctx)
	return outcome{out: out.String(), errOut: errOut.String(), err: err}
}

// done fails the test unless the command succeeded. It returns the outcome.
func (o outcome) done(t *testing.T) outcome {
	t.Helper()
	if o.err != nil {
		t.Fatalf("clusteradm = %v, want no error\n%s%s", o.err, o.out, o.errOut)
	}
	return o
}

// refused fails the test unless the command failed with all of the texts in its error.
func (o outcome) refused(t *testing.T, texts ...string) {
	t.Helper()
	if o.err == nil {
		t.Fatalf("clusteradm = nil, want an error\n%s%s", o.out, o.errOut)
	}
	for _, text := range texts {
		if !strings.Contains(o.err.Error(), text) {
			t.Errorf("clusteradm = %v, want an error that contains %q", o.err, text)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// grantOwnCluster gives the agents of a cluster access to their ManagedCluster, as hubs that run OCM do.
func grantOwnCluster(t *testing.T, hub *localhub.Cluster, cluster, group string) {
	t.Helper()
	name := "test:" + cluster
	for _, object := range []map[string]any{
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{
				"apiGroups": []any{"cluster.open-cluster-management.io"}, "resources": []any{"managedclusters"},
				"resourceNames": []any{cluster}, "verbs": []any{"get", "list", "watch", "update"},
			}},
		},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}},
		},
	} {
		if err := hub.Apply(t.Context(), &unstructured.Unstructured{Object: object}); err != nil {
			t.Fatal(err)
		}
	}
}
