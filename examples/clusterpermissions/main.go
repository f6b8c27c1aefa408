// Command clusterpermissions grants a user permission to read the pods of one namespace of
// a managed cluster, waits until the permission is applied, and lists the permissions on
// that cluster. It shows how a program uses the typed clientset.
//
//	go run ./examples/clusterpermissions --cluster cluster1 --name pod-readers --user alice
//
// With --delete it deletes the ClusterPermission before it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// fieldManager owns the fields that this program sets.
const fieldManager = "example-clusterpermissions"

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

func run(ctx context.Context, args []string, out, notes io.Writer) (err error) {
	flags := pflag.NewFlagSet("clusterpermissions", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the hub; the same default as kubectl")
	cluster := flags.String("cluster", "", "managed cluster on which the permission is granted")
	name := flags.String("name", "", "name of the ClusterPermission")
	user := flags.String("user", "", "user name on the managed cluster of the user who may read the pods")
	namespace := flags.StringP("namespace", "n", metav1.NamespaceDefault, "namespace on the managed cluster")
	timeout := flags.Duration("timeout", time.Minute, "how long to wait until the permission is applied on the managed cluster")
	remove := flags.Bool("delete", false, "delete the ClusterPermission before the program ends, even if it was not applied")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if *cluster == "" || *name == "" || *user == "" || flags.NArg() > 0 {
		return errors.New("usage: clusterpermissions --cluster NAME --name NAME --user NAME [-n NAMESPACE] [--delete]")
	}

	hub, err := hubOf(*kubeconfig)
	if err != nil {
		return err
	}
	// The program cleans up even if it is interrupted.
	cleaning := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()

	created, err := hub.RbacV1alpha1().ClusterPermissions(*cluster).Create(ctx,
		podReaders(*cluster, *name, *namespace, *user), metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("creating the ClusterPermission: %w", err)
	}
	if *remove {
		defer func() { err = errors.Join(err, undo(cleaning, hub, created, *timeout)) }()
	}
	if err := untilApplied(ctx, hub, created, notes); err != nil {
		return err
	}
	return list(ctx, hub, *cluster, out)
}

// hubOf returns a client of the hub in a kubeconfig.
func hubOf(kubeconfig string) (versioned.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return versioned.NewForConfig(config)
}

// podReaders returns a ClusterPermission with a Role and a RoleBinding to it. Both have the
// name of the ClusterPermission.
func podReaders(cluster, name, namespace, user string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			Roles: &[]rbacv1alpha1.Role{{
				Namespace: namespace,
				Rules:     []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}},
			}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{
				Namespace: namespace,
				RoleRef:   rbacv1alpha1.RoleRef{Kind: "Role"},
				Subject:   &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
			}},
		},
	}
}

// untilApplied waits until the agent of the managed cluster reports that it has applied
// the spec. If ctx ends first, it prints the conditions that are not true.
func untilApplied(ctx context.Context, hub versioned.Interface, permission *rbacv1alpha1.ClusterPermission, notes io.Writer) error {
	started := time.Now()
	// Unlike a single watch, UntilWithSync continues after the connection is lost or the
	// resource version has expired.
	source := cache.NewListWatchFromClient(hub.RbacV1alpha1().RESTClient(), "clusterpermissions", permission.Namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, permission.Name))
	last, told := permission, false
	_, err := watchtools.UntilWithSync(ctx, source, &rbacv1alpha1.ClusterPermission{}, nil, func(event watch.Event) (bool, error) {
		current, ok := event.Object.(*rbacv1alpha1.ClusterPermission)
		switch {
		case !ok:
			return false, apierrors.FromObject(event.Object)
		case event.Type == watch.Deleted || current.UID != permission.UID:
			return false, fmt.Errorf("ClusterPermission %s was deleted", permission.Name)
		}
		last = current
		if waits := pending(current); waits != "" && !told {
			fmt.Fprintln(notes, waits)
			told = true
		}
		return isApplied(current), nil
	})
	if err == nil || !wait.Interrupted(err) {
		return err
	}
	for _, condition := range last.Status.Conditions {
		if condition.Status != metav1.ConditionTrue {
			fmt.Fprintf(notes, "%s is %s: %s\n", condition.Type, condition.Status, condition.Message)
		}
	}
	err = fmt.Errorf("ClusterPermission %s is not applied after %s", permission.Name, time.Since(started).Round(time.Second))
	switch waits := pending(last); {
	case last == permission:
		return fmt.Errorf("%w: the hub has not shown it; check the permission to list and watch clusterpermissions", err)
	case waits != "":
		return fmt.Errorf("%w: %s", err, waits)
	}
	return err
}

// isApplied reports whether the current spec is on the managed cluster. A condition may
// refer to an earlier generation.
func isApplied(permission *rbacv1alpha1.ClusterPermission) bool {
	applied := meta.FindStatusCondition(permission.Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
	return applied != nil && applied.Status == metav1.ConditionTrue && applied.ObservedGeneration == permission.Generation
}

// pending returns a note if the current spec waits for an approval, or "" if it does not.
func pending(permission *rbacv1alpha1.ClusterPermission) string {
	approval := permission.Status.Approval
	if approval == nil || approval.Pending == nil {
		return ""
	}
	return fmt.Sprintf("generation %d by %s waits for approval", approval.Pending.Generation, approval.Pending.RequestedBy)
}

// undo deletes the ClusterPermission only if it is the one that was created. The agent then
// removes the Role and the RoleBinding.
func undo(ctx context.Context, hub versioned.Interface, created *rbacv1alpha1.ClusterPermission, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := hub.RbacV1alpha1().ClusterPermissions(created.Namespace).Delete(ctx, created.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(created.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the ClusterPermission: %w", err)
	}
	return nil
}

// list prints the permissions that ClusterPermissions grant on a cluster.
func list(ctx context.Context, hub versioned.Interface, cluster string, out io.Writer) error {
	permissions, err := hub.RbacV1alpha1().ClusterPermissions(cluster).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the ClusterPermissions of %s: %w", cluster, err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PERMISSION\tKIND\tNAMESPACE\tNAME\tAPPLIED")
	for _, permission := range permissions.Items {
		row := func(kind, namespace, name string, conditions []metav1.Condition) {
			state := metav1.ConditionUnknown
			if applied := meta.FindStatusCondition(conditions, rbacv1alpha1.ConditionResourceApplied); applied != nil {
				state = applied.Status
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", permission.Name, kind, namespace, name, state)
		}
		delivered := permission.Status.ResourceStatus
		if delivered == nil {
			row("", "", "", nil)
			continue
		}
		for _, object := range delivered.ClusterRoles {
			row("ClusterRole", "", object.Name, object.Conditions)
		}
		for _, object := range delivered.ClusterRoleBindings {
			row("ClusterRoleBinding", "", object.Name, object.Conditions)
		}
		for _, object := range delivered.Roles {
			row("Role", object.Namespace, object.Name, object.Conditions)
		}
		for _, object := range delivered.RoleBindings {
			row("RoleBinding", object.Namespace, object.Name, object.Conditions)
		}
	}
	return table.Flush()
}
