package install

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

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// airGapped is the page whose commands install from the archives of a release.
const airGapped = "docs/air-gapped.md"

// mostCommands is the maximum number of commands in the section Install of a page.
const mostCommands = 9

// loaded is the repository of images that are imported from the archives of a release.
const loaded = "docker.io/library/"

// ctr replaces the command that imports images on a node: the images of test/kubelet need no import.
const ctr = `#!/bin/sh
test "$*" = "--namespace k8s.io images import $5" && test -f "$5" && echo "$5" >> imported
`

// version returns the version of clusteradm, which is that of the release.
func version(t testing.TB) string {
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

// installCommands returns the commands in the section Install of a page.
func installCommands(t *testing.T, page string) []string {
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

// TestInstallOfREADME checks that the commands of README are those of a node without a registry, which other tests run,
// except the registry and the path of clusteradm.
func TestInstallOfREADME(t *testing.T) {
	words := func(command string) string {
		command, _, _ = strings.Cut(command, "#")
		command = strings.NewReplacer("\\\n", " ", "./clusteradm", "clusteradm", "--image-registry registry.example.com/project", "").Replace(command)
		return strings.Join(strings.Fields(command), " ")
	}
	tested := map[string]bool{}
	for _, command := range installCommands(t, airGapped) {
		tested[words(command)] = true
	}
	for _, command := range installCommands(t, "README.md") {
		if !tested[words(command)] {
			t.Errorf("README has the command %q, want one of %s: %v", words(command), airGapped, tested)
		}
	}
}

// release is the directory of a downloaded release, with the contexts of a user.
type release struct {
	dir, version string
}

func newRelease(t *testing.T, contexts map[string]*site) *release {
	t.Helper()
	r := &release{t.TempDir(), version(t)}
	config := clientcmdapi.NewConfig()
	for name, s := range contexts {
		admin := s.AdminConfig()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*config, r.path("kubeconfig")); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		"bin/ctr":                ctr,
		r.image("hub-apiserver"): "", r.image("hub-apiserver-agent"): "",
		r.program(): "",
	} {
		if err := os.MkdirAll(filepath.Dir(r.path(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path(path), []byte(content), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	archive := exec.CommandContext(t.Context(), "tar", "--use-compress-program=gzip -1", "-cf", r.path(r.program()), "-C", localhub.BinDir(), "clusteradm")
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return r
}

func (r *release) path(name string) string  { return filepath.Join(r.dir, name) }
func (r *release) image(name string) string { return "images/" + name + "-" + r.version + ".tar" }
func (r *release) program() string          { return "programs/clusteradm-" + r.version + "-linux-amd64.tar.gz" }

// run runs a command as a user does, and returns its output.
func (r *release) run(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	command.Dir = r.dir
	command.Env = append(os.Environ(), "PATH="+r.path("bin")+":"+localhub.BinDir()+":"+os.Getenv("PATH"),
		"KUBECONFIG="+r.path("kubeconfig"), "KUBECACHEDIR="+r.path("cache"), "KUBERC=off")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// follow runs the commands of the page with the values of placeholders, and returns the output of the last one.
func (r *release) follow(t *testing.T) (last string) {
	t.Helper()
	values := map[string]string{"VERSION": r.version}
	placeholder := regexp.MustCompile(`\b(VERSION|TOKEN|URL|CA)\b`)
	for _, line := range installCommands(t, airGapped) {
		if strings.Contains(line, "TOKEN") {
			// The printed command has no context and does not wait.
			for _, word := range strings.Fields(values["join"]) {
				if !strings.Contains(line, word) && strings.HasPrefix(word, "--") {
					t.Errorf("the join command of the page lacks %s, which init printed", word)
				}
			}
		}
		last = r.run(t, placeholder.ReplaceAllStringFunc(line, func(name string) string {
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
	imported, err := os.ReadFile(r.path("imported"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(imported), fmt.Sprintf("%s\n%s\n", r.image("hub-apiserver"), r.image("hub-apiserver-agent")); got != want {
		t.Errorf("imported images = %q, want %q", got, want)
	}
	return last
}
