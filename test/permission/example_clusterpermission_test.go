package permission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacapply "open-cluster-management.io/hub-apiserver/pkg/generated/applyconfiguration/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// example is a run of the compiled examples/clusterpermissions.
type example struct {
	command    *exec.Cmd
	out, notes bytes.Buffer
}

// buildExample returns the path of the compiled example.
var buildExample = sync.OnceValues(func() (string, error) {
	dir, err := framework.TempDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "clusterpermissions")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./examples/clusterpermissions")
	build.Dir = localhub.Root()
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the example: %w: %s", err, output)
	}
	return path, nil
})

// startExample starts the example for Cluster1.
func startExample(t *testing.T, path, kubeconfig string, args ...string) *example {
	t.Helper()
	e := &example{command: exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", kubeconfig, "--cluster", framework.Cluster1}, args...)...)}
	e.command.Stdout, e.command.Stderr = &e.out, &e.notes
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// ends waits until the example exits, and checks its exit code.
func (e *example) ends(t *testing.T, code int) {
	t.Helper()
	var exit *exec.ExitError
	if err := e.command.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := e.command.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code of the example = %d, want %d: %s%s", got, code, &e.out, &e.notes)
	}
}

// row returns nil if a table contains a row with these columns, or an error otherwise.
func row(table string, columns ...string) error {
	for line := range strings.Lines(table) {
		if strings.Join(strings.Fields(line), " ") == strings.Join(columns, " ") {
			return nil
		}
	}
	return fmt.Errorf("the table has no row %v:\n%s", columns, table)
}

// TestExampleClusterPermissions checks that the example of docs/clients.md grants its permissions,
// and revokes them with --delete.
func TestExampleClusterPermissions(t *testing.T) {
	t.Parallel()
	f, path := shared(t), framework.Must(buildExample())(t)
	const name, reader = "example-readers", "erin"
	first := startExample(t, path, f.Kubeconfig, "--name", name, "--user", reader)
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	first.ends(t, 0)
	if err := errors.Join(row(first.out.String(), name, "Role", "default", name, "True"), row(first.out.String(), name, "RoleBinding", "default", name, "True")); err != nil {
		t.Error(err)
	}
	erin := framework.Must(kubernetes.NewForConfig(framework.Must(f.Members[0].UserConfig(reader))(t)))(t)
	if _, err := erin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list of pods by %s = %v, want nil", reader, err)
	}
	if _, err := erin.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list of Secrets by %s = %v, want 403", reader, err)
	}

	again := startExample(t, path, f.Kubeconfig, "--name", name, "--user", reader)
	again.ends(t, 1)
	if notes := again.notes.String(); !strings.Contains(notes, "already exists") {
		t.Errorf("output for an existing ClusterPermission = %q, want \"already exists\" in it", notes)
	}

	const removed = "example-removed"
	brief := startExample(t, path, f.Kubeconfig, "--name", removed, "--user", reader, "--delete")
	brief.ends(t, 0)
	if err := row(brief.out.String(), removed, "Role", "default", removed, "True"); err != nil {
		t.Error(err)
	}
	if _, err := f.GetPermission(t.Context(), removed); !apierrors.IsNotFound(err) {
		t.Errorf("get of the ClusterPermission after --delete = %v, want NotFound", err)
	}
	f.Absent(t, framework.NewObject("Role", "default", removed), framework.NewObject("RoleBinding", "default", removed))
}

