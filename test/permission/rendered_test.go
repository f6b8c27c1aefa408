package permission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const renderedPath = "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/" + framework.Cluster1 + "/clusterpermissions/%s/rendered"

// rendered returns the rendering of a stored ClusterPermission.
func rendered(t *testing.T, client *versioned.Clientset, name string) (*workv1.ManifestWork, error) {
	t.Helper()
	return answer(t, client.RbacV1alpha1().RESTClient().Get(), name)
}

// propose returns the rendering of a ClusterPermission that is not stored.
func propose(t *testing.T, client *versioned.Clientset, name, body string) (*workv1.ManifestWork, error) {
	t.Helper()
	return answer(t, client.RbacV1alpha1().RESTClient().Post().Body([]byte(body)).SetHeader("Content-Type", "application/json"), name)
}

func answer(t *testing.T, request *rest.Request, name string) (*workv1.ManifestWork, error) {
	t.Helper()
	work := &workv1.ManifestWork{}
	err := request.AbsPath(fmt.Sprintf(renderedPath, name)).Do(t.Context()).Into(work)
	return work, err
}

// sameSpec checks that two ManifestWorks have the same spec, and that it contains manifests.
func sameSpec(t *testing.T, what string, got, want *workv1.ManifestWork) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
		t.Errorf("spec of %s =\n%s\nwant\n%s", what, framework.Must(yaml.Marshal(got.Spec))(t), framework.Must(yaml.Marshal(want.Spec))(t))
	}
	if len(got.Spec.Workload.Manifests) == 0 {
		t.Errorf("manifests of %s = none, want at least one", what)
	}
}

// TestRenderedEqualsDelivered checks that a GET, and a POST of the same object, return the delivered
// ManifestWork.
func TestRenderedEqualsDelivered(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "rendered"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	work := framework.Must(f.GetWork(t.Context(), cp))(t)
	got := framework.Must(rendered(t, f.OCM, name))(t)
	sameSpec(t, "the rendering", got, work)
	if got.Name != work.Name || got.Namespace != work.Namespace || !metav1.IsControlledBy(got, cp) {
		t.Errorf("rendering = %s/%s with owners %v, want %s/%s with the ClusterPermission as controller", got.Namespace, got.Name, got.OwnerReferences, work.Namespace, work.Name)
	}
	again := framework.Must(propose(t, f.OCM, name, manifest(t, cp)))(t)
	sameSpec(t, "the proposal of the stored object", again, work)
	if again.Name != work.Name {
		t.Errorf("name of the proposal of the stored object = %s, want %s", again.Name, work.Name)
	}
	out, err := f.Kubectl(t, "", "get", "--raw", fmt.Sprintf(renderedPath, name))
	if err != nil || !strings.Contains(out, `"kind":"ManifestWork"`) {
		t.Errorf("kubectl get --raw = %v, want a ManifestWork in:\n%s", err, out)
	}

	// The rendering of a proposed change contains the change. The stored object does not change.
	cp.Spec.ClusterRoleBinding.Subject = framework.UserSubject("proposed-for")
	changed := framework.Must(propose(t, f.OCM, name, manifest(t, cp)))(t)
	if text := string(framework.Must(yaml.Marshal(changed.Spec))(t)); !strings.Contains(text, "proposed-for") {
		t.Errorf("rendering of the proposed change =\n%s\nwant the subject proposed-for in it", text)
	}
	sameSpec(t, "the rendering of the stored object", framework.Must(rendered(t, f.OCM, name))(t), work)
}

// stored returns all stored ClusterPermissions and ManifestWorks, with their generations and UIDs.
func (f *fleet) stored(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, cp := range framework.Must(f.OCM.RbacV1alpha1().ClusterPermissions("").List(t.Context(), metav1.ListOptions{}))(t).Items {
		all = append(all, fmt.Sprint("ClusterPermission ", cp.Namespace, "/", cp.Name, " ", cp.Generation, cp.UID))
	}
	for _, work := range framework.Must(f.OCM.WorkV1().ManifestWorks("").List(t.Context(), metav1.ListOptions{}))(t).Items {
		all = append(all, fmt.Sprint("ManifestWork ", work.Namespace, "/", work.Name, " ", work.Generation, work.UID))
	}
	return all
}

