package bench_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publish replaces a section of docs/benchmarks.md if BENCH_WRITE is set. A section is between two comments with its name.
func publish(b *testing.B, section, content string) {
	b.Helper()
	if os.Getenv("BENCH_WRITE") == "" {
		return
	}
	path := filepath.Join(localhub.Root(), "docs", "benchmarks.md")
	page, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	begin, end := "<!-- "+section+" -->\n", "<!-- end of "+section+" -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		b.Fatalf("%s has no section %s", path, section)
	}
	if err := os.WriteFile(path, []byte(before+begin+"\n"+strings.TrimSpace(content)+"\n\n"+end+after), 0o644); err != nil {
		b.Fatal(err)
	}
}
