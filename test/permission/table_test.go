package permission

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const goldenSuffix = ".golden.yaml"

// golden is what a golden file of the renderer holds.
type golden struct {
	Work            *workv1.ManifestWork `json:"work"`
	Undelivered     []render.Undelivered `json:"undelivered"`
	AbsentSubjects  []string             `json:"absentSubjects"`
	MissingRoleRefs []string             `json:"missingRoleRefs"`
	Selections      []render.Selection   `json:"selections"`
}

// table is the golden table of the renderer, for a cluster whose agent never comes.
type table struct {
	*fleet
	dir, cluster string
}

// TestPermissionTable: what the renderer makes of a ClusterPermission is what the
// hub stores for it, and its conditions tell the rest. The cases in the directory
// approval need another server.
func TestPermissionTable(t *testing.T) {
	f := shared(t)
	tab := &table{fleet: f, dir: filepath.Join(localhub.Root(), "pkg", "render", "clusterpermission", "testdata"), cluster: f.SilentCluster(t)}
	tab.createAccounts(t)
	tab.createHubRoles(t)
	var namespaces rbacv1alpha1.ClusterNamespaceList
	tab.read(t, "inputs/namespaces.yaml", &namespaces)
	for _, namespace := range namespaces.Items {
		f.reportNamespace(t, tab.cluster, namespace.Name, namespace.Labels)
	}

	cases := 0
	for _, file := range framework.Must(filepath.Glob(filepath.Join(tab.dir, "*.yaml")))(t) {
		if strings.HasSuffix(file, goldenSuffix) {
			continue
		}
		cases++
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) { tab.check(t, name) })
	}
	if cases == 0 {
		t.Error("there are no cases")
	}
}

