package storagemigration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/storagemigration"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

const (
	accounts   = "managedserviceaccounts.authentication.open-cluster-management.io"
	namespace  = "cluster1"
	storedDir  = "../apiserver/testdata/stored/HEAD"
	etcdPrefix = "/registry"
)

var (
	older   = authenticationv1alpha1.SchemeGroupVersion
	current = authenticationv1beta1.SchemeGroupVersion
)

func rows() []definition.Resource { return apiserver.Resources(apiserver.Dependencies{}) }

// migratorOf returns a migrator that has entered. change changes its configuration.
func migratorOf(t testing.TB, database registrytest.Database, change ...func(*storagemigration.Config)) *storagemigration.Migrator {
	t.Helper()
	m := newMigrator(t, database, change...)
	if err := m.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func newMigrator(t testing.TB, database registrytest.Database, change ...func(*storagemigration.Config)) *storagemigration.Migrator {
	t.Helper()
	config, err := apiserver.StorageMigration(rows(), database)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&config)
	}
	m, err := storagemigration.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// named makes a migrator one of several replicas.
func named(replica string) func(*storagemigration.Config) {
	return func(config *storagemigration.Config) { config.Replica = replica }
}

// storing makes a migrator one of a release that stores accounts in another version.
func storing(version string, readable ...string) func(*storagemigration.Config) {
	return func(config *storagemigration.Config) {
		for i := range config.Resources {
			if r := &config.Resources[i]; r.Name == accounts {
				r.Stored, r.Readable = version, readable
			}
		}
	}
}

// settle runs the migrator until nothing is left to do.
func settle(t *testing.T, m *storagemigration.Migrator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for {
		after, err := m.Step(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if after == storagemigration.Settled {
			return
		}
	}
}

// recorded returns the versions of the record, by resource.
func recorded(t *testing.T, database registrytest.Database) map[string][]string {
	t.Helper()
	var record struct{ Versions map[string][]string }
	if err := json.Unmarshal(database.Get(t, strings.TrimPrefix(storagemigration.RecordKey, "/")).Value, &record); err != nil {
		t.Fatal(err)
	}
	return record.Versions
}

// revision returns the revision of etcd, which every write increases.
func revision(t *testing.T, database registrytest.Database) int64 {
	t.Helper()
	answer, err := database.Client(t).Get(t.Context(), "none")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func keyOf(name string) string {
	return path.Join(current.Group, "managedserviceaccounts", namespace, name)
}

// putAccounts stores accounts in the older version, and returns their names.
func putAccounts(t testing.TB, database registrytest.Database, number int) []string {
	t.Helper()
	client := database.Client(t)
	names := make([]string, 0, number)
	for i := range number {
		name := fmt.Sprintf("account-%05d", i)
		account := &authenticationv1alpha1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "7d3c", Generation: 3, CreationTimestamp: metav1.Unix(1_700_000_000, 0),
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: older.String(),
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:rotation":{}}}`),
			}},
		}}
		account.Spec.Rotation.Validity = "1h0m0s"
		content, err := runtime.Encode(scheme.Codecs.LegacyCodec(older), account)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), path.Join(etcdPrefix, keyOf(name)), string(content)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// storedAs returns the version in which an account is stored, and how often it was written.
func storedAs(t *testing.T, database registrytest.Database, name string) (version string, writes int64) {
	t.Helper()
	stored := database.Get(t, keyOf(name))
	var kind metav1.TypeMeta
	if err := json.Unmarshal(stored.Value, &kind); err != nil {
		t.Fatal(err)
	}
	return kind.APIVersion, stored.Version
}

