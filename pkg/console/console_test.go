package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func files(t *testing.T) Files {
	t.Helper()
	files, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func get(t *testing.T, handler http.Handler, method string, header http.Header) *http.Response {
	t.Helper()
	request := httptest.NewRequest(method, "/", nil)
	request.Header = header
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

func TestFiles(t *testing.T) {
	for name, handler := range files(t) {
		want, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		response := get(t, handler, http.MethodGet, nil)
		if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, want) || response.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d, %d bytes, error %v, want 200 and %d bytes", name, response.StatusCode, len(got), err, len(want))
		}
		etag := response.Header.Get("ETag")
		again := get(t, handler, http.MethodGet, http.Header{"If-None-Match": {`"other", ` + etag}})
		if again.StatusCode != http.StatusNotModified || strings.HasPrefix(etag, "W/") {
			t.Errorf("%s with If-None-Match %s: status %d, want 304 for a strong ETag", name, etag, again.StatusCode)
		}
		for header, want := range headers {
			if got := response.Header.Get(header); got != want {
				t.Errorf("%s: header %s = %q, want %q", name, header, got, want)
			}
		}
		if head := get(t, handler, http.MethodHead, nil); head.StatusCode != http.StatusOK || head.Header.Get("ETag") != etag {
			t.Errorf("HEAD of %s: status %d, ETag %s, want 200 and %s", name, head.StatusCode, head.Header.Get("ETag"), etag)
		}
	}
}

func TestUnknownContentType(t *testing.T) {
	if _, err := newFile("movie.mp4", nil); err == nil {
		t.Error("newFile(movie.mp4) = no error, want one: browsers do not guess content types")
	}
}

// external matches what would make a browser send a request to another origin, or what the policy of the page refuses.
var external = regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:)?//|\bfrom\s*["'][^."']|import\s*\(?["'][^."']|sourceMappingURL|<script(>|[^>]*[^>]>[^<])|\son[a-z]+\s*=\s*["'][^"']|style\s*=\s*["']|@import|url\(`)

func TestPageNeedsNothingElse(t *testing.T) {
	for name := range files(t) {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "vendor-") || filepath.Ext(name) == ".html" || filepath.Ext(name) == ".css" {
			if found := external.Find(content); found != nil {
				t.Errorf("%s contains %q, want no inline script or style, and no reference outside of the console", name, found)
			}
		}
	}
}

// vendored matches a row of vendor.md: file, licence file, SHA-256.
var vendored = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| `([^`]+)` \\| `([0-9a-f]{64})` \\|$")

// TestVendoredModules checks that the vendored modules and their licences are those that vendor.md lists.
func TestVendoredModules(t *testing.T) {
	table, err := os.ReadFile("vendor.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range vendored.FindAllStringSubmatch(string(table), -1) {
		file, licence, sum := row[1], row[2], row[3]
		listed[filepath.Base(file)] = true
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("SHA-256 of %s = %x, want %s as in vendor.md", file, got, sum)
		}
		if text, err := os.ReadFile(filepath.Join(root, licence)); err != nil || !bytes.Contains(text, []byte("Copyright")) && !bytes.Contains(text, []byte("License")) {
			t.Errorf("licence of %s in %s: %d bytes, error %v, want its text", file, licence, len(text), err)
		}
	}
	for name := range files(t) {
		if strings.HasPrefix(name, "vendor-") && !listed[name] {
			t.Errorf("vendor.md has no row of %s", name)
		}
	}
	if len(listed) < 3 {
		t.Errorf("rows of vendor.md = %d, want at least 3", len(listed))
	}
}

// TestModules runs the unit tests of the modules with the test runner of Node.js. The path of node is in HUB_NODE; without
// Node.js, the Makefile sets it to none and says so. A missing program must not look like a passed test.
func TestModules(t *testing.T) {
	node := cmp.Or(os.Getenv("HUB_NODE"), "node")
	if node == "none" {
		t.Skip("HUB_NODE=none")
	}
	tests, err := filepath.Glob("unit/*.test.js")
	if err != nil || len(tests) == 0 {
		t.Fatalf("unit tests of the modules = %v, %v, want some", tests, err)
	}
	output, err := exec.CommandContext(t.Context(), node, append([]string{"--test"}, tests...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --test: %v (Node.js 20.11 or later is required; HUB_NODE=none skips this test)\n%s", node, err, output)
	}
}