// read reads a file of the table. Its cluster is the table's.
func (tab *table) read(t *testing.T, file string, into any) {
	t.Helper()
	for _, document := range tab.documents(t, file) {
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func (tab *table) documents(t *testing.T, file string) [][]byte {
	t.Helper()
	content := framework.Must(os.ReadFile(filepath.Join(tab.dir, file)))(t)
	content = bytes.ReplaceAll(content, []byte("namespace: "+framework.Cluster1), []byte("namespace: "+tab.cluster))
	return bytes.Split(content, []byte("\n---\n"))
}

func (tab *table) createAccounts(t *testing.T) {
	t.Helper()
	var accounts authenticationv1beta1.ManagedServiceAccountList
	tab.read(t, "inputs/accounts.yaml", &accounts)
	for _, given := range accounts.Items {
		created := given.DeepCopy()
		created.DeletionTimestamp, created.Status = nil, authenticationv1beta1.ManagedServiceAccountStatus{}
		framework.CreateAccount(t, tab.OCM, created)
		if !equality.Semantic.DeepEqual(given.Status, created.Status) {
			tab.ReportAccount(t, tab.cluster, given.Name, func(status *authenticationv1beta1.ManagedServiceAccountStatus) { *status = given.Status })
		}
		if given.DeletionTimestamp != nil {
			tab.holdDeleted(t, given.Name)
		}
	}
}

// holdDeleted deletes an account that has finalizers, which go after the test.
func (tab *table) holdDeleted(t *testing.T, name string) {
	t.Helper()
	accounts := tab.OCM.AuthenticationV1beta1().ManagedServiceAccounts(tab.cluster)
	t.Cleanup(func() {
		_, err := accounts.Patch(context.WithoutCancel(t.Context()), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	if err := accounts.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (tab *table) createHubRoles(t *testing.T) {
	t.Helper()
	for _, document := range tab.documents(t, "inputs/hubroles.yaml") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "ClusterRole":
			role := &rbacv1.ClusterRole{}
			if err := yaml.UnmarshalStrict(document, role); err != nil {
				t.Fatal(err)
			}
			framework.CreateClusterRole(t, tab.HubClient, role)
		case "Role":
			role := &rbacv1.Role{}
			if err := yaml.UnmarshalStrict(document, role); err != nil {
				t.Fatal(err)
			}
			framework.CreateRole(t, tab.HubClient, role)
		default:
			t.Fatalf("a role of kind %q", kind.Kind)
		}
	}
}

// check creates the ClusterPermission of a case and compares what becomes of it.
func (tab *table) check(t *testing.T, name string) {
	var given rbacv1alpha1.ClusterPermission
	tab.read(t, name+".yaml", &given)
	var want golden
	tab.read(t, name+goldenSuffix, &want)

	cp := framework.CreatePermission(t, tab.OCM, &given)
	framework.Eventually(t, "the ClusterPermission says what the table says", func(ctx context.Context) error {
		var err error
		if cp, err = tab.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace).Get(ctx, cp.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		return want.conditions(cp)
	})
	framework.Eventually(t, "the work is what the table says", func(ctx context.Context) error {
		work, err := tab.OCM.WorkV1().ManifestWorks(cp.Namespace).Get(ctx, render.WorkName(cp), metav1.GetOptions{})
		if want.Work == nil {
			return framework.IsGone(err)
		}
		if err != nil {
			return err
		}
		return tableSpec(work, want.Work)
	})
	// The next case may have the same name.
	tab.deletePermission(t, cp)
}

// tableSpec tells how the spec of a stored work differs from that of a rendered one.
func tableSpec(got, want *workv1.ManifestWork) error {
	if a, b := framework.Manifests(got), framework.Manifests(want); !equality.Semantic.DeepEqual(a, b) {
		return fmt.Errorf("the manifests are\n%s\nnot\n%s", framework.ToJSON(a), framework.ToJSON(b))
	}
	a, b := got.Spec.DeepCopy(), want.Spec.DeepCopy()
	a.Workload, b.Workload = workv1.ManifestsTemplate{}, workv1.ManifestsTemplate{}
	if !equality.Semantic.DeepEqual(a, b) {
		return fmt.Errorf("the rest of the spec is\n%s\nnot\n%s", framework.ToJSON(a), framework.ToJSON(b))
	}
	return nil
}

// conditions tells how those of a ClusterPermission differ from what the table has.
func (g *golden) conditions(cp *rbacv1alpha1.ClusterPermission) error {
	undelivered := make([]string, 0, len(g.Undelivered))
	for _, part := range g.Undelivered {
		undelivered = append(undelivered, part.Path+": "+part.Reason)
	}
	counts, matched := make([]string, 0, len(g.Selections)), metav1.ConditionTrue
	for _, selection := range g.Selections {
		counts = append(counts, fmt.Sprintf("%s: %d", selection.Path, selection.Count))
		if selection.Count == 0 {
			matched = metav1.ConditionFalse
		}
	}
	created := metav1.ConditionTrue
	if g.Work == nil {
		created = metav1.ConditionFalse
	}
	checks := []struct {
		condition string
		status    metav1.ConditionStatus
		texts     []string
	}{
		{rbacv1alpha1.ConditionValidation, metav1.ConditionTrue, nil},
		{rbacv1alpha1.ConditionRBACManifestWorkCreated, created, nil},
		{rbacv1alpha1.ConditionFullyDelivered, trueWithout(undelivered), undelivered},
		{rbacv1alpha1.ConditionSubjectPresent, trueWithout(g.AbsentSubjects), g.AbsentSubjects},
	}
	for _, check := range checks {
		if err := framework.ConditionSays(cp, check.condition, check.status, check.texts...); err != nil {
			return err
		}
	}
	if err := onlyWhere(cp, rbacv1alpha1.ConditionRoleRefsPresent, cp.Spec.RoleRefs != nil, trueWithout(g.MissingRoleRefs), g.MissingRoleRefs); err != nil {
		return err
	}
	return onlyWhere(cp, rbacv1alpha1.ConditionNamespacesSelected, len(g.Selections) > 0, matched, counts)
}

func trueWithout(problems []string) metav1.ConditionStatus {
	if len(problems) > 0 {
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

// onlyWhere tells why a condition that makes sense only sometimes is not as it should be.
func onlyWhere(cp *rbacv1alpha1.ClusterPermission, conditionType string, sensible bool, status metav1.ConditionStatus, texts []string) error {
	if sensible {
		return framework.ConditionSays(cp, conditionType, status, texts...)
	}
	if condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType); condition != nil {
		return fmt.Errorf("there is a condition %s: %s", conditionType, condition.Message)
	}
	return nil
}
