package node

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/release"
)

// TestInitNamesTheCause checks that clusteradm init --wait prints why the Pod of the server does not run.
func TestInitNamesTheCause(t *testing.T) {
	hub := startSites(t, "hub")[0]
	hub.createStorageClass(t)
	image := release.Loaded + "hub-apiserver:"
	works := image + release.Version(t)
	hub.load(t, Image{Name: works, Program: program(t, "apiserver"), Path: "/apiserver"},
		// A program that rejects the arguments of the server.
		Image{Name: image + "crash", Program: program(t, "agent"), Path: "/apiserver"})
	for _, row := range []struct {
		name    string
		prepare func(*testing.T)
		args    []string
		want    string
	}{
		{"unbound claim", nil, nil, "the PersistentVolumeClaim hub-apiserver is not bound"},
		{"missing image", func(t *testing.T) { hub.addVolume(t, "data") }, []string{"--image=127.0.0.1:9/hub-apiserver:none"}, "the image 127.0.0.1:9/hub-apiserver:none cannot be pulled"},
		{"crash", nil, []string{"--image=" + image + "crash"}, "container apiserver ended with exit code "},
		{"out of memory", nil, []string{"--image=" + works, "--resource-requests=memory=16Mi", "--resource-limits=memory=32Mi"}, "was OOMKilled at its memory limit"},
		{"no node", nil, []string{"--resource-requests=memory=1Ti", "--resource-limits=memory=1Ti"}, "it cannot be scheduled: "},
		{"quota", func(t *testing.T) {
			hub.run(t, "kubectl", "create", "quota", "none", "--hard=pods=0", "--namespace="+hubNamespace)
		}, []string{"--resource-requests=memory=512Mi", "--resource-limits=memory=4Gi"}, "no Pod can be created: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.prepare != nil {
				row.prepare(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			// The command ends when it has printed the cause.
			out := &watched{want: "still waiting: ", cause: row.want, found: cancel}
			command := hub.command(ctx, t, "clusteradm", append([]string{"init", "--wait"}, row.args...)...)
			command.Stdout, command.Stderr = out, out
			begin := time.Now()
			err := command.Run()
			if out.took.IsZero() {
				t.Fatalf("clusteradm init --wait %s = %v, want %q; it printed\n%s", strings.Join(row.args, " "), err, row.want, out.printed.String())
			}
			t.Log(out.line)
			report(t, "init --wait names the cause: "+row.name, out.took.Sub(begin), 10*time.Second)
		})
	}
}

// watched is the output of a command until a line contains a warning and a cause.
type watched struct {
	want, cause string
	found       func()

	mu      sync.Mutex
	printed bytes.Buffer
	took    time.Time
	line    string
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.printed.Write(p)
	for line := range strings.Lines(w.printed.String()) {
		if w.took.IsZero() && strings.Contains(line, w.want) && strings.Contains(line, w.cause) {
			w.took, w.line = time.Now(), strings.TrimSpace(line)
			w.found()
		}
	}
	return len(p), nil
}
