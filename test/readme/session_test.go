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

// TestSessionOfREADME runs `make run` and the session of README, and compares each output with that of README. With RECORD=1,
// it writes docs/images/session.svg.
func TestSessionOfREADME(t *testing.T) {
	program, err := localhub.Binary(localhub.BinDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hub := exec.CommandContext(t.Context(), program)
	hub.Env = append(os.Environ(), "RUN_DIR="+dir)
	var out strings.Builder
	hub.Stdout, hub.Stderr = &out, &out
	hub.Cancel = func() error { return hub.Process.Signal(syscall.SIGTERM) }
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- hub.Wait() }()
	t.Cleanup(func() {
		_ = hub.Cancel()
		if err := await.Done(t, "the end of make run", exited); err != nil || t.Failed() {
			t.Logf("make run: %v\n%s", err, out.String())
		}
	})
	await.Eventually(t, "make run is ready", func() error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})

	var recorded strings.Builder
	for _, c := range readmeSession(t) {
		var got string
		await.Eventually(t, c.line, func(ctx context.Context) error {
			shell := exec.CommandContext(ctx, "bash", "-c", c.line)
			shell.Dir = localhub.Root()
			shell.Env = append(os.Environ(), "PATH="+localhub.BinDir()+":"+os.Getenv("PATH"),
				"KUBECONFIG="+filepath.Join(dir, "hub.kubeconfig"), "KUBECACHEDIR="+filepath.Join(dir, "cache"), "KUBERC=off")
			output, err := shell.CombinedOutput()
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				return err
			}
			got = string(output)
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
