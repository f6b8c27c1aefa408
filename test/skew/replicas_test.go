//go:build skew

package skew

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// label is a label that the test writes.
const label = "skew.open-cluster-management.io/test"

// TestReplicas replaces two replicas on one etcd one after the other, as a rolling update and its
// rollback do. While both releases run, each reads and watches what the other writes.
func TestReplicasOfTwoReleases(t *testing.T) {
	hub := framework.OwnCluster(t, localhub.ClusterOptions{Name: "hub", BinDir: string(current)})
	dir := framework.OwnDir(t)
	etcd := framework.Must(localhub.NewEtcd("etcd", filepath.Join(dir, "etcd"), string(current), filepath.Join(dir, "etcd.log"), false))(t)
	if err := etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.StopLater(t, etcd.Stop)
	run := func(of release, name string) *replica {
		server := framework.OwnServer(t, localhub.APIServerOptions{
			Hub: hub, Name: name, Dir: filepath.Join(dir, name), PKIDir: filepath.Join(dir, "pki"), BinDir: string(of),
			EtcdServers: []string{etcd.Endpoint}, Args: []string{"--search-engine=none"},
		})
		return &replica{APIServer: server, client: framework.Must(dynamic.NewForConfig(framework.Must(server.UserConfig("admin", "system:masters"))(t)))(t)}
	}
	stop := func(r *replica) {
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, second := run(previous, "first"), run(previous, "second")
	first.createExamples(t)
	stop(second)
	updated := run(current, "updated")
	exchange(t, first, updated)
	exchange(t, updated, first)
	stop(first)
	last := run(current, "last")
	exchange(t, updated, last)
	stop(updated)
	rolledBack := run(previous, "rolled-back")
	exchange(t, last, rolledBack)
	exchange(t, rolledBack, last)
}

// replica is a server with a client that sends requests to it, and not through the hub.
type replica struct {
	*localhub.APIServer
	client dynamic.Interface
}

func rows() []definition.Resource { return apiserver.Resources(apiserver.Dependencies{}) }

func example(t *testing.T, row *definition.Resource) *unstructured.Unstructured {
	t.Helper()
	content := framework.Must(os.ReadFile(filepath.Join(localhub.Root(), "artifacts", "example", row.Singular+".yaml")))(t)
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// createExamples creates an object of each resource.
func (r *replica) createExamples(t *testing.T) {
	t.Helper()
	for _, row := range rows() {
		if row.ServerOwned {
			continue
		}
		object := example(t, &row)
		resource := r.client.Resource(object.GroupVersionKind().GroupVersion().WithResource(row.Name)).Namespace(object.GetNamespace())
		// The server creates the namespace of the cluster some time after the ManagedCluster.
		framework.Eventually(t, "the example of "+row.Kind+" is created", func(ctx context.Context) error {
			_, err := resource.Create(ctx, object, metav1.CreateOptions{})
			return err
		})
	}
}

// exchange writes to an object of each resource through one replica, and reads it in each version
// through another, by a watch and by a get.
func exchange(t *testing.T, writer, reader *replica) {
	t.Helper()
	value := writer.Name + "-" + reader.Name
	for _, row := range rows() {
		if row.ServerOwned {
			continue
		}
		object := example(t, &row)
		for _, version := range row.Versions {
			if version.Group != row.Group() {
				continue // served only if a flag enables it
			}
			of := func(r *replica) dynamic.ResourceInterface {
				return r.client.Resource(version.WithResource(row.Name)).Namespace(object.GetNamespace())
			}
			events := framework.Must(of(reader).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + object.GetName()}))(t)
			own := version.Version + "-" + value
			written := framework.Must(of(writer).Patch(t.Context(), object.GetName(), types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, own), metav1.PatchOptions{}))(t)
			waitFor(t, events, own)
			events.Stop()
			read := framework.Must(of(reader).Get(t.Context(), object.GetName(), metav1.GetOptions{}))(t)
			if read.GetLabels()[label] != own || read.GetUID() != written.GetUID() {
				t.Errorf("%s %s read by %s = %v, want the one that %s wrote", row.Kind, object.GetName(), reader.Name, read.Object["metadata"], writer.Name)
			}
		}
	}
}

// waitFor waits for an event of an object with a value of the label.
func waitFor(t *testing.T, events watch.Interface, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				t.Fatalf("the watch for label %s ended", value)
			}
			if object, ok := event.Object.(*unstructured.Unstructured); ok && object.GetLabels()[label] == value {
				return
			}
		case <-ctx.Done():
			t.Fatalf("the watch has no event with label %s", value)
		}
	}
}
