package framework

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// AccountsNamespace is the namespace of the ServiceAccounts that agents create for
// ManagedServiceAccounts.
const AccountsNamespace = "open-cluster-management-agent-addon"

// NewAccount returns a ManagedServiceAccount that contains only a namespace and a name.
func NewAccount(namespace, name string) *authenticationv1beta1.ManagedServiceAccount {
	return &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// CreateAccount creates a ManagedServiceAccount, which is deleted at the end of the test.
func CreateAccount(t *testing.T, client versioned.Interface, account *authenticationv1beta1.ManagedServiceAccount) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	accounts := client.AuthenticationV1beta1().ManagedServiceAccounts(account.Namespace)
	created := Must(accounts.Create(t.Context(), account, metav1.CreateOptions{}))(t)
	deleteLater(t, accounts.Delete, account.Name)
	return created
}

// GetAccount returns a ManagedServiceAccount.
func (f *Fleet) GetAccount(ctx context.Context, namespace, name string) (*authenticationv1beta1.ManagedServiceAccount, error) {
	return f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// AccountSays waits until a condition of a ManagedServiceAccount has a status and a reason, and
// returns the ManagedServiceAccount.
func (f *Fleet) AccountSays(t *testing.T, namespace, name, conditionType string, status metav1.ConditionStatus, reason string) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	var account *authenticationv1beta1.ManagedServiceAccount
	Eventually(t, fmt.Sprintf("condition %s of ManagedServiceAccount %s/%s is %s with reason %s", conditionType, namespace, name, status, reason), func(ctx context.Context) error {
		var err error
		if account, err = f.GetAccount(ctx, namespace, name); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(account.Status.Conditions, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("conditions = %v", account.Status.Conditions)
		}
		return nil
	})
	return account
}

// AccountReported waits until the agent has reported the token of a ManagedServiceAccount to the
// hub. It returns the ManagedServiceAccount and its Secret.
func (f *Fleet) AccountReported(t *testing.T, namespace, name string) (*authenticationv1beta1.ManagedServiceAccount, *corev1.Secret) {
	t.Helper()
	account := f.AccountSays(t, namespace, name, authenticationv1beta1.ConditionTokenReported, metav1.ConditionTrue, authenticationv1beta1.ReasonTokenReported)
	return account, Must(f.HubClient.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// ReportAccount changes the status of a ManagedServiceAccount as the agent of its cluster.
func (f *Fleet) ReportAccount(t *testing.T, cluster, name string, change func(*authenticationv1beta1.ManagedServiceAccountStatus)) {
	t.Helper()
	_, agent := f.AgentOf(t, cluster)
	accounts := agent.AuthenticationV1beta1().ManagedServiceAccounts(cluster)
	Eventually(t, "the agent has reported the status of ManagedServiceAccount "+name, func(ctx context.Context) error {
		account, err := accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&account.Status)
		_, err = accounts.UpdateStatus(ctx, account, metav1.UpdateOptions{})
		return err
	})
}

// PlacedIn returns a change that sets the ServiceAccount in the status of a ManagedServiceAccount.
func PlacedIn(namespace, name string) func(*authenticationv1beta1.ManagedServiceAccountStatus) {
	return func(status *authenticationv1beta1.ManagedServiceAccountStatus) {
		status.ServiceAccountRef = &authenticationv1beta1.ServiceAccountReference{Namespace: namespace, Name: name}
	}
}

// AcceptsToken returns nil if a cluster accepts the token in a Secret, or an error. It uses only the token and the CA.
func AcceptsToken(ctx context.Context, cluster *localhub.Cluster, secret *corev1.Secret) error {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            cluster.AdminConfig().Host,
		BearerToken:     string(secret.Data[authenticationv1beta1.SecretTokenKey]),
		TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data[authenticationv1beta1.SecretCAKey]},
	})
	if err != nil {
		return err
	}
	// Every authenticated user is allowed to create this review.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
	}}
	_, err = client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err
}

// NewSecret returns a Secret without a namespace.
func NewSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"key": []byte("value")}}
}
