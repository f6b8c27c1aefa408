package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	// viewer is a user who may view the first cluster, and the namespace default of the hub.
	viewer = "dana"

	searchTimeout = time.Minute
)

// searchFleet shows the searches of an administrator, and of a user who may view one cluster.
func searchFleet(ctx context.Context, out io.Writer, fleet *localhub.Fleet) error {
	about := fmt.Sprintf("%s may search, view %s, and list the objects in the namespace default of the hub", viewer, fleet.Members[0].Name)
	if err := fleet.Hub.Apply(ctx, viewerBindings(fleet.Members[0].Name)...); err != nil {
		return err
	}
	client, err := versioned.NewForConfig(fleet.Hub.AdminConfig())
	if err != nil {
		return err
	}
	// Clusters of an earlier run with more clusters stay registered, and may stop reporting.
	names := []string{localhub.HubClusterName}
	for _, member := range fleet.Members {
		names = append(names, member.Name)
	}
	query := "kind:Namespace name:default cluster:" + strings.Join(names, ",")
	missing := errors.New("not checked")
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, searchTimeout, true, func(ctx context.Context) (bool, error) {
		found, err := client.SearchV1alpha1().Searches().Create(ctx, &searchv1alpha1.Search{
			Spec: searchv1alpha1.SearchSpec{SearchRequest: searchv1alpha1.SearchRequest{
				SearchTerms: searchv1alpha1.SearchTerms{Query: query}, Output: searchv1alpha1.OutputCount,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			missing = err
			return false, nil
		}
		missing = fmt.Errorf("%d of %d clusters have reported", found.Status.Count, len(names))
		return int(found.Status.Count) == len(names), nil
	})
	if err != nil {
		return fmt.Errorf("the fleet cannot be searched: %w", errors.Join(missing, ctx.Err()))
	}
	const namespace, configMap = "kind=Namespace,name=default", "kind=ConfigMap,name=kube-root-ca.crt,namespace=default"
	return steps(ctx, out,
		step{comment: about},
		get("get", "inventories", "--all-namespaces"),
		get("get", "fleetresources", "--all-namespaces", "--field-selector", namespace),
		get("get", "fleetresources", "--all-namespaces", "--field-selector", namespace, "--as", viewer),
		get("get", "fleetresources", "--all-namespaces", "--field-selector", configMap),
		get("get", "fleetresources", "--all-namespaces", "--field-selector", configMap, "--as", viewer),
	)
}

func viewerBindings(cluster string) []*unstructured.Unstructured {
	binding := func(kind, namespace, role string) *unstructured.Unstructured {
		metadata := map[string]any{"name": "search-" + viewer}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": viewer}},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		}}
	}
	return []*unstructured.Unstructured{
		binding("ClusterRoleBinding", "", "open-cluster-management:search:use"),
		binding("RoleBinding", cluster, "open-cluster-management:search:view-cluster"),
		binding("RoleBinding", "default", "view"),
	}
}
