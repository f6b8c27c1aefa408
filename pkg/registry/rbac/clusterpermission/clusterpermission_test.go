package clusterpermission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	restclient "k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

const namespace = "cluster1"

// fakeDelivery delivers to every namespace except "unmanaged", which it refuses, and "waiting", whose
// cluster has not joined. It cannot render a ClusterPermission if its ClusterRole has the verb
// "unrenderable", and renders nothing if it has the verb "empty".
type fakeDelivery struct {
	mu        sync.Mutex
	delivered []string
	err       error
}

func has(c *rbacv1alpha1.ClusterPermission, verb string) bool {
	return c.Spec.ClusterRole != nil && slices.ContainsFunc(c.Spec.ClusterRole.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, verb)
	})
}

func (*fakeDelivery) CheckCluster(_ context.Context, namespace string) (bool, *field.Error, error) {
	if namespace == "unmanaged" {
		return false, field.Invalid(field.NewPath("metadata", "namespace"), namespace, "is not the namespace of a managed cluster"), nil
	}
	return namespace != "waiting", nil, nil
}

func (*fakeDelivery) Render(_ context.Context, c *rbacv1alpha1.ClusterPermission, _ bool) (*render.Result, field.ErrorList, error) {
	if has(c, "unrenderable") {
		return nil, field.ErrorList{field.Invalid(field.NewPath("spec", "clusterRole"), "", "cannot be rendered")}, nil
	}
	if spec, _ := c.Delivered(); spec == nil || has(c, "empty") {
		return &render.Result{}, nil, nil
	}
	return &render.Result{Work: &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Annotations: map[string]string{"uid": string(c.UID)}}}}, nil, nil
}

func (d *fakeDelivery) Deliver(_ context.Context, c *rbacv1alpha1.ClusterPermission, _ *workv1.ManifestWork) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delivered = append(d.delivered, fmt.Sprintf("%s %d", c.Name, c.Generation))
	return d.err
}

func (*fakeDelivery) Delivered(context.Context, string) ([]workv1.Manifest, error) { return nil, nil }

func (d *fakeDelivery) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	delivered := d.delivered
	d.delivered = nil
	return delivered
}

// authorize allows all requests of the user admin.
func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "admin" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

type fixture struct {
	delivery *fakeDelivery
	database registrytest.Database
	server   registrytest.Server
	warnings recorder
}

type recorder []string

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	*r = append(*r, text)
}

func (f *fixture) row(check clusterpermission.EscalationCheck) definition.Resource {
	return clusterpermission.Definition(clusterpermission.Options{
		Delivery: f.delivery, Authorizer: authorizer.AuthorizerFunc(authorize), EscalationCheck: check, HubNamespaces: true,
	})
}

func serve(t *testing.T, check clusterpermission.EscalationCheck) *fixture {
	t.Helper()
	f := &fixture{delivery: &fakeDelivery{}, database: registrytest.StartDatabase(t)}
	f.server = f.database.Serve(t, nil, f.row(check))
	return f
}

func (f *fixture) as(t *testing.T, name string) rbacclient.ClusterPermissionInterface {
	t.Helper()
	return f.in(t, name, namespace)
}

func (f *fixture) in(t *testing.T, name, namespace string) rbacclient.ClusterPermissionInterface {
	t.Helper()
	config := f.server.Config(name)
	config.WarningHandlerWithContext = &f.warnings
	client, err := rbacclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.ClusterPermissions(namespace)
}

// newPermission grants a user verbs on the Pods of the cluster.
func newPermission(name string, verbs ...string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1alpha1.SchemeGroupVersion.String(), Kind: "ClusterPermission"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}}},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
		},
	}
}

func (f *fixture) create(t *testing.T, c *rbacv1alpha1.ClusterPermission) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	created, err := f.as(t, "admin").Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.delivery.take()
	return created
}

