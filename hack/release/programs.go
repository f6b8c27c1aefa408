package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// platform is an operating system and an architecture.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

var (
	linux     = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	darwin    = []platform{{"darwin", "amd64"}, {"darwin", "arm64"}}
	platforms = map[string][]platform{
		"apiserver":  slices.Concat(linux, darwin),
		"agent":      slices.Concat(linux, darwin),
		"clusteradm": slices.Concat(linux, darwin, []platform{{"windows", "amd64"}}),
	}
	programs = []string{"apiserver", "agent", "clusteradm"}
)

// program is a built program.
type program struct {
	name     string
	platform platform
	path     string
}

// build builds a program into the cache of the repository, and returns it. Go's own cache makes a second build
// quick.
func (r *release) build(ctx context.Context, name string, on platform) (*program, error) {
	out := &program{name: name, platform: on, path: filepath.Join(r.root, ".cache", "release", on.String(), name)}
	file := name
	if on.os == "windows" {
		out.path += ".exe"
		file += ".exe"
	}
	say("building %s for %s", name, on)
	began := time.Now()
	// Neither the paths and settings of this machine nor the state of the working tree are part of the result.
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags=grpcnotrace", "-trimpath", "-ldflags", r.ldflags, "-o", filepath.Join(".cache", "release", on.String(), file), "./cmd/"+name)
	command.Dir = r.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.os, "GOARCH="+on.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("building %s for %s: %w", name, on, err)
	}
	say("built %s for %s in %s", name, on, time.Since(began).Round(time.Second))
	return out, nil
}

// archives writes an archive and a bill of materials of each program for each platform.
func (r *release) archives(ctx context.Context) error {
	// By platform, so that the programs share compiled packages.
	var all []platform
	for _, name := range programs {
		for _, on := range platforms[name] {
			if !slices.Contains(all, on) {
				all = append(all, on)
			}
		}
	}
	for _, on := range all {
		for _, name := range programs {
			if !slices.Contains(platforms[name], on) {
				continue
			}
			built, err := r.build(ctx, name, on)
			if err != nil {
				return err
			}
			if err := r.archive(built); err != nil {
				return fmt.Errorf("archive of %s for %s: %w", name, on, err)
			}
		}
	}
	return nil
}

// archive writes a program with its bill of materials, the license and the README into an archive, zip for Windows and
// tar.gz otherwise, and the bill of materials also next to it.
func (r *release) archive(p *program) error {
	content, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	bill, err := r.bill(p)
	if err != nil {
		return err
	}
	files := []file{{filepath.Base(p.path), content, 0o755}, {p.name + ".cdx.json", bill, 0o644}}
	for _, name := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		files = append(files, file{name, content, 0o644})
	}
	base := r.base(p)
	if err := create(base+".cdx.json", func(w io.Writer) error { _, err := w.Write(bill); return err }); err != nil {
		return err
	}
	if p.platform.os == "windows" {
		return create(base+".zip", func(w io.Writer) error { return r.zip(w, files) })
	}
	return create(base+".tar.gz", func(w io.Writer) error {
		compressed := gzip.NewWriter(w)
		if err := r.tar(compressed, files); err != nil {
			return err
		}
		return compressed.Close()
	})
}

// base returns the path of the files of a program, without extension.
func (r *release) base(p *program) string {
	return filepath.Join(r.dist, "programs", fmt.Sprintf("%s-%s-%s", p.name, r.version, p.platform))
}

// file is a file of an archive or of a layer of an image.
type file struct {
	path    string
	content []byte
	mode    int64
}

// tar writes files with the time of the release, and as the user root. Directories have a path that ends with a slash.
func (r *release) tar(w io.Writer, files []file) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		kind := byte(tar.TypeReg)
		if f.path[len(f.path)-1] == '/' {
			kind = tar.TypeDir
		}
		header := &tar.Header{Typeflag: kind, Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: r.date, Format: tar.FormatPAX}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(f.content); err != nil {
			return err
		}
	}
	return out.Close()
}

func (r *release) zip(w io.Writer, files []file) error {
	out := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: r.date}
		header.SetMode(os.FileMode(f.mode))
		entry, err := out.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return out.Close()
}

// create creates a file and its directory, and removes the file if write fails.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	err = write(out)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

func checksum(path string) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, in); err != nil {
		return nil, err
	}
	return hash.Sum(nil), nil
}
