package localhub

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Clusteradm runs the program clusteradm as an administrator of clusters.
type Clusteradm struct {
	// BinDir contains the program; [BinDir]() if empty.
	BinDir string
	// Host is the host on which it runs. Nil means this machine.
	Host *Host
	// Ran is called with each successful command, if set, and never twice at the same time.
	Ran Ran

	mu sync.Mutex
}

// Ran receives each successful command of an administrator: the cluster, the words and the output.
// The words and the output may contain tokens.
type Ran func(cluster *Cluster, words []string, output string)

// Run runs a command as an administrator of the cluster, and returns its standard output. If it
// fails, the error contains all of its output.
func (a *Clusteradm) Run(ctx context.Context, cluster *Cluster, args ...string) (string, error) {
	dir := a.BinDir
	if dir == "" {
		dir = BinDir()
	}
	path, err := Binary(dir, "clusteradm")
	if err != nil {
		return "", err
	}
	var output, messages bytes.Buffer
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.adminKubeconfig(), "KUBECACHEDIR="+filepath.Join(cluster.dir, "clusteradm-cache"), "KUBERC=off")
	command.Stdout, command.Stderr = &output, &messages
	if err := a.Host.run(command.Run); err != nil {
		return "", fmt.Errorf("clusteradm %s on %s: %w\n%s", args[0], cluster.Name, errors.Join(err, ctx.Err()), messages.String()+output.String())
	}
	if a.Ran != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.Ran(cluster, append([]string{"clusteradm"}, args...), messages.String()+output.String())
	}
	return output.String(), nil
}

// Invitation contains the output of clusteradm init that clusters need to join a hub.
type Invitation struct {
	// Server is the URL of the hub, Token its bootstrap token, and CA its certificate authority.
	Server, Token string
	CA            []byte
	// ServerArgs are the flags of a server outside of the hub.
	ServerArgs []string
}

// Init makes a cluster a hub with a server that runs outside of the cluster. A second call
// changes nothing and returns a new token.
func (a *Clusteradm) Init(ctx context.Context, hub *Cluster, args ...string) (*Invitation, error) {
	output, err := a.Run(ctx, hub, append([]string{"init", "--apiserver=external"}, args...)...)
	if err != nil {
		return nil, err
	}
	flags := map[string]string{}
	words := strings.Fields(strings.ReplaceAll(output, "\\\n", " "))
	for i, word := range words[:max(0, len(words)-1)] {
		if strings.HasPrefix(word, "--") && flags[word] == "" {
			flags[word] = words[i+1]
		}
	}
	i := &Invitation{Server: flags["--hub-apiserver"], Token: flags["--hub-token"]}
	if i.CA, err = base64.StdEncoding.DecodeString(flags["--ca-data"]); err != nil {
		return nil, fmt.Errorf("clusteradm init printed --ca-data %q: %w", flags["--ca-data"], err)
	}
	for line := range strings.Lines(output) {
		if flags, ok := strings.CutPrefix(line, "Start the server with: "); ok {
			i.ServerArgs = strings.Fields(flags)
		}
	}
	if i.Server == "" || i.Token == "" || len(i.ServerArgs) == 0 {
		return nil, fmt.Errorf("the output of clusteradm init lacks the flags of clusteradm join or of the server:\n%s", output)
	}
	return i, nil
}

// JoinArgs returns the arguments of clusteradm join for a cluster with an agent that runs outside
// of the cluster.
func (i *Invitation) JoinArgs(cluster string) []string {
	return []string{
		"join", "--agent=external", "--hub-token", i.Token, "--hub-apiserver", i.Server,
		"--ca-data", base64.StdEncoding.EncodeToString(i.CA), "--cluster-name", cluster,
	}
}

// Accept accepts clusters on a hub. It waits until they have requested to join and have access.
func (a *Clusteradm) Accept(ctx context.Context, hub *Cluster, clusters ...string) error {
	_, err := a.Run(ctx, hub, "accept", "--clusters", strings.Join(clusters, ","), "--wait")
	return err
}