// TestProposalsOfKubectl checks proposals in JSON and in YAML: kubectl create --raw sends the
// content of a file unchanged.
func TestProposalsOfKubectl(t *testing.T) {
	f := shared(t)
	const name = "proposed"
	alice := framework.NewCaller(t, f.Hub, "alice-proposes").IsAdmin(t)
	inJSON := manifest(t, framework.Permission(name))
	inYAML := string(framework.Must(yaml.JSONToYAML([]byte(inJSON)))(t))
	before := f.stored(t)
	for title, content := range map[string]string{"JSON": inJSON, "YAML": inYAML} {
		out, err := alice.Kubectl(t, content, "create", "--raw", fmt.Sprintf(renderedPath, name), "-f", "-")
		if err != nil {
			t.Errorf("kubectl create --raw of %s = %v, want nil:\n%s", title, err, out)
			continue
		}
		// The output also contains warnings, so search for the JSON.
		start, end := strings.Index(out, "{\"kind\""), strings.LastIndex(out, "}")
		work := &workv1.ManifestWork{}
		if start < 0 || end < start {
			t.Fatalf("output for %s = %s, want a JSON object in it", title, out)
		}
		if err := yaml.Unmarshal([]byte(out[start:end+1]), work); err != nil {
			t.Fatalf("output for %s: %v, want a ManifestWork in:\n%s", title, err, out)
		}
		if work.Kind != "ManifestWork" || work.Namespace != framework.Cluster1 || len(work.Spec.Workload.Manifests) != 4 {
			t.Errorf("rendering of %s = %s, want a ManifestWork with 4 manifests", title, out)
		}
	}
	// ManifestWorks of other tests may be deleted in the meantime, so check for new objects only.
	added := slices.DeleteFunc(f.stored(t), func(one string) bool { return slices.Contains(before, one) })
	if len(added) > 0 {
		t.Errorf("objects stored by proposals, want none:\n%s", strings.Join(added, "\n"))
	}
	f.notStored(t, name)
	f.notDelivered(t, name)

	// The delivered ManifestWork equals the rendering.
	work := framework.Must(propose(t, f.OCM, name, inJSON))(t)
	cp := framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
	sameSpec(t, "the proposal", work, framework.Must(f.GetWork(t.Context(), cp))(t))
}

// TestBadProposals checks that the server validates a proposal like a write.
func TestBadProposals(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "bad-proposal"
	good := manifest(t, framework.Permission(name))
	invalid := framework.Permission(name)
	(*invalid.Spec.Roles)[0].NamespaceSelector = &metav1.LabelSelector{}
	for title, test := range map[string]struct {
		url, body string
		refused   func(error) bool
		want      string
	}{
		"unknown field": {body: strings.Replace(good, `"spec":{`, `"spec":{"clusterRol":{},`, 1), refused: apierrors.IsBadRequest, want: `"spec.clusterRol"`},
		"field twice":   {body: strings.Replace(good, `"spec":{`, `"spec":{"validate":true,"validate":false,`, 1), refused: apierrors.IsBadRequest, want: "validate"},
		"another kind":  {body: `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork"}`, refused: apierrors.IsBadRequest, want: "ClusterPermission"},
		"no object":     {body: `nonsense`, refused: apierrors.IsBadRequest, want: "the body is not a ClusterPermission"},
		"a list":        {body: `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterPermissionList","items":[]}`, refused: apierrors.IsBadRequest, want: "not a ClusterPermissionList of"},
		"nothing":       {body: ``, refused: apierrors.IsBadRequest, want: "it contains 0 documents"},
		"two documents": {body: good + "\n---\n" + good, refused: apierrors.IsBadRequest, want: "it contains 2 documents"},
		"too large":     {body: good + strings.Repeat(" ", 3<<20), refused: apierrors.IsRequestEntityTooLargeError, want: "limit is"},
		"invalid":       {body: manifest(t, invalid), refused: apierrors.IsInvalid, want: "spec.roles[0].namespaceSelector"},
		"another name":  {url: "other-proposal", body: good, refused: apierrors.IsInvalid, want: "metadata.name"},
		"another namespace": {
			body: strings.Replace(good, `"namespace":"`+framework.Cluster1+`"`, `"namespace":"default"`, 1), refused: apierrors.IsInvalid, want: "metadata.namespace",
		},
	} {
		t.Run(title, func(t *testing.T) {
			url := test.url
			if url == "" {
				url = name
			}
			_, err := propose(t, f.OCM, url, test.body)
			if !test.refused(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("propose() = %v, want an error with %s", err, test.want)
			}
		})
	}
	if _, err := propose(t, f.OCM, name, "# a comment\n---\n"+good+"\n---\n# the end\n"); err != nil {
		t.Errorf("propose() of one document with comments = %v, want nil", err)
	}
	bare := strings.Replace(strings.Replace(good, `"namespace":"`+framework.Cluster1+`",`, "", 1), `"name":"`+name+`",`, "", 1)
	if work, err := propose(t, f.OCM, name, bare); err != nil || work.Namespace != framework.Cluster1 || !strings.HasPrefix(work.Name, name+"-") {
		t.Errorf("propose() without name and namespace = %s/%s, error %v, want namespace %s and a name that begins with %s-", work.Namespace, work.Name, err, framework.Cluster1, name)
	}
}

