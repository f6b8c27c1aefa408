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

// rendered reads what a stored ClusterPermission renders to.
func rendered(t *testing.T, client *versioned.Clientset, name string) (*workv1.ManifestWork, error) {
	t.Helper()
	return answer(t, client.RbacV1alpha1().RESTClient().Get(), name)
}

// propose renders a ClusterPermission that is not stored.
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

// sameSpec checks that two works deliver the same.
func sameSpec(t *testing.T, what string, got, want *workv1.ManifestWork) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
		t.Errorf("%s is\n%s\nnot\n%s", what, framework.Must(yaml.Marshal(got.Spec))(t), framework.Must(yaml.Marshal(want.Spec))(t))
	}
	if len(got.Spec.Workload.Manifests) == 0 {
		t.Errorf("%s has no manifests", what)
	}
}

// GET shows the work as it is to be, and a POST of the same object the same.
func TestRenderedIsWhatIsDelivered(t *testing.T) {
	f := shared(t)
	const name = "rendered"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	work := framework.Must(f.GetWork(t.Context(), cp))(t)
	got := framework.Must(rendered(t, f.OCM, name))(t)
	sameSpec(t, "what is rendered", got, work)
	if got.Name != work.Name || got.Namespace != work.Namespace || !metav1.IsControlledBy(got, cp) {
		t.Errorf("the work is %s/%s of %v, not %s/%s", got.Namespace, got.Name, got.OwnerReferences, work.Namespace, work.Name)
	}
	again := framework.Must(propose(t, f.OCM, name, manifest(t, cp)))(t)
	sameSpec(t, "the proposal of what is stored", again, work)
	if again.Name != work.Name {
		t.Errorf("the proposal of what is stored is called %s, not %s", again.Name, work.Name)
	}
	out, err := f.Kubectl(t, "", "get", "--raw", fmt.Sprintf(renderedPath, name))
	if err != nil || !strings.Contains(out, `"kind":"ManifestWork"`) {
		t.Errorf("kubectl get --raw: %v\n%s", err, out)
	}

	// A proposed change shows what it would change, and changes nothing.
	cp.Spec.ClusterRoleBinding.Subject = framework.UserSubject("proposed-for")
	changed := framework.Must(propose(t, f.OCM, name, manifest(t, cp)))(t)
	if text := string(framework.Must(yaml.Marshal(changed.Spec))(t)); !strings.Contains(text, "proposed-for") {
		t.Errorf("the proposed change is not rendered:\n%s", text)
	}
	sameSpec(t, "what is stored", framework.Must(rendered(t, f.OCM, name))(t), work)
}

// stored lists all that a proposal could leave behind, with its versions.
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

// kubectl sends a file as it is, whatever it is written in.
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
			t.Errorf("%s: %v\n%s", title, err, out)
			continue
		}
		// The warnings come before the answer, in whatever order they are printed.
		start, end := strings.Index(out, "{\"kind\""), strings.LastIndex(out, "}")
		work := &workv1.ManifestWork{}
		if start < 0 || end < start {
			t.Fatalf("%s: no JSON in %s", title, out)
		}
		if err := yaml.Unmarshal([]byte(out[start:end+1]), work); err != nil {
			t.Fatalf("%s: %v\n%s", title, err, out)
		}
		if work.Kind != "ManifestWork" || work.Namespace != framework.Cluster1 || len(work.Spec.Workload.Manifests) != 4 {
			t.Errorf("%s renders to %s", title, out)
		}
	}
	// Works of other tests may be going.
	added := slices.DeleteFunc(f.stored(t), func(one string) bool { return slices.Contains(before, one) })
	if len(added) > 0 {
		t.Errorf("stored by proposals:\n%s", strings.Join(added, "\n"))
	}
	f.notStored(t, name)
	f.notDelivered(t, name)

	// What the rendering showed is what arrives.
	work := framework.Must(propose(t, f.OCM, name, inJSON))(t)
	cp := framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
	sameSpec(t, "the proposal", work, framework.Must(f.GetWork(t.Context(), cp))(t))
}

// A proposal is judged as a write of it would be.
func TestBadProposals(t *testing.T) {
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
		"a list":        {body: `{"apiVersion":"rbac.open-cluster-management.io/v1alpha1","kind":"ClusterPermissionList","items":[]}`, refused: apierrors.IsBadRequest, want: "the body is a ClusterPermissionList of"},
		"nothing":       {body: ``, refused: apierrors.IsBadRequest, want: "it has 0 documents"},
		"two documents": {body: good + "\n---\n" + good, refused: apierrors.IsBadRequest, want: "it has 2 documents"},
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
				t.Errorf("got %v, not a refusal for %s", err, test.want)
			}
		})
	}
	if _, err := propose(t, f.OCM, name, "# a comment\n---\n"+good+"\n---\n# the end\n"); err != nil {
		t.Errorf("one document among comments: %v", err)
	}
	bare := strings.Replace(strings.Replace(good, `"namespace":"`+framework.Cluster1+`",`, "", 1), `"name":"`+name+`",`, "", 1)
	if work, err := propose(t, f.OCM, name, bare); err != nil || work.Namespace != framework.Cluster1 || !strings.HasPrefix(work.Name, name+"-") {
		t.Errorf("neither name nor namespace: %s/%s, %v", work.Namespace, work.Name, err)
	}
}

