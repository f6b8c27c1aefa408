package conformance

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// output collects the output of a running program. It is safe for concurrent use.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

// String returns everything written so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// command returns a kubectl command with the administrator's credentials.
func (h *hub) command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(localhub.BinDir(), "kubectl"), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+h.kubeconfig,
		"KUBECACHEDIR="+filepath.Join(filepath.Dir(h.kubeconfig), "kubectl-cache"),
	)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// kubectl runs kubectl and waits until it exits.
func (h *hub) kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := h.command(ctx, stdin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), ctx.Err())
	}
	return out.String(), errOut.String(), err
}

// run runs kubectl in the namespace of the place and returns its standard output.
func (p *place) run(t *testing.T, args ...string) string {
	t.Helper()
	return p.runWith(t, nil, args...)
}

// runWith runs kubectl like run, with an object as YAML in standard input.
func (p *place) runWith(t *testing.T, object *unstructured.Unstructured, args ...string) string {
	t.Helper()
	stdout, stderr, err := p.kubectl(t, object, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s%s", strings.Join(args, " "), err, stderr, stdout)
	}
	return stdout
}

// refused runs kubectl, which must fail, and returns its standard error.
func (p *place) refused(t *testing.T, object *unstructured.Unstructured, args ...string) string {
	t.Helper()
	stdout, stderr, err := p.kubectl(t, object, args...)
	if err == nil {
		t.Fatalf("kubectl %s succeeded, want an error: %s", strings.Join(args, " "), stdout)
	}
	return stderr
}

func (p *place) kubectl(t *testing.T, object *unstructured.Unstructured, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	stdin := ""
	if object != nil {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		stdin = string(content)
	}
	return p.hub.kubectl(t, stdin, p.inPlace(args)...)
}

// inPlace adds the namespace of the place to the arguments of kubectl.
func (p *place) inPlace(args []string) []string {
	if p.ClusterScoped {
		return args
	}
	return append([]string{"--namespace=" + p.namespace}, args...)
}

// wantContains checks that a text contains all parts.
func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("output does not contain %q:\n%s", part, text)
		}
	}
}
