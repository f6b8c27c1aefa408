package apiserver

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/fake"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
)

// testDatabase is an etcd with the ManagedClusters of a server.
type testDatabase struct {
	endpoint string
	client   *clientv3.Client
}

const clustersKey = "/registry/" + clusterv1.GroupName + "/managedclusters/"

func startDatabase(t *testing.T) testDatabase {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{DataDir: t.TempDir(), QuotaBytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return testDatabase{server.Endpoint(), client}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (d testDatabase) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("/registry", nil)
	config.Transport.ServerList = []string{d.endpoint}
	return generic.RESTOptions{StorageConfig: config.ForResource(resource), ResourcePrefix: resource.Group + "/" + resource.Resource}, nil
}

func (d testDatabase) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := d.client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func (d testDatabase) putCluster(t *testing.T, name string) {
	t.Helper()
	content, err := runtime.Encode(scheme.Codecs.LegacyCodec(clusterv1.SchemeGroupVersion), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}})
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, clustersKey+name, string(content))
}

// restoreOf returns the restore with which a ManagedCluster is marked.
func (d testDatabase) restoreOf(t *testing.T, name string) string {
	t.Helper()
	got, err := d.client.Get(t.Context(), clustersKey+name)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("get of ManagedCluster %s from etcd = %v, %v, want one value", name, got, err)
	}
	obj, err := runtime.Decode(scheme.Codecs.UniversalDecoder(clusterv1.SchemeGroupVersion), got.Kvs[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*clusterv1.ManagedCluster).Annotations[clusterv1.RestoredAnnotation]
}

// worksElsewhere is a database with the ManifestWorks in another etcd.
type worksElsewhere struct {
	testDatabase
	works testDatabase
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (d worksElsewhere) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	if resource == workv1.Resource("manifestworks") {
		return d.works.GetRESTOptions(resource, example)
	}
	return d.testDatabase.GetRESTOptions(resource, example)
}

// dataOf returns the data of a server that uses a database, and has not served.
func dataOf(t *testing.T, database generic.RESTOptionsGetter) *Data {
	t.Helper()
	rows := Resources(Dependencies{})
	clusters, err := connectEtcd(rows, database, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeEtcd(clusters) })
	return &Data{
		etcd: clusters, stored: storedVersions(rows), clusterStore: clusterStore(rows, database),
		clients: &clients{}, extra: &ExtraConfig{}, hub: fake.NewClientset(),
	}
}

// finishedDeletions is a store in which another replica finishes a deletion after each list.
type finishedDeletions struct {
	storage.Interface
	finish func()
}

func (s finishedDeletions) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	defer s.finish()
	return s.Interface.GetList(ctx, key, options, list)
}

// TestDeletedWhileMarking checks that a ManagedCluster that another replica deletes while this one marks the restored
// data is not created again.
func TestDeletedWhileMarking(t *testing.T) {
	t.Parallel()
	database := startDatabase(t)
	database.putCluster(t, "deleted")
	database.putCluster(t, "kept")
	database.put(t, etcd.MarkKey("/registry"), `{"id":"restore-1"}`)
	data := dataOf(t, database)
	open := data.clusterStore
	data.clusterStore = func() (storage.Interface, factory.DestroyFunc, error) {
		store, destroy, err := open()
		return finishedDeletions{store, func() {
			if _, err := database.client.Delete(t.Context(), clustersKey+"deleted"); err != nil {
				t.Error(err)
			}
		}}, destroy, err
	}
	if err := data.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := database.restoreOf(t, "kept"); got != "restore-1" {
		t.Errorf("restore of the ManagedCluster that stays = %q, want restore-1", got)
	}
	stored, err := database.client.Get(t.Context(), clustersKey, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	if stored.Count != 1 {
		t.Errorf("ManagedClusters in etcd = %v, want only the one that was not deleted", stored.Kvs)
	}
}

// TestRestoreOfOneEtcd checks that the restore of one of several etcd clusters marks the ManagedClusters.
func TestRestoreOfOneEtcd(t *testing.T) {
	t.Parallel()
	database := worksElsewhere{startDatabase(t), startDatabase(t)}
	database.putCluster(t, "cluster1")
	marked := func() string {
		t.Helper()
		data := dataOf(t, database)
		if err := data.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := database.restoreOf(t, "cluster1")
		if got := data.restore; got != id {
			t.Errorf("restore of new ManagedClusters = %q, want that of the others, %q", got, id)
		}
		return id
	}
	mark := func(in testDatabase, id string) { in.put(t, etcd.MarkKey("/registry"), `{"id":"`+id+`"}`) }
	if got := marked(); got != "" {
		t.Errorf("restore without a restore = %q, want none", got)
	}
	mark(database.works, "works-1")
	if got := marked(); got != "works-1" {
		t.Errorf("restore after one of the ManifestWorks = %q, want works-1", got)
	}
	mark(database.testDatabase, "others-1")
	both := marked()
	if both == "" || both == "works-1" || both == "others-1" || both != marked() {
		t.Errorf("restore after two restores = %q, want a new ID that stays the same", both)
	}
	mark(database.works, "works-2")
	if got := marked(); got == "" || got == both || got == "works-2" {
		t.Errorf("restore after another restore of the ManifestWorks = %q, want a new ID", got)
	}
	mark(database.testDatabase, "works-2")
	if got := marked(); got != "works-2" {
		t.Errorf("restore of both with the same ID = %q, want works-2", got)
	}
}
