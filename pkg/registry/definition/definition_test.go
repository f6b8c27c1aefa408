package definition_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	addonclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

type addOn = v1alpha1.ManagedClusterAddOn

const (
	namespace = "cluster1"
	resource  = "managedclusteraddons"
)

// newRow returns a row that uses every part of a Strategy. Its type stands for any type that has two
// versions: the install namespace is the spec, and only the server writes status.kubeClientDriver.
func newRow() definition.Resource {
	check := func(a *addon.ManagedClusterAddOn) (errs field.ErrorList) {
		if a.Spec.InstallNamespace == "bad" {
			errs = append(errs, field.Invalid(field.NewPath("spec", "installNamespace"), "bad", "is bad"))
		}
		for range strings.Count(a.Spec.InstallNamespace, "x") {
			errs = append(errs, field.Invalid(field.NewPath("spec", "installNamespace"), "x", "is x"))
		}
		return errs
	}
	return definition.Resource{
		Name: resource, Singular: "managedclusteraddon", Kind: "ManagedClusterAddOn",
		ShortNames: []string{"mca"}, Categories: []string{"ocm"},
		Versions: []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion},
		Stored:   v1alpha1.SchemeGroupVersion,
		Strategy: &definition.Strategy[*addon.ManagedClusterAddOn]{
			ServerStatus: "kubeClientDriver",
			PrepareForCreate: func(_ context.Context, a *addon.ManagedClusterAddOn) {
				if a.Spec.InstallNamespace == "incomplete" {
					a.Spec.InstallNamespace = "complete"
				}
				a.Status.KubeClientDriver = "server"
			},
			PrepareForStatusUpdate: func(_ context.Context, a, _ *addon.ManagedClusterAddOn) {
				a.Status.Namespace = strings.TrimSpace(a.Status.Namespace)
			},
			Rules: validate.Rules[*addon.ManagedClusterAddOn]{
				Name: apivalidation.NameIsDNSSubdomain, Spec: check,
				Status: func(a *addon.ManagedClusterAddOn) field.ErrorList {
					if a.Status.Namespace == "bad" {
						return field.ErrorList{field.Invalid(field.NewPath("status", "namespace"), "bad", "is bad")}
					}
					return nil
				},
			},
			Warnings: func(a *addon.ManagedClusterAddOn) []string {
				if a.Spec.InstallNamespace == "odd" {
					return []string{"spec.installNamespace: is odd"}
				}
				return nil
			},
			SelectableFields: map[string]func(*addon.ManagedClusterAddOn) string{
				"spec.installNamespace": func(a *addon.ManagedClusterAddOn) string { return a.Spec.InstallNamespace },
			},
		},
		Columns: definition.Columns[*addon.ManagedClusterAddOn]{
			{Name: "Hidden", Wide: true, Value: func(a *addon.ManagedClusterAddOn) any { return a.Status.Namespace }},
			{Name: "Namespace", Value: func(a *addon.ManagedClusterAddOn) any { return a.Spec.InstallNamespace }},
			{Name: "Available", Description: "", Condition: "Available"},
		},
	}
}

// fixture is a server of one row, and a client of it.
type fixture struct {
	addonclient.ManagedClusterAddOnInterface
	server   registrytest.Server
	database registrytest.Database
}

func serve(t *testing.T, row definition.Resource) *fixture {
	t.Helper()
	database := registrytest.StartDatabase(t)
	server := database.Serve(t, nil, row)
	return &fixture{server.As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace), server, database}
}

func newAddOn(name, installNamespace string) *addOn {
	return &addOn{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       v1alpha1.ManagedClusterAddOnSpec{InstallNamespace: installNamespace},
	}
}

