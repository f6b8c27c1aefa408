package clusteradm

import (
	"strings"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// imageSettings choose the image of a program. Without settings, it is the image in the manifests.
type imageSettings struct {
	image, registry, version string
}

// addFlags adds the flags. program describes what the image runs.
func (i *imageSettings) addFlags(flags *pflag.FlagSet, program string) {
	flags.StringVar(&i.image, "image", "", "Image of the "+program+". Overrides --image-registry.")
	flags.StringVar(&i.registry, "image-registry", "", "Repository with the images of a release, such as registry.example.com/project. Defaults to the images in the manifests.")
	flags.StringVar(&i.version, "bundle-version", "", "Version of the images in --image-registry. Defaults to the version of this command.")
}

// of returns the image of a program, from the image in its manifest.
func (i *imageSettings) of(manifest string) string {
	switch {
	case i.image != "":
		return i.image
	case i.registry == "":
		return manifest
	}
	name, _, _ := strings.Cut(manifest, ":")
	tag := i.version
	if tag == "" {
		tag = version.Short()
	}
	return strings.TrimSuffix(i.registry, "/") + "/" + name + ":" + tag
}
