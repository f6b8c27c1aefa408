package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is the user of the programs in images. It has no privileges and no name.
	user = "65532:65532"
	// roots is where Go looks for the certificate authorities of the system.
	roots   = "etc/ssl/certs/ca-certificates.crt"
	license = "Apache-2.0"
	source  = "https://open-cluster-management.io/hub-apiserver"
	// annotation is the one that containerd and Docker take as the name of an image in an archive.
	annotation = "io.containerd.image.name"
	tag        = "org.opencontainers.image.ref.name"
)

// images maps the name of each image to its program.
var images = []struct{ name, program, title string }{
	{"hub-apiserver", "apiserver", "API server of an Open Cluster Management hub"},
	{"hub-apiserver-agent", "agent", "Agent of a managed cluster of an Open Cluster Management hub"},
}

// images writes an archive of each image for all platforms, and pushes it if the release has a repository.
func (r *release) images(ctx context.Context) error {
	for _, image := range images {
		var built []*program
		for _, on := range linux {
			p, err := r.build(ctx, image.program, on)
			if err != nil {
				return err
			}
			built = append(built, p)
		}
		index, err := r.index(image.title, built)
		if err != nil {
			return fmt.Errorf("image %s: %w", image.name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return fmt.Errorf("image %s: %w", image.name, err)
		}
		path := r.imageArchive(image.name)
		if err := r.save(path, image.name, index); err != nil {
			return fmt.Errorf("archive of image %s: %w", image.name, err)
		}
		say("%s: image %s:%s, %s", path, image.name, r.version, digest)
		if r.repository == "" {
			continue
		}
		target, err := name.NewTag(r.in(image.name) + ":" + r.version)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(target, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("pushing %s: %w", target, err)
		}
		say("pushed %s@%s", target, digest)
	}
	return nil
}

// imageArchive returns the path of the archive of an image.
func (r *release) imageArchive(name string) string {
	return filepath.Join(r.dist, "images", fmt.Sprintf("%s-%s.tar", name, r.version))
}

// in returns the name of an image in the repository of the release, without a tag.
func (r *release) in(image string) string { return path.Join(r.repository, image) }

// index returns the image of a program for all platforms.
func (r *release) index(title string, built []*program) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	annotations := r.annotations(title)
	for _, p := range built {
		image, err := r.image(p, annotations)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.platform.os, Architecture: p.platform.arch}},
		})
	}
	return mutate.Annotations(index, annotations).(v1.ImageIndex), nil
}

func (r *release) annotations(title string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    title,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created":  r.date.Format(time.RFC3339),
		"org.opencontainers.image.licenses": license,
		"org.opencontainers.image.source":   source,
	}
}

// image returns the image of a program: the program, the certificate authorities of Mozilla, an empty directory for
// temporary files, and the bill of materials.
func (r *release) image(p *program, labels map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	bill, err := r.bill(p)
	if err != nil {
		return nil, err
	}
	layers := make([]mutate.Addendum, 0, 2)
	// The first layer is the same in all images of a release.
	for _, files := range [][]file{
		{{"etc/", nil, 0o755}, {"etc/ssl/", nil, 0o755}, {"etc/ssl/certs/", nil, 0o755}, {roots, authorities(), 0o644}, {"tmp/", nil, 0o1777}},
		{{p.name, content, 0o755}, {"usr/", nil, 0o755}, {"usr/share/", nil, 0o755}, {"usr/share/sbom/", nil, 0o755}, {"usr/share/sbom/" + p.name + ".cdx.json", bill, 0o644}},
	} {
		var packed bytes.Buffer
		if err := r.tar(&packed, files); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		layers = append(layers, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make image"}})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, layers...); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.platform.os, p.platform.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + p.name}, WorkingDir: "/", Labels: labels}
	return mutate.ConfigFile(image, config)
}

// authorities returns the certificate authorities that Mozilla trusts without restrictions, because PEM cannot
// express restrictions.
func authorities() []byte {
	var out []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return out
}

// save writes an OCI archive, which docker load, ctr image import, podman load and skopeo read.
func (r *release) save(path, image string, index v1.ImageIndex) error {
	// The name as Kubernetes completes it, because containerd looks it up literally.
	full, err := reference.ParseNormalizedNamed(r.in(image) + ":" + r.version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := out.AppendIndex(index, layout.WithAnnotations(map[string]string{annotation: full.String(), tag: r.version})); err != nil {
		return err
	}
	var files []file
	// WalkDir sorts by name.
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			files = append(files, file{name + "/", nil, 0o755})
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, file{name, content, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return create(path, func(w io.Writer) error { return r.tar(w, files) })
}
