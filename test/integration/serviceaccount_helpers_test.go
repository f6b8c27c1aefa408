package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// accountsNamespace is where agents keep ServiceAccounts.
const accountsNamespace = "open-cluster-management-agent-addon"

// account is a ManagedServiceAccount with the least that one needs.
func account(namespace, name string) *authenticationv1beta1.ManagedServiceAccount {
	return &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// createAccount creates an account, which is deleted after the test.
func createAccount(t *testing.T, client versioned.Interface, account *authenticationv1beta1.ManagedServiceAccount) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	accounts := client.AuthenticationV1beta1().ManagedServiceAccounts(account.Namespace)
	created := must(accounts.Create(t.Context(), account, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		err := accounts.Delete(context.WithoutCancel(t.Context()), account.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return created
}

func (f *fleet) account(ctx context.Context, namespace, name string) (*authenticationv1beta1.ManagedServiceAccount, error) {
	return f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// accountSays waits for a condition of an account.
func (f *fleet) accountSays(t *testing.T, namespace, name, conditionType string, status metav1.ConditionStatus, reason string) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	var account *authenticationv1beta1.ManagedServiceAccount
	eventually(t, fmt.Sprintf("%s of %s/%s is %s for %s", conditionType, namespace, name, status, reason), func(ctx context.Context) error {
		var err error
		if account, err = f.account(ctx, namespace, name); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(account.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("the conditions are %v", account.Status.Conditions)
		}
		return nil
	})
	return account
}

// reported waits until the token of an account is on the hub and returns it with its Secret.
func (f *fleet) reported(t *testing.T, namespace, name string) (*authenticationv1beta1.ManagedServiceAccount, *corev1.Secret) {
	t.Helper()
	account := f.accountSays(t, namespace, name, authenticationv1beta1.ConditionTokenReported, metav1.ConditionTrue, authenticationv1beta1.ReasonTokenReported)
	return account, must(f.hub.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// as is a client of a cluster that has nothing but what is in a Secret.
func as(cluster *localhub.Cluster, secret *corev1.Secret) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(&rest.Config{
		Host:            cluster.AdminConfig().Host,
		BearerToken:     string(secret.Data[authenticationv1beta1.SecretTokenKey]),
		TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data[authenticationv1beta1.SecretCAKey]},
	})
}

// accepts tells whether a cluster accepts the token in a Secret.
func accepts(ctx context.Context, cluster *localhub.Cluster, secret *corev1.Secret) error {
	client, err := as(cluster, secret)
	if err != nil {
		return err
	}
	// Whoever is authenticated may ask.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
	}}
	_, err = client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err
}

// gone passes when every one of several lookups says that its object does not exist.
func gone(lookups ...error) error {
	var errs []error
	for _, err := range lookups {
		errs = append(errs, isGone(err))
	}
	return errors.Join(errs...)
}

func secretNamed(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"key": []byte("value")}}
}

// agent returns clients with exactly what the agent of cluster1 may do on the hub.
func (f *fleet) agent(t *testing.T) (*kubernetes.Clientset, *versioned.Clientset) {
	t.Helper()
	return f.agentOf(t, cluster1)
}

// agentOf returns clients with exactly what the agent of a cluster may do on the hub.
func (f *fleet) agentOf(t *testing.T, cluster string) (*kubernetes.Clientset, *versioned.Clientset) {
	t.Helper()
	config := must(f.Hub.UserConfig(localhub.AgentUser(cluster), localhub.AgentGroup(cluster)))(t)
	return must(kubernetes.NewForConfig(config))(t), must(versioned.NewForConfig(config))(t)
}

// silentCluster joins a cluster of the test's own to the hub, whose agent never comes.
func (f *fleet) silentCluster(t *testing.T) string {
	t.Helper()
	name := "silent-" + rand.String(6)
	if err := localhub.JoinCluster(t.Context(), f.Hub, name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		// Its namespace goes with it.
		if err := f.ocm.ClusterV1().ManagedClusters().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return name
}

func kubeClient(cluster *localhub.Cluster) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(cluster.AdminConfig())
}
