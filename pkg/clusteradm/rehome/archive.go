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
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// archiveFormat is the format of the archives that this program writes and reads.
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
	Header    *archiveHeader     `json:"header,omitempty"`
	Namespace *archivedNamespace `json:"namespace,omitempty"`
	Object    json.RawMessage    `json:"object,omitempty"`
	End       *archiveEnd        `json:"end,omitempty"`
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
	encoder := json.NewEncoder(compressed)
	err := encoder.Encode(archiveLine{Header: &a.header})
	for i := 0; err == nil && i < len(a.namespaces); i++ {
		err = encoder.Encode(archiveLine{Namespace: &a.namespaces[i]})
	}
	for i := 0; err == nil && i < len(a.objects); i++ {
		var line archiveLine
		if line.Object, err = json.Marshal(a.objects[i].Object); err == nil {
			err = encoder.Encode(line)
		}
	}
	if err == nil {
		err = encoder.Encode(archiveLine{End: &archiveEnd{Namespaces: len(a.namespaces), Objects: len(a.objects)}})
	}
	return errors.Join(err, compressed.Close())
}

// readArchive reads a complete archive.
func readArchive(path string) (*archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	a, err := decodeArchive(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

func decodeArchive(from io.Reader) (*archive, error) {
	compressed, err := gzip.NewReader(bufio.NewReader(from))
	if err != nil {
		return nil, fmt.Errorf("not an export of a hub: %w", err)
	}
	decoder := json.NewDecoder(compressed)
	a := &archive{}
	var end *archiveEnd
	for number := 1; ; number++ {
		var line archiveLine
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w; the file is damaged or not complete", number, err)
		case (number == 1) != (line.Header != nil):
			return nil, errors.New("not an export of a hub: it must begin with its only header")
		case end != nil:
			return nil, fmt.Errorf("line %d: it follows the end", number)
		case line.Header != nil:
			if line.Header.Format != archiveFormat {
				return nil, fmt.Errorf("format %d, want %d: use the clusteradm of the release that wrote it", line.Header.Format, archiveFormat)
			}
			a.header = *line.Header
		case line.Namespace != nil:
			a.namespaces = append(a.namespaces, *line.Namespace)
		case line.Object != nil:
			object := &unstructured.Unstructured{}
			// This package keeps whole numbers whole.
			if err := utiljson.Unmarshal(line.Object, &object.Object); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			a.objects = append(a.objects, object)
		case line.End != nil:
			end = line.End
		}
	}
	if end == nil || end.Namespaces != len(a.namespaces) || end.Objects != len(a.objects) {
		return nil, errors.New("the file is not complete")
	}
	return a, nil
}
