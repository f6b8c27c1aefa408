package managednamespaces

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/test/await"
)

var (
	hash  = strings.Repeat("0123456789abcdef", 4)
	label = "clusterset.open-cluster-management.io/" + hash[:63]
)

// managedCluster is a managed cluster on which a Keeper runs.
type managedCluster struct {
	*fake.Clientset
	*Keeper
	required atomic.Pointer[sets.Set[string]]
	reports  atomic.Int64
}

// requires sets the namespaces that the hub requires.
func (m *managedCluster) requires(names ...string) {
	set := sets.New(names...)
	m.required.Store(&set)
	m.Refresh()
}

// keep runs a Keeper until the end of the test.
func keep(t *testing.T, client *fake.Clientset) *managedCluster {
	t.Helper()
	m := &managedCluster{Clientset: client}
	keeper, err := New(Config{HubHash: hash, Managed: client, Changed: func() { m.reports.Add(1) }, Required: func() sets.Set[string] {
		if names := m.required.Load(); names != nil {
			return *names
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.Keeper = keeper
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keeper.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return m
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// wantLabel waits until the label of a namespace has the given value. An empty value means that the
// label is missing.
func (m *managedCluster) wantLabel(t *testing.T, name, want string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("%s has the label with value %q", name, want), func() error {
		live, err := m.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := live.Labels[label]; got != want {
			return fmt.Errorf("labels = %v", live.Labels)
		}
		return nil
	})
}

// wantCondition waits until the condition of a namespace has the given status and a message that
// contains the given text.
func (m *managedCluster) wantCondition(t *testing.T, name string, want metav1.ConditionStatus, text string) {
	t.Helper()
	await.Eventually(t, fmt.Sprintf("the condition of %s has status %s", name, want), func() error {
		got, known := m.Condition(name)
		if !known || got.Type != clusterv1.ConditionNamespaceAvailable || got.Status != want || !strings.Contains(got.Message, text) {
			return fmt.Errorf("condition = %v, known = %t", got, known)
		}
		return nil
	})
}

func TestKeeper(t *testing.T) {
	m := keep(t, fake.NewSimpleClientset(
		namespace("present", map[string]string{"team": "a"}), namespace("before", map[string]string{label: "true"}),
		namespace("of-another-hub", map[string]string{"clusterset.open-cluster-management.io/x": "true"})))
	namespaces := m.CoreV1().Namespaces()
	// Until the required namespaces are known, the Keeper treats no namespace as no longer required.
	await.Eventually(t, "the informer contains the namespaces", func() error {
		if !m.informer.HasSynced() || len(m.informer.GetStore().ListKeys()) == 0 {
			return errors.New("the informer is empty or not synced")
		}
		return nil
	})
	m.wantLabel(t, "before", "true")

	m.requires("present", "shop")
	m.wantLabel(t, "before", "false")
	for _, name := range []string{"present", "shop"} {
		m.wantLabel(t, name, "true")
		m.wantCondition(t, name, metav1.ConditionTrue, "")
	}
	if live, err := namespaces.Get(t.Context(), "present", metav1.GetOptions{}); err != nil || live.Labels["team"] != "a" {
		t.Errorf("labels of an existing namespace = %v, %v, want team=a kept", live.Labels, err)
	}
	if m.reports.Load() == 0 {
		t.Error("Changed was not called, want a call after a condition changed")
	}

	// The Keeper reverts changes by others.
	if _, err := namespaces.Update(t.Context(), namespace("present", map[string]string{label: "false"}), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.wantLabel(t, "present", "true")
	if err := namespaces.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.wantLabel(t, "shop", "true")

	m.requires("shop")
	m.wantLabel(t, "present", "false")
	await.Eventually(t, "present has no condition", func() error {
		if condition, known := m.Condition("present"); known {
			return fmt.Errorf("condition = %v", condition)
		}
		return nil
	})
	m.requires()
	m.wantLabel(t, "shop", "false")
	m.requires("shop")
	m.wantLabel(t, "shop", "true")

	if err := Release(t.Context(), m.Clientset, hash); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
	deletions := 0
	for _, action := range m.Actions() {
		if strings.HasPrefix(action.GetVerb(), "delete") {
			deletions++
		}
	}
	if deletions != 1 {
		t.Errorf("deletions = %d, want 1: only the test deletes a namespace", deletions)
	}
	if live, err := namespaces.Get(t.Context(), "of-another-hub", metav1.GetOptions{}); err != nil || live.Labels["clusterset.open-cluster-management.io/x"] != "true" || live.Labels[label] != "" {
		t.Errorf("labels of another hub's namespace = %v, %v, want them unchanged", live.Labels, err)
	}
}

// TestKeeperRetries checks that the Keeper reports and retries a namespace that cannot be created,
// and that the other namespaces are not delayed.
func TestKeeperRetries(t *testing.T) {
	client := fake.NewSimpleClientset()
	refuse := &atomic.Bool{}
	refuse.Store(true)
	client.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created, ok := action.(clienttesting.CreateAction)
		if object, isNamespace := created.GetObject().(*corev1.Namespace); !ok || !isNamespace || object.Name != "refused" || !refuse.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "refused", errors.New(strings.Repeat("no ", clusterv1.MaxManagedNamespaceMessage)))
	})
	leaving := namespace("leaving", map[string]string{label: "true"})
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"example.com/hold"}
	if err := client.Tracker().Add(leaving); err != nil {
		t.Fatal(err)
	}
	m := keep(t, client)
	m.requires("refused", "shop", "leaving")
	m.wantCondition(t, "shop", metav1.ConditionTrue, "")
	m.wantCondition(t, "refused", metav1.ConditionFalse, "create namespace: ")
	m.wantCondition(t, "leaving", metav1.ConditionFalse, "is being deleted")
	if condition, _ := m.Condition("refused"); len(condition.Message) > clusterv1.MaxManagedNamespaceMessage {
		t.Errorf("the message has %d bytes, want at most %d", len(condition.Message), clusterv1.MaxManagedNamespaceMessage)
	}
	refuse.Store(false)
	m.wantCondition(t, "refused", metav1.ConditionTrue, "")
	if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "leaving"); err != nil {
		t.Fatal(err)
	}
	m.wantCondition(t, "leaving", metav1.ConditionTrue, "")
}

func TestRelease(t *testing.T) {
	client := fake.NewSimpleClientset(namespace("a", map[string]string{label: "true", "team": "a"}), namespace("b", map[string]string{label: "true"}), namespace("c", nil))
	client.PrependReactor("patch", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetName() == "a" {
			return true, nil, errors.New("not now")
		}
		return false, nil, nil
	})
	if err := Release(t.Context(), client, hash); err == nil || !strings.Contains(err.Error(), "a: label namespace: not now") {
		t.Errorf("Release() = %v, want an error about a", err)
	}
	for name, want := range map[string]string{"a": "true", "b": "false", "c": ""} {
		live, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || live.Labels[label] != want {
			t.Errorf("labels of %s = %v (%v), want the label with value %q", name, live.Labels, err, want)
		}
	}
}
