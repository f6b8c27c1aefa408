package rehome

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const archiveFormat = 1

// archive is the content of an exported hub. Its file is compressed JSON.
type archive struct {
	Format int `json:"format"`
	// ID identifies the archive.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	Hub  string    `json:"hub"`
	// Epoch is the highest epoch of the clusters of the hub.
	Epoch   int64  `json:"epoch"`
	Version string `json:"version"`

	Namespaces []archivedNamespace          `json:"namespaces"`
	Objects    []*unstructured.Unstructured `json:"objects"`
}

type archivedNamespace struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// write writes the archive to a file that only the current user can read. The file is complete, or as it was before.
func (a *archive) write(path string) (err error) {
	// CreateTemp sets mode 0600.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(a.encode(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func (a *archive) encode(to io.Writer) error {
	compressed := gzip.NewWriter(to)
	if err := json.NewEncoder(compressed).Encode(a); err != nil {
		return err
	}
	return compressed.Close()
}

func readArchive(path string) (*archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	a, err := decodeArchive(file)
	return a, cli.Prefix(err, "%s", path)
}

func decodeArchive(from io.Reader) (*archive, error) {
	compressed, err := gzip.NewReader(bufio.NewReader(from))
	if err != nil {
		return nil, fmt.Errorf("not an export of a hub: %w", err)
	}
	content, err := io.ReadAll(compressed)
	if err != nil {
		return nil, fmt.Errorf("the file is damaged or not complete: %w", err)
	}
	a := &archive{}
	if err := json.Unmarshal(content, a); err != nil {
		return nil, fmt.Errorf("not an export of a hub: %w", err)
	}
	if a.Format != archiveFormat {
		return nil, fmt.Errorf("format %d, want %d: use the clusteradm of the release that wrote it", a.Format, archiveFormat)
	}
	if slices.Contains(a.Objects, nil) {
		return nil, errors.New("not an export of a hub: it contains an empty object")
	}
	return a, nil
}
