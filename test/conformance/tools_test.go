package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// deadline bounds everything that a test waits for. Nothing should take
	// nearly as long: it is there for a hanging server, on a busy machine.
	deadline = 90 * time.Second
	interval = 100 * time.Millisecond
)

// eventually waits until check returns nil, and fails with what it returned last.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, deadline, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err != nil && (ctx.Err() == nil || last == nil) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// output collects what a program writes while others read it.
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

// command is kubectl with the administrator's credentials.
func (h *hub) command(ctx context.Context, stdin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(localhub.BinDir(), "kubectl"), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+h.kubeconfig,
		"KUBECACHEDIR="+filepath.Join(filepath.Dir(h.kubeconfig), "kubectl-cache"),
	)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

// kubectl runs kubectl to its end.
func (h *hub) kubectl(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
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

// runWith is run with an object as YAML in kubectl's standard input.
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
		t.Fatalf("kubectl %s was not refused: %s", strings.Join(args, " "), stdout)
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

// inPlace adds the namespace of the place to arguments of kubectl.
func (p *place) inPlace(args []string) []string {
	if p.ClusterScoped {
		return args
	}
	return append([]string{"--namespace=" + p.namespace}, args...)
}

// wantContains checks that a text has every one of the parts.
func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}
