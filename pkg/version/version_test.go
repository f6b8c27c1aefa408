package version

import "testing"

func TestSplit(t *testing.T) {
	for stamp, want := range map[string][2]string{
		"v1.37.2+hub-apiserver.v0.1.0":                              {"v0.1.0", "v1.37.2"},
		"v1.37.2+hub-apiserver.v0.0.0-20261124020326-773cf8d-dirty": {"v0.0.0-20261124020326-773cf8d-dirty", "v1.37.2"},
		"v0.0.0-master+$Format:%H$":                                 {"unknown", "v0.0.0-master+$Format:%H$"},
	} {
		if own, libraries := split(stamp); own != want[0] || libraries != want[1] {
			t.Errorf("split(%s) = %s, %s, want %s, %s", stamp, own, libraries, want[0], want[1])
		}
	}
}

func TestDocs(t *testing.T) {
	for own, want := range map[string]string{
		"v0.1.0":                              "https://github.com/open-cluster-management-io/hub-apiserver/blob/v0.1.0/docs/limits.md",
		"v0.0.0-20261124020326-773cf8d-dirty": "https://github.com/open-cluster-management-io/hub-apiserver/blob/main/docs/limits.md",
		Unknown:                               "https://github.com/open-cluster-management-io/hub-apiserver/blob/main/docs/limits.md",
	} {
		if got := docs(own, "limits.md"); got != want {
			t.Errorf("docs(%s, limits.md) = %s, want %s", own, got, want)
		}
	}
}