func (f *fixture) get(t *testing.T, name string) *rbacv1alpha1.ClusterPermission {
	t.Helper()
	stored, err := f.as(t, "admin").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// TestRefusals creates ClusterPermissions that are refused. The server neither stores nor delivers
// them.
func TestRefusals(t *testing.T) {
	f := serve(t, clusterpermission.Enforce)
	withRoleRef := newPermission("role-ref", "get")
	withRoleRef.Spec.RoleRefs = &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: "secret-reader"}}
	withSelector := newPermission("selector", "get")
	withSelector.Spec.Roles = &[]rbacv1alpha1.Role{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Rules:             []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}}
	for name, test := range map[string]struct {
		user, namespace string
		permission      *rbacv1alpha1.ClusterPermission
		reason          metav1.StatusReason
		want            string
	}{
		"no managed cluster":                {"admin", "unmanaged", newPermission("a", "get"), metav1.StatusReasonInvalid, "metadata.namespace: "},
		"no verbs":                          {"admin", namespace, newPermission("a"), metav1.StatusReasonInvalid, "spec.clusterRole.rules[0].verbs: "},
		"not renderable":                    {"admin", namespace, newPermission("a", "unrenderable"), metav1.StatusReasonInvalid, "spec.clusterRole: "},
		"escalation":                        {"alice", namespace, newPermission("a", "get"), metav1.StatusReasonForbidden, `"alice"`},
		"a role that alice cannot read":     {"alice", namespace, withRoleRef, metav1.StatusReasonForbidden, "secret-reader"},
		"namespaces that alice cannot list": {"alice", namespace, withSelector, metav1.StatusReasonForbidden, "namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.in(t, test.user, test.namespace).Create(t.Context(), test.permission, metav1.CreateOptions{})
			if apierrors.ReasonForError(err) != test.reason || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("Create() = %v, want %s with %q", err, test.reason, test.want)
			}
			if _, err := f.in(t, "admin", test.namespace).Get(t.Context(), test.permission.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("Get() after a refusal = %v, want 404", err)
			}
			if delivered := f.delivery.take(); len(delivered) > 0 {
				t.Errorf("deliveries after a refusal = %q, want none", delivered)
			}
		})
	}
}

// TestWaitsForCluster checks that a ClusterPermission whose cluster has not joined is stored with a
// warning, and only if its author may grant it.
func TestWaitsForCluster(t *testing.T) {
	f := serve(t, clusterpermission.Enforce)
	if _, err := f.in(t, "alice", "waiting").Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Create() of alice = %v, want 403", err)
	}
	if _, err := f.in(t, "admin", "waiting").Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create() of admin = %v, want no error", err)
	}
	if want := `there is no ManagedCluster "waiting" yet; the ClusterPermission is delivered when the cluster joins`; !slices.Contains(f.warnings, want) {
		t.Errorf("warnings = %q, want %q", f.warnings, want)
	}
}

