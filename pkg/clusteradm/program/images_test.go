package program

import (
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// Without flags, the image is the installed one, or the release of the command: never one without a tag or a registry.
func TestImages(t *testing.T) {
	const registry = "registry.example.com:5000/project"
	for name, test := range map[string]struct {
		settings       Images
		installed, own string
		want, wantErr  string
	}{
		"new":                           {Images{}, "", "v0.2.0", ArchiveRegistry + "/hub-apiserver:v0.2.0", ""},
		"new, of a registry":            {Images{Registry: registry + "/"}, "", "v0.2.0", registry + "/hub-apiserver:v0.2.0", ""},
		"new, of a version":             {Images{Registry: registry, Version: "v0.1.0"}, "", "v0.2.0", registry + "/hub-apiserver:v0.1.0", ""},
		"new, another image":            {Images{Registry: registry, Image: "other:v2"}, "", "v0.2.0", "other:v2", ""},
		"version without a registry":    {Images{Version: "v0.1.0"}, "", "v0.2.0", "", "--bundle-version requires --image-registry"},
		"version of another image":      {Images{Image: "other:v2", Version: "v0.1.0"}, "", "v0.2.0", "", "--bundle-version requires --image-registry"},
		"command without a version":     {Images{}, "", version.Unknown, "", "built without a version"},
		"registry without a version":    {Images{Registry: registry}, "", version.Unknown, "", "built without a version"},
		"installed":                     {Images{}, registry + "/hub-apiserver:v0.1.0", "v0.2.0", registry + "/hub-apiserver:v0.1.0", ""},
		"installed by other means":      {Images{}, "hub-apiserver:dev", version.Unknown, "hub-apiserver:dev", ""},
		"installed, another version":    {Images{Version: "v0.3.0"}, registry + "/hub-apiserver:v0.1.0@sha256:0", "v0.2.0", registry + "/hub-apiserver:v0.3.0", ""},
		"installed, another registry":   {Images{Registry: "other.example.com"}, registry + "/hub-apiserver:v0.1.0", "v0.2.0", "other.example.com/hub-apiserver:v0.2.0", ""},
		"version of an unknown image":   {Images{Version: "v0.3.0"}, "registry.example.com/server:v1", "v0.2.0", "", "the installed image registry.example.com/server:v1"},
		"version of one without a path": {Images{Version: "v0.3.0"}, "hub-apiserver:dev", "v0.2.0", "", "the installed image hub-apiserver:dev"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.settings.Of("hub-apiserver", test.installed, test.own)
			if got != test.want || (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("Of(hub-apiserver, %q, %s) with %+v = %s, %v, want %s, an error with %q", test.installed, test.own, test.settings, got, err, test.want, test.wantErr)
			}
		})
	}
}
