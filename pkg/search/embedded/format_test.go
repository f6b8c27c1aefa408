package embedded_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2/textlogger"

	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
)

// TestOtherFormats opens files that another version of the engine has written. The log must not
// report them as damaged.
func TestOtherFormats(t *testing.T) {
	const formatAt = 7
	for name, format := range map[string]byte{"Older": 2, "Newer": 200} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			engine := open(t, dir, embedded.Options{})
			version := apply(t, engine, round("a", 3)).Version
			closed(t, engine)
			change(t, filepath.Join(dir, embedded.ClusterFile("a")), func(data []byte) []byte {
				data[formatAt] = format
				return data
			})

			var log bytes.Buffer
			engine = open(t, dir, embedded.Options{Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))})
			if diff := cmp.Diff(map[string]bool{"a": true}, incomplete(t, engine)); diff != "" {
				t.Errorf("incomplete clusters (-want +got):\n%s", diff)
			}
			if next := apply(t, engine, round("a", 6)); next.Resources != crashResources || next.Version <= version {
				t.Errorf("Apply() of a full report = %+v, want %d resources and a version above %d", next, crashResources, version)
			}
			closed(t, engine)
			if logged := log.String(); !strings.Contains(logged, "has another format and was moved aside; its clusters report again") || strings.Contains(logged, "damage") {
				t.Errorf("log = %q, want a message about another format and none about damage", logged)
			}
			if _, err := os.Stat(filepath.Join(dir, embedded.DiscardedDir, embedded.ClusterFile("a"))); err != nil {
				t.Errorf("Stat() of the file moved aside = %v, want nil", err)
			}
		})
	}
}