// TestExampleWaitsForApproval checks the behaviour that docs/clients.md describes. If the user
// lacks permission to grant, the program reports that the ClusterPermission waits for approval. It
// continues after the approval.
func TestExampleWaitsForApproval(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{APIServerArgs: []string{"--clusterpermission-escalation-check=Approve"}})
	if err := localhub.JoinCluster(t.Context(), f.Hub, framework.Cluster1); err != nil {
		t.Fatal(err)
	}
	const carla = "carla"
	path, kubeconfig := framework.Must(buildExample())(t), f.writer(t, carla, "create", "delete", "list", "watch")

	const late = "example-late"
	gaveUp := startExample(t, path, kubeconfig, "--name", late, "--user", carla, "--timeout", "5s", "--delete")
	gaveUp.ends(t, 1)
	notes := gaveUp.notes.String()
	for _, want := range []string{
		"generation 1 by carla waits for approval\n", "Approved is False: Generation 1 by carla waits for approval. Nothing is delivered.\n",
		"error: ClusterPermission example-late is not applied after ", "s: generation 1 by carla waits for approval\n",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("output of the example =\n%s\nwant %q in it", notes, want)
		}
	}
	if gaveUp.out.Len() > 0 {
		t.Errorf("standard output = %s, want none", &gaveUp.out)
	}
	if _, err := f.GetPermission(t.Context(), late); !apierrors.IsNotFound(err) {
		t.Errorf("get of the ClusterPermission after --delete = %v, want NotFound", err)
	}

	blind := startExample(t, path, f.writer(t, "dave", "create"), "--name", "example-blind", "--user", carla, "--timeout", "2s")
	blind.ends(t, 1)
	if notes := blind.notes.String(); !strings.Contains(notes, "the hub has not shown it") {
		t.Errorf("output for a user without get = %q, want \"the hub has not shown it\" in it", notes)
	}

	const approved = "example-approved"
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	waiting := startExample(t, path, kubeconfig, "--name", approved, "--user", carla)
	var seen *rbacv1alpha1.ClusterPermission
	framework.Eventually(t, "ClusterPermission "+approved+" has condition Approved=False", func(ctx context.Context) error {
		var err error
		if seen, err = f.GetPermission(ctx, approved); err != nil {
			return err
		}
		return framework.HasCondition(seen, rbacv1alpha1.ConditionApproved, metav1.ConditionFalse)
	})
	framework.Must(permissions.UpdateApproval(t.Context(), approved, seen, metav1.UpdateOptions{}))(t)
	// The cluster has no agent, so the test reports the ManifestWork.
	framework.Eventually(t, "the ManifestWork is reported as applied", func(ctx context.Context) error {
		if _, err := f.GetWork(ctx, seen); err != nil {
			return err
		}
		return framework.ReportWorks(ctx, f.OCM, framework.Cluster1)
	})
	waiting.ends(t, 0)
	if err := row(waiting.out.String(), approved, "Role", "default", approved, "True"); err != nil {
		t.Error(err)
	}
}

// TestApplyClusterPermission checks server-side apply as docs/clients.md describes it. Applying an
// unchanged object writes nothing. Another field manager gets a conflict. A lister returns the
// status of the applied object.
func TestApplyClusterPermission(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "applied-by-go"
	factory := externalversions.NewSharedInformerFactoryWithOptions(f.OCM, 0, externalversions.WithNamespace(framework.Cluster1))
	lister := factory.Rbac().V1alpha1().ClusterPermissions().Lister()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())

	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	apply := func(manager, reader string) (*rbacv1alpha1.ClusterPermission, error) {
		wanted := rbacapply.ClusterPermission(name, framework.Cluster1).WithSpec(rbacapply.ClusterPermissionSpec().
			WithRoles(rbacapply.Role().WithNamespace("default").WithRules(framework.ReadPods...)).
			WithRoleBindings(rbacapply.RoleBinding().WithNamespace("default").
				WithRoleRef(rbacapply.RoleRef().WithKind("Role")).WithSubject(*framework.UserSubject(reader))))
		return permissions.Apply(t.Context(), wanted, metav1.ApplyOptions{FieldManager: manager})
	}
	framework.Must(apply("first", "erin"))(t)
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	before := f.Applied(t, name)
	if after := framework.Must(apply("first", "erin"))(t); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("ClusterPermission after the second apply = %+v, want it unchanged: %+v", after, before)
	}
	if _, err := apply("second", "frank"); !apierrors.IsConflict(err) {
		t.Errorf("apply by another field manager = %v, want Conflict", err)
	}
	framework.Eventually(t, "the lister returns ClusterPermission "+name+" with condition AppliedRBACManifestWork=True", func(context.Context) error {
		known, err := lister.ClusterPermissions(framework.Cluster1).Get(name)
		if err != nil {
			return err
		}
		return framework.HasCondition(known, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})
}

// writer returns the kubeconfig of a new user of the hub. The user has some verbs on the
// ClusterPermissions of Cluster1, but no permission to grant.
func (f *fleet) writer(t *testing.T, user string, verbs ...string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), user+".kubeconfig")
	if err := f.Hub.WriteKubeconfig(kubeconfig, user); err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "permissions-of-" + user}
	framework.Must(f.HubClient.RbacV1().Roles(framework.Cluster1).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: name,
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions"}, Verbs: verbs}},
	}, metav1.CreateOptions{}))(t)
	framework.Must(f.HubClient.RbacV1().RoleBindings(framework.Cluster1).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}))(t)
	// Send the review to the hub, because our server caches denials.
	client := framework.Must(kubernetes.NewForConfig(framework.Must(f.Hub.UserConfig(user))(t)))(t)
	framework.Eventually(t, "the hub allows "+user+" to create ClusterPermissions", func(ctx context.Context) error {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: framework.Cluster1, Verb: "create", Group: rbacv1alpha1.GroupName, Resource: "clusterpermissions",
			}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("SelfSubjectAccessReview = denied, want allowed: %s", review.Status.Reason)
		}
		return err
	})
	return kubeconfig
}
