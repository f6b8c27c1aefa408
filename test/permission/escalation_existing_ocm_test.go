package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// work waits until a ClusterPermission has exactly one ManifestWork, which passes a check. The text
// what names the expected state.
func (o *overlaid) work(t *testing.T, name, what string, check func(*workv1.ManifestWork) error) {
	t.Helper()
	framework.Eventually(t, what, func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, o.OCM, name)
		if err != nil {
			return err
		}
		if len(works) != 1 {
			return fmt.Errorf("ManifestWorks = %d, want 1", len(works))
		}
		return check(&works[0])
	})
}

func (o *overlaid) warns(t *testing.T) {
	const name = "warned-on-an-ocm-hub"
	alice := framework.NewCaller(t, o.cluster, "alice-of-ocm").IsAdmin(t)
	framework.CreatePermission(t, alice.OCM, framework.Permission(name))
	if texts := alice.Warnings.Take(); len(texts) != 4 {
		t.Errorf("warnings for alice = %d, want 4, one for each part: %q", len(texts), texts)
	}
	o.work(t, name, "the hub stores the ManifestWork of ClusterPermission "+name, func(*workv1.ManifestWork) error { return nil })
}

// namespace creates a namespace on the hub.
func (o *overlaid) namespace(t *testing.T, name, team string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	if _, err := o.HubClient.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (o *overlaid) selects(t *testing.T) {
	const name = "selects-on-an-ocm-hub"
	// The test does not delete its namespaces, and may run again on the same data. So the names must be
	// unique.
	run := rand.String(5)
	first, second, another := "first-"+run, "second-"+run, "another-"+run
	o.namespace(t, first, run)
	o.namespace(t, another, "not-"+run)
	cp := framework.Permission(name)
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": run}}
	(*cp.Spec.Roles)[0].Namespace, (*cp.Spec.Roles)[0].NamespaceSelector = "", team
	(*cp.Spec.RoleBindings)[0].Namespace, (*cp.Spec.RoleBindings)[0].NamespaceSelector = "", team
	framework.CreatePermission(t, o.OCM, cp)
	places := func(want ...string) func(*workv1.ManifestWork) error {
		return func(work *workv1.ManifestWork) error {
			for _, kind := range []string{"Role", "RoleBinding"} {
				var got []string
				for _, manifest := range work.Spec.Workload.Manifests {
					var object metav1.PartialObjectMetadata
					if err := json.Unmarshal(manifest.Raw, &object); err != nil {
						return err
					}
					if object.Kind == kind {
						got = append(got, object.Namespace)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					return fmt.Errorf("namespaces of the %s = %v, want %v", kind, got, want)
				}
			}
			return nil
		}
	}
	o.work(t, name, "the ManifestWork contains the selected namespace of the hub", places(first))
	o.namespace(t, second, run)
	o.work(t, name, "the ManifestWork contains the new namespace of the hub", places(first, second))
	patch := []byte(`{"metadata":{"labels":{"team":null}}}`)
	if _, err := o.HubClient.CoreV1().Namespaces().Patch(t.Context(), first, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	o.work(t, name, "the ManifestWork omits the namespace that no longer matches", places(second))

	// The rendering contains the names of hub namespaces, so it requires permission to list namespaces.
	admin, lister := framework.NewCaller(t, o.cluster, "admin-of-ocm").IsAdmin(t), framework.NewCaller(t, o.cluster, "lister-of-ocm").IsAdmin(t)
	mayListNamespaces(t, o.HubClient, lister)
	for _, c := range []struct {
		*framework.Caller
		refused bool
	}{{admin, true}, {lister, false}} {
		_, getErr := rendered(t, c.OCM, name)
		_, postErr := propose(t, c.OCM, name, manifest(t, cp))
		for verb, err := range map[string]error{"GET": getErr, "POST": postErr} {
			switch {
			case c.refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "resources: [namespaces], verbs: [list]}") || strings.Contains(err.Error(), second)):
				t.Errorf("%s of the rendering by %s = %v, want 403 with a rule to list namespaces", verb, c.Name, err)
			case !c.refused && err != nil:
				t.Errorf("%s of the rendering by %s = %v, want nil", verb, c.Name, err)
			}
		}
		if _, err := propose(t, c.OCM, "selects-nothing", manifest(t, framework.Permission("selects-nothing"))); err != nil {
			t.Errorf("propose() without selectors by %s = %v, want nil", c.Name, err)
		}
	}
}

func mayListNamespaces(t *testing.T, hub kubernetes.Interface, c *framework.Caller) {
	t.Helper()
	name := "integration-lists-namespaces"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{c.Subject},
	}
	if _, err := hub.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// executes checks that --work-executor names the executor of all ManifestWorks. Validating agents
// of OCM reject ManifestWorks without an executor, unless they allow the agent's own
// ServiceAccount.
func (o *overlaid) executes(t *testing.T) {
	const name = "executed-on-an-ocm-hub"
	framework.CreatePermission(t, o.OCM, framework.Permission(name))
	o.work(t, name, "the ManifestWork has no executor", func(work *workv1.ManifestWork) error {
		if work.Spec.Executor != nil {
			return fmt.Errorf("executor = %v", work.Spec.Executor)
		}
		return nil
	})
	for _, account := range []string{"open-cluster-management-agent/klusterlet-work-sa", "another-place/another-account"} {
		if err := o.server.Kill(); err != nil {
			t.Fatal(err)
		}
		o.server.Args = append(slices.Clone(o.server.Args), "--work-executor="+account)
		if err := o.server.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		namespace, accountName, _ := strings.Cut(account, "/")
		named := func(work *workv1.ManifestWork) error {
			executor := work.Spec.Executor
			switch {
			case executor == nil:
				return errors.New("executor = nil")
			case executor.Subject.ServiceAccount == nil || executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount:
				return fmt.Errorf("subject of the executor = %v", executor.Subject)
			case executor.Subject.ServiceAccount.Namespace != namespace || executor.Subject.ServiceAccount.Name != accountName:
				return fmt.Errorf("ServiceAccount of the executor = %v", *executor.Subject.ServiceAccount)
			}
			return nil
		}
		o.work(t, name, "the stored ManifestWork has executor "+account, named)
		later := &rbacv1alpha1.ClusterPermission{}
		framework.Eventually(t, "ClusterPermissions can be created again", func(ctx context.Context) error {
			var err error
			later, err = o.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission("executed-by-"+accountName), metav1.CreateOptions{})
			return err
		})
		framework.DeletePermissionLater(t, o.OCM, framework.Cluster1, later.Name)
		o.work(t, later.Name, "a new ManifestWork has executor "+account, named)
	}
}
