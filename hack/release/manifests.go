package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// manifests writes what each directory of artifacts/deploy with a kustomization installs, and the agent, with the images
// of this release.
func (r *release) manifests() error {
	found, err := filepath.Glob(filepath.Join(r.root, "artifacts/deploy/*/kustomization.yaml"))
	if err != nil {
		return err
	}
	for _, path := range append(found, filepath.Join(r.root, "artifacts/agent/kustomization.yaml")) {
		overlay := filepath.Dir(path)
		content, err := r.render(overlay)
		if err != nil {
			return fmt.Errorf("manifests of %s: %w", overlay, err)
		}
		out := filepath.Join(r.dist, "install", filepath.Base(overlay)+".yaml")
		if err := create(out, func(w io.Writer) error { _, err := w.Write(content); return err }); err != nil {
			return err
		}
		say("%s", out)
	}
	return nil
}

func (r *release) render(overlay string) ([]byte, error) {
	k := &kustomize.Kustomization{Resources: []string{overlay}}
	for _, image := range images {
		k.Images = append(k.Images, kustomize.Image{Name: image.name, NewName: r.in(image.name), NewTag: r.version})
	}
	built, err := resources(k)
	if err != nil {
		return nil, err
	}
	content, err := built.AsYaml()
	return r.ownDocs(content), err
}

var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// ownDocs lets the URLs of documents name this release. A build that is no release keeps those of the branch main.
func (r *release) ownDocs(content []byte) []byte {
	if !released.MatchString(r.version) {
		return content
	}
	return bytes.ReplaceAll(content, []byte("/hub-apiserver/blob/main/docs/"), []byte("/hub-apiserver/blob/"+r.version+"/docs/"))
}

// resources builds a kustomization in a directory of its own, because the working tree stays as it is.
func resources(k *kustomize.Kustomization) (resmap.ResMap, error) {
	dir, err := os.MkdirTemp("", "install-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	for _, paths := range [][]string{k.Resources, k.Components} {
		for i, path := range paths {
			if path, err = filepath.Abs(path); err != nil {
				return nil, err
			}
			if paths[i], err = filepath.Rel(dir, path); err != nil {
				return nil, err
			}
		}
	}
	k.TypeMeta = kustomize.TypeMeta{APIVersion: kustomize.KustomizationVersion, Kind: kustomize.KustomizationKind}
	content, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o600); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = kustomize.LoadRestrictionsNone
	return krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
}
