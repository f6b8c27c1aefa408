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

// golden is the content of a golden file of the renderer.
type golden struct {
	Work            *workv1.ManifestWork `json:"work"`
	Undelivered     []render.Undelivered `json:"undelivered"`
	AbsentSubjects  []string             `json:"absentSubjects"`
	MissingRoleRefs []string             `json:"missingRoleRefs"`
	Selections      []render.Selection   `json:"selections"`
}

// table contains the golden files of the renderer, for a cluster without an agent.
type table struct {
	*fleet
	dir, cluster string
}

// TestPermissionTable checks that the hub stores the ManifestWork in the renderer's golden file for
// each ClusterPermission, and that the conditions contain the other results in the file. The test
// excludes the directory approval, because its cases need a server with other flags.
func TestPermissionTable(t *testing.T) {
	t.Parallel()
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
		t.Error("cases = 0, want at least one")
	}
}

// read parses a file of the table. The objects get the namespace of the table's cluster.
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

// holdDeleted deletes an account with finalizers, and removes the finalizers at the end of the test.
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
			t.Fatalf("kind in inputs/hubroles.yaml = %q, want ClusterRole or Role", kind.Kind)
		}
	}
}

// check creates the ClusterPermission of a case, and compares its conditions and its ManifestWork
// with the golden file.
func (tab *table) check(t *testing.T, name string) {
	var given rbacv1alpha1.ClusterPermission
	tab.read(t, name+".yaml", &given)
	var want golden
	tab.read(t, name+goldenSuffix, &want)

	cp := framework.CreatePermission(t, tab.OCM, &given)
	framework.Eventually(t, "the conditions of the ClusterPermission match the golden file", func(ctx context.Context) error {
		var err error
		if cp, err = tab.OCM.RbacV1alpha1().ClusterPermissions(cp.Namespace).Get(ctx, cp.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		return want.conditions(cp)
	})
	framework.Eventually(t, "the ManifestWork matches the golden file", func(ctx context.Context) error {
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

// tableSpec returns an error if the spec of a stored ManifestWork differs from the rendered one.
func tableSpec(got, want *workv1.ManifestWork) error {
	if a, b := framework.Manifests(got), framework.Manifests(want); !equality.Semantic.DeepEqual(a, b) {
		return fmt.Errorf("manifests =\n%s\nwant\n%s", framework.ToJSON(a), framework.ToJSON(b))
	}
	a, b := got.Spec.DeepCopy(), want.Spec.DeepCopy()
	a.Workload, b.Workload = workv1.ManifestsTemplate{}, workv1.ManifestsTemplate{}
	if !equality.Semantic.DeepEqual(a, b) {
		return fmt.Errorf("other fields of the spec =\n%s\nwant\n%s", framework.ToJSON(a), framework.ToJSON(b))
	}
	return nil
}

// conditions returns an error if the conditions of a ClusterPermission differ from the golden file.
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

// onlyWhere returns an error if a condition exists although it must not, or if a required condition
// is missing or wrong.
func onlyWhere(cp *rbacv1alpha1.ClusterPermission, conditionType string, sensible bool, status metav1.ConditionStatus, texts []string) error {
	if sensible {
		return framework.ConditionSays(cp, conditionType, status, texts...)
	}
	if condition := meta.FindStatusCondition(cp.Status.Conditions, conditionType); condition != nil {
		return fmt.Errorf("condition %s = %q, want no condition", conditionType, condition.Message)
	}
	return nil
}
