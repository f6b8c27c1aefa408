// Package release follows the commands of the documentation, as a user with a downloaded release does.
package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// AirGapped is the page whose commands install from the archives of a release.
const AirGapped = "docs/air-gapped.md"

// mostCommands is the maximum number of commands in the section Install of a page.
const mostCommands = 9

// Loaded is the repository of images that are imported from the archives of a release.
const Loaded = "docker.io/library/"

// checkCtr is the start of the program that replaces ctr: it accepts only the command that imports an image.
const checkCtr = `#!/bin/sh
set -e
test "$*" = "--namespace k8s.io images import $5" && test -f "$5" && echo "$5" >> imported
`

// Version returns the version of clusteradm, which is that of the release.
func Version(t testing.TB) string {
	t.Helper()
	path, err := localhub.Binary(localhub.BinDir(), "clusteradm")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`^clusteradm version ([^,]+),`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("clusteradm --version = %q, want a version", out)
	}
	return string(found[1])
}

// commands returns the commands in the section Install of a page.
func commands(t testing.TB, page string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(localhub.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	for line := range strings.Lines(section) {
		switch line, ok := strings.CutPrefix(line, "    "); {
		case !ok:
		case strings.HasPrefix(line, " "):
			commands[len(commands)-1] += line
		default:
			commands = append(commands, line)
		}
	}
	if len(commands) == 0 || len(commands) > mostCommands {
		t.Fatalf("%s has %d commands in the section Install, want 1 to %d", page, len(commands), mostCommands)
	}
	return commands
}

// Release is the directory of a downloaded release, with the contexts of a user.
type Release struct {
	// Dir is the directory, and Version the version in the names of its files.
	Dir, Version string
}

// New returns a release with the kubeconfig of an administrator of clusters. Its images are empty files. ctr are the
// lines of a shell script that imports the image $5; without lines, the nodes need no import.
func New(t testing.TB, contexts map[string]*rest.Config, ctr string) *Release {
	t.Helper()
	r := &Release{t.TempDir(), Version(t)}
	config := clientcmdapi.NewConfig()
	for name, admin := range contexts {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*config, r.Path("kubeconfig")); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		"bin/ctr":                checkCtr + ctr,
		r.Image("hub-apiserver"): "", r.Image("hub-apiserver-agent"): "",
		r.program(): "",
	} {
		if err := os.MkdirAll(filepath.Dir(r.Path(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.Path(path), []byte(content), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	archive := exec.CommandContext(t.Context(), "tar", "--use-compress-program=gzip -1", "-cf", r.Path(r.program()), "-C", localhub.BinDir(), "clusteradm")
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return r
}

// Path returns the path of a file of the release.
func (r *Release) Path(name string) string { return filepath.Join(r.Dir, name) }

// Image returns the name of the archive of an image.
func (r *Release) Image(name string) string { return "images/" + name + "-" + r.Version + ".tar" }

func (r *Release) program() string { return "programs/clusteradm-" + r.Version + "-linux-amd64.tar.gz" }

// Run runs a command as a user does, and returns its output.
func (r *Release) Run(t testing.TB, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	command.Dir = r.Dir
	command.Env = append(os.Environ(), "PATH="+r.Path("bin")+":"+localhub.BinDir()+":"+os.Getenv("PATH"),
		"KUBECONFIG="+r.Path("kubeconfig"), "KUBECACHEDIR="+r.Path("cache"), "KUBERC=off")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// Follow runs the commands of the page with the values of placeholders, and returns the output of the last one.
func (r *Release) Follow(t testing.TB) (last string) {
	t.Helper()
	values := map[string]string{"VERSION": r.Version}
	placeholder := regexp.MustCompile(`\b(VERSION|TOKEN|URL|CA)\b`)
	for _, line := range commands(t, AirGapped) {
		if strings.Contains(line, "TOKEN") {
			// The printed command has no context and does not wait.
			for _, word := range strings.Fields(values["join"]) {
				if !strings.Contains(line, word) && strings.HasPrefix(word, "--") {
					t.Errorf("the join command of the page lacks %s, which init printed", word)
				}
			}
		}
		last = r.Run(t, placeholder.ReplaceAllStringFunc(line, func(name string) string {
			value, known := values[name]
			if !known {
				t.Fatalf("%s: %s has no value yet", line, name)
			}
			return value
		}))
		if _, join, found := strings.Cut(last, "clusteradm join"); found {
			join, _, _ = strings.Cut(join, "\n\n")
			values["join"] = join
			words := strings.Fields(strings.ReplaceAll(join, "\\\n", " "))
			for name, flag := range map[string]string{"TOKEN": "--hub-token", "URL": "--hub-apiserver", "CA": "--ca-data"} {
				at := slices.Index(words, flag)
				if at < 0 || at+1 == len(words) {
					t.Fatalf("clusteradm init printed %q, want %s", join, flag)
				}
				values[name] = words[at+1]
			}
		}
	}
	imported, err := os.ReadFile(r.Path("imported"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(imported), fmt.Sprintf("%s\n%s\n", r.Image("hub-apiserver"), r.Image("hub-apiserver-agent")); got != want {
		t.Errorf("imported images = %q, want %q", got, want)
	}
	return last
}