func (f *fixture) create(t *testing.T, a *addOn) *addOn {
	t.Helper()
	created, err := f.Create(t.Context(), a, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (f *fixture) get(t *testing.T, name string) *addOn {
	t.Helper()
	stored, err := f.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// causes returns the fields of an invalid object, or the text of another error.
func causes(err error) string {
	status, ok := err.(apierrors.APIStatus)
	if !apierrors.IsInvalid(err) || !ok || status.Status().Details == nil {
		return fmt.Sprint(err)
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	return strings.Join(fields, " ")
}

func TestCreate(t *testing.T) {
	f := serve(t, newRow())
	a := newAddOn("a", "incomplete")
	a.Generation = 7
	a.Status = v1alpha1.ManagedClusterAddOnStatus{Namespace: "mine", KubeClientDriver: "mine"}
	created := f.create(t, a)
	if created.Spec.InstallNamespace != "complete" {
		t.Errorf("Create() sets spec.installNamespace = %q, want %q", created.Spec.InstallNamespace, "complete")
	}
	if created.Generation != 1 {
		t.Errorf("Create() sets generation = %d, want 1", created.Generation)
	}
	if created.Status.Namespace != "" || created.Status.KubeClientDriver != "server" {
		t.Errorf("Create() with a status stores %+v, want only the fields that the server writes", created.Status)
	}

	if _, err := f.Create(t.Context(), newAddOn("invalid", "bad"), metav1.CreateOptions{}); causes(err) != "spec.installNamespace" {
		t.Errorf("Create() of an invalid object = %v, want an error of spec.installNamespace", err)
	}
	if _, err := f.Get(t.Context(), "invalid", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() of a refused object = %v, want 404", err)
	}
	dry, err := f.Create(t.Context(), newAddOn("dry", "incomplete"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || dry.Spec.InstallNamespace != "complete" {
		t.Errorf("Create() with dry run = %v, %v, want a completed object", dry, err)
	}
	if _, err := f.Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after a dry run = %v, want 404", err)
	}
	if _, err := f.Create(t.Context(), newAddOn("many", strings.Repeat("x", 150)), metav1.CreateOptions{}); !strings.Contains(fmt.Sprint(err), "errors: Too many: 150: must have at most 100 items") {
		t.Errorf("Create() of an object with 150 errors = %.200v, want the first 100 and their number", err)
	}
}

func TestUpdate(t *testing.T) {
	f := serve(t, newRow())
	for name, test := range map[string]struct {
		change     func(*addOn)
		want       string // the field of the error, if any
		generation int64
		check      func(*addOn) bool
	}{
		"the spec": {
			change: func(a *addOn) { a.Spec.InstallNamespace = "other" }, generation: 2,
			check: func(a *addOn) bool { return a.Spec.InstallNamespace == "other" },
		},
		"the labels": {
			change: func(a *addOn) { a.Labels = map[string]string{"a": "b"} }, generation: 1,
			check: func(a *addOn) bool { return a.Labels["a"] == "b" },
		},
		"the status": {
			change: func(a *addOn) { a.Status.Namespace = "mine" }, generation: 1,
			check: func(a *addOn) bool { return a.Status.Namespace == "" },
		},
		"without resourceVersion": {
			change:     func(a *addOn) { a.ResourceVersion, a.Spec.InstallNamespace = "", "other" },
			generation: 2,
			check:      func(a *addOn) bool { return a.Spec.InstallNamespace == "other" },
		},
		"to an invalid spec": {
			change: func(a *addOn) { a.Spec.InstallNamespace = "bad" }, want: "spec.installNamespace", generation: 1,
			check: func(a *addOn) bool { return a.Spec.InstallNamespace == "first" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := strings.ReplaceAll(strings.ToLower(name), " ", "-")
			update := f.create(t, newAddOn(object, "first")).DeepCopy()
			test.change(update)
			_, err := f.Update(t.Context(), update, metav1.UpdateOptions{})
			if test.want == "" && err != nil || test.want != "" && causes(err) != test.want {
				t.Errorf("Update() = %v, want an error of %q", err, test.want)
			}
			stored := f.get(t, object)
			if !test.check(stored) {
				t.Errorf("Update() stores %+v, %+v, want the object that the check of %q accepts", stored.Spec, stored.Status, name)
			}
			if stored.Generation != test.generation {
				t.Errorf("Update() sets generation = %d, want %d", stored.Generation, test.generation)
			}
		})
	}
}

func TestUpdateConflictsAndCreation(t *testing.T) {
	f := serve(t, newRow())
	stale := f.create(t, newAddOn("a", "first"))
	update := stale.DeepCopy()
	update.Spec.InstallNamespace = "second"
	if _, err := f.Update(t.Context(), update, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stale.Spec.InstallNamespace = "third"
	if _, err := f.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("Update() with a stale resourceVersion = %v, want 409", err)
	}
	if _, err := f.Update(t.Context(), newAddOn("new", ""), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Update() of an object that does not exist = %v, want 404", err)
	}
	if _, err := f.UpdateStatus(t.Context(), newAddOn("new", ""), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("UpdateStatus() of an object that does not exist = %v, want 404", err)
	}
}

// TestRatcheting updates an object with a stored spec that became invalid later.
func TestRatcheting(t *testing.T) {
	database := registrytest.StartDatabase(t)
	lenient := newRow()
	strategy := *lenient.Strategy.(*definition.Strategy[*addon.ManagedClusterAddOn])
	strategy.Rules.Spec = nil
	lenient.Strategy = &strategy
	before := database.Serve(t, nil, lenient).As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace)
	stored, err := before.Create(t.Context(), newAddOn("a", "bad"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	now := database.Serve(t, nil, newRow()).As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace)
	stored.Labels = map[string]string{"a": "b"}
	if stored, err = now.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Update() of the labels of an invalid object = %v, want no error", err)
	}
	stored.Status.Namespace = "reported"
	if _, err = now.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("UpdateStatus() of an invalid object = %v, want no error", err)
	}
}

func TestUpdateStatus(t *testing.T) {
	f := serve(t, newRow())
	update := f.create(t, newAddOn("a", "first")).DeepCopy()
	update.Labels = map[string]string{"a": "b"}
	update.Finalizers = []string{"example.com/a"}
	update.Spec.InstallNamespace = "other"
	update.Status = v1alpha1.ManagedClusterAddOnStatus{Namespace: " reported ", KubeClientDriver: "mine"}
	if _, err := f.UpdateStatus(t.Context(), update, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := f.get(t, "a")
	if stored.Spec.InstallNamespace != "first" || len(stored.Labels) != 0 || len(stored.Finalizers) != 0 || stored.Generation != 1 {
		t.Errorf("UpdateStatus() stores %+v, %+v, want the stored spec and metadata", stored.ObjectMeta, stored.Spec)
	}
	if stored.Status.Namespace != "reported" || stored.Status.KubeClientDriver != "server" {
		t.Errorf("UpdateStatus() stores the status %+v, want reported by the caller and by the server", stored.Status)
	}

	stored.Status.Namespace = "bad"
	if _, err := f.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); causes(err) != "status.namespace" {
		t.Errorf("UpdateStatus() of an invalid status = %v, want an error of status.namespace", err)
	}
	stored.Status.Namespace = "dry"
	if _, err := f.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("UpdateStatus() with dry run = %v, want no error", err)
	}
	if got := f.get(t, "a").Status.Namespace; got != "reported" {
		t.Errorf("status.namespace after refused writes and dry runs = %q, want %q", got, "reported")
	}
}

// TestApply applies the same manifest to an object and to its status. Each manager owns only the
// fields that its write can change.
func TestApply(t *testing.T) {
	f := serve(t, newRow())
	manifest := []byte(`{"apiVersion":"addon.open-cluster-management.io/v1alpha1","kind":"ManagedClusterAddOn","metadata":{"name":"a"},` +
		`"spec":{"installNamespace":"first"},"status":{"namespace":"reported","kubeClientDriver":"mine"}}`)
	for _, path := range []string{"", "status"} {
		manager := "main" + path
		_, err := f.Patch(t.Context(), "a", types.ApplyPatchType, manifest, metav1.PatchOptions{FieldManager: manager}, strings.Fields(path)...)
		if err != nil {
			t.Fatalf("apply of %q = %v, want no error", path, err)
		}
	}
	want := map[string]string{"main": `{"f:spec":{"f:installNamespace":{}}}`, "mainstatus": `{"f:status":{"f:namespace":{}}}`}
	got := map[string]string{}
	for _, entry := range f.get(t, "a").ManagedFields {
		got[entry.Manager] = entry.FieldsV1.GetRawString()
	}
	if !maps.Equal(got, want) {
		t.Errorf("managed fields = %v, want %v", got, want)
	}
	unknown := []byte(strings.Replace(string(manifest), `"installNamespace":"first"`, `"nonsense":1`, 1))
	if _, err := f.Patch(t.Context(), "a", types.ApplyPatchType, unknown, metav1.PatchOptions{FieldManager: "main"}); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("apply of an unknown field = %v, want 400 that names it", err)
	}
}

func TestDeleteWithFinalizer(t *testing.T) {
	f := serve(t, newRow())
	a := newAddOn("a", "first")
	a.Finalizers = []string{"example.com/a"}
	created := f.create(t, a)
	other := types.UID("other")
	if err := f.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("Delete() with another UID = %v, want 409", err)
	}
	if err := f.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := f.get(t, "a")
	if deleted.DeletionTimestamp == nil || deleted.UID != created.UID {
		t.Errorf("Get() of a deleted object with a finalizer = %+v, want a deletionTimestamp", deleted.ObjectMeta)
	}
	deleted.Finalizers = nil
	if _, err := f.Update(t.Context(), deleted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after the last finalizer = %v, want 404", err)
	}
}

