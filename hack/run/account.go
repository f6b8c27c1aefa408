package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// exampleAccount is the ManagedServiceAccount of artifacts/example.
const exampleAccount = "example"

// reported waits until the example accounts have tokens and the example
// ClusterPermissions that name them are fully delivered.
func reported(ctx context.Context, hub *localhub.Cluster, examples []*unstructured.Unstructured) error {
	client, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return err
	}
	var missing error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, deliveryTimeout, true, func(ctx context.Context) (bool, error) {
		for _, example := range examples {
			if missing = settled(ctx, client, example); missing != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return errors.Join(missing, err)
	}
	return nil
}

// settled returns nil if an example is delivered, or an error that names the missing condition.
func settled(ctx context.Context, client versioned.Interface, example *unstructured.Unstructured) error {
	switch example.GetKind() {
	case "ManagedServiceAccount":
		account, err := client.AuthenticationV1beta1().ManagedServiceAccounts(example.GetNamespace()).Get(ctx, example.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		// The token of an earlier run may have expired.
		expires := account.Status.ExpirationTimestamp
		if !meta.IsStatusConditionTrue(account.Status.Conditions, authenticationv1beta1.ConditionTokenReported) || expires == nil || !expires.After(time.Now()) {
			return fmt.Errorf("managedserviceaccount %s has no token: %v", account.Name, account.Status.Conditions)
		}
	case "ClusterPermission":
		permission, err := client.RbacV1alpha1().ClusterPermissions(example.GetNamespace()).Get(ctx, example.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(permission.Status.Conditions, rbacv1alpha1.ConditionFullyDelivered) {
			return fmt.Errorf("clusterpermission %s is not fully delivered: %v", permission.Name, permission.Status.Conditions)
		}
	}
	return nil
}

// fetchAccount returns steps that store what requests to a cluster with the example account need.
func fetchAccount(cluster string) []step {
	secret := []string{"get", "secret", exampleAccount, "--namespace", cluster, "-o"}
	into := func(file, output string) string {
		return fmt.Sprintf("%s > %s/%s.%s", output, stateDir, exampleAccount, file)
	}
	return []step{
		get("get", "managedserviceaccounts", "--all-namespaces"),
		{comment: "the token of the account, the CA certificates and the URL of the cluster", reads: true},
		get(append(secret, into("token", "jsonpath='{.data.token}' | base64 -d"))...),
		get(append(secret, into("crt", `jsonpath='{.data.ca\.crt}' | base64 -d`))...),
		get("get", "managedcluster", cluster, "-o", into("server", "jsonpath='{.spec.managedClusterClientConfigs[0].url}'")),
	}
}

// useAccount shows requests to a cluster with the token of the example account, from kubectl and
// from a program.
func useAccount(ctx context.Context, out io.Writer, cluster string) error {
	as := fmt.Sprintf(`kubectl --kubeconfig /dev/null --server "$(cat %[1]s/%[2]s.server)" --certificate-authority %[1]s/%[2]s.crt --token "$(cat %[1]s/%[2]s.token)" `, stateDir, exampleAccount)
	return steps(ctx, out,
		step{comment: "on the cluster, the token allows what the ClusterPermission grants"},
		step{line: as + "get configmaps --namespace default"},
		step{comment: "and nothing else"},
		step{line: as + "get secrets --namespace default", refusal: "Error from server (Forbidden)"},
		step{comment: "examples/clusterclient, a program that uses the account, also after the token is rotated"},
		step{line: fmt.Sprintf("clusterclient --cluster %s --account %s list configmaps --namespace default", cluster, exampleAccount)},
	)
}
