// Package console contains the command that opens the fleet in a browser: it forwards the requests of the page to the hub.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	checkTimeout = 30 * time.Second
	role         = "open-cluster-management:console:use"
	index        = "index.html"
)

type consoling struct {
	cli.Environment

	port      int
	noBrowser bool
}

// New returns the command clusteradm console.
func New(env cli.Environment) *cobra.Command {
	c := &consoling{Environment: env}
	command := &cobra.Command{
		Use:   "console",
		Short: "Open the fleet in a browser",
		Long: `Open the console in a browser: search, resources, clusters and access of the fleet.

The page has the permissions of your kubeconfig. The command forwards the requests of the page
from an address of this machine, until you stop it with Ctrl-C. Only you can use that address:
the printed URL works once, and the browser that opens it gets a secret path. The command
forwards the requests that the page needs, and refuses all others.`,
		Example: `  # Open the console as the user of the current context
  clusteradm console

  # Print the URL, to open it in another browser
  clusteradm console --no-browser

  # See what alice sees
  clusteradm console --as alice`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return c.run(command.Context()) },
	}
	flags := command.Flags()
	flags.IntVar(&c.port, "port", 0, "Port on the loopback address. 0 selects a free port.")
	flags.BoolVar(&c.noBrowser, "no-browser", false, "Only print the URL.")
	// It fails only for a flag that does not exist.
	_ = command.RegisterFlagCompletionFunc("port", cobra.NoFileCompletions)
	return command
}

func (c *consoling) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	clients, err := c.Connect()
	if err != nil {
		return err
	}
	if err := checkConsole(ctx, clients.OCM); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server may have closed it
	p, err := newProxy(clients.Config, listener.Addr(), c.ErrOut)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.Out, p.url()); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(c.ErrOut, "The URL works once. Stop the console with Ctrl-C.") // the URL is what counts
	if !c.noBrowser {
		running.Go(func() {
			if err := browse(ctx, p.url()); err != nil && ctx.Err() == nil {
				_, _ = fmt.Fprintf(c.ErrOut, "Cannot start a browser: %v. Open the URL yourself.\n", err)
			}
		})
	}
	// The browser is started before the server runs, but its connection waits in the queue of the listener.
	return p.serve(ctx, listener)
}

// checkConsole returns an error with the remedy if the caller cannot get the console.
func checkConsole(ctx context.Context, client versioned.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := client.SearchV1alpha1().RESTClient().Get().Resource("console").Name(index).Do(ctx).Error()
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; bind the ClusterRole %s to the user with a ClusterRoleBinding", err, role)
	case apierrors.IsNotFound(err):
		return errors.New("the hub does not serve the console: the server is older than clusteradm, runs with --console=false or --search-engine=none, or is not installed")
	case err != nil:
		return fmt.Errorf("getting the console from the hub: %w", err)
	}
	return nil
}

// browse opens a URL with the browser of the user, and waits until the program that opens it exits.
func browse(ctx context.Context, url string) error {
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	return exec.CommandContext(ctx, command[0], append(command[1:], url)...).Run()
}
