package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/testutil"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// accountsPrefix begins the keys of ManagedServiceAccounts.
	accountsPrefix = storagePrefix + "/authentication.open-cluster-management.io/managedserviceaccounts/"
	// recordKey is the key of the versions of stored objects.
	recordKey = storagePrefix + "/storage-versions/record"
)

// TestMigrationSurvivesKill starts the server on accounts in an older version, and kills it while it
// migrates them. The next start migrates the rest, and the one after that writes nothing.
func TestMigrationSurvivesKill(t *testing.T) {
	t.Parallel()
	const number = 2000
	// Compaction writes a key of its own.
	f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{"--etcd-compaction-interval=0"}})
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	withData(t, func(ctx context.Context, client *clientv3.Client) {
		storeOlder(ctx, t, client, number)
		// The data of a release without migrations have no record.
		if _, err := client.Delete(ctx, recordKey); err != nil {
			t.Fatal(err)
		}
	})
	if err := f.Server.Launch(); err != nil {
		t.Fatal(err)
	}
	endpoint := "unix://" + filepath.Join(dataDir(t), "client")
	// state waits until the server runs etcd. It returns how many accounts are stored in the older
	// version, and the revision of etcd.
	state := func() (left int, revision int64) {
		withEtcd(t, endpoint, func(ctx context.Context, client *clientv3.Client) {
			left, revision = countOlder(ctx, t, client, number)
		})
		return left, revision
	}
	framework.Eventually(t, "some accounts are migrated", func(context.Context) error {
		if left, _ := state(); left == number {
			return fmt.Errorf("%d of %d accounts are stored in %s", left, number, older)
		}
		return nil
	})
	if left, _ := state(); left == 0 {
		t.Fatal("all accounts are migrated before the kill, want some left")
	}
	if err := f.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	restart(t, f)
	left, written := state()
	if left != 0 {
		t.Errorf("accounts in %s after the migration = %d, want 0", older, left)
	}
	unchanged(t, f)
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	restart(t, f)
	if _, revision := state(); revision != written {
		t.Errorf("revision of etcd after another start = %d, want %d", revision, written)
	}
}

// TestMigrationOfOverriddenResource migrates accounts that have an etcd of their own. The record of versions is in the
// other etcd, and must say that the accounts are migrated only after they are.
func TestMigrationOfOverriddenResource(t *testing.T) {
	t.Parallel()
	const number = 100
	dir := framework.OwnDir(t)
	common, accounts := framework.OwnEtcd(t, "common", dir), framework.OwnEtcd(t, "accounts", dir)
	f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{
		"--etcd-servers=" + common.Endpoint, "--search-data-dir=" + filepath.Join(dir, "search"), "--etcd-compaction-interval=0",
		"--etcd-servers-overrides=" + older.Group + "/managedserviceaccounts#" + accounts.Endpoint,
	}})
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	withEtcd(t, accounts.Endpoint, func(ctx context.Context, client *clientv3.Client) { storeOlder(ctx, t, client, number) })
	withEtcd(t, common.Endpoint, func(ctx context.Context, client *clientv3.Client) {
		if _, err := client.Delete(ctx, recordKey); err != nil {
			t.Fatal(err)
		}
	})
	state := func() (left int, revision int64, versions []string) {
		withEtcd(t, common.Endpoint, func(ctx context.Context, client *clientv3.Client) {
			var record struct{ Versions map[string][]string }
			answer, err := client.Get(ctx, recordKey)
			if err != nil || len(answer.Kvs) != 1 || json.Unmarshal(answer.Kvs[0].Value, &record) != nil {
				t.Fatalf("record of versions = %v, %v, want one", answer, err)
			}
			versions = record.Versions["managedserviceaccounts."+older.Group]
		})
		withEtcd(t, accounts.Endpoint, func(ctx context.Context, client *clientv3.Client) {
			left, revision = countOlder(ctx, t, client, number)
			foreign, err := client.Get(ctx, storagePrefix+"/storage-versions/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil || foreign.Count != 0 {
				t.Errorf("keys of versions in the etcd of the accounts = %v, %v, want none", foreign, err)
			}
		})
		return left, revision, versions
	}
	restart(t, f)
	left, written, versions := state()
	if left != 0 || len(versions) != 1 || versions[0] == older.Version {
		t.Errorf("accounts in %s after the migration = %d, versions in the record = %v, want none, and the current version only", older, left, versions)
	}
	unchanged(t, f)
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	restart(t, f)
	if _, revision, _ := state(); revision != written {
		t.Errorf("revision of the etcd of the accounts after another start = %d, want %d", revision, written)
	}
}

// older is a version in which earlier releases stored accounts.
var older = authenticationv1alpha1.SchemeGroupVersion

// storeOlder writes accounts in the older version.
func storeOlder(ctx context.Context, t *testing.T, client *clientv3.Client, number int) {
	t.Helper()
	for i := range number {
		account := &authenticationv1alpha1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: framework.Cluster1, Name: fmt.Sprintf("account-%d", i), UID: "e0f4", Generation: 3, CreationTimestamp: metav1.Now(),
		}}
		account.Spec.Rotation.Validity = time.Hour.String()
		content, err := runtime.Encode(scheme.Codecs.LegacyCodec(older), account)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(ctx, accountsPrefix+framework.Cluster1+"/"+account.Name, string(content)); err != nil {
			t.Fatal(err)
		}
	}
}

// countOlder returns how many accounts are stored in the older version, and the revision of etcd.
func countOlder(ctx context.Context, t *testing.T, client *clientv3.Client, number int) (left int, revision int64) {
	t.Helper()
	answer, err := client.Get(ctx, accountsPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != number {
		t.Errorf("number of stored accounts = %d, want %d", len(answer.Kvs), number)
	}
	for _, kv := range answer.Kvs {
		if bytes.Contains(kv.Value, []byte(`"apiVersion":"`+older.String()+`"`)) {
			left++
		}
	}
	return left, answer.Header.Revision
}

// unchanged checks that the accounts are those that storeOlder wrote.
func unchanged(t *testing.T, f *framework.Fleet) {
	t.Helper()
	accounts := framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	for _, account := range accounts.Items {
		if account.Generation != 3 || account.UID != "e0f4" || account.Spec.Rotation.Validity != time.Hour.String() {
			t.Errorf("account after the migration = %+v, want the generation, the uid and the spec that were stored", account)
		}
	}
}

// restart starts the server, and waits until it has nothing to migrate.
func restart(t *testing.T, f *framework.Fleet) {
	t.Helper()
	if err := f.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := framework.Direct(t, f.Server)
	framework.Eventually(t, "the server has nothing to migrate", func(ctx context.Context) error {
		raw, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		measured := testutil.NewMetrics()
		if err := testutil.ParseMetrics(string(raw), &measured); err != nil {
			return err
		}
		pending := measured["hub_apiserver_storage_migration_pending"]
		if len(pending) == 0 {
			return fmt.Errorf("the server does not lead yet")
		}
		for _, sample := range pending {
			if sample.Value != 0 {
				return fmt.Errorf("%s is %v", sample.Metric, sample.Value)
			}
		}
		return nil
	})
}
