package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// TestRewrite stores accounts in an older version, and rewrites them with the commands of docs/upgrade.md.
func TestRewrite(t *testing.T) {
	t.Parallel()
	const number = 20
	withData(t, func(ctx context.Context, client *clientv3.Client) { storeOlder(ctx, t, client, number) })
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	all, err := f.Kubectl(t, "", "get", "managedserviceaccounts."+older.Group, "--all-namespaces", "--output=json")
	if err != nil {
		t.Fatal(all)
	}
	if out, err := f.Kubectl(t, all, "replace", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	withEtcd(t, "unix://"+filepath.Join(dataDir(t), "client"), func(ctx context.Context, client *clientv3.Client) {
		if left := countOlder(ctx, t, client, number); left != 0 {
			t.Errorf("accounts in %s after the rewrite = %d, want 0", older, left)
		}
	})
	accounts := framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	for _, account := range accounts.Items {
		if account.Generation != 3 || account.UID != "e0f4" || account.Spec.Rotation.Validity != time.Hour.String() {
			t.Errorf("account after the rewrite = %+v, want the generation, the uid and the spec that were stored", account)
		}
	}
}

// TestDataOfANewerReleaseAreRefused starts the server on data that contain a version which it cannot read.
func TestDataOfANewerReleaseAreRefused(t *testing.T) {
	t.Parallel()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	resource := "managedserviceaccounts." + older.Group
	withData(t, func(ctx context.Context, client *clientv3.Client) {
		record := fmt.Sprintf(`{"versions":{%q:[%q]}}`, resource, older.Group+"/v9")
		if _, err := client.Put(ctx, recordKey, record); err != nil {
			t.Fatal(err)
		}
	})
	want := "etcd contains " + resource + " in version " + older.Group + "/v9, which this release cannot read"
	if err := f.Server.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Start() on data of a newer release = %v, want %q", err, want)
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

// countOlder returns how many accounts are stored in the older version.
func countOlder(ctx context.Context, t *testing.T, client *clientv3.Client, number int) (left int) {
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
	return left
}
