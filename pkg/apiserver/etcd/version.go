package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// MinimumVersion is the oldest release of etcd that a server accepts. Earlier releases lose events of watches after
// a compaction (etcd#17529), or send no progress notifications (etcd#17566), so the caches of the server would
// silently miss changes. Releases before 3.5.3 can also lose acknowledged writes.
const MinimumVersion = "3.5.13"

const (
	versionTimeout = 5 * time.Second
	versionPeriod  = 10 * time.Second
)

var minimumVersion = version.MustParseSemantic(MinimumVersion)

// VersionError is the error of an etcd member whose release is older than MinimumVersion.
type VersionError struct {
	Endpoint, Version string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("etcd member %s has version %s: Unsupported value: watches of releases before %s lose events; upgrade it to %s or later",
		e.Endpoint, e.Version, MinimumVersion, MinimumVersion)
}

// CheckVersions reads the version of each member. It returns a VersionError if a member is too old, and false if one does not
// respond within some seconds.
func (c *Clusters) CheckVersions(ctx context.Context) (all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	errs := c.eachMember(func(endpoint string, client *clientv3.Client) error { return checkVersion(ctx, client, endpoint) })
	var tooOld []error
	all = true
	for endpoint, err := range errs {
		if outdated := (*VersionError)(nil); errors.As(err, &outdated) {
			tooOld = append(tooOld, err)
		} else if err != nil {
			klog.FromContext(ctx).Info("Cannot read the version of an etcd member yet", "endpoint", endpoint, "reason", err)
			all = false
		}
	}
	return all, errors.Join(tooOld...)
}

// AwaitVersions calls CheckVersions until all members have responded, a member is too old, or ctx ends.
func (c *Clusters) AwaitVersions(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, versionPeriod, false, c.CheckVersions)
}

func checkVersion(ctx context.Context, client *clientv3.Client, endpoint string) error {
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	found, err := version.ParseSemantic(strings.TrimSpace(status.Version))
	if err != nil || found.LessThan(minimumVersion) {
		return &VersionError{Endpoint: endpoint, Version: status.Version}
	}
	return nil
}