// TestDeleteWarnsOfOwner checks that a caller who deletes a ClusterPermission of a MulticlusterRoleAssignment gets a warning,
// and that the server and callers who delete others get none.
func TestDeleteWarnsOfOwner(t *testing.T) {
	f := serve(t, clusterpermission.Off)
	const warned = "MulticlusterRoleAssignment default/viewers creates the ClusterPermission again; delete or change that"
	server := func() rbacclient.ClusterPermissionInterface {
		config := f.server.Config(user.APIServerUser, user.SystemPrivilegedGroup)
		config.WarningHandlerWithContext = &f.warnings
		client, err := rbacclient.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client.ClusterPermissions(namespace)
	}()
	for _, test := range []struct {
		owned          bool
		deleter        rbacclient.ClusterPermissionInterface
		dryRun         []string
		name, warnings string
	}{
		{true, f.as(t, "admin"), nil, "by a caller", warned},
		{true, f.as(t, "admin"), []string{metav1.DryRunAll}, "by a caller in a dry run", warned},
		{true, server, nil, "by the server", ""},
		{false, f.as(t, "admin"), nil, "without owner", ""},
	} {
		c := newPermission("a", "get")
		if test.owned {
			c.Labels = map[string]string{rbacv1beta1.NamespaceLabel: "default"}
			c.Annotations = map[string]string{rbacv1beta1.NameAnnotation: "viewers", rbacv1beta1.UIDAnnotation: "x"}
		}
		if _, err := server.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.warnings = nil
		if err := test.deleter.Delete(t.Context(), c.Name, metav1.DeleteOptions{DryRun: test.dryRun}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.warnings, "\n"); got != test.warnings {
			t.Errorf("warnings of a deletion %s = %q, want %q", test.name, got, test.warnings)
		}
		if err := server.Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func TestEscalationChecks(t *testing.T) {
	for _, test := range []struct {
		check    clusterpermission.EscalationCheck
		stored   bool
		warnings int
		pending  bool
	}{
		{clusterpermission.Enforce, false, 0, false},
		{clusterpermission.Approve, true, 1, true},
		{clusterpermission.Warn, true, 1, false},
		{clusterpermission.Off, true, 0, false},
	} {
		t.Run(string(test.check), func(t *testing.T) {
			f := serve(t, test.check)
			created, err := f.as(t, "alice").Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{})
			if test.stored && err != nil || !test.stored && !apierrors.IsForbidden(err) {
				t.Fatalf("Create() = %v, want 403: %v", err, !test.stored)
			}
			if test.warnings == 0 && len(f.warnings) > 0 || test.warnings > 0 && len(f.warnings) == 0 {
				t.Errorf("warnings = %q, want at least %d", f.warnings, test.warnings)
			}
			if !test.stored {
				return
			}
			approval := created.Status.Approval
			if pending := approval != nil && approval.Pending != nil; pending != test.pending || pending && approval.Pending.RequestedBy != "alice" {
				t.Errorf("status.approval = %+v, want pending: %v", approval, test.pending)
			}
			if created, err = f.as(t, "admin").Create(t.Context(), newPermission("b", "get"), metav1.CreateOptions{}); err != nil || created.Status.Approval != nil {
				t.Errorf("Create() by an administrator = %v, %v, want no approval", created, err)
			}
		})
	}
}

func TestWritesDeliver(t *testing.T) {
	f := serve(t, clusterpermission.Enforce)
	expect := func(action string, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Errorf("%s = %v, want no error", action, err)
		}
		if got := f.delivery.take(); !slices.Equal(got, want) {
			t.Errorf("deliveries of %s = %q, want %q", action, got, want)
		}
	}
	admin := f.as(t, "admin")
	dryRun := []string{metav1.DryRunAll}
	_, err := admin.Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{DryRun: dryRun})
	expect("Create() with dry run", err)
	stored, err := admin.Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{})
	expect("Create()", err, "a 1")

	stored.Labels = map[string]string{"a": "b"}
	stored, err = admin.Update(t.Context(), stored, metav1.UpdateOptions{})
	expect("Update() of labels", err)
	stored.Spec.ClusterRole.Rules[0].Verbs = []string{"get", "list"}
	_, err = admin.Update(t.Context(), stored, metav1.UpdateOptions{DryRun: dryRun})
	expect("Update() with dry run", err)
	stored.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Mine", LastTransitionTime: metav1.Now()}}
	stored, err = admin.Update(t.Context(), stored, metav1.UpdateOptions{})
	expect("Update() of the spec", err, "a 2")
	if len(stored.Status.Conditions) > 0 {
		t.Errorf("conditions after Update() = %v, want none", stored.Status.Conditions)
	}

	f.delivery.err = errors.New("the hub does not respond")
	stored.Spec.ClusterRole.Rules[0].Verbs = []string{"get"}
	_, err = admin.Update(t.Context(), stored, metav1.UpdateOptions{})
	expect("Update() with a failing delivery", err, "a 3")
}

