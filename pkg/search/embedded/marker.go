package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// bootIDFile has an ID that is another one each time the machine starts.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// marker tells, beside the data, how much of them can be trusted.
type marker struct {
	// Boot is the ID of the machine's run in which the data were last opened.
	Boot string `json:"boot,omitempty"`
	// Clean is true after Close has made everything durable.
	Clean bool `json:"clean"`
}

// bootID is the ID of the machine's run; empty where there is none.
func bootID() string {
	id, err := os.ReadFile(bootIDFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// trusts tells whether data with this marker are as they were left: they were
// closed, or it is the same run of the machine, so that the kernel kept what the process had written.
func (m *marker) trusts(boot string) bool {
	return m == nil || m.Clean || boot != "" && m.Boot == boot
}

// readMarker reads a marker; nil if there is none.
func readMarker(path string) (*marker, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("marker of the data: %w", err)
	}
	m := &marker{}
	if json.Unmarshal(data, m) != nil {
		// What a crash has left of it says that the data were not closed.
		return &marker{}, nil
	}
	return m, nil
}

// writeMarker replaces the marker durably.
func writeMarker(path string, m marker) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("marker of the data: %w", err)
	}
	if err := writeDurably(path, data); err != nil {
		return fmt.Errorf("marker of the data: %w", err)
	}
	return nil
}

func writeDurably(path string, data []byte) (err error) {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
