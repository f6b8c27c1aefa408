// Package readme runs the session of README.
package readme

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/hack/docs"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// command is a command of README with the output that README shows.
type command struct{ line, output string }

// readmeSession returns the commands of the session in README.
func readmeSession(t *testing.T) (session []command) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(localhub.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(content), "```\n$ export ")
	block, _, closed := strings.Cut(block, "\n```\n")
	if !found || !closed {
		t.Fatal("README has no session that begins with export, want one")
	}
	_, block, _ = strings.Cut(block, "\n")
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		line, output, _ := strings.Cut(part, "\n")
		if strings.Contains(line, "<<EOF") {
			document, rest, _ := strings.Cut(output, "\nEOF\n")
			line, output = line+"\n"+document+"\nEOF", rest
		}
		session = append(session, command{line, strings.TrimSpace(output)})
	}
	return session
}

var (
	age    = regexp.MustCompile(`\b[0-9]+(s|m([0-9]+s)?)\b`)
	hash   = regexp.MustCompile(`-[0-9a-f]{5,16}\b`)
	spaces = regexp.MustCompile(` +`)
)

// comparable returns an output without what differs between runs: ages, hashes and the width of columns.
func comparable(output string) string {
	for pattern, replacement := range map[*regexp.Regexp]string{age: "AGE", hash: "-HASH"} {
		output = pattern.ReplaceAllString(output, replacement)
	}
	output = spaces.ReplaceAllString(output, " ")
	return strings.ReplaceAll(strings.TrimSpace(output), " \n", "\n")
}

// hub is a running `make run`.
type hub struct{ dir string }

func startHub(t *testing.T) *hub {
	t.Helper()
	program, err := localhub.Binary(localhub.BinDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	h := &hub{t.TempDir()}
	run := exec.CommandContext(t.Context(), program)
	run.Env = append(os.Environ(), "RUN_DIR="+h.dir)
	var out strings.Builder
	run.Stdout, run.Stderr = &out, &out
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGTERM) }
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- run.Wait() }()
	t.Cleanup(func() {
		_ = run.Cancel()
		if err := await.Done(t, "the end of make run", exited); err != nil || t.Failed() {
			t.Logf("make run: %v\n%s", err, out.String())
		}
	})
	await.Eventually(t, "make run is ready", func() error {
		_, err := os.Stat(filepath.Join(h.dir, "ready"))
		return err
	})
	return h
}

// shell runs a line with kubectl for the hub, and returns its output. The line may fail.
func (h *hub) shell(ctx context.Context, line string) (string, error) {
	shell := exec.CommandContext(ctx, "bash", "-c", line)
	shell.Dir = localhub.Root()
	shell.Env = append(os.Environ(), "PATH="+localhub.BinDir()+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(h.dir, "hub.kubeconfig"), "KUBECACHEDIR="+filepath.Join(h.dir, "cache"), "KUBERC=off")
	output, err := shell.CombinedOutput()
	return string(output), err
}

func TestDocuments(t *testing.T) {
	h := startHub(t)
	t.Run("session of README", func(t *testing.T) { checkSession(t, h) })
	t.Run("objects of all pages", func(t *testing.T) { checkObjects(t, h) })
}

// checkSession runs the session of README, and compares each output with that of README. With RECORD=1, it writes
// docs/images/session.svg.
func checkSession(t *testing.T, h *hub) {
	var recorded strings.Builder
	for _, c := range readmeSession(t) {
		var got string
		await.Eventually(t, c.line, func(ctx context.Context) error {
			output, err := h.shell(ctx, c.line)
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				return err
			}
			got = output
			// kubectl apply is repeated if the output is not yet that of README.
			if comparable(strings.ReplaceAll(got, " unchanged", " created")) != comparable(c.output) {
				return fmt.Errorf("output = %q, want %q", got, c.output)
			}
			return nil
		})
		fmt.Fprintf(&recorded, "$ %s\n%s\n", c.line, got)
	}
	if os.Getenv("RECORD") != "" {
		if err := os.WriteFile(filepath.Join(localhub.Root(), "docs/images/session.svg"), []byte(terminal(recorded.String())), 0o644); err != nil { //nolint:gosec // a public file
			t.Fatal(err)
		}
	}
}

// checkObjects sends each object of the pages to the hub with dry-run: the hub must accept it, unless the page shows the refusal.
func checkObjects(t *testing.T, h *hub) {
	texts, err := docs.Pages(localhub.Root())
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for name, text := range texts {
		_, blocks := docs.Blocks(text)
		for _, block := range blocks {
			if strings.Contains(block, "is invalid:") || strings.Contains(block, "is forbidden:") {
				continue
			}
			for _, content := range docs.Objects(block) {
				object := &unstructured.Unstructured{}
				if err := object.UnmarshalJSON(content); err != nil {
					continue // a patch, or a part of an object
				}
				if err := h.send(t, object); err != nil {
					t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
				}
				sent++
			}
		}
	}
	if sent < 10 {
		t.Errorf("the pages contain %d objects, want at least 10", sent)
	}
}

// send creates an object with dry-run, after its namespace.
func (h *hub) send(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.json")
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	line := "kubectl create --dry-run=server -f " + file + " 2>&1 || kubectl replace --dry-run=server -f " + file
	if namespace := object.GetNamespace(); namespace != "" {
		line = "kubectl create namespace " + namespace + " >/dev/null 2>&1 || true; " + line
	}
	output, err := h.shell(t.Context(), line)
	if err != nil && !strings.Contains(output, "(MethodNotAllowed)") { // an object that is only read
		return errors.New(output)
	}
	return nil
}

// terminal returns a drawing of a terminal in which the lines appear one after the other.
func terminal(text string) string {
	const width, size = 140, 20
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, "\n")
		for ; len(line) > width; line = "  " + line[width:] {
			lines = append(lines, line[:width])
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	height := len(lines)*size + 40
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1140 %[1]d" width="1140" height="%[1]d" role="img" aria-label="A terminal session, with the text of the README">
<style>
  rect { fill: #0d1117 } text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #c9d1d9; white-space: pre } .command { fill: #79c0ff }
  @media not (prefers-reduced-motion) { text { opacity: 0; animation: show 0.1s forwards } @keyframes show { to { opacity: 1 } } }
</style>
<rect width="1140" height="%[1]d" rx="8"/>
`, height)
	delay := 0.0
	for i, line := range lines {
		class := ""
		if strings.HasPrefix(line, "$ ") {
			class, delay = ` class="command"`, delay+1.5
		}
		fmt.Fprintf(&b, `<text x="20" y="%d"%s style="animation-delay: %.1fs">%s</text>`+"\n", 30+i*size, class, delay, html.EscapeString(line))
		delay += 0.1
	}
	return b.String() + "</svg>\n"
}
