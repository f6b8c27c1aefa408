package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Image is a container image that contains one static program.
type Image struct {
	// Name is the name with the tag. Without a registry, containerd adds docker.io/library.
	Name string
	// Program is the path of the program on this machine, and Path its path in the image.
	Program, Path string
}

// pause is the image of the sandbox container of each Pod.
const pause = "registry.k8s.io/pause:hub"

// Import makes images available to the Pods of a running node.
func (node *Node) Import(ctx context.Context, images ...Image) error {
	for _, image := range images {
		path := filepath.Join(node.dir, "image.tar")
		if err := image.Write(path); err != nil {
			return fmt.Errorf("image %s: %w", image.Name, err)
		}
		if err := node.ImportFile(ctx, path); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// ImportFile imports the images of an archive, as an administrator of the node does.
func (node *Node) ImportFile(ctx context.Context, path string) error {
	_, err := node.Run(ctx, "ctr", "--namespace", "k8s.io", "images", "import", path)
	return err
}

// Run runs a program on the running node, and returns its output.
func (node *Node) Run(ctx context.Context, program string, args ...string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		var r result
		r.err = within(node.inside(), func() (err error) {
			r.out, err = exec.CommandContext(ctx, find(program), args...).CombinedOutput()
			return err
		})
		done <- r
	}()
	r := <-done
	if r.err != nil {
		return string(r.out), fmt.Errorf("%s %s on the node %s: %w\n%s", program, strings.Join(args, " "), node.Name, r.err, r.out)
	}
	return string(r.out), nil
}

// Command returns the words of a command for a shell of this machine that runs a program on the running node.
func (node *Node) Command(program string, args ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(node.sandbox.process), "--mount", "--pid", "--net", "--uts", find(program)}, args...)
}

// Write writes the archive of an image, in the format of docker save.
func (i Image) Write(path string) error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return err
	}
	layer, err := archive(map[string][]byte{strings.TrimPrefix(i.Path, "/"): program})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{i.Path}, "User": "65532:65532"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	content, err := archive(map[string][]byte{"layer.tar": layer, "config.json": config, "manifest.json": manifest})
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// archive returns a tar archive of executable files.
func archive(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
