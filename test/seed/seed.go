// Package seed gives random tests their seeds. The environment variable TEST_SEED determines all of them. The
// Makefile derives it from the commit, so that each commit has other values, and all runs of a commit the same.
package seed

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const variable = "TEST_SEED"

// Of returns the seed of a test, which depends on TEST_SEED and on the name of the test. It logs the command that
// repeats the test if the test fails. Without TEST_SEED, the seed depends on the name only.
func Of(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		text = "1"
	}
	base, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	t.Logf("%s=%s", variable, text)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat the random values with: %s", command(t, text))
		}
	})
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%d %s", base, t.Name())
	return hash.Sum64()
}

// Rand returns a source of random values with the seed of a test.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}

// command returns the command that repeats a test with the given seed.
func command(t testing.TB, text string) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Sprintf("%s=%s go test -run '^%s$'", variable, text, test)
	}
	pkg := ""
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir, pkg = filepath.Dir(dir), filepath.Join(filepath.Base(dir), pkg)
	}
	if below, is := strings.CutPrefix(pkg, "test/"); is {
		area, _, _ := strings.Cut(below, "/")
		return fmt.Sprintf("%s=%s make integration PKG=%s RUN=%s", variable, text, area, test)
	}
	return fmt.Sprintf("%s=%s go test -run '^%s$' ./%s", variable, text, test, pkg)
}
