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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
)

const archiveFormat = 1

// archive is the content of an exported hub. Its file is compressed JSON: a header, then one line for each namespace and
// object, then a line with their numbers.
type archive struct {
	header     archiveHeader
	namespaces []archivedNamespace
	objects    []*unstructured.Unstructured
}

type archiveHeader struct {
	Format int `json:"format"`
	// ID identifies the archive.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	Hub  string    `json:"hub"`
	// Epoch is the highest epoch of the clusters of the hub.
	Epoch   int64  `json:"epoch"`
	Version string `json:"version"`
}

type archivedNamespace struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type archiveEnd struct {
	Namespaces int `json:"namespaces"`
	Objects    int `json:"objects"`
}

// archiveLine is one line. Exactly one field is set.
type archiveLine struct {
	Header    *archiveHeader             `json:"header,omitempty"`
	Namespace *archivedNamespace         `json:"namespace,omitempty"`
	Object    *unstructured.Unstructured `json:"object,omitempty"`
	End       *archiveEnd                `json:"end,omitempty"`
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
	lines := []archiveLine{{Header: &a.header}}
	for i := range a.namespaces {
		lines = append(lines, archiveLine{Namespace: &a.namespaces[i]})
	}
	for _, object := range a.objects {
		lines = append(lines, archiveLine{Object: object})
	}
	lines = append(lines, archiveLine{End: a.end()})
	compressed := gzip.NewWriter(to)
	encoder := json.NewEncoder(compressed)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return compressed.Close()
}

func (a *archive) end() *archiveEnd {
	return &archiveEnd{Namespaces: len(a.namespaces), Objects: len(a.objects)}
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
	decoder := json.NewDecoder(compressed)
	a, complete := &archive{}, false
	for number := 1; ; number++ {
		var line archiveLine
		err := decoder.Decode(&line)
		switch {
		case errors.Is(err, io.EOF) && complete:
			return a, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the file is not complete")
		case err != nil:
			return nil, fmt.Errorf("line %d: %w; the file is damaged or not complete", number, err)
		case (number == 1) != (line.Header != nil):
			return nil, errors.New("not an export of a hub: it must begin with its only header")
		case complete:
			return nil, fmt.Errorf("line %d: it follows the end", number)
		case line.Header != nil && line.Header.Format != archiveFormat:
			return nil, fmt.Errorf("format %d, want %d: use the clusteradm of the release that wrote it", line.Header.Format, archiveFormat)
		case line.Header != nil:
			a.header = *line.Header
		case line.Namespace != nil:
			a.namespaces = append(a.namespaces, *line.Namespace)
		case line.Object != nil:
			a.objects = append(a.objects, line.Object)
		}
		complete = line.End != nil && *line.End == *a.end()
	}
}
