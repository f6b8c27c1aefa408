// Command release builds what users download: archives of the programs, images, manifests, bills of materials
// and checksums. It needs neither a container runtime nor a base image. The same commit gives the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"
)

// release is what to build.
type release struct {
	// version, commit and date are those of the sources.
	version, commit string
	date            time.Time
	ldflags         string
	// root is the directory of the repository, dist that of the results.
	root, dist string
	// repository is where the images are pushed, and from where the manifests pull them. It may be empty.
	repository string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := &release{}
	flag.StringVar(&r.version, "version", "", "Version of the release, such as v0.1.0. Required.")
	flag.StringVar(&r.commit, "commit", "", "Commit of the sources.")
	flag.StringVar(&r.ldflags, "ldflags", "", "Flags of the linker.")
	flag.StringVar(&r.root, "root", ".", "Directory of the repository.")
	flag.StringVar(&r.dist, "dist", "dist", "Directory of the results.")
	epoch := flag.Int64("epoch", 0, "Time of the files in archives and images, in seconds since 1970.")
	only := flag.String("only", "", "Part to build: images, charts, or empty for everything.")
	flag.StringVar(&r.repository, "push", "", "Repository to which the images are pushed, such as registry.example.com/project. The manifests then name it.")
	flag.Parse()
	r.date = time.Unix(*epoch, 0).UTC()
	if r.version == "" {
		return errors.New("-version is required")
	}
	switch *only {
	case "":
		if err := os.RemoveAll(r.dist); err != nil {
			return err
		}
		if err := r.archives(ctx); err != nil {
			return err
		}
		if err := r.images(ctx); err != nil {
			return err
		}
		if err := r.manifests(); err != nil {
			return err
		}
		if err := r.charts(); err != nil {
			return err
		}
		return r.checksums()
	case "images":
		return r.images(ctx)
	case "charts":
		return r.charts()
	}
	return fmt.Errorf("-only must be images, charts or empty, not %q", *only)
}

// say prints progress.
func say(format string, args ...any) { fmt.Printf("==> "+format+"\n", args...) }

// checksums writes the SHA-256 checksums of all results, as sha256sum --check reads them.
func (r *release) checksums() error {
	var files []string
	err := filepath.WalkDir(r.dist, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && entry.Name() != "SHA256SUMS" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	var sums []byte
	for _, path := range files {
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.dist, path)
		if err != nil {
			return err
		}
		sums = fmt.Appendf(sums, "%x  %s\n", sum, filepath.ToSlash(name))
	}
	say("checksums of %d files", len(files))
	return os.WriteFile(filepath.Join(r.dist, "SHA256SUMS"), sums, 0o644)
}