// TestEveryVersionIsMigrated stores an object with every field in each version of each resource. All
// of them must be stored in the current version without a change of their content, and objects that
// already are must not be written.
func TestEveryVersionIsMigrated(t *testing.T) {
	database := registrytest.StartDatabase(t)
	type object struct {
		row    definition.Resource
		key    string
		stale  bool
		before runtime.Object
	}
	var objects []object
	for _, row := range rows() {
		content, err := os.ReadFile(filepath.Join(storedDir, row.Name+"."+row.Group()+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range row.ReadableForms(scheme.Scheme) {
			version, err := schema.ParseGroupVersion(form)
			if err != nil {
				t.Fatal(err)
			}
			complete, err := runtime.Decode(scheme.Codecs.LegacyCodec(version), content)
			if err != nil {
				t.Fatal(err)
			}
			// A server never stores these two fields.
			accessor, err := meta.Accessor(complete)
			if err != nil {
				t.Fatal(err)
			}
			accessor.SetResourceVersion("")
			accessor.SetSelfLink("")
			stored, err := runtime.Encode(scheme.Codecs.LegacyCodec(version), complete)
			if err != nil {
				t.Fatal(err)
			}
			before, err := runtime.Decode(scheme.Codecs.LegacyCodec(version), stored)
			if err != nil {
				t.Fatal(err)
			}
			key := path.Join(row.Group(), row.Name, strings.ReplaceAll(form, "/", "-"))
			if !row.ClusterScoped {
				key = path.Join(row.Group(), row.Name, namespace, strings.ReplaceAll(form, "/", "-"))
			}
			database.Put(t, key, stored)
			objects = append(objects, object{row, key, version != row.StoredVersion(), before})
		}
	}

	settle(t, migratorOf(t, database))

	stale := 0
	for _, o := range objects {
		stored := database.Get(t, o.key)
		want := int64(1)
		if o.stale {
			want = 2
			stale++
		}
		if stored.Version != want {
			t.Errorf("number of writes of %s = %d, want %d", o.key, stored.Version, want)
		}
		after, kind, err := scheme.Codecs.LegacyCodec(o.row.StoredVersion()).Decode(stored.Value, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if kind.GroupVersion() != o.row.StoredVersion() {
			t.Errorf("version of %s = %s, want %s", o.key, kind.GroupVersion(), o.row.StoredVersion())
		}
		if !reflect.DeepEqual(after, o.before) {
			t.Errorf("%s after the migration = %+v, want %+v", o.key, after, o.before)
		}
	}
	if stale == 0 {
		t.Error("no object was stored in another version, want some")
	}
	if versions := recorded(t, database); !slices.Equal(versions[accounts], []string{current.String()}) {
		t.Errorf("recorded versions of %s = %v, want %s only", accounts, versions[accounts], current)
	}
}

// TestMigrationIsInvisible watches accounts during a migration. Watchers receive one modification of
// each, which changes only its resource version. A second server writes nothing.
func TestMigrationIsInvisible(t *testing.T) {
	database := registrytest.StartDatabase(t)
	names := putAccounts(t, database, 20)
	client := database.Serve(t, nil, rows()...).Dynamic(t, "admin")
	for _, version := range []schema.GroupVersion{older, current} {
		resource := client.Resource(version.WithResource("managedserviceaccounts"))
		before, err := resource.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(before.Items) != len(names) {
			t.Fatalf("number of accounts in %s = %d, want %d", version, len(before.Items), len(names))
		}
		if version == older {
			continue
		}
		events, err := resource.Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		settle(t, migratorOf(t, database))
		for range names {
			event := receive(t, events)
			after, ok := event.Object.(*unstructured.Unstructured)
			if event.Type != watch.Modified || !ok {
				t.Fatalf("event = %s %v, want a modification", event.Type, event.Object)
			}
			i := slices.IndexFunc(before.Items, func(u unstructured.Unstructured) bool { return u.GetName() == after.GetName() })
			if i < 0 {
				t.Fatalf("the watch has an event of %s, want one of each account", after.GetName())
			}
			old := before.Items[i]
			before.Items = slices.Delete(before.Items, i, i+1)
			if after.GetResourceVersion() == old.GetResourceVersion() {
				t.Errorf("resourceVersion of %s = %s, want another one", after.GetName(), after.GetResourceVersion())
			}
			old.SetResourceVersion(after.GetResourceVersion())
			if !reflect.DeepEqual(after.Object, old.Object) {
				t.Errorf("account after the migration = %v, want %v", after.Object, old.Object)
			}
		}
	}
	written := revision(t, database)
	settle(t, migratorOf(t, database))
	if got := revision(t, database); got != written {
		t.Errorf("revision after the second start = %d, want %d: it has nothing to write", got, written)
	}
}

func receive(t *testing.T, events watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-events.ResultChan():
		if !open {
			t.Fatal("the watch ended")
		}
		return event
	case <-time.After(await.Patience):
		t.Fatal("the watch has no event")
	}
	return watch.Event{}
}

// TestMigrationContinues interrupts a migration. The next server rewrites the rest, and no object
// twice.
func TestMigrationContinues(t *testing.T) {
	database := registrytest.StartDatabase(t)
	names := putAccounts(t, database, 20)
	interrupted := migratorOf(t, database)
	interrupted.OneByOne()
	for range 7 {
		if _, err := interrupted.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	migrated := 0
	for _, name := range names {
		if version, _ := storedAs(t, database, name); version == current.String() {
			migrated++
		}
	}
	if migrated == 0 || migrated == len(names) {
		t.Fatalf("accounts in the current version after the interruption = %d, want some but not all", migrated)
	}
	settle(t, migratorOf(t, database))
	for _, name := range names {
		if version, writes := storedAs(t, database, name); version != current.String() || writes != 2 {
			t.Errorf("%s is stored in %s after %d writes, want %s after 2", name, version, writes, current)
		}
	}
}

// TestConcurrentWritesWin changes all accounts while they are migrated. No change is lost.
func TestConcurrentWritesWin(t *testing.T) {
	const writers, changes = 4, 25
	database := registrytest.StartDatabase(t)
	names := putAccounts(t, database, 10)
	client := database.Serve(t, nil, rows()...).Dynamic(t, "admin").Resource(current.WithResource("managedserviceaccounts")).Namespace(namespace)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range changes {
				name := names[(w+i)%len(names)]
				err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					account, err := client.Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					annotations := account.GetAnnotations()
					if annotations == nil {
						annotations = map[string]string{}
					}
					annotations[fmt.Sprintf("writer-%d-%d", w, i)] = "written"
					account.SetAnnotations(annotations)
					_, err = client.Update(t.Context(), account, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					t.Errorf("update of %s: %v", name, err)
				}
			}
		})
	}
	m := migratorOf(t, database)
	settle(t, m)
	running.Wait()
	for w := range writers {
		for i := range changes {
			account, err := client.Get(t.Context(), names[(w+i)%len(names)], metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if key := fmt.Sprintf("writer-%d-%d", w, i); account.GetAnnotations()[key] == "" {
				t.Errorf("%s lacks the annotation %s, which was written", account.GetName(), key)
			}
		}
	}
	for _, name := range names {
		if version, _ := storedAs(t, database, name); version != current.String() {
			t.Errorf("version of %s = %s, want %s", name, version, current)
		}
	}
}

// TestOlderReplicaDelaysMigration runs a replica that stores accounts in another version.
func TestOlderReplicaDelaysMigration(t *testing.T) {
	database := registrytest.StartDatabase(t)
	names := putAccounts(t, database, 3)
	stop := func() { t.Fatal("the older replica does not run") }
	start := func() {
		replica := migratorOf(t, database, named("older"), storing(older.String(), older.String(), current.String()))
		ctx, cancel := context.WithCancel(t.Context())
		kept := make(chan error, 1)
		go func() { kept <- replica.Keep(ctx) }()
		stop = func() {
			cancel()
			if err := <-kept; err != nil {
				t.Errorf("Keep() = %v, want no error", err)
			}
		}
	}
	start()
	m := migratorOf(t, database, named("current"))
	m.OneByOne()
	for range 5 {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if version, _ := storedAs(t, database, names[0]); version != older.String() {
		t.Errorf("version while another replica stores %s = %s, want the same", older, version)
	}
	stop()

	// A replica that starts during the pass may store objects that the pass has already seen.
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for version := ""; version != current.String(); version, _ = storedAs(t, database, names[0]) {
		if _, err := m.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start()
	for range 2 * len(names) {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if versions := recorded(t, database); slices.Equal(versions[accounts], []string{current.String()}) {
		t.Errorf("recorded versions while another replica stores %s = %v, want them unknown", older, versions[accounts])
	}
	stop()
	settle(t, m)

	start()
	defer stop()
	if versions := recorded(t, database); !slices.Equal(versions[accounts], []string{current.String(), older.String()}) {
		t.Errorf("recorded versions after another replica has started = %v, want both", versions[accounts])
	}
}

// TestIncompatibleServersDoNotStart checks that a server refuses data and replicas of a release that is
// too old or too new.
func TestIncompatibleServersDoNotStart(t *testing.T) {
	const future = "authentication.open-cluster-management.io/v1"
	for _, test := range []struct {
		name            string
		first, second   []func(*storagemigration.Config)
		stopped, starts bool
		message         string
	}{
		{
			name: "the data contain a version that the server cannot read", stopped: true,
			first:   []func(*storagemigration.Config){storing(future, future, current.String())},
			message: "etcd contains " + accounts + " in version " + future + ", which this release cannot read",
		},
		{
			name:  "a replica stores a version that the server cannot read",
			first: []func(*storagemigration.Config){named("newer"), storing(future, future, current.String())}, second: []func(*storagemigration.Config){named("current")},
			message: "replica newer stores " + accounts + " in version " + future,
		},
		{
			name:  "a replica cannot read the version of the server",
			first: []func(*storagemigration.Config){named("oldest"), storing(older.String(), older.String())}, second: []func(*storagemigration.Config){named("current")},
			message: "replica oldest cannot read " + accounts + " in version " + current.String(),
		},
		{
			name:  "a replica stores an older version, and both read both",
			first: []func(*storagemigration.Config){named("older"), storing(older.String(), older.String(), current.String())}, second: []func(*storagemigration.Config){named("current")},
			starts: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			database := registrytest.StartDatabase(t)
			first := migratorOf(t, database, test.first...)
			if test.stopped {
				settle(t, first)
			}
			err := newMigrator(t, database, test.second...).Enter(t.Context())
			if test.starts {
				if err != nil {
					t.Errorf("Enter() = %v, want no error", err)
				}
				return
			}
			var incompatible *storagemigration.IncompatibleError
			if !errors.As(err, &incompatible) || !strings.Contains(err.Error(), test.message) {
				t.Errorf("Enter() = %v, want an IncompatibleError that contains %q", err, test.message)
			}
			replicas, err := database.Client(t).Get(t.Context(), etcdPrefix+storagemigration.ReplicaKey+"current", clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			if replicas.Count != 0 {
				t.Error("the server that refused to start is still known to the replicas, want it removed")
			}
		})
	}
}

// TestUnreadableObject checks that an object that cannot be decoded delays only its own resource, and
// that the error names it.
func TestUnreadableObject(t *testing.T) {
	database := registrytest.StartDatabase(t)
	names := putAccounts(t, database, 3)
	database.Put(t, keyOf("account-00001-broken"), []byte(`{"kind":"ManagedServiceAccount","apiVersion":"authentication.open-cluster-management.io/v0"}`))
	m := migratorOf(t, database)
	if _, err := m.Step(t.Context()); err == nil || !strings.Contains(err.Error(), namespace+"/account-00001-broken") {
		t.Errorf("Step() = %v, want an error that names %s/account-00001-broken", err, namespace)
	}
	for _, name := range names {
		if version, _ := storedAs(t, database, name); version != current.String() {
			t.Errorf("version of %s = %s, want %s", name, version, current)
		}
	}
	versions := recorded(t, database)
	if _, known := versions[accounts]; known || len(versions) == 0 {
		t.Errorf("recorded versions = %v, want those of all resources but %s", versions, accounts)
	}
}

// BenchmarkPass measures a pass over 50,000 accounts without the limits of the rate: one in which all
// are rewritten, and one in which none is.
func BenchmarkPass(b *testing.B) {
	database := registrytest.StartDatabase(b)
	putAccounts(b, database, 50_000)
	for _, test := range []string{"rewrite", "check"} {
		b.Run(test, func(b *testing.B) {
			for b.Loop() {
				if _, err := database.Client(b).Delete(b.Context(), etcdPrefix+storagemigration.RecordKey); err != nil {
					b.Fatal(err)
				}
				m := migratorOf(b, database)
				m.Unlimited()
				for after := time.Duration(0); after != storagemigration.Settled; {
					var err error
					if after, err = m.Step(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
