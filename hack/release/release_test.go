package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const root = "../.."

func testRelease(t *testing.T) *release {
	t.Helper()
	return &release{version: "v1.2.3-test", commit: "abc", date: time.Unix(1700000000, 0).UTC(), root: root, dist: t.TempDir()}
}

// built returns a program that make build has built for this machine.
func built(t *testing.T, name string) *program {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run make build first", err)
	}
	return &program{name: name, platform: platform{runtime.GOOS, runtime.GOARCH}, path: path}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// extract returns the files of an image, and their modes.
func extract(t *testing.T, image v1.Image) (map[string][]byte, map[string]int64) {
	t.Helper()
	content, modes := map[string][]byte{}, map[string]int64{}
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for archive := tar.NewReader(flat); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return content, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		content[strings.TrimSuffix(header.Name, "/")] = must(io.ReadAll(archive))(t)
		modes[strings.TrimSuffix(header.Name, "/")] = header.Mode
	}
}

// TestImage builds the image of the agent, pushes it to a registry, pulls it, and runs its program.
func TestImage(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	agent := built(t, "agent")
	index := must(r.index("title", []*program{agent}))(t)

	server := httptest.NewServer(registry.New())
	defer server.Close()
	target := must(name.NewTag(strings.TrimPrefix(server.URL, "http://")+"/project/agent:v1", name.Insecure))(t)
	if err := remote.WriteIndex(target, index); err != nil {
		t.Fatal(err)
	}
	pulled := must(remote.Image(target, remote.WithPlatform(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})))(t)
	config := must(pulled.ConfigFile())(t)
	if got := config.Config.User; got != user {
		t.Errorf("user = %q, want %q", got, user)
	}
	if got, want := config.Config.Entrypoint, []string{"/agent"}; !slices.Equal(got, want) {
		t.Errorf("entrypoint = %q, want %q", got, want)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != r.version {
		t.Errorf("label of the version = %q, want %q", got, r.version)
	}
	if !config.Created.Equal(r.date) {
		t.Errorf("created = %s, want %s", config.Created, r.date)
	}

	content, modes := extract(t, pulled)
	wantFiles := []string{"agent", "etc", "etc/ssl", "etc/ssl/certs", roots, "tmp", "usr", "usr/share", "usr/share/sbom", "usr/share/sbom/agent.cdx.json"}
	for path := range content {
		if !slices.Contains(wantFiles, path) {
			t.Errorf("the image contains %s, want only %q", path, wantFiles)
		}
	}
	if modes["agent"] != 0o755 || modes["tmp"] != 0o1777 {
		t.Errorf("modes of agent and tmp = %o and %o, want 755 and 1777", modes["agent"], modes["tmp"])
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content[roots]) || bytes.Count(content[roots], []byte("BEGIN CERTIFICATE")) < 50 {
		t.Errorf("%s has %d certificates, want 50 or more", roots, bytes.Count(content[roots], []byte("BEGIN CERTIFICATE")))
	}
	for rest := content[roots]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Errorf("certificate in %s: %v", roots, err)
		}
	}
	var bill struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(content["usr/share/sbom/agent.cdx.json"], &bill); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, component := range bill.Components {
		found[component.Name] = component.Version
	}
	if found["k8s.io/client-go"] == "" || found["std"] != runtime.Version() {
		t.Errorf("bill of materials = %v, want k8s.io/client-go, and std %s", found, runtime.Version())
	}

	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, content["agent"], 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), runtime.Version()) {
		t.Errorf("agent --version = %q, %v, want the version of Go", out, err)
	}
}

// TestArchives builds an archive of a program and of an image twice, and checks their checksums with sha256sum.
func TestArchives(t *testing.T) {
	t.Parallel()
	var sums []string
	for range 2 {
		r := testRelease(t)
		agent := built(t, "agent")
		if err := r.archive(agent); err != nil {
			t.Fatal(err)
		}
		if err := r.save(filepath.Join(r.dist, "images", "agent.tar"), "agent", must(r.index("title", []*program{agent}))(t)); err != nil {
			t.Fatal(err)
		}
		if err := r.manifests(); err != nil {
			t.Fatal(err)
		}
		if err := r.checksums(); err != nil {
			t.Fatal(err)
		}
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = r.dist
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("sha256sum --check = %v\n%s", err, out)
		}
		checkArchive(t, r, agent)
		sums = append(sums, string(must(os.ReadFile(filepath.Join(r.dist, "SHA256SUMS")))(t)))
	}
	if sums[0] != sums[1] {
		t.Errorf("checksums of two builds differ:\n%s\n%s", sums[0], sums[1])
	}
	for _, want := range []string{"install/agent.yaml", ".tar.gz", ".cdx.json", "images/agent.tar"} {
		if !strings.Contains(sums[0], want) {
			t.Errorf("checksums = %s, want those of %s", sums[0], want)
		}
	}
}

// unpack returns the files of a tar archive.
func unpack(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(archive); ; {
		header, err := in.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = must(io.ReadAll(in))(t)
	}
}

