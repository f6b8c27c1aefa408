package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// FieldManager owns the fields that clusteradm writes.
const FieldManager = "clusteradm"

// Environment is what all commands get: the flags that select a cluster, and the streams.
type Environment struct {
	*genericclioptions.ConfigFlags
	genericiooptions.IOStreams
}

// Clients are the clients of one cluster.
type Clients struct {
	Config      *rest.Config
	Kube        kubernetes.Interface
	OCM         versioned.Interface
	Dynamic     dynamic.Interface
	APIServices apiregistrationclient.APIServiceInterface
}

// Connect returns the clients of the cluster of the current context.
func (e Environment) Connect() (*Clients, error) {
	config, err := e.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return NewClients(rest.CopyConfig(config))
}

// NewClients returns clients with a configuration.
func NewClients(config *rest.Config) (*Clients, error) {
	// A command sends a few dozen requests, and the server limits excessive load.
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ocm, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	services, err := apiregistrationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	return &Clients{Config: config, Kube: kube, OCM: ocm, Dynamic: client, APIServices: services.APIServices()}, err
}

// Group returns a command that only has subcommands.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	group.AddCommand(commands...)
	return group
}

// Within returns a function for a command that calls run, whose context ends after a timeout.
func Within(timeout *time.Duration, run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		if *timeout <= 0 {
			return fmt.Errorf("--timeout must be more than 0, not %s", *timeout)
		}
		ctx, cancel := context.WithTimeout(command.Context(), *timeout)
		defer cancel()
		return run(ctx, args)
	}
}

// IgnoreNotFound returns nil for the error that an object does not exist, and all other errors.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreAlreadyExists returns nil for the error that an object exists, and all other errors.
func IgnoreAlreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Optional returns nil for an object that does not exist.
func Optional[T any](object *T, err error) (*T, error) {
	if err != nil {
		return nil, IgnoreNotFound(err)
	}
	return object, nil
}

// Prefix returns an error that says what failed, or nil without an error.
func Prefix(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// Missing reports whether an object does not exist although its resource does.
func Missing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// MergePatch returns a JSON merge patch.
func MergePatch(fields map[string]any) []byte {
	patch, err := json.Marshal(fields)
	if err != nil {
		// Strings, and maps and structs of strings, can always be encoded.
		panic(err)
	}
	return patch
}
