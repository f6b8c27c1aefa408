package embedded_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2/textlogger"

	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
)

// A file that another version of this engine has written is not called damaged.
func TestOtherFormatsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		format byte
		logged string
	}{
		"Older": {format: 1, logged: "format 1 is not read any more; clusters report again"},
		"Newer": {format: 200, logged: "format 200 is not read yet; clusters report again"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			engine := open(t, dir, embedded.Options{})
			apply(t, engine, round("a", 3))
			closed(t, engine)
			path := filepath.Join(dir, embedded.DataFile)
			setFormat(t, path, test.format)

			var log bytes.Buffer
			engine = open(t, dir, embedded.Options{Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))})
			if clusters := incomplete(t, engine); len(clusters) > 0 {
				t.Errorf("clusters of another format are served: %v", clusters)
			}
			if next := apply(t, engine, round("a", 6)); next.Resources != crashResources {
				t.Errorf("a report after that left %+v", next)
			}
			closed(t, engine)
			if logged := log.String(); !strings.Contains(logged, test.logged) || strings.Contains(logged, "damage") {
				t.Errorf("logged was %s", logged)
			}
			if aside, err := filepath.Glob(path + ".format-*"); err != nil || len(aside) != 1 {
				t.Errorf("the file of the other format is not beside the data: %v, %v", aside, err)
			}
		})
	}
}

func setFormat(t *testing.T, path string, format byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{format})
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
