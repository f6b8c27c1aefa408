package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// smallDisks returns a directory for each etcd member on a small file system of its own, until the end of the test.
func smallDisks(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	for i := range framework.Replicas {
		path := filepath.Join(dir, fmt.Sprintf("disk-%d", i))
		if err := errors.Join(os.MkdirAll(path, 0o700), mountDisk(t, path, diskBytes)); err != nil {
			t.Fatal(err)
		}
		out = append(out, filepath.Join(path, "data"))
	}
	return out
}

// mountDisk mounts a small file system until the end of the test. Processes that use it must end first, by a cleanup
// that is registered later.
func mountDisk(t *testing.T, path string, bytes int) error {
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", bytes)); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(path, syscall.MNT_DETACH), os.RemoveAll(path)); err != nil {
			t.Error(err)
		}
	})
	return nil
}

// fill fills a disk, and returns a function that frees the space.
func fill(disk string) (free func() error, err error) {
	path := filepath.Join(disk, "filler")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	free = func() error { return os.Remove(path) }
	// Everything up to the last byte: a file can still be created, but not written.
	for block := 1 << 20; block >= 1; {
		if _, err := file.Write(make([]byte, block)); errors.Is(err, syscall.ENOSPC) {
			block /= 16
		} else if err != nil {
			return nil, errors.Join(err, file.Close(), free())
		}
	}
	return free, file.Close()
}

// ballast is the key of the values that fill a disk, and ballastBytes the size of each.
const (
	ballast      = "ballast"
	ballastBytes = 1 << 20
)

// fillDisks fills the disks of members, and writes until each of them has ended because its database cannot grow:
// the files of the log are reserved, so without these writes a full disk has no effect. After the duration of a fault,
// it frees the space and starts the members again.
func (c *campaign) fillDisks(ctx context.Context, members ...*localhub.EtcdMember) (note string, err error) {
	var free []func() error
	var errs []error
	for _, member := range members {
		mend, err := fill(filepath.Dir(member.Data))
		if err != nil {
			errs = append(errs, err)
			break
		}
		free = append(free, mend)
	}
	ended := 0
	if len(errs) == 0 {
		ended, err = c.exhaust(ctx, members)
		errs = append(errs, err, c.hold(ctx))
	}
	for _, mend := range free {
		errs = append(errs, mend())
	}
	for _, member := range members {
		if !member.Running() {
			errs = append(errs, member.Launch())
		}
	}
	for _, member := range members {
		errs = append(errs, member.WaitReady(ctx))
	}
	return fmt.Sprintf("%d of %d members ended with `no space left on device`", ended, len(c.Etcd.Members)), errors.Join(errs...)
}

// exhaust writes to etcd until the members with a full disk have ended, and checks that they have ended for this reason.
// When most members have ended, nothing more can be written, so the others still run.
func (c *campaign) exhaust(ctx context.Context, members []*localhub.EtcdMember) (ended int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := c.Etcd.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	want := min(len(members), len(c.Etcd.Members)/2+1)
	for ended < want && ctx.Err() == nil {
		// A put fails when most members, or the leader, have ended.
		putting, cancel := context.WithTimeout(ctx, time.Second)
		_, _ = client.Put(putting, ballast, strings.Repeat("x", ballastBytes))
		cancel()
		ended = 0
		for _, member := range members {
			if !member.Running() {
				ended++
			}
		}
	}
	var errs []error
	for _, member := range members {
		switch {
		case member.Running() && ended < want:
			errs = append(errs, fmt.Errorf("%s runs on a full disk%s", member.Name, member.LogTail()))
		case !member.Running() && !strings.Contains(member.LogTail(), syscall.ENOSPC.Error()):
			errs = append(errs, fmt.Errorf("%w, want: %w", member.Failure(), syscall.ENOSPC))
		}
	}
	return ended, errors.Join(errs...)
}

func fillMember(ctx context.Context, c *campaign) (string, error) {
	i, err := c.Etcd.Leader(ctx)
	if err != nil {
		return "", err
	}
	return c.fillDisks(ctx, c.Etcd.Members[i])
}

func fillEtcd(ctx context.Context, c *campaign) (string, error) {
	return c.fillDisks(ctx, c.Etcd.Members...)
}

// postgresDiskBytes is the size of the disk of PostgreSQL.
const postgresDiskBytes = 384 << 20

// fillPostgres fills the disk of PostgreSQL, and creates objects on the managed cluster until PostgreSQL cannot store
// what its agent reports. When there is space again, searches must find all of them.
func fillPostgres(ctx context.Context, c *campaign) (note string, err error) {
	const label, batch = "campaign.example.com/reported", 50
	name := framework.Unique("reported")
	objects := c.ManagedClient.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	free, err := fill(c.Postgres.Directory())
	if err != nil {
		return "", err
	}
	before := c.Postgres.Log()
	created := 0
	full := await.Poll(ctx, func(ctx context.Context) error {
		if strings.Contains(strings.TrimPrefix(c.Postgres.Log(), before), "No space left on device") {
			return nil
		}
		for range batch {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, created), Labels: map[string]string{label: name}}}
			for i := range 10 {
				object.Labels[fmt.Sprintf("campaign.example.com/%d", i)] = fmt.Sprintf("%060d", created)
			}
			if _, err := objects.Create(ctx, object, metav1.CreateOptions{}); err != nil {
				return err
			}
			created++
		}
		return fmt.Errorf("PostgreSQL has stored %d objects on a full disk: %s", created, c.Postgres.Log())
	})
	err = errors.Join(full, c.hold(ctx), free())
	ended := !c.Postgres.Running()
	if ended {
		err = errors.Join(err, c.Postgres.Start(ctx))
	}
	if err != nil {
		return "", err
	}
	began := time.Now()
	err = await.Poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		found, err := c.OCM.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
			SearchTerms: searchv1alpha1.SearchTerms{Query: "kind:ConfigMap label:" + label + "=" + name}, Output: searchv1alpha1.OutputCount,
		}}}, metav1.CreateOptions{})
		if err == nil && found.Status.Count != int64(created) {
			return fmt.Errorf("the search found %d objects, want %d", found.Status.Count, created)
		}
		return err
	})
	took := time.Since(began)
	if took > bar {
		err = errors.Join(err, fmt.Errorf("the objects are found after %s, want at most %s", took, bar))
	}
	note = fmt.Sprintf("%d objects that were created on a full disk are found %.0f s after its end", created, took.Seconds())
	if ended {
		note = "PostgreSQL ended and was started again. " + note
	}
	return note, errors.Join(err, objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: label + "=" + name}))
}
