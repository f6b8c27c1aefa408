package clusteradm

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
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

const (
	consoleCheckTimeout = 30 * time.Second
	consoleRole         = "open-cluster-management:console:use"
	consoleIndex        = "index.html"
)

// consoling is the command clusteradm console.
type consoling struct {
	access  *genericclioptions.ConfigFlags
	streams genericiooptions.IOStreams

	port      int
	noBrowser bool
}

func newConsole(access *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	c := &consoling{access: access, streams: streams}
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
	config, err := c.access.ToRESTConfig()
	if err != nil {
		return err
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := checkConsole(ctx, client); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)))
	if err != nil {
		return err
	}
	proxy, err := newConsoleProxy(config, listener.Addr(), c.streams.ErrOut)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if _, err := fmt.Fprintln(c.streams.Out, proxy.url()); err != nil {
		return errors.Join(err, listener.Close())
	}
	if _, err := fmt.Fprintln(c.streams.ErrOut, "The URL works once. Stop the console with Ctrl-C."); err != nil {
		return errors.Join(err, listener.Close())
	}
	if !c.noBrowser {
		running.Go(func() {
			if err := browse(ctx, proxy.url()); err != nil && ctx.Err() == nil {
				_, _ = fmt.Fprintf(c.streams.ErrOut, "Cannot start a browser: %v. Open the URL yourself.\n", err)
			}
		})
	}
	// The browser is started before the server runs, but its connection waits in the queue of the listener.
	return proxy.serve(ctx, listener)
}

// checkConsole returns an error with the remedy if the caller cannot get the console.
func checkConsole(ctx context.Context, client versioned.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, consoleCheckTimeout)
	defer cancel()
	err := client.SearchV1alpha1().RESTClient().Get().Resource("console").Name(consoleIndex).Do(ctx).Error()
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; to do: bind the ClusterRole %s to the user with a ClusterRoleBinding", err, consoleRole)
	case apierrors.IsNotFound(err):
		return errors.New("the hub serves no console: its server is older than clusteradm, runs with --console=false or without search, or is not installed")
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
