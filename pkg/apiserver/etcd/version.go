package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// CheckVersions reads the version of each member. It returns a VersionError if a member is too old. It returns the
// endpoints that do not respond within some seconds: a server must start while a member is down.
func (c *Clusters) CheckVersions(ctx context.Context) (silent []string, err error) {
	return c.checkVersions(ctx, slices.Collect(maps.Keys(c.members)))
}

func (c *Clusters) checkVersions(ctx context.Context, endpoints []string) (silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	errs := make([]error, len(endpoints))
	var checks sync.WaitGroup
	for i, endpoint := range endpoints {
		checks.Go(func() { errs[i] = checkVersion(ctx, c.members[endpoint], endpoint) })
	}
	checks.Wait()
	var tooOld []error
	for i, err := range errs {
		if outdated := (*VersionError)(nil); errors.As(err, &outdated) {
			tooOld = append(tooOld, err)
		} else if err != nil {
			klog.FromContext(ctx).Info("Cannot read the version of an etcd member yet", "endpoint", endpoints[i], "reason", err)
			silent = append(silent, endpoints[i])
		}
	}
	return silent, errors.Join(tooOld...)
}

// AwaitVersions checks the members that did not respond to CheckVersions, until each of them has responded or ctx
// ends. It returns a VersionError if a member is too old.
func (c *Clusters) AwaitVersions(ctx context.Context, silent []string) error {
	err := wait.PollUntilContextCancel(ctx, versionPeriod, false, func(ctx context.Context) (bool, error) {
		var err error
		silent, err = c.checkVersions(ctx, silent)
		return len(silent) == 0, err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
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
