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
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/tokens"
)

// parallel bounds how many clusters are asked at a time.
const parallel = 8

func main() {
	// What is wrong is told once, by the errors, and not by client-go's log as well.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt)
	defer restore()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := pflag.NewFlagSet("tokens", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the hub; as kubectl finds it if not given")
	cluster := flags.String("cluster", "", "managed cluster; every one with a ready account if not given")
	account := flags.String("account", "", "name of the ManagedServiceAccount")
	server := flags.String("server", "", "address of the cluster's API server, if the ManagedCluster does not say it")
	namespace := flags.StringP("namespace", "n", "", "namespace on the managed cluster; all if not given")
	timeout := flags.Duration("timeout", 30*time.Second, "how long to wait for each cluster, and for the hub to list them")
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

	hub, err := hubOf(*kubeconfig)
	if err != nil {
		return err
	}
	clusters := []string{*cluster}
	if *cluster == "" {
		if clusters, err = ready(ctx, hub, *account, *timeout, notes); err != nil {
			return err
		}
	}
	answers := make([]answer, len(clusters))
	var asking errgroup.Group
	asking.SetLimit(parallel)
	for i, name := range clusters {
		asking.Go(func() error {
			answers[i] = list(ctx, hub, name, *account, *server, flags.Arg(1), *namespace, *timeout)
			return nil
		})
	}
	_ = asking.Wait() // each answer has its own error
	return show(clusters, answers, out, notes)
}

// answer is what came of asking one cluster.
type answer struct {
	// address of the cluster's API server, if it is known.
	address string
	objects []unstructured.Unstructured
	err     error
}

// show prints the objects by cluster, and then which clusters failed.
func show(clusters []string, answers []answer, out, notes io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tNAMESPACE\tNAME")
	for i, cluster := range clusters {
		for _, object := range answers[i].objects {
			fmt.Fprintf(table, "%s\t%s\t%s\n", cluster, object.GetNamespace(), object.GetName())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	failed := 0
	for i, cluster := range clusters {
		answer := answers[i]
		if answer.err == nil {
			continue
		}
		failed++
		if answer.address != "" {
			cluster += " at " + answer.address
		}
		fmt.Fprintf(notes, "cluster %s: %v\n", cluster, answer.err)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d clusters failed", failed, len(clusters))
	}
	return nil
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

// ready names, in order, the clusters where an account has a token, and tells
// about the others.
func ready(ctx context.Context, hub *tokens.Hub, account string, timeout time.Duration, notes io.Writer) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	accounts, err := hub.List(ctx, tokens.ListOptions{Name: account})
	if err != nil {
		return nil, err
	}
	var clusters []string
	for _, a := range accounts {
		if !a.Ready {
			fmt.Fprintf(notes, "cluster %s is left out: %s\n", a.Cluster, a.Message)
			continue
		}
		clusters = append(clusters, a.Cluster)
	}
	if len(clusters) == 0 {
		return nil, fmt.Errorf("no cluster has a ready account %s", account)
	}
	slices.Sort(clusters)
	return clusters, nil
}

// list asks a cluster for the objects of a resource that the account may list there.
// The timeout is its own: a cluster that does not answer takes no time of the others.
func list(ctx context.Context, hub *tokens.Hub, cluster, account, server, resource, namespace string, timeout time.Duration) answer {
	failed := func(err error) answer { return answer{address: server, err: err} }
	source, err := hub.Source(cluster, account, tokens.Options{Host: server})
	if err != nil {
		return failed(err)
	}
	// A program that stays would keep the source, and the clients, for as long as it
	// runs: they follow the token.
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	go source.Run(ctx)
	config, err := source.Config(ctx)
	if err != nil {
		return failed(err)
	}
	server = config.Host
	// Each request ends with ctx as well; discovery has half a minute of its own if
	// nothing is said here.
	config.Timeout = timeout
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return failed(err)
	}
	kind, err := resolve(ctx, config, resource)
	if err != nil {
		return failed(err)
	}
	objects, err := client.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return failed(err)
	}
	return answer{address: server, objects: objects.Items}
}

// resolve finds the resource that a person means by a name, such as pods or deployments.apps.
func resolve(ctx context.Context, config *rest.Config, resource string) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, client)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	mapper := restmapper.NewDiscoveryRESTMapperWithContext(groups)
	return mapper.ResourceForWithContext(ctx, schema.ParseGroupResource(resource).WithVersion(""))
}
