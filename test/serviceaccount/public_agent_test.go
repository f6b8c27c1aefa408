package serviceaccount

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicAccount is a ManagedServiceAccount with the fields that the upstream agent reads and writes.
type publicAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Rotation struct {
			Enabled  bool            `json:"enabled"`
			Validity metav1.Duration `json:"validity"`
		} `json:"rotation"`
		TTLSecondsAfterCreation *int32 `json:"ttlSecondsAfterCreation,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions          []metav1.Condition `json:"conditions,omitempty"`
		ExpirationTimestamp *metav1.Time       `json:"expirationTimestamp,omitempty"`
		TokenSecretRef      *publicSecretRef   `json:"tokenSecretRef,omitempty"`
	} `json:"status,omitempty"`
}

type publicSecretRef struct {
	Name                 string      `json:"name"`
	LastRefreshTimestamp metav1.Time `json:"lastRefreshTimestamp"`
}

// publicAgent sends the requests of the upstream managed-serviceaccount agent. An informer lists and
// watches accounts in the namespace of its cluster. For each account, the agent creates a
// ServiceAccount, an unbound token and a Secret, and then updates the status of the cached account.
type publicAgent struct {
	cluster          string
	hub, managed     kubernetes.Interface
	accounts         dynamic.ResourceInterface
	lists, streams   atomic.Int64
	conflicts, fails atomic.Int64
}

const publicNamespace = "open-cluster-management-agent-addon"

// countLists counts the streaming lists and the other lists of accounts.
type countLists struct {
	agent *publicAgent
	next  http.RoundTripper
}

func (c countLists) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	switch {
	case request.Method != http.MethodGet || filepath.Base(request.URL.Path) != "managedserviceaccounts":
	case query.Get("sendInitialEvents") == "true":
		c.agent.streams.Add(1)
	case query.Get("watch") == "":
		c.agent.lists.Add(1)
	}
	return c.next.RoundTrip(request)
}

// The upstream agent works with this hub unchanged. Its permissions are those of the ClusterRole for
// upstream agents.
func TestAccountsOfPublicAgent(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}})
	// The upstream agent replaces it.
	if err := f.Members[0].Agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	agent := f.startPublicAgent(t)
	t.Run("reports tokens", func(t *testing.T) { f.publicReports(t, agent) })
	t.Run("gets no status writes for Secret changes", f.publicIsLeftAlone)
	t.Run("receives conflicts", func(t *testing.T) { f.publicConflicts(t, agent) })
	t.Run("Secret is deleted with the account", f.publicCleansUp)
	if agent.streams.Load() == 0 || agent.lists.Load() > 0 {
		t.Errorf("streaming and other lists of the informer = %d and %d, want streaming lists only", agent.streams.Load(), agent.lists.Load())
	}
}

func (f *fleet) startPublicAgent(t *testing.T) *publicAgent {
	t.Helper()
	const name = "managed-serviceaccount-addon-agent"
	user := localhub.AgentGroup("cluster:"+framework.Cluster1) + ":addon:managed-serviceaccount:agent:addon-agent"
	// Administrators bind this role of artifacts/rbac as docs/managedserviceaccount.md describes.
	framework.Must(f.HubClient.RbacV1().RoleBindings(framework.Cluster1).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:managed-serviceaccount:upstream-agent"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}))(t)

	config := framework.Must(f.Hub.UserConfig(user))(t)
	agent := &publicAgent{cluster: framework.Cluster1, managed: f.ManagedClient, hub: framework.Must(kubernetes.NewForConfig(config))(t)}
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return countLists{agent, next} })
	client := framework.Must(dynamic.NewForConfig(counted))(t)
	resource := authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")
	agent.accounts = client.Resource(resource).Namespace(framework.Cluster1)

	ctx, cancel := context.WithCancel(context.Background())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, framework.Cluster1, nil)
	informer := factory.ForResource(resource).Informer()
	queue := make(chan string, 1000)
	enqueue := func(obj any) {
		if object, ok := obj.(metav1.Object); ok {
			queue <- object.GetName()
		}
	}
	framework.Must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}))(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case name := <-queue:
				obj, exists, _ := informer.GetStore().GetByKey(framework.Cluster1 + "/" + name)
				if !exists {
					continue
				}
				if err := agent.reconcile(ctx, obj.(*unstructured.Unstructured)); apierrors.IsConflict(err) {
					agent.conflicts.Add(1)
				} else if err != nil && ctx.Err() == nil {
					agent.fails.Add(1)
					t.Logf("upstream agent: %v", err)
				}
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
		running.Wait()
	})
	factory.Start(ctx.Done())
	return agent
}

func (a *publicAgent) reconcile(ctx context.Context, obj *unstructured.Unstructured) error {
	account := &publicAccount{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, account); err != nil {
		return err
	}
	if account.DeletionTimestamp != nil || account.Status.TokenSecretRef != nil {
		return nil
	}
	managedLabel := map[string]string{authenticationv1beta1.ManagedServiceAccountLabel: "true"}
	_, err := a.managed.CoreV1().ServiceAccounts(publicNamespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account.Name, Labels: managedLabel}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	token, err := a.managed.CoreV1().ServiceAccounts(publicNamespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(account.Spec.Rotation.Validity.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = a.hub.CoreV1().Secrets(a.cluster).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name, Labels: managedLabel, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: authenticationv1beta1.SchemeGroupVersion.String(), Kind: "ManagedServiceAccount", Name: account.Name, UID: account.UID,
		}}},
		Data: map[string][]byte{"token": []byte(token.Status.Token), "ca.crt": []byte("a bundle")},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	account.Status.ExpirationTimestamp = &token.Status.ExpirationTimestamp
	account.Status.TokenSecretRef = &publicSecretRef{Name: account.Name, LastRefreshTimestamp: metav1.Now()}
	for _, conditionType := range []string{"SecretCreated", "TokenReported"} {
		meta.SetStatusCondition(&account.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: conditionType})
	}
	return a.put(ctx, account)
}

func (a *publicAgent) put(ctx context.Context, account *publicAccount) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(account)
	if err != nil {
		return err
	}
	_, err = a.accounts.UpdateStatus(ctx, &unstructured.Unstructured{Object: content}, metav1.UpdateOptions{})
	return err
}

func (f *fleet) publicReports(t *testing.T, agent *publicAgent) {
	const count = 10
	for i := range count {
		asked := framework.NewAccount(framework.Cluster1, fmt.Sprintf("public-%d", i))
		asked.Spec.Rotation = authenticationv1beta1.ManagedServiceAccountRotation{Enabled: new(bool), Validity: "24h0m0s"}
		framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(t.Context(), asked, metav1.CreateOptions{}))(t)
	}
	for i := range count {
		f.AccountReported(t, framework.Cluster1, fmt.Sprintf("public-%d", i))
	}
	if agent.fails.Load() > 0 {
		t.Errorf("failed requests of the upstream agent = %d, want 0", agent.fails.Load())
	}
	out, err := f.Kubectl(t, "", "get", "msa", "-n", framework.Cluster1, "public-0", "-o", "jsonpath={.status.conditions[*].reason}")
	if err != nil || out != "SecretCreated TokenReported" {
		t.Errorf("kubectl get prints the reasons %s, %v, want SecretCreated TokenReported", out, err)
	}
}

// The server does not write the status of an account after a change of its Secret, because the
// upstream agent watches Secrets itself.
func (f *fleet) publicIsLeftAlone(t *testing.T) {
	const name = "public-1"
	before, secret := f.AccountReported(t, framework.Cluster1, name)
	secret.Annotations = map[string]string{"team": "blue"}
	framework.Must(f.HubClient.CoreV1().Secrets(framework.Cluster1).Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	settled := time.After(3 * time.Second)
	for {
		now := framework.Must(f.GetAccount(t.Context(), framework.Cluster1, name))(t)
		if now.ResourceVersion != before.ResourceVersion {
			t.Fatalf("status after an annotation of the Secret = %+v, want no write", now.Status)
		}
		select {
		case <-settled:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *fleet) publicConflicts(t *testing.T, agent *publicAgent) {
	const name = "public-2"
	read := framework.Must(agent.accounts.Get(t.Context(), name, metav1.GetOptions{}))(t)
	stale := &publicAccount{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, stale); err != nil {
		t.Fatal(err)
	}
	fresh := stale.DeepCopyPublic()
	fresh.Status.TokenSecretRef.LastRefreshTimestamp = metav1.Now()
	if err := agent.put(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	stale.Status.TokenSecretRef = nil
	if err := agent.put(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("UpdateStatus of an outdated account = %v, want 409", err)
	}
}

// DeepCopyPublic returns a copy. The fields that the tests change are not shared.
func (a *publicAccount) DeepCopyPublic() *publicAccount {
	out := *a
	if a.Status.TokenSecretRef != nil {
		out.Status.TokenSecretRef = new(*a.Status.TokenSecretRef)
	}
	return &out
}

func (f *fleet) publicCleansUp(t *testing.T) {
	const name = "public-3"
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the garbage collector has deleted the Secret", func(ctx context.Context) error {
		_, err := f.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	if _, err := f.GetAccount(t.Context(), framework.Cluster1, name); !apierrors.IsNotFound(err) {
		t.Errorf("Get(deleted account %s) = %v, want NotFound", name, err)
	}
}
