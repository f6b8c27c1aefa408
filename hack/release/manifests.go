package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
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
		// A directory of its own, because the working tree stays as it is.
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
	target, err := filepath.Abs(overlay)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "install-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(dir, target)
	if err != nil {
		return nil, err
	}
	content := fmt.Sprintf("resources: [%q]\nimages:\n", relative)
	for _, image := range images {
		content += fmt.Sprintf("- {name: %s, newName: %q, newTag: %q}\n", image.name, r.in(image.name), r.version)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = kustomize.LoadRestrictionsNone
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}
