package clusteradm

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

func TestImages(t *testing.T) {
	for _, test := range []struct {
		settings imageSettings
		want     string
	}{
		{imageSettings{}, "hub-apiserver:latest"},
		{imageSettings{version: "v1"}, "hub-apiserver:latest"},
		{imageSettings{registry: "registry.example.com:5000/project/"}, "registry.example.com:5000/project/hub-apiserver:" + version.Short()},
		{imageSettings{registry: "registry.example.com/project", version: "v1"}, "registry.example.com/project/hub-apiserver:v1"},
		{imageSettings{registry: "registry.example.com/project", image: "other:v2"}, "other:v2"},
	} {
		if got := test.settings.of("hub-apiserver:latest"); got != test.want {
			t.Errorf("of(hub-apiserver:latest) with %+v = %s, want %s", test.settings, got, test.want)
		}
	}
}
