package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// revisionBump and etcdPrefix are those of docs/backup.md.
	revisionBump = 1_000_000_000
	etcdPrefix   = "/registry/open-cluster-management.io"
)

// restoration is what the agent must keep after a restore until it is confirmed.
type restoration struct {
	// works are the ManifestWorks that the snapshot does not contain as they were.
	works []string
	// kept are the UIDs of all objects of ManifestWorks on the managed cluster. lost are those that the restored hub
	// does not know.
	kept map[string]types.UID
	lost []string
}

// restoreSnapshot restores etcd as docs/backup.md describes for a cluster, while the agent runs.
func restoreSnapshot(ctx context.Context, c *campaign) (note string, err error) {
	known, grown, unknown := framework.Unique("known"), framework.Unique("grown"), framework.Unique("unknown")
	for _, name := range []string{known, grown} {
		if err := c.apply(ctx, name); err != nil {
			return "", err
		}
	}
	file := filepath.Join(filepath.Dir(c.Etcd.Members[0].LogFile), "snapshot.db")
	if err := c.saveSnapshot(ctx, file); err != nil {
		return "", err
	}
	saved, err := snapshot.NewV3(zap.NewNop()).Status(file)
	if err != nil {
		return "", err
	}
	// The snapshot does not contain this, nor what the clients write meanwhile.
	if err := errors.Join(c.apply(ctx, grown, grown+"-more"), c.apply(ctx, unknown), c.hold(ctx)); err != nil {
		return "", err
	}
	c.restore = &restoration{works: []string{grown, unknown}, lost: []string{grown + "-more", unknown}, kept: map[string]types.UID{}}
	for _, name := range append([]string{known, grown}, c.restore.lost...) {
		object, err := c.ManagedClient.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		c.restore.kept[name] = object.UID
	}

	if err := c.eachReplica(func(replica *localhub.Replica) error { return replica.Terminate(ctx) }); err != nil {
		return "", err
	}
	for _, member := range c.Etcd.Members {
		if err := member.Stop(ctx); err != nil {
			return "", err
		}
	}
	c.history.Restored(saved.Revision, saved.Revision+revisionBump)
	for _, member := range c.Etcd.Members {
		if err := restoreMember(member, file); err != nil {
			return "", err
		}
	}
	if err := errors.Join(c.Etcd.Start(ctx), c.markRestored(ctx)); err != nil {
		return "", err
	}
	err = c.eachReplica(func(replica *localhub.Replica) error { return replica.Start(ctx) })
	return fmt.Sprintf("Writes of %.0f s after the snapshot are lost by intention, and nothing else. The agent keeps all objects until `clusteradm restore confirm`", c.pause.Seconds()), err
}

// apply creates or updates a ManifestWork with ConfigMaps of its name and of further names, and waits until they exist.
func (c *campaign) apply(ctx context.Context, name string, more ...string) error {
	var manifests []string
	for _, name := range more {
		manifests = append(manifests, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"}}`, name))
	}
	works, want := c.OCM.WorkV1().ManifestWorks(framework.Cluster1), framework.ConfigMapWork(name, manifests...)
	if len(more) == 0 {
		if _, err := works.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return err
		}
	} else {
		patch, err := json.Marshal(map[string]any{"spec": want.Spec})
		if err != nil {
			return err
		}
		if _, err := works.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		for _, name := range append([]string{name}, more...) {
			if _, err := c.ManagedClient.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// saveSnapshot does what etcdctl snapshot save does.
func (c *campaign) saveSnapshot(ctx context.Context, path string) error {
	client, err := c.Etcd.Client(c.Etcd.Endpoints[0])
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	content, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// restoreMember does what etcdutl snapshot restore does.
func restoreMember(member *localhub.EtcdMember, file string) error {
	value := func(flag string) string {
		for _, arg := range member.Args {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				return value
			}
		}
		return ""
	}
	if err := os.RemoveAll(member.Data); err != nil {
		return err
	}
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: member.Data, Name: value("--name"), PeerURLs: []string{value("--initial-advertise-peer-urls")},
		InitialCluster: value("--initial-cluster"), InitialClusterToken: value("--initial-cluster-token"),
		RevisionBump: revisionBump, MarkCompacted: true,
	})
}

func (c *campaign) markRestored(ctx context.Context) error {
	client, err := c.Etcd.Client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	mark, err := json.Marshal(map[string]string{"id": uuid.NewString(), "time": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	_, err = client.Put(ctx, etcd.MarkKey(etcdPrefix), string(mark))
	return err
}

// eachReplica calls a function for all replicas at the same time.
func (c *campaign) eachReplica(call func(*localhub.Replica) error) error {
	done := make(chan error, len(c.Replicas))
	for _, replica := range c.Replicas {
		go func() { done <- call(replica) }()
	}
	var errs []error
	for range c.Replicas {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// confirmRestore checks that the agent keeps all objects, reports those that the hub does not know, and deletes these,
// and only these, when an administrator confirms the restore.
func confirmRestore(ctx context.Context, c *campaign) error {
	err := await.Poll(ctx, func(ctx context.Context) error {
		cluster, err := c.OCM.ClusterV1().ManagedClusters().Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err != nil {
			return err
		}
		retained := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionObjectsRetained)
		for _, work := range c.restore.works {
			if retained == nil || !strings.Contains(retained.Message, "manifestworks/"+work) {
				return fmt.Errorf("condition ObjectsRetained = %v, want %s", retained, work)
			}
		}
		return nil
	})
	if err := errors.Join(err, c.hold(ctx)); err != nil {
		return err
	}
	if err := c.sameObjects(ctx, nil); err != nil {
		return fmt.Errorf("before the confirmation: %w", err)
	}
	if _, err := c.Administrator.Run(ctx, c.Hub, "restore", "confirm", framework.Cluster1); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error { return c.sameObjects(ctx, c.restore.lost) })
}

// sameObjects returns an error if an object of the managed cluster was deleted or created again, except for objects that
// must not exist.
func (c *campaign) sameObjects(ctx context.Context, gone []string) error {
	list, err := c.ManagedClient.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	found := map[string]types.UID{}
	for _, object := range list.Items {
		found[object.Name] = object.UID
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.restore.kept)) {
		want := c.restore.kept[name]
		if slices.Contains(gone, name) {
			want = ""
		}
		if found[name] != want {
			errs = append(errs, fmt.Errorf("UID of ConfigMap %s on the managed cluster = %q, want %q", name, found[name], want))
		}
	}
	return errors.Join(errs...)
}