func TestVersionsShareTheStore(t *testing.T) {
	f := serve(t, newRow())
	f.create(t, newAddOn("a", "first"))
	got, err := f.server.As(t, "alice").AddonV1beta1().ManagedClusterAddOns(namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || got.Annotations[v1beta1.InstallNamespaceAnnotation] != "first" {
		t.Errorf("Get() in %s = %+v, %v, want the object of %s", v1beta1.SchemeGroupVersion, got, err, v1alpha1.SchemeGroupVersion)
	}
	for _, version := range []schema.GroupVersion{v1alpha1.SchemeGroupVersion, v1beta1.SchemeGroupVersion} {
		resources, err := f.server.As(t, "alice").Discovery().ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range resources.APIResources {
			names = append(names, r.Name)
			if r.Name == resource && !slices.Equal(r.ShortNames, []string{"mca"}) {
				t.Errorf("short names in %s = %v, want mca", version, r.ShortNames)
			}
		}
		if !slices.Equal(names, []string{resource, resource + "/status"}) {
			t.Errorf("resources of %s = %v, want the resource and its status", version, names)
		}
	}
}

func TestFieldSelectors(t *testing.T) {
	f := serve(t, newRow())
	f.create(t, newAddOn("a", "first"))
	f.create(t, newAddOn("b", "second"))
	for selector, want := range map[string]string{
		"spec.installNamespace=second":                   "b",
		"metadata.name=a":                                "a",
		"metadata.namespace=cluster1,metadata.name!=a":   "b",
		"metadata.name=a,spec.installNamespace=second":   "",
		"spec.installNamespace!=second,metadata.name!=a": "",
	} {
		list, err := f.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			t.Errorf("List(%s) = %v, want no error", selector, err)
			continue
		}
		var names []string
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("List(%s) = %q, want %q", selector, got, want)
		}
	}
	if _, err := f.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.other=a"}); !apierrors.IsBadRequest(err) {
		t.Errorf("List() by an unknown field = %v, want 400", err)
	}
}

