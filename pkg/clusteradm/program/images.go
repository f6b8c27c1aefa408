package program

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// ArchiveRegistry is the repository of images that a node has imported from the archives of a release.
const ArchiveRegistry = "docker.io/library"

// Images choose the image of a program. Without settings, it is the installed one.
type Images struct {
	Image, Registry, Version string
}

// AddFlags adds the flags. program describes what the image runs.
func (i *Images) AddFlags(flags *pflag.FlagSet, program string) {
	flags.StringVar(&i.Image, "image", "", "Image of the "+program+". Overrides --image-registry.")
	flags.StringVar(&i.Registry, "image-registry", "", "Repository with the images of a release, such as registry.example.com/project. Defaults to that of the installed image, or to "+ArchiveRegistry+", where nodes have the imported archives of a release.")
	flags.StringVar(&i.Version, "bundle-version", "", "Version of the images in --image-registry. Defaults to the version of this command.")
}

// Of returns the image of a program: that of the flags, the installed one, or that of this release, whose version is own.
func (i *Images) Of(name, installed, own string) (string, error) {
	registry := strings.TrimSuffix(i.Registry, "/")
	if registry == "" && i.Version != "" {
		found, _, ok := ReleaseOf(name, installed)
		switch {
		case i.Image != "" || installed == "":
			return "", errors.New("--bundle-version requires --image-registry")
		case !ok:
			return "", fmt.Errorf("--image-registry or --image is required: the installed image %s does not name the repository of a release", cli.Printable(installed))
		}
		registry = found
	}
	switch {
	case i.Image != "":
		return i.Image, nil
	case registry == "" && installed != "":
		return installed, nil
	}
	tag := cmp.Or(i.Version, own)
	if tag == version.Unknown {
		return "", errors.New("--image, or --image-registry and --bundle-version, are required: this clusteradm was built without a version")
	}
	return cmp.Or(registry, ArchiveRegistry) + "/" + name + ":" + tag, nil
}

// ReleaseOf returns the repository and the version of an image of a release. ok is false for another image.
func ReleaseOf(name, image string) (registry, tag string, ok bool) {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		image, tag = image[:at], image[at+1:]
	}
	registry, ok = strings.CutSuffix(image, "/"+name)
	return registry, tag, ok && registry != ""
}
