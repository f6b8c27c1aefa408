package localhub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Root returns the directory of this repository, derived from the path of this source file.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// BinDir returns the directory of the binaries: the environment variable
// HUB_BIN if set, else bin/ of this repository.
func BinDir() string {
	if dir := os.Getenv("HUB_BIN"); dir != "" {
		return dir
	}
	return filepath.Join(Root(), "bin")
}

// Binary returns the path of a program in dir. If the program does not exist, the error
// names the command that builds it.
func Binary(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s is missing: run `make test` or `make build`, which build it (HUB_BIN names another directory)", path)
	} else if err != nil {
		return "", err
	}
	return path, nil
}
