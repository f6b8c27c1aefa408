package clusteradm

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// archiveRegistry is the repository of images that a node has imported from the archives of a release.
const archiveRegistry = "docker.io/library"

// imageSettings choose the image of a program. Without settings, it is the installed one.
type imageSettings struct {
	image, registry, version string
}

// addFlags adds the flags. program describes what the image runs.
func (i *imageSettings) addFlags(flags *pflag.FlagSet, program string) {
	flags.StringVar(&i.image, "image", "", "Image of the "+program+". Overrides --image-registry.")
	flags.StringVar(&i.registry, "image-registry", "", "Repository with the images of a release, such as registry.example.com/project. Defaults to that of the installed image, or to "+archiveRegistry+", where nodes have the imported archives of a release.")
	flags.StringVar(&i.version, "bundle-version", "", "Version of the images in --image-registry. Defaults to the version of this command.")
}

// of returns the image of a program: that of the flags, the installed one, or that of this release, whose version is own.
func (i *imageSettings) of(name, installed, own string) (string, error) {
	registry := strings.TrimSuffix(i.registry, "/")
	if registry == "" && i.version != "" {
		found, _, ok := releaseImage(name, installed)
		switch {
		case i.image != "" || installed == "":
			return "", errors.New("--bundle-version requires --image-registry")
		case !ok:
			return "", fmt.Errorf("--image-registry or --image is required: the installed image %s does not name the repository of a release", printable(installed))
		}
		registry = found
	}
	switch {
	case i.image != "":
		return i.image, nil
	case registry == "" && installed != "":
		return installed, nil
	}
	tag := cmp.Or(i.version, own)
	if tag == version.Unknown {
		return "", errors.New("--image, or --image-registry and --bundle-version, are required: this clusteradm was built without a version")
	}
	return cmp.Or(registry, archiveRegistry) + "/" + name + ":" + tag, nil
}

// releaseImage returns the repository and the version of an image of a release. ok is false for another image.
func releaseImage(name, image string) (registry, tag string, ok bool) {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		image, tag = image[:at], image[at+1:]
	}
	registry, ok = strings.CutSuffix(image, "/"+name)
	return registry, tag, ok && registry != ""
}