func TestTable(t *testing.T) {
	f := serve(t, newRow())
	a := f.create(t, newAddOn("a", "first"))
	a.Status.Namespace = "reported"
	a.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue, Reason: "Up", LastTransitionTime: metav1.Now()}}
	if _, err := f.UpdateStatus(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(t, newAddOn("b", "second"))
	client, err := restclient.HTTPClientFor(f.server.Config("alice"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.server.URL()+"/apis/"+v1alpha1.SchemeGroupVersion.String()+"/namespaces/"+namespace+"/"+resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var table metav1.Table
	if err := json.NewDecoder(response.Body).Decode(&table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		columns = append(columns, fmt.Sprintf("%s %d", column.Name, column.Priority))
	}
	if want := []string{"Name 0", "Namespace 0", "Available 0", "Age 0", "Hidden 1"}; !slices.Equal(columns, want) {
		t.Errorf("columns = %q, want %q", columns, want)
	}
	for i, want := range [][]any{{"a", "first", "True", "reported"}, {"b", "second", "Unknown", ""}} {
		cells := table.Rows[i].Cells
		if got := slices.Delete(slices.Clone(cells), 3, 4); !slices.Equal(got, want) {
			t.Errorf("row %d without the age = %v, want %v", i, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	f := serve(t, newRow())
	var warnings recorder
	config := f.server.Config("alice")
	config.WarningHandlerWithContext = &warnings
	client, err := addonclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	addons := client.ManagedClusterAddOns(namespace)
	created, err := addons.Create(t.Context(), newAddOn("a", "odd"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Labels = map[string]string{"a": "b"}
	if _, err := addons.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"spec.installNamespace: is odd"}; !slices.Equal(warnings, want) {
		t.Errorf("warnings of a create and of an update of labels = %q, want %q", warnings, want)
	}
}

type recorder []string

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	*r = append(*r, text)
}

func TestQuota(t *testing.T) {
	row := newRow()
	row.Quota = quota.Limits{Objects: 2}
	row.Counter = quota.NewCounter(row.GroupResource(), row.Quota)
	f := serve(t, row)
	first := f.create(t, newAddOn("a", ""))
	if _, err := f.Create(t.Context(), newAddOn("dry", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("Create() with dry run = %v, want no error", err)
	}
	if _, err := f.Create(t.Context(), newAddOn("invalid", "bad"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("Create() of an invalid object = %v, want 422", err)
	}
	f.create(t, newAddOn("b", ""))
	_, err := f.Create(t.Context(), newAddOn("c", ""), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--namespace-quota-objects") {
		t.Errorf("Create() over the quota = %v, want 403 that names the flag", err)
	}
	if _, err := f.Get(t.Context(), "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() of an object over the quota = %v, want 404", err)
	}
	first.Status.Namespace = "reported"
	if _, err := f.UpdateStatus(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Errorf("UpdateStatus() in a full namespace = %v, want no error", err)
	}
	if err := f.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.create(t, newAddOn("c", ""))
	other := f.server.As(t, "alice").AddonV1alpha1().ManagedClusterAddOns("cluster2")
	inOther := newAddOn("c", "")
	inOther.Namespace = "cluster2"
	if _, err := other.Create(t.Context(), inOther, metav1.CreateOptions{}); err != nil {
		t.Errorf("Create() in another namespace = %v, want no error", err)
	}
}

// TestQuotaOfDeletedObjects checks that no write grows an object that is being deleted over the quota, and that
// all writes that do not grow it succeed.
func TestQuotaOfDeletedObjects(t *testing.T) {
	database := registrytest.StartDatabase(t)
	server := func(bytes int64) registrytest.Server {
		row := newRow()
		row.Quota = quota.Limits{Objects: 100, Bytes: bytes}
		row.Counter = quota.NewCounter(row.GroupResource(), row.Quota)
		return database.Serve(t, nil, row)
	}
	// The limit of the second server is lower than the use.
	roomy, full := server(1<<20), server(1)
	addons := full.As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace)
	deleted := func(name string) *addOn {
		t.Helper()
		a := newAddOn(name, "first")
		a.Labels = map[string]string{"a": "b"}
		a.Finalizers = []string{"example.com/a", "example.com/b"}
		of := roomy.As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace)
		created, err := of.Create(t.Context(), a, metav1.CreateOptions{FieldManager: "first"})
		if err != nil {
			t.Fatal(err)
		}
		created.Status.Namespace = "reported"
		if _, err := of.UpdateStatus(t.Context(), created, metav1.UpdateOptions{FieldManager: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := of.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if created, err = addons.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		return created
	}
	update := func(change func(*addOn)) func(*addOn) error {
		return func(a *addOn) error {
			change(a)
			_, err := addons.Update(t.Context(), a, metav1.UpdateOptions{FieldManager: "other"})
			return err
		}
	}
	patch := func(kind types.PatchType, body string, subresources ...string) func(*addOn) error {
		return func(a *addOn) error {
			_, err := addons.Patch(t.Context(), a.Name, kind, []byte(body), metav1.PatchOptions{FieldManager: "other"}, subresources...)
			return err
		}
	}
	apply := fmt.Sprintf(`{"apiVersion":%q,"kind":"ManagedClusterAddOn","metadata":{"name":"a","labels":{"more":"labels"}}}`, v1alpha1.SchemeGroupVersion)
	for name, grow := range map[string]func(*addOn) error{
		"labels":      update(func(a *addOn) { a.Labels["more"] = "labels" }),
		"annotations": update(func(a *addOn) { a.Annotations = map[string]string{"more": "annotations"} }),
		"owners": update(func(a *addOn) {
			a.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}}
		}),
		"managed fields": update(func(a *addOn) {
			a.ManagedFields = append(a.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "more", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.SchemeGroupVersion.String(),
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`),
			})
		}),
		"spec":                       update(func(a *addOn) { a.Spec.InstallNamespace = "longer-than-before" }),
		"spec, without a finalizer":  update(func(a *addOn) { a.Spec.InstallNamespace, a.Finalizers = strings.Repeat("a", 200), a.Finalizers[1:] }),
		"label, without a finalizer": patch(types.MergePatchType, `{"metadata":{"finalizers":["example.com/b"],"labels":{"more":"`+strings.Repeat("a", 60)+`"}}}`),
		"patch":                      patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/more","value":"labels"}]`),
		"apply":                      patch(types.ApplyPatchType, apply),
		"status": func(a *addOn) error {
			a.Status.Namespace = "reported-again"
			_, err := addons.UpdateStatus(t.Context(), a, metav1.UpdateOptions{})
			return err
		},
		"patch of the status": patch(types.MergePatchType, `{"status":{"namespace":"reported-again"}}`, "status"),
		"another version": func(*addOn) error {
			of := full.As(t, "alice").AddonV1beta1().ManagedClusterAddOns(namespace)
			_, err := of.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"more":"labels"}}}`), metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := deleted("a")
			if err := grow(before.DeepCopy()); !apierrors.IsForbidden(err) || !refusal.IsQuotaExceeded(err) || !strings.Contains(err.Error(), "limited to 1;") {
				t.Errorf("growth over the quota = %v, want 403 with the limit", err)
			}
			if after, err := addons.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("object after a refused update = %+v, %v, want it unchanged", after, err)
			}
			// A write that removes the last finalizer stores nothing, so it may contain more.
			if err := update(func(a *addOn) { a.Labels["more"], a.Finalizers = "labels", nil })(before.DeepCopy()); err != nil {
				t.Errorf("Update() without finalizers = %v, want no error", err)
			}
			if _, err := addons.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("Get() after the last finalizer = %v, want 404", err)
			}
		})
	}
	for name, keep := range map[string]func(*addOn) error{
		"no change":               update(func(*addOn) {}),
		"no labels":               update(func(a *addOn) { a.Labels = nil }),
		"one finalizer less":      update(func(a *addOn) { a.Finalizers = a.Finalizers[1:] }),
		"patch of the finalizers": patch(types.MergePatchType, `{"metadata":{"finalizers":["example.com/a"]}}`),
		"shorter status":          patch(types.MergePatchType, `{"status":{"namespace":"r"}}`, "status"),
		"no finalizers":           patch(types.MergePatchType, `{"metadata":{"finalizers":null}}`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := keep(deleted(strings.ReplaceAll(name, " ", "-"))); err != nil {
				t.Errorf("error of a write that does not grow the object = %v, want none", err)
			}
		})
	}
}

// TestUpkeepInFullNamespace checks which updates of small objects succeed in a namespace over its quota.
func TestUpkeepInFullNamespace(t *testing.T) {
	database := registrytest.StartDatabase(t)
	server := func(row definition.Resource, bytes int64) dynamic.ResourceInterface {
		row.Quota = quota.Limits{Objects: 20, Bytes: bytes}
		row.Counter = quota.NewCounter(row.GroupResource(), row.Quota)
		client := database.Serve(t, nil, row).Dynamic(t, "alice")
		return client.Resource(v1alpha1.SchemeGroupVersion.WithResource(row.Name)).Namespace(namespace)
	}
	withoutStatus := newRow()
	withoutStatus.Name, withoutStatus.Singular, withoutStatus.Kind = "addondeploymentconfigs", "addondeploymentconfig", "AddOnDeploymentConfig"
	withoutStatus.ShortNames = nil
	withoutStatus.Strategy = &definition.Strategy[*addon.AddOnDeploymentConfig]{
		Rules: validate.Rules[*addon.AddOnDeploymentConfig]{Name: apivalidation.NameIsDNSSubdomain},
	}
	withoutStatus.Columns = definition.Columns[*addon.AddOnDeploymentConfig]{}
	full := map[string]dynamic.ResourceInterface{}
	for name, row := range map[string]definition.Resource{"installNamespace": newRow(), "agentInstallNamespace": withoutStatus} {
		roomy := server(row, 1<<20)
		for object, text := range map[string]string{"small": "first", "large": strings.Repeat("a", 60_000)} {
			_, err := roomy.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": row.Kind,
				"metadata": map[string]any{"name": object}, "spec": map[string]any{name: text},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		full[row.Name] = server(row, 40_000)
	}
	const finalizer = `{"metadata":{"finalizers":["example.com/a"]}}`
	for _, test := range []struct {
		name, resource, patch string
		want                  bool
	}{
		{"owner", resource, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1"}]}}`, false},
		{"label", resource, `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"annotation", resource, `{"metadata":{"annotations":{"a":"b"}}}`, false},
		{"spec", resource, `{"spec":{"installNamespace":"longer-than-before"}}`, false},
		{"finalizer, no status", withoutStatus.Name, finalizer, false},
		{"finalizer", resource, finalizer, true},
	} {
		_, err := full[test.resource].Patch(t.Context(), "small", types.MergePatchType, []byte(test.patch), metav1.PatchOptions{})
		if test.want && err != nil || !test.want && !refusal.IsQuotaExceeded(err) {
			t.Errorf("%s: Patch() in a full namespace = %v, want success = %t", test.name, err, test.want)
		}
	}
}

// TestQuotaOfReplicas checks that the counter of a replica counts what another one writes, while
// clients watch. For several watchers, the cache wraps the objects of its events.
func TestQuotaOfReplicas(t *testing.T) {
	database := registrytest.StartDatabase(t)
	replica := func() addonclient.ManagedClusterAddOnInterface {
		row := newRow()
		row.Quota = quota.Limits{Objects: 2}
		row.Counter = quota.NewCounter(row.GroupResource(), row.Quota)
		return database.Serve(t, nil, row).As(t, "alice").AddonV1alpha1().ManagedClusterAddOns(namespace)
	}
	one, other := replica(), replica()
	// The counter has listed the objects before the other replica writes.
	if _, err := one.Create(t.Context(), newAddOn("dry", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		events, err := one.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		go func() {
			for range events.ResultChan() { //nolint:revive // the test needs only the watch
			}
		}()
	}
	for _, name := range []string{"a", "b"} {
		if _, err := other.Create(t.Context(), newAddOn(name, ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	full := func(want bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, await.Patience, true, func(ctx context.Context) (bool, error) {
			_, err := one.Create(ctx, newAddOn("dry", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && !apierrors.IsForbidden(err) {
				return false, err
			}
			return (err != nil) == want, nil
		})
		if err != nil {
			t.Errorf("waiting until full = %t: %v", want, err)
		}
	}
	full(true)
	if err := other.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	full(false)
}

func TestObjectLimits(t *testing.T) {
	row := newRow()
	row.Limits = quota.ObjectLimits{Labels: 1, StatusBytes: 200}
	f := serve(t, row)
	two := newAddOn("two", "")
	two.Labels = map[string]string{"a": "", "b": ""}
	if _, err := f.Create(t.Context(), two, metav1.CreateOptions{}); causes(err) != "metadata.labels" {
		t.Errorf("Create() with two labels = %v, want an error of metadata.labels", err)
	}
	stored := f.create(t, newAddOn("a", ""))
	update := stored.DeepCopy()
	update.Labels = two.Labels
	if _, err := f.Update(t.Context(), update, metav1.UpdateOptions{}); causes(err) != "metadata.labels" {
		t.Errorf("Update() to two labels = %v, want an error of metadata.labels", err)
	}
	update = stored.DeepCopy()
	update.Status.Namespace = strings.Repeat("a", 300)
	if _, err := f.UpdateStatus(t.Context(), update, metav1.UpdateOptions{}); causes(err) != "status" {
		t.Errorf("UpdateStatus() with 300 bytes = %v, want an error of status", err)
	}
}

func TestServerOwned(t *testing.T) {
	row := newRow()
	row.ServerOwned = true
	var store *definition.REST
	row.Stores = map[string]func(*definition.REST){resource: func(s *definition.REST) { store = s }}
	f := serve(t, row)
	if _, err := f.Create(t.Context(), newAddOn("a", ""), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("Create() of a resource of the server = %v, want 405", err)
	}
	ctx := store.Context(t.Context(), "create", namespace)
	_, err := store.Create(ctx, &addon.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace}, Status: v1alpha1.ManagedClusterAddOnStatus{Namespace: "kept"},
	}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.get(t, "a").Status.Namespace; got != "kept" {
		t.Errorf("status.namespace of an object that the server created = %q, want %q", got, "kept")
	}
	if err := f.Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("Delete() of a resource of the server = %v, want 405", err)
	}
}

// TestGuard checks that a Guard refuses objects that are valid and admitted.
func TestGuard(t *testing.T) {
	row := newRow()
	row.Wrap = definition.Guard[*addon.ManagedClusterAddOn](func(_ context.Context, a, _ *addon.ManagedClusterAddOn) error {
		if a.Spec.InstallNamespace == "refused" {
			return apierrors.NewForbidden(row.GroupResource(), a.Name, fmt.Errorf("refused"))
		}
		return nil
	}).Wrap
	f := serve(t, row)
	if _, err := f.Create(t.Context(), newAddOn("a", "refused"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Create() = %v, want 403", err)
	}
	stored := f.create(t, newAddOn("a", "first"))
	stored.Spec.InstallNamespace = "refused"
	if _, err := f.Update(t.Context(), stored, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Update() = %v, want 403", err)
	}
	if got := f.get(t, "a").Spec.InstallNamespace; got != "first" {
		t.Errorf("spec.installNamespace after a refused update = %q, want %q", got, "first")
	}
	if _, err := f.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("UpdateStatus() = %v, want no error: a Guard does not apply to the status", err)
	}
}
