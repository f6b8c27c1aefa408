// Command tokens lists objects of managed clusters from the hub, as a
// ManagedServiceAccount. It shows how a program uses pkg/tokens.
//
//	go run ./examples/tokens --account example list configmaps -n default
//
// Without --cluster it asks every cluster where an account of that name is ready.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/hub-apiserver/pkg/tokens"
)

func main() {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt)
	defer restore()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("tokens", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the hub; as kubectl finds it if not given")
	cluster := flags.String("cluster", "", "managed cluster; every one with a ready account if not given")
	account := flags.String("account", "", "name of the ManagedServiceAccount")
	server := flags.String("server", "", "address of the cluster's API server, if the ManagedCluster does not say it")
	namespace := flags.StringP("namespace", "n", "", "namespace on the managed cluster; all if not given")
	timeout := flags.Duration("timeout", 30*time.Second, "how long to wait for a token and for answers")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if *account == "" || flags.NArg() != 2 || flags.Arg(0) != "list" {
		return errors.New("usage: tokens --account NAME [--cluster NAME] list RESOURCE [-n NAMESPACE]")
	}
	if *server != "" && *cluster == "" {
		return errors.New("--server is the address of one cluster: give --cluster as well")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()

	hub, err := hubOf(*kubeconfig)
	if err != nil {
		return err
	}
	clusters := []string{*cluster}
	if *cluster == "" {
		if clusters, err = ready(ctx, hub, *account); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tNAMESPACE\tNAME")
	var failures []error
	for _, name := range clusters {
		if err := list(ctx, hub, name, *account, *server, flags.Arg(1), *namespace, table); err != nil {
			failures = append(failures, fmt.Errorf("cluster %s: %w", name, err))
		}
	}
	return errors.Join(append(failures, table.Flush())...)
}

// hubOf reads the hub that a kubeconfig leads to.
func hubOf(kubeconfig string) (*tokens.Hub, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return tokens.NewHub(config)
}

// ready names the clusters where an account has a token, and tells about the others.
func ready(ctx context.Context, hub *tokens.Hub, account string) ([]string, error) {
	accounts, err := hub.List(ctx, tokens.ListOptions{Name: account})
	if err != nil {
		return nil, err
	}
	var clusters []string
	for _, a := range accounts {
		if !a.Ready {
			fmt.Fprintf(os.Stderr, "cluster %s is left out: %s\n", a.Cluster, a.Message)
			continue
		}
		clusters = append(clusters, a.Cluster)
	}
	if len(clusters) == 0 {
		return nil, fmt.Errorf("no cluster has a ready account %s", account)
	}
	return clusters, nil
}

// list prints the objects of a resource that the account may list on a cluster.
func list(ctx context.Context, hub *tokens.Hub, cluster, account, server, resource, namespace string, out io.Writer) error {
	source, err := hub.Source(cluster, account, tokens.Options{Host: server})
	if err != nil {
		return err
	}
	// A program that stays would keep the source, and the clients, for as long as it
	// runs: they follow the token.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go source.Run(ctx)
	config, err := source.Config(ctx)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kind, err := resolve(config, resource)
	if err != nil {
		return err
	}
	objects, err := client.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, object := range objects.Items {
		fmt.Fprintf(out, "%s\t%s\t%s\n", cluster, object.GetNamespace(), object.GetName())
	}
	return nil
}

// resolve finds the resource that a person means by a name, such as pods or deployments.apps.
func resolve(config *rest.Config, resource string) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	return mapper.ResourceFor(schema.ParseGroupResource(resource).WithVersion(""))
}
