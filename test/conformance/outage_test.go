package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// fill creates a namespace with an object of every namespaced kind, and returns the URL paths of
// the objects.
func (h *hub) fill(t *testing.T, namespace string) []string {
	t.Helper()
	h.addCluster(t, namespace)
	var paths []string
	for _, k := range kinds() {
		if k.ClusterScoped {
			continue
		}
		p := &place{kind: k, hub: h, namespace: namespace, label: namespace, client: h.dynamic.Resource(k.gvr()).Namespace(namespace)}
		paths = append(paths, k.path(namespace)+"/"+p.create(t).GetName())
	}
	if len(paths) == 0 {
		t.Fatal("kinds() has no namespaced kind")
	}
	return paths
}

// wantEmptied waits until a namespace that is being deleted no longer exists, and checks that the
// objects at the paths do not exist either.
func (h *hub) wantEmptied(t *testing.T, namespace string, paths []string) {
	t.Helper()
	await.Eventually(t, "namespace "+namespace+" does not exist", func(ctx context.Context) error {
		object, err := h.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it exists with conditions %v", reasons(object.Status.Conditions))
		}
		return wantNotFound(err)
	})
	for _, path := range paths {
		_, err := h.kube.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err := wantNotFound(err); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func reasons(conditions []corev1.NamespaceCondition) []string {
	var out []string
	for _, condition := range conditions {
		if condition.Status == corev1.ConditionTrue {
			out = append(out, string(condition.Type)+": "+condition.Message)
		}
	}
	return out
}

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	const namespace = "deleted"
	paths := shared.fill(t, namespace)
	if err := shared.kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shared.wantEmptied(t, namespace, paths)
}

// TestOutage checks that a namespace deletion that starts while the server is down completes
// after the server starts.
func TestOutage(t *testing.T) {
	t.Parallel()
	h := ownHub(t)
	client, err := aggregator.NewForConfig(h.admin)
	if err != nil {
		t.Fatal(err)
	}
	wantAvailable := func(want bool) {
		t.Helper()
		await.Eventually(t, fmt.Sprintf("every APIService has Available=%t", want), func(ctx context.Context) error {
			for _, k := range served() {
				name := k.version.Version + "." + k.version.Group
				registration, err := client.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if available(registration) != want {
					return fmt.Errorf("conditions of APIService %s = %v", name, registration.Status.Conditions)
				}
			}
			return nil
		})
	}
	const namespace = "deleted"
	paths := h.fill(t, namespace)
	if err := h.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	wantAvailable(false)
	if err := h.kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The hub cannot list the namespace's objects of the server's kinds, so the deletion waits.
	await.Eventually(t, "namespace "+namespace+" exists and its conditions give the reason", func(ctx context.Context) error {
		object, err := h.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && len(reasons(object.Status.Conditions)) == 0 {
			return errors.New("it has no condition with status True")
		}
		return err
	})
	if err := h.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAvailable(true)
	h.wantEmptied(t, namespace, paths)
	h.wantExpired(t)
}

// wantExpired checks that a watch from before the server's start is reported as expired,
// so that the client lists again and misses no events.
func (h *hub) wantExpired(t *testing.T) {
	t.Helper()
	for _, k := range served() {
		watcher, err := h.dynamic.Resource(k.gvr()).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: ptr.To[int64](30)})
		if err == nil {
			event := <-watcher.ResultChan()
			watcher.Stop()
			err = apierrors.FromObject(event.Object)
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("watch of %s at resourceVersion 1: error = %v, want Expired", k.Name, err)
		}
	}
}

// ownHub starts a hub that the test may break.
func ownHub(t *testing.T) *hub {
	t.Helper()
	framework.UseSlots(t, 1)
	h, err := startHub(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, h.Kill)
	return h
}

// TestShippedRole checks that the ClusterRole in artifacts/rbac is sufficient for the server, and
// that the server reports a missing permission in its readiness check.
func TestShippedRole(t *testing.T) {
	t.Parallel()
	config, err := shared.Server.UserConfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	admin := caller{config: config}
	ready := func(path string) (int, string) {
		return admin.send(t, endpoint{method: http.MethodGet, path: path})
	}
	if code, body := ready("/readyz?verbose"); code != http.StatusOK {
		t.Fatalf("GET /readyz = %d, want 200: %s", code, body)
	}

	roles := shared.kube.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "open-cluster-management:hub-apiserver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shipped := role.DeepCopy().Rules
	setRules := func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		patch, err := json.Marshal(map[string]any{"rules": rules})
		if err != nil {
			return err
		}
		_, err = roles.Patch(ctx, role.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() {
		if err := setRules(context.Background(), shipped); err != nil {
			t.Error(err)
		}
	})
	i := slices.IndexFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "namespaces") })
	if i < 0 {
		t.Fatalf("ClusterRole %s has no rule for namespaces", role.Name)
	}
	role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "list" })
	if err := setRules(t.Context(), role.Rules); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the server is not ready and reports the missing permission", func(context.Context) error {
		code, body := ready("/readyz?verbose")
		if code == http.StatusOK || !strings.Contains(body, "[-]hub-permissions") {
			return fmt.Errorf("GET /readyz = %d: %s", code, body)
		}
		// All callers can read /readyz, so it omits the reason. The endpoint of the check returns it.
		if code, body := ready("/readyz/hub-permissions"); code == http.StatusOK || !strings.Contains(body, "list namespaces") {
			return fmt.Errorf("GET /readyz/hub-permissions = %d: %s", code, body)
		}
		return nil
	})
	if err := setRules(t.Context(), shipped); err != nil {
		t.Fatal(err)
	}
	await.Eventually(t, "the server is ready again", func(context.Context) error {
		if code, body := ready("/readyz?verbose"); code != http.StatusOK {
			return fmt.Errorf("GET /readyz = %d: %s", code, body)
		}
		return nil
	})
}