func TestUpdateStatus(t *testing.T) {
	f := serve(t, clusterpermission.Approve)
	stored, err := f.as(t, "alice").Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Labels = map[string]string{"a": "b"}
	stored.Spec.ClusterRole.Rules[0].Verbs = []string{"*"}
	stored.Status.Approval = &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 1, ApprovedBy: "alice"}}
	stored.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Reported", LastTransitionTime: metav1.Now()}}
	if stored, err = f.as(t, "alice").UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(stored.Labels) > 0 || !slices.Equal(stored.Spec.ClusterRole.Rules[0].Verbs, []string{"get"}) || stored.Generation != 1 {
		t.Errorf("UpdateStatus() stores %+v, %+v, want the stored metadata and spec", stored.ObjectMeta, stored.Spec.ClusterRole)
	}
	if len(stored.Status.Conditions) != 1 || stored.Status.Approval.Pending == nil || stored.Status.Approval.Approved != nil {
		t.Errorf("UpdateStatus() stores the status %+v, want the condition and the stored approval", stored.Status)
	}
}

// TestRatcheting updates a stored ClusterPermission that can no longer be rendered.
func TestRatcheting(t *testing.T) {
	f := serve(t, clusterpermission.Enforce)
	lenient := f.row(clusterpermission.Off)
	strategy := *lenient.Strategy.(*definition.Strategy[*rbac.ClusterPermission])
	strategy.Rules.Spec = nil
	lenient.Strategy, lenient.Wrap = &strategy, nil
	before := f.database.Serve(t, nil, lenient).As(t, "admin").RbacV1alpha1().ClusterPermissions(namespace)
	stored, err := before.Create(t.Context(), newPermission("a", "unrenderable"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, verbs := range [][]string{{"unrenderable", "get"}, {"get"}} {
		stored.Spec.ClusterRole.Rules[0].Verbs = verbs
		if stored, err = f.as(t, "admin").Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("Update(%q) of a ClusterPermission that cannot be rendered = %v, want no error", verbs, err)
		}
	}
	stored.Spec.ClusterRole.Rules[0].Verbs = []string{"unrenderable"}
	if _, err := f.as(t, "admin").Update(t.Context(), stored, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.clusterRole: ") {
		t.Errorf("Update() to a spec that cannot be rendered = %v, want an error of spec.clusterRole", err)
	}
}

func TestApproval(t *testing.T) {
	f := serve(t, clusterpermission.Approve)
	pending, err := f.as(t, "alice").Create(t.Context(), newPermission("a", "get"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.delivery.take()
	approve := func(user string, c *rbacv1alpha1.ClusterPermission, dryRun ...string) (*rbacv1alpha1.ClusterPermission, error) {
		t.Helper()
		client, err := rbacclient.NewForConfig(f.server.Config(user))
		if err != nil {
			t.Fatal(err)
		}
		out := &rbacv1alpha1.ClusterPermission{}
		err = client.RESTClient().Put().Namespace(namespace).Resource("clusterpermissions").Name(c.Name).SubResource("approval").
			VersionedParams(&metav1.UpdateOptions{DryRun: dryRun}, metav1.ParameterCodec).Body(c).Do(t.Context()).Into(out)
		return out, err
	}
	changed := func(change func(*rbacv1alpha1.ClusterPermission)) *rbacv1alpha1.ClusterPermission {
		c := pending.DeepCopy()
		change(c)
		return c
	}
	for name, test := range map[string]struct {
		user       string
		permission *rbacv1alpha1.ClusterPermission
		reason     metav1.StatusReason
		want       string
	}{
		"without UID":        {"admin", changed(func(c *rbacv1alpha1.ClusterPermission) { c.UID = "" }), metav1.StatusReasonInvalid, "metadata.uid: "},
		"without generation": {"admin", changed(func(c *rbacv1alpha1.ClusterPermission) { c.Generation = 0 }), metav1.StatusReasonInvalid, "metadata.generation: "},
		"another UID":        {"admin", changed(func(c *rbacv1alpha1.ClusterPermission) { c.UID = types.UID("other") }), metav1.StatusReasonConflict, "created again"},
		"another generation": {"admin", changed(func(c *rbacv1alpha1.ClusterPermission) { c.Generation = 7 }), metav1.StatusReasonConflict, "generation 7"},
		"another spec": {"admin", changed(func(c *rbacv1alpha1.ClusterPermission) {
			c.Spec.ClusterRole.Rules[0].Verbs = []string{"*"}
		}), metav1.StatusReasonConflict, "differs from the stored spec"},
		"without permission": {"alice", pending, metav1.StatusReasonForbidden, `"alice"`},
	} {
		if _, err := approve(test.user, test.permission); apierrors.ReasonForError(err) != test.reason || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("approval %s = %v, want %s with %q", name, err, test.reason, test.want)
		}
	}
	if _, err := approve("admin", pending, metav1.DryRunAll); err != nil {
		t.Errorf("approval with dry run = %v, want no error", err)
	}
	if stored := f.get(t, "a"); stored.Status.Approval.Pending == nil || stored.Status.Approval.Approved != nil || len(f.delivery.take()) > 0 {
		t.Errorf("status.approval after refused approvals and a dry run = %+v, want pending", stored.Status.Approval)
	}
	approved, err := approve("admin", pending)
	if err != nil {
		t.Fatal(err)
	}
	if a := approved.Status.Approval; a.Pending != nil || a.Approved == nil || a.Approved.Generation != 1 || a.Approved.ApprovedBy != "admin" {
		t.Errorf("status.approval = %+v, want an approval of generation 1 by admin", a)
	}
	if got, want := f.delivery.take(), []string{"a 1"}; !slices.Equal(got, want) {
		t.Errorf("deliveries of an approval = %q, want %q", got, want)
	}

	// A change that grants more waits for approval again. Generation 1 stays delivered.
	approved.Spec.ClusterRole.Rules[0].Verbs = []string{"get", "delete"}
	again, err := f.as(t, "alice").Update(t.Context(), approved, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := again.Status.Approval; a.Pending == nil || a.Pending.Generation != 2 || a.Delivered == nil || a.Delivered.Generation != 1 {
		t.Errorf("status.approval after a change = %+v, want generation 2 pending and generation 1 delivered", a)
	}
}

func TestRendered(t *testing.T) {
	f := serve(t, clusterpermission.Approve)
	stored := f.create(t, newPermission("stored", "get"))
	f.create(t, newPermission("nothing", "empty"))
	if _, err := f.as(t, "alice").Create(t.Context(), newPermission("pending", "get"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.delivery.take()
	proposal := func(change func(*rbacv1alpha1.ClusterPermission)) []byte {
		c := newPermission("new", "get")
		change(c)
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	unchanged := proposal(func(*rbacv1alpha1.ClusterPermission) {})
	client, err := restclient.HTTPClientFor(f.server.Config("admin"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, object string
		body           []byte
		code           int
		want           string
	}{
		"stored":             {http.MethodGet, "stored", nil, http.StatusOK, string(stored.UID)},
		"does not exist":     {http.MethodGet, "new", nil, http.StatusNotFound, "not found"},
		"nothing to deliver": {http.MethodGet, "nothing", nil, http.StatusNotFound, "FullyDelivered"},
		"pending":            {http.MethodGet, "pending", nil, http.StatusNotFound, "generation 1 waits for approval"},
		"a proposal":         {http.MethodPost, "new", unchanged, http.StatusOK, `"name":"new"`},
		"a proposal for a stored ClusterPermission":  {http.MethodPost, "stored", proposal(func(c *rbacv1alpha1.ClusterPermission) { c.Name = "" }), http.StatusOK, string(stored.UID)},
		"a proposal for a pending ClusterPermission": {http.MethodPost, "pending", proposal(func(c *rbacv1alpha1.ClusterPermission) { c.Name = "" }), http.StatusOK, `"name":"pending"`},
		"another name":                 {http.MethodPost, "other", unchanged, http.StatusUnprocessableEntity, "metadata.name: "},
		"another namespace":            {http.MethodPost, "new", proposal(func(c *rbacv1alpha1.ClusterPermission) { c.Namespace = "other" }), http.StatusUnprocessableEntity, "metadata.namespace: "},
		"an invalid proposal":          {http.MethodPost, "new", proposal(func(c *rbacv1alpha1.ClusterPermission) { c.Spec.ClusterRole.Rules[0].Verbs = nil }), http.StatusUnprocessableEntity, "spec.clusterRole.rules[0].verbs: "},
		"not renderable":               {http.MethodPost, "new", proposal(func(c *rbacv1alpha1.ClusterPermission) { c.Spec.ClusterRole.Rules[0].Verbs = []string{"unrenderable"} }), http.StatusUnprocessableEntity, "spec.clusterRole: "},
		"an unknown field":             {http.MethodPost, "new", bytes.Replace(unchanged, []byte(`"spec":{`), []byte(`"spec":{"a":1,`), 1), http.StatusBadRequest, `unknown field "spec.a"`},
		"two documents":                {http.MethodPost, "new", slices.Concat(unchanged, []byte("\n---\n"), unchanged), http.StatusBadRequest, "2 documents"},
		"another kind":                 {http.MethodPost, "new", []byte(`{"apiVersion":"v1","kind":"Pod"}`), http.StatusBadRequest, "a Pod of v1"},
		"a proposal that is too large": {http.MethodPost, "new", bytes.Repeat([]byte("a"), 4<<20), http.StatusRequestEntityTooLarge, "limit is 3145728 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			url := fmt.Sprintf("%s/apis/%s/namespaces/%s/clusterpermissions/%s/rendered", f.server.URL(), rbacv1alpha1.SchemeGroupVersion, namespace, test.object)
			request, err := http.NewRequestWithContext(t.Context(), test.method, url, bytes.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", runtime.ContentTypeJSON)
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.code || !strings.Contains(strings.ReplaceAll(string(body), `\"`, `"`), test.want) {
				t.Errorf("%s %s = %d %s, want %d with %q", test.method, url, response.StatusCode, body, test.code, test.want)
			}
		})
	}
	if _, err := f.as(t, "admin").Get(t.Context(), "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() of a proposal = %v, want 404", err)
	}
	if delivered := f.delivery.take(); len(delivered) > 0 {
		t.Errorf("deliveries after proposals = %q, want none", delivered)
	}
}

func TestColumns(t *testing.T) {
	subjects := []rbacv1.Subject{
		{Kind: rbacv1.UserKind, Name: "bob"}, {Kind: rbacv1.ServiceAccountKind, Namespace: "ci", Name: "robot"},
		{Kind: rbacv1.GroupKind, Name: "devs"}, {Kind: rbacv1.GroupKind, Name: "ops"},
	}
	c := &rbac.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: namespace, Generation: 2},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRole:        &rbacv1alpha1.ClusterRole{},
			ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{Subject: &subjects[0], Subjects: subjects},
			RoleBindings:       &[]rbacv1alpha1.RoleBinding{{Subjects: subjects[:1]}},
		},
	}
	cells := func() []any {
		var out []any
		for _, column := range (&fixture{}).row(clusterpermission.Enforce).Columns.(definition.Columns[*rbac.ClusterPermission]) {
			if column.Name != "Work" {
				out = append(out, column.Cell(c))
			}
		}
		return out
	}
	if got, want := cells(), []any{"Unknown", "<none>", "User/bob,ServiceAccount/ci:robot,Group/devs + 1 more", "1", "2"}; !slices.Equal(got, want) {
		t.Errorf("cells = %q, want %q", got, want)
	}
	for want, approval := range map[string]*rbacv1alpha1.Approval{
		"Pending (generation 2 by alice)": {Pending: &rbacv1alpha1.PendingGeneration{Generation: 2, RequestedBy: "alice"}},
		"By admin":                        {Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 2, ApprovedBy: "admin"}},
		"<none>":                          {Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 1, ApprovedBy: "admin"}},
	} {
		c.Status.Approval = approval
		if got := cells()[1]; got != want {
			t.Errorf("column Approval of %+v = %q, want %q", approval, got, want)
		}
	}
}
