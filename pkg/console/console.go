// Package console serves the console, the page that shows the fleet in a browser. The page is a set of static files:
// it reads the API as its user, so the files contain nothing that depends on the caller.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// Resource is the name of the resource in search.open-cluster-management.io that serves the files.
const Resource = "console"

const directory = "static"

//go:embed static
var embedded embed.FS

var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// headers are the headers of every file. Names and labels that clusters report can be hostile, so the policy of the page
// allows neither inline scripts nor other origins, nor a text as markup.
var headers = map[string]string{
	"Cache-Control": "no-cache",
	"Content-Security-Policy": strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'",
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; "),
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
}

// Files are the files of the console by name.
type Files map[string]http.Handler

// New returns the embedded files.
func New() (Files, error) {
	entries, err := embedded.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	files := Files{}
	for _, entry := range entries {
		content, err := embedded.ReadFile(path.Join(directory, entry.Name()))
		if err != nil {
			return nil, err
		}
		if files[entry.Name()], err = newFile(entry.Name(), content); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// file serves one file.
type file struct {
	contentType, etag string
	content           []byte
}

func newFile(name string, content []byte) (*file, error) {
	contentType, known := contentTypes[path.Ext(name)]
	if !known {
		return nil, fmt.Errorf("file %s of the console: no content type for %q", name, path.Ext(name))
	}
	hash := sha256.Sum256(content)
	return &file{contentType: contentType, etag: `"` + hex.EncodeToString(hash[:16]) + `"`, content: content}, nil
}

// ServeHTTP implements http.Handler.
func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", f.contentType)
	header.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}