// checkArchive checks the files of the archive of a program.
func checkArchive(t *testing.T, r *release, p *program) {
	t.Helper()
	path := filepath.Join(r.dist, "programs", p.name+"-"+r.version+"-"+p.platform.String()+".tar.gz")
	content := must(os.ReadFile(path))(t)
	files := unpack(t, must(gzip.NewReader(bytes.NewReader(content)))(t))
	got := slices.Sorted(maps.Keys(files))
	if want := []string{"LICENSE", "README.md", p.name, p.name + ".cdx.json"}; !slices.Equal(got, want) {
		t.Errorf("files in %s = %q, want %q", filepath.Base(path), got, want)
	}
	bill := must(os.ReadFile(strings.TrimSuffix(path, ".tar.gz") + ".cdx.json"))(t)
	if !bytes.Equal(bill, files[p.name+".cdx.json"]) {
		t.Error("the bill of materials next to the archive differs from the one in it")
	}
}

// TestImageNames checks the name that an archive gives to its image. containerd looks it up literally, so it must be
// complete.
func TestImageNames(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]string{"": "/library/agent:v1.2.3-test", "registry.example.com/project": "registry.example.com/project/agent:v1.2.3-test"} {
		r := testRelease(t)
		r.repository = repository
		path := filepath.Join(r.dist, "agent.tar")
		if err := r.save(path, "agent", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: empty.Image})); err != nil {
			t.Fatal(err)
		}
		var index v1.IndexManifest
		if err := json.Unmarshal(unpack(t, bytes.NewReader(must(os.ReadFile(path))(t)))["index.json"], &index); err != nil {
			t.Fatal(err)
		}
		if len(index.Manifests) != 1 || !strings.HasSuffix(index.Manifests[0].Annotations[annotation], want) {
			t.Errorf("manifests in repository %q = %+v, want one with the name …%s", repository, index.Manifests, want)
		}
	}
}

// TestFilesOfInstallation checks that a release has the files that the installation without a registry uses, under the same names.
func TestFilesOfInstallation(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	var built []string
	for _, image := range images {
		built = append(built, r.imageArchive(image.name))
	}
	for _, on := range platforms["clusteradm"] {
		built = append(built, r.base(&program{name: "clusteradm", platform: on})+".tar.gz")
	}
	_, section, _ := strings.Cut(string(must(os.ReadFile(filepath.Join(root, "docs/air-gapped.md")))(t)), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := regexp.MustCompile(`(?:programs|images)/\S+`).FindAllString(section, -1)
	if len(named) == 0 {
		t.Error("docs/air-gapped.md names no file of a release in the section Install")
	}
	for _, name := range named {
		if path := filepath.Join(r.dist, strings.ReplaceAll(name, "VERSION", r.version)); !slices.Contains(built, path) {
			t.Errorf("docs/air-gapped.md names %s, want one of %q", path, built)
		}
	}
}

// TestManifests checks that the manifests run the images of the release, and no other.
func TestManifests(t *testing.T) {
	t.Parallel()
	r := testRelease(t)
	r.repository = "registry.example.com/project"
	if err := r.manifests(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"rbac", "apiservice", "agent/hub", "agent/managed"} {
		kustomization := must(os.ReadFile(filepath.Join(root, "artifacts", dir, "Kustomization")))(t)
		for _, path := range must(filepath.Glob(filepath.Join(root, "artifacts", dir, "*.yaml")))(t) {
			if !bytes.Contains(kustomization, []byte("- "+filepath.Base(path)+"\n")) {
				t.Errorf("artifacts/%s/Kustomization does not contain %s", dir, filepath.Base(path))
			}
		}
	}
	found := must(filepath.Glob(filepath.Join(r.dist, "install", "*.yaml")))(t)
	if len(found) == 0 {
		t.Fatal("manifests() wrote no file")
	}
	for _, path := range found {
		for line := range strings.Lines(string(must(os.ReadFile(path))(t))) {
			if image, ok := strings.CutPrefix(strings.TrimSpace(line), "image: "); ok {
				want := r.repository + "/hub-apiserver:" + r.version
				if filepath.Base(path) == "agent.yaml" {
					want = r.repository + "/hub-apiserver-agent:" + r.version
				}
				if image != want {
					t.Errorf("%s: image = %s, want %s", filepath.Base(path), image, want)
				}
			}
		}
	}
}

func TestCreateRemovesPartialFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	err := create(path, func(w io.Writer) error {
		_, _ = w.Write([]byte("half"))
		return context.Canceled
	})
	if _, statErr := os.Stat(path); err == nil || !os.IsNotExist(statErr) {
		t.Errorf("create() = %v, and the file exists: %t, want an error and no file", err, statErr == nil)
	}
}

// TestDocsOfRelease checks that the manifests of a release name its own documents.
func TestDocsOfRelease(t *testing.T) {
	t.Parallel()
	const url = "https://github.com/open-cluster-management-io/hub-apiserver/blob/%s/docs/troubleshooting.md"
	for version, want := range map[string]string{"v0.1.0": "v0.1.0", "v0.0.0-20261124020326-773cf8d45234": "main"} {
		r := testRelease(t)
		r.version = version
		templates := must(r.templates(charts[0]))(t)
		found := 0
		for name, text := range templates {
			text := string(r.ownDocs([]byte(text)))
			found += strings.Count(text, fmt.Sprintf(url, want))
			if strings.Contains(text, "/blob/main/") && want != "main" {
				t.Errorf("templates/%s of %s names documents of main, want those of the release", name, version)
			}
		}
		if found == 0 {
			t.Errorf("the chart of %s names %s 0 times, want at least once", version, fmt.Sprintf(url, want))
		}
	}
}
