package etcd

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	etcdversion "go.etcd.io/etcd/api/v3/version"
)

// TestCheckVersions lets a real etcd report other versions than its own.
func TestCheckVersions(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "data"))
	own := etcdversion.Version
	t.Cleanup(func() { etcdversion.Version = own })
	for reported, accepted := range map[string]bool{
		own: true, "3.5.13": true, "3.6.0-rc.1": true, "4.0.0": true,
		"3.5.12": false, "3.5.13-rc.0": false, "3.4.31": false, "unknown": false,
	} {
		etcdversion.Version = reported
		silent, err := CheckVersions(t.Context(), server.client, []string{server.Endpoint()})
		if len(silent) > 0 {
			t.Fatalf("CheckVersions() = %q, want the version of every member", silent)
		}
		if outdated := (*VersionError)(nil); errors.As(err, &outdated) == accepted || !accepted && !strings.Contains(err.Error(), reported) {
			t.Errorf("CheckVersions() of an etcd %s = %v, want accepted %t", reported, err, accepted)
		}
	}
}

// TestCheckVersionsOfSilentMember checks that a server can start while a member is down.
func TestCheckVersionsOfSilentMember(t *testing.T) {
	server := start(t, filepath.Join(t.TempDir(), "data"))
	down := "unix://" + filepath.Join(t.TempDir(), "down")
	silent, err := CheckVersions(t.Context(), server.client, []string{server.Endpoint(), down})
	if err != nil || len(silent) != 1 || silent[0] != down {
		t.Errorf("CheckVersions() = %q, %v, want %s and no error", silent, err, down)
	}
}
