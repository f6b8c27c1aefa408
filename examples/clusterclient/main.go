// Command clusterclient lists objects of managed clusters from the hub, as a
// ManagedServiceAccount. It shows how a program uses pkg/clusterclient.
//
//	go run ./examples/clusterclient --account example list configmaps -n default
//
// Without --cluster it lists the objects of every cluster with a ready account of that name.
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	authenticationclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/authentication/v1beta1"
)

// parallel bounds the number of clusters to which the program sends requests concurrently.
const parallel = 8

func main() {
	// The program reports errors itself, so the log of client-go is discarded.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt)
	defer restore()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := pflag.NewFlagSet("clusterclient", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the hub; the same default as kubectl")
	cluster := flags.String("cluster", "", "managed cluster; all clusters with a ready account if not given")
	account := flags.String("account", "", "name of the ManagedServiceAccount")
	server := flags.String("server", "", "address of the cluster's API server, if the ManagedCluster does not contain it")
	namespace := flags.StringP("namespace", "n", "", "namespace on the managed cluster; all if not given")
	timeout := flags.Duration("timeout", 30*time.Second, "timeout for each cluster, and for listing the accounts on the hub")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if *account == "" || flags.NArg() != 2 || flags.Arg(0) != "list" {
		return errors.New("usage: clusterclient --account NAME [--cluster NAME] list RESOURCE [-n NAMESPACE]")
	}
	if *server != "" && *cluster == "" {
		return errors.New("--server is the address of one cluster and requires --cluster")
	}

	config, err := hubConfig(*kubeconfig)
	if err != nil {
		return err
	}
	hub, err := clusterclient.NewHub(config)
	if err != nil {
		return err
	}
	clusters := []string{*cluster}
	if *cluster == "" {
		if clusters, err = ready(ctx, config, *account, *timeout, notes); err != nil {
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

// answer is the result of the requests to one cluster.
type answer struct {
	// address is the address of the cluster's API server, if it is known.
	address string
	objects []unstructured.Unstructured
	err     error
}

// show prints the objects by cluster, and then the errors of the clusters that failed.
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

// hubConfig returns the configuration of the hub in a kubeconfig.
func hubConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return config, nil
}

// ready returns the sorted names of the clusters where an account has a token. It prints a
// note about each other cluster.
func ready(ctx context.Context, hub *rest.Config, account string, timeout time.Duration, notes io.Writer) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := authenticationclient.NewForConfig(hub)
	if err != nil {
		return nil, err
	}
	accounts, err := client.ManagedServiceAccounts(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, account).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing ManagedServiceAccounts: %w", err)
	}
	var clusters []string
	for _, a := range accounts.Items {
		switch {
		case a.Status.Clusters != nil: // an account of cluster sets, whose replicas are in the list
		case a.DeletionTimestamp != nil:
			fmt.Fprintf(notes, "cluster %s is skipped: its account is being deleted\n", a.Namespace)
		case a.Status.ExpirationTimestamp != nil && time.Now().After(a.Status.ExpirationTimestamp.Time):
			fmt.Fprintf(notes, "cluster %s is skipped: the token of its account has expired\n", a.Namespace)
		case !meta.IsStatusConditionTrue(a.Status.Conditions, authenticationv1beta1.ConditionTokenReported):
			fmt.Fprintf(notes, "cluster %s is skipped: its account has no token\n", a.Namespace)
		default:
			clusters = append(clusters, a.Namespace)
		}
	}
	if len(clusters) == 0 {
		return nil, fmt.Errorf("no cluster has a ready account %s", account)
	}
	slices.Sort(clusters)
	return clusters, nil
}

// list returns the objects of a resource on a cluster that the account may list. Each cluster
// has its own timeout, so a cluster that does not respond does not delay the others.
func list(ctx context.Context, hub *clusterclient.Hub, cluster, account, server, resource, namespace string, timeout time.Duration) answer {
	failed := func(err error) answer { return answer{address: server, err: err} }
	source, err := hub.Source(cluster, account, clusterclient.Options{Host: server})
	if err != nil {
		return failed(err)
	}
	// A long-running program keeps the source and the clients, which always use the
	// current token.
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	go source.Run(ctx)
	config, err := source.Config(ctx)
	if err != nil {
		return failed(err)
	}
	server = config.Host
	// Each request also ends with ctx. Without this setting, discovery uses a timeout of
	// about half a minute.
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

// resolve returns the resource with a name such as pods or deployments.apps.
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
