package membership

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// fileKeys are the keys of the Secret that are also files. The kubeconfig is the last key, because
// it refers to the other files.
var fileKeys = []string{keyClusterName, keyAgentName, keyPrivateKey, keyCertificate, keyKubeconfig}

// mirror writes the identity to a directory that only the current user can read.
func mirror(dir string, known *identity) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--hub-kubeconfig-dir: %w", err)
	}
	// The directory may have existed with another mode.
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--hub-kubeconfig-dir: %w", err)
	} else if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("--hub-kubeconfig-dir must be the agent's own directory: %w", err)
		}
	}
	for _, key := range fileKeys {
		path := filepath.Join(dir, key)
		value, ok := known.data[key]
		if !ok {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("--hub-kubeconfig-dir: %w", err)
			}
			continue
		}
		if err := replaceFile(path, value); err != nil {
			return fmt.Errorf("--hub-kubeconfig-dir: %w", err)
		}
	}
	return nil
}

// replaceFile replaces a file atomically.
func replaceFile(path string, content []byte) (err error) {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
		return os.Chmod(path, 0o600)
	}
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
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
