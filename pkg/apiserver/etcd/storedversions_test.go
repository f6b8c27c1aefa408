package etcd

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

// TestRecordVersions checks that a server refuses data of a release that stores a version which it cannot read.
func TestRecordVersions(t *testing.T) {
	const things, other = "things.example.com", "others.example.com"
	server := start(t, filepath.Join(t.TempDir(), "data"))
	cluster := &Cluster{Prefix: prefix, Client: server.client}
	for _, test := range []struct {
		name     string
		resource StoredVersions
		refused  bool
		recorded []string
	}{
		{"the first server", StoredVersions{things, "v1", []string{"v1"}}, false, []string{"v1"}},
		{"the next release", StoredVersions{things, "v2", []string{"v1", "v2"}}, false, []string{"v1", "v2"}},
		{"the first release again", StoredVersions{things, "v1", []string{"v1"}}, true, []string{"v1", "v2"}},
		{"a release that has dropped v1", StoredVersions{things, "v2", []string{"v2"}}, true, []string{"v1", "v2"}},
		{"a server with another resource", StoredVersions{other, "v1", []string{"v1"}}, false, []string{"v1", "v2"}},
	} {
		err := cluster.RecordVersions(t.Context(), []StoredVersions{test.resource})
		if errors.As(err, new(UnusableError)) != test.refused || !test.refused && err != nil {
			t.Errorf("RecordVersions() of %s = %v, want refused %t", test.name, err, test.refused)
		}
		var record versionRecord
		if err := json.Unmarshal([]byte(value(t, server, prefix+recordKey)), &record); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(record.Versions[things], test.recorded) {
			t.Errorf("recorded versions after %s = %q, want %q", test.name, record.Versions[things], test.recorded)
		}
	}
}