// TestRenderPermissions checks that reading a rendering requires get on
// clusterpermissions/rendered, and a proposal requires create. A rendering contains no object that
// the caller is not allowed to read.
func TestRenderPermissions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, role = "rendered-for", "integration-rendered-role"
	f.hubRole(t, role, framework.ReadPods...)
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	body := manifest(t, framework.Permission("rendered-proposal"))

	viewer := framework.NewCaller(t, f.Hub, "viewer-renders").Is(t, "view", "get", "clusterpermissions/rendered")
	if _, err := rendered(t, viewer.OCM, name); err != nil {
		t.Errorf("rendered() by the viewer = %v, want nil", err)
	}
	if _, err := propose(t, viewer.OCM, "rendered-proposal", body); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "clusterpermissions/rendered") {
		t.Errorf("propose() by the viewer = %v, want 403", err)
	}
	stranger := framework.NewCaller(t, f.Hub, "stranger-renders")
	stranger.May(t, framework.Cluster1, mayGrant("get", "create"))
	if _, err := rendered(t, stranger.OCM, name); !apierrors.IsForbidden(err) {
		t.Errorf("rendered() without get on clusterpermissions/rendered = %v, want 403", err)
	}

	admin := framework.NewCaller(t, f.Hub, "admin-renders").IsAdmin(t)
	if _, err := propose(t, admin.OCM, "rendered-proposal", body); err != nil {
		t.Errorf("propose() by the administrator = %v, want nil", err)
	}
	texts := admin.Warnings.Take()
	for _, path := range []string{"spec.clusterRole (", "spec.roles[0] (", "spec.clusterRoleBinding (", "spec.roleBindings[0] ("} {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, path) && strings.Contains(text, ": requires ") }) {
			t.Errorf("warnings for the administrator = %q, want one for %s...)", texts, path)
		}
	}
	granter := framework.NewCaller(t, f.Hub, "granter-renders").IsAdmin(t).IsGranter(t)
	if _, err := propose(t, granter.OCM, "rendered-proposal", body); err != nil {
		t.Errorf("propose() by the granter = %v, want nil", err)
	}
	if texts := granter.Warnings.Take(); len(texts) > 0 {
		t.Errorf("warnings for the granter = %q, want none", texts)
	}
	framework.CreatePermission(t, f.OCM, refersTo("rendered-refers", role))
	if _, err := rendered(t, viewer.OCM, "rendered-refers"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), role) || strings.Contains(err.Error(), "pods") {
		t.Errorf("rendered() without get on the role = %v, want 403 without its rules", err)
	}
	if _, err := rendered(t, f.OCM, "rendered-refers"); err != nil {
		t.Errorf("rendered() with get on the role = %v, want nil", err)
	}
	for _, c := range []*framework.Caller{admin, granter} {
		_, err := propose(t, c.OCM, "rendered-ref", manifest(t, refersTo("rendered-ref", role)))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), role) || strings.Contains(err.Error(), "pods") {
			t.Errorf("propose() by %s without get on the role = %v, want 403 without its rules", c.Name, err)
		}
	}
	if work, err := propose(t, f.OCM, "rendered-ref", manifest(t, refersTo("rendered-ref", role))); err != nil || len(work.Spec.Workload.Manifests) != 1 {
		t.Errorf("propose() with get on the role = %v, error %v, want one manifest", work.Spec.Workload.Manifests, err)
	}
}

// TestNothingToRender checks the errors for a ClusterPermission that does not exist, and for one
// without a part that can be delivered.
func TestNothingToRender(t *testing.T) {
	t.Parallel()
	f := shared(t)
	_, err := rendered(t, f.OCM, "rendered-never")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `clusterpermissions.rbac.open-cluster-management.io "rendered-never" not found`) {
		t.Errorf("rendered() of a ClusterPermission that does not exist = %v, want 404", err)
	}
	const name = "rendered-nothing"
	cp := framework.Permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
		RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subject: &rbacv1.Subject{APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: "rendered-no-account"},
	}}
	_, err = propose(t, f.OCM, name, manifest(t, cp))
	nothing := func(err error) bool {
		return apierrors.IsNotFound(err) && strings.Contains(err.Error(), fmt.Sprintf("no part of ClusterPermission %q can be delivered", name))
	}
	if !nothing(err) {
		t.Errorf("propose() without deliverable parts = %v, want 404", err)
	}
	framework.CreatePermission(t, f.OCM, cp)
	if _, err := rendered(t, f.OCM, name); !nothing(err) {
		t.Errorf("rendered() without deliverable parts = %v, want 404", err)
	}
}