// Who may look at ClusterPermissions may see what they render to; who may create
// them may propose; nobody sees by proposals what it may not read.
func TestWhoMayRender(t *testing.T) {
	f := shared(t)
	const name, role = "rendered-for", "integration-rendered-role"
	f.hubRole(t, role, framework.ReadPods...)
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	body := manifest(t, framework.Permission("rendered-proposal"))

	viewer := framework.NewCaller(t, f.Hub, "viewer-renders").Is(t, "view", "get", "clusterpermissions/rendered")
	if _, err := rendered(t, viewer.OCM, name); err != nil {
		t.Errorf("view gets: %v", err)
	}
	if _, err := propose(t, viewer.OCM, "rendered-proposal", body); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "clusterpermissions/rendered") {
		t.Errorf("view proposes: got %v, not 403", err)
	}
	stranger := framework.NewCaller(t, f.Hub, "stranger-renders")
	stranger.May(t, framework.Cluster1, mayGrant("get", "create"))
	if _, err := rendered(t, stranger.OCM, name); !apierrors.IsForbidden(err) {
		t.Errorf("who may not get clusterpermissions/rendered: got %v, not 403", err)
	}

	admin := framework.NewCaller(t, f.Hub, "admin-renders").IsAdmin(t)
	if _, err := propose(t, admin.OCM, "rendered-proposal", body); err != nil {
		t.Errorf("admin proposes: %v", err)
	}
	texts := admin.Warnings.Take()
	for _, path := range []string{"spec.clusterRole (", "spec.roles[0] (", "spec.clusterRoleBinding (", "spec.roleBindings[0] ("} {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, path) && strings.Contains(text, ": takes ") }) {
			t.Errorf("admin is not warned that it may not grant %s...), but: %q", path, texts)
		}
	}
	granter := framework.NewCaller(t, f.Hub, "granter-renders").IsAdmin(t).IsGranter(t)
	if _, err := propose(t, granter.OCM, "rendered-proposal", body); err != nil {
		t.Errorf("who may grant proposes: %v", err)
	}
	if texts := granter.Warnings.Take(); len(texts) > 0 {
		t.Errorf("who may grant is warned of %q", texts)
	}
	framework.CreatePermission(t, f.OCM, refersTo("rendered-refers", role))
	if _, err := rendered(t, viewer.OCM, "rendered-refers"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), role) || strings.Contains(err.Error(), "pods") {
		t.Errorf("view gets what shows a role that it may not get: got %v, not 403", err)
	}
	if _, err := rendered(t, f.OCM, "rendered-refers"); err != nil {
		t.Errorf("who may get the role: %v", err)
	}
	for _, c := range []*framework.Caller{admin, granter} {
		_, err := propose(t, c.OCM, "rendered-ref", manifest(t, refersTo("rendered-ref", role)))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), role) || strings.Contains(err.Error(), "pods") {
			t.Errorf("%s refers to a role that it may not get: got %v, not 403", c.Name, err)
		}
	}
	if work, err := propose(t, f.OCM, "rendered-ref", manifest(t, refersTo("rendered-ref", role))); err != nil || len(work.Spec.Workload.Manifests) != 1 {
		t.Errorf("who may get the role: %v, %v", work.Spec.Workload.Manifests, err)
	}
}

// Where there is nothing to show, it is said what there is not.
func TestNothingToRender(t *testing.T) {
	f := shared(t)
	_, err := rendered(t, f.OCM, "rendered-never")
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `clusterpermissions.rbac.open-cluster-management.io "rendered-never" not found`) {
		t.Errorf("no such ClusterPermission: got %v, not 404", err)
	}
	const name = "rendered-nothing"
	cp := framework.Permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
		RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subject: &rbacv1.Subject{APIGroup: rbacv1alpha1.ManagedServiceAccountGroup, Kind: rbacv1alpha1.ManagedServiceAccountKind, Name: "rendered-no-account"},
	}}
	_, err = propose(t, f.OCM, name, manifest(t, cp))
	nothing := func(err error) bool {
		return apierrors.IsNotFound(err) && strings.Contains(err.Error(), fmt.Sprintf("nothing of ClusterPermission %q can be delivered", name))
	}
	if !nothing(err) {
		t.Errorf("a proposal of nothing: got %v, not 404", err)
	}
	framework.CreatePermission(t, f.OCM, cp)
	if _, err := rendered(t, f.OCM, name); !nothing(err) {
		t.Errorf("nothing to deliver: got %v, not 404", err)
	}
}
