package clusterpermission

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	authenticationvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/work/validation"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	testUID      = types.UID("0123abcd-0000-4000-8000-000000000000")
	goldenSuffix = ".golden.yaml"
)

// golden is the content of a golden file.
type golden struct {
	Work            *workv1.ManifestWork `json:"work"`
	Undelivered     []Undelivered        `json:"undelivered,omitempty"`
	AbsentSubjects  []string             `json:"absentSubjects,omitempty"`
	MissingRoleRefs []string             `json:"missingRoleRefs,omitempty"`
	Selections      []Selection          `json:"selections,omitempty"`
}

// caseFiles returns the files of the ClusterPermissions by test case. ClusterPermissions
// with a status are in the directory approval.
func caseFiles(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range []string{"testdata", "testdata/approval"} {
		matches, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range matches {
			if name, _ := filepath.Rel("testdata", file); !strings.HasSuffix(file, goldenSuffix) {
				files[strings.TrimSuffix(name, ".yaml")] = file
			}
		}
	}
	if len(files) == 0 {
		t.Fatal("number of test cases = 0, want at least one")
	}
	return files
}

func TestGolden(t *testing.T) {
	inputs := loadInputs(t)
	for name, file := range caseFiles(t) {
		t.Run(name, func(t *testing.T) {
			cp := load(t, file)
			if errs := validate(t, cp); len(errs) > 0 {
				t.Fatalf("validation of the input = %v, want no error", errs.ToAggregate())
			}
			result, errs := Render(cp, inputs)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			checkWork(t, result.Work)

			got, err := yaml.Marshal(golden{
				result.Work, result.Undelivered, result.AbsentSubjects, result.MissingRoleRefs, result.Selections,
			})
			if err != nil {
				t.Fatal(err)
			}
			goldenFile := strings.TrimSuffix(file, ".yaml") + goldenSuffix
			if *update {
				if err := os.WriteFile(goldenFile, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(goldenFile)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("Render() =\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// checkWork validates the rendered ManifestWork.
func checkWork(t testing.TB, mw *workv1.ManifestWork) {
	t.Helper()
	if mw == nil {
		return
	}
	if errs := workvalidation.ManifestWork(0).New((*work.ManifestWork)(mw)); len(errs) > 0 {
		t.Errorf("validation of the rendered ManifestWork = %v, want no error", errs.ToAggregate())
	}
	for _, manifest := range mw.Spec.Workload.Manifests {
		for _, stray := range []string{"creationTimestamp", "null", "status", "aggregationRule"} {
			if bytes.Contains(manifest.Raw, []byte(stray)) {
				t.Errorf("manifest = %s, want it without %s", manifest.Raw, stray)
			}
		}
	}
}

func load(t testing.TB, file string) *v1alpha1.ClusterPermission {
	t.Helper()
	cp := &v1alpha1.ClusterPermission{}
	unmarshalFile(t, file, cp)
	cp.UID = testUID
	return cp
}

// loadInputs returns the common inputs of the test cases. The files are valid objects, so
// that a server can serve them too.
func loadInputs(t testing.TB) Inputs {
	t.Helper()
	in := Inputs{Accounts: loadAccounts(t), NamespacesKnown: true, HubRoles: loadHubRoles(t)}
	var list v1alpha1.ClusterNamespaceList
	unmarshalFile(t, "testdata/inputs/namespaces.yaml", &list)
	for i := range list.Items {
		namespace := &list.Items[i]
		if errs := rbacvalidation.ClusterNamespace.New((*rbac.ClusterNamespace)(namespace)); len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		in.Namespaces = append(in.Namespaces, Namespace{Name: namespace.Name, Labels: namespace.Labels})
	}
	return in
}

func loadAccounts(t testing.TB) Accounts {
	t.Helper()
	var list authenticationv1beta1.ManagedServiceAccountList
	unmarshalFile(t, "testdata/inputs/accounts.yaml", &list)
	accounts := Accounts{}
	for i := range list.Items {
		account := &list.Items[i]
		defaulted := account.DeepCopy()
		scheme.Scheme.Default(defaulted)
		if errs := (authenticationvalidation.Validator{}).Rules().New((*authentication.ManagedServiceAccount)(defaulted)); len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		accounts[account.Name] = account
	}
	return accounts
}

func loadHubRoles(t testing.TB) HubRoles {
	t.Helper()
	data, err := os.ReadFile("testdata/inputs/hubroles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := HubRoles{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return roles
		}
		if err != nil {
			t.Fatal(err)
		}
		// A ClusterRole has all fields of a Role.
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(document, &role); err != nil {
			t.Fatal(err)
		}
		roles[ObjectKey{Kind: role.Kind, Namespace: role.Namespace, Name: role.Name}] = role.Rules
	}
}

func unmarshalFile(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}

func validate(t testing.TB, cp *v1alpha1.ClusterPermission) field.ErrorList {
	t.Helper()
	return rbacvalidation.ClusterPermission.New((*rbac.ClusterPermission)(cp))
}
