// Package access tests reviews of fleet access, from a binding on a managed cluster to the output of clusteradm.
package access

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.RunSharing(m, 3)) }

const (
	reviewRole = "open-cluster-management:access:review"
	viewRole   = "open-cluster-management:search:view-cluster"
)

var deleteSecrets = accessv1alpha1.AccessRequest{
	ResourceAttributes: &accessv1alpha1.ResourceAttributes{Verb: "delete", Resource: "secrets", Namespace: "default"},
}

// bindEverywhere binds a ClusterRole of the hub to a caller until the end of the test.
func bindEverywhere(t *testing.T, caller *framework.Caller, role string) {
	t.Helper()
	bindings := caller.HubClient.RbacV1().ClusterRoleBindings()
	binding := framework.Must(bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Subjects: []rbacv1.Subject{caller.Subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// grantOnCluster allows a subject to delete Secrets on the managed cluster, by a role and a binding of that name. The
// returned function revokes it.
func grantOnCluster(t *testing.T, f *framework.Fleet, name string, subject rbacv1.Subject) (revoke func()) {
	t.Helper()
	framework.CreateRole(t, f.ManagedClient, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}}, {Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}},
	})
	bindings := f.ManagedClient.RbacV1().RoleBindings("default")
	framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{}))(t)
	revoke = func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	t.Cleanup(revoke)
	return revoke
}

// decides waits until a review of the user by the caller has a decision for the managed cluster.
func decides(t *testing.T, caller *framework.Caller, user string, want accessv1alpha1.AccessDecision) *accessv1alpha1.ClusterAccess {
	t.Helper()
	var found accessv1alpha1.ClusterAccess
	framework.Eventually(t, fmt.Sprintf("%s is %s", user, want), func(ctx context.Context) error {
		got, err := caller.OCM.AccessV1alpha1().FleetAccessReviews().Create(ctx, &accessv1alpha1.FleetAccessReview{
			Spec: accessv1alpha1.FleetAccessReviewSpec{User: user, AccessRequest: deleteSecrets},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if len(got.Status.Clusters) != 1 || got.Status.Clusters[0].Cluster != framework.Cluster1 || got.Status.Clusters[0].Decision != want {
			return fmt.Errorf("review = %s", framework.ToJSON(got.Status))
		}
		found = got.Status.Clusters[0]
		return nil
	})
	return &found
}

// TestReviewsFollowTheCluster grants and revokes a permission on a managed cluster, and reads the reviews of the hub.
func TestReviewsFollowTheCluster(t *testing.T) {
	f := framework.Shared(t)
	reviewer, user := framework.NewCaller(t, f.Hub, framework.Unique("reviewer")), framework.NewCaller(t, f.Hub, framework.Unique("user"))
	bindEverywhere(t, reviewer, reviewRole)
	for _, caller := range []*framework.Caller{reviewer, user} {
		caller.Bind(t, framework.Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	}
	decides(t, reviewer, user.Name, accessv1alpha1.AccessDenied)
	revoke := grantOnCluster(t, f, user.Name, *framework.UserSubject(user.Name))
	allowed := decides(t, reviewer, user.Name, accessv1alpha1.AccessAllowed)
	want := accessv1alpha1.AccessChain{
		Binding: accessv1alpha1.RBACReference{Kind: "RoleBinding", Namespace: "default", Name: user.Name},
		Subject: accessv1alpha1.AccessSubject{Kind: "User", Name: user.Name},
		Role:    accessv1alpha1.RBACReference{Kind: "Role", Namespace: "default", Name: user.Name},
		Rule:    rbacv1.PolicyRule{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
	}
	if len(allowed.Chains) != 1 || framework.ToJSON(allowed.Chains[0]) != framework.ToJSON(want) {
		t.Errorf("chains = %s, want %s", framework.ToJSON(allowed.Chains), framework.ToJSON(want))
	}
	t.Run("clusteradm", func(t *testing.T) { clusteradm(t, reviewer, user) })
	revoked := time.Now()
	revoke()
	decides(t, reviewer, user.Name, accessv1alpha1.AccessDenied)
	framework.Soon(t, "the review follows the revocation", revoked, framework.Prompt)
}

func clusteradm(t *testing.T, reviewer, user *framework.Caller) {
	works := func(caller *framework.Caller, args ...string) string {
		t.Helper()
		out, complaints, code := caller.Clusteradm(t, args...)
		if code != 0 {
			t.Fatalf("clusteradm %v: exit code %d:\n%s%s", args, code, out, complaints)
		}
		return out
	}
	binding := "rolebinding/" + user.Name + " -n default"
	for _, c := range []struct {
		name   string
		caller *framework.Caller
		args   []string
		want   []string
	}{
		{"can-i", user, []string{"auth", "can-i", "delete", "secrets", "-n", "default"}, []string{framework.Cluster1, "Allowed", binding}},
		{"can-i as names", user, []string{"auth", "can-i", "delete", "secrets", "-n", "default", "-o", "name"}, []string{framework.Cluster1}},
		{"can-i of another", reviewer, []string{"auth", "can-i", "delete", "secrets", "-n", "default", "--subject", user.Name}, []string{"Allowed", binding}},
		{"can-i to a Namespace", user, []string{"auth", "can-i", "delete", "ns", "default"}, []string{framework.Cluster1, "Allowed", binding}},
		{"who-can to a Namespace", reviewer, []string{"auth", "who-can", "delete", "namespaces", "default", "-A", "--cluster", framework.Cluster1}, []string{"user/" + user.Name, binding}},
		{"who-can", reviewer, []string{"auth", "who-can", "delete", "secrets", "-n", "default", "--cluster", framework.Cluster1}, []string{"user/" + user.Name, binding, "group/system:masters"}},
		{"explain", reviewer, []string{"auth", "explain", "user", user.Name}, []string{framework.Cluster1, binding, "role/" + user.Name}},
	} {
		out := works(c.caller, c.args...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: clusteradm %v does not contain %q:\n%s", c.name, c.args, want, out)
			}
		}
	}
	if out := works(reviewer, "auth", "explain", "user", user.Name, "-o", "name"); out != framework.Cluster1+"\n" {
		t.Errorf("explain as names = %q, want %s", out, framework.Cluster1)
	}
	if out, stderr, code := user.Clusteradm(t, "auth", "can-i", "delete", "secrets", "-A"); code != 1 || !strings.Contains(out, "Denied") || !strings.Contains(stderr, "no selected cluster") {
		t.Errorf("can-i in all namespaces exits with %d, want 1 after Denied:\n%s%s", code, out, stderr)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"patch", "deployments", "-n", "default"}, `the answer is about the resource deployments of the group "apps"`},
		{[]string{"get", "secrets"}, "the answer is about the namespace default; -n and -A select others"},
		{[]string{"delete", "namespaces"}, "a Role in a Namespace can allow a request for it: give its name, too"},
		{[]string{"get", "podss", "-n", "default"}, `the hub serves no resource podss of the group ""`},
		{[]string{"delete", "secrets", "-n", "default", "--cluster", "nosuch"}, "no cluster that you may view matches --cluster=nosuch"},
		{[]string{"delete", "secrets", "-n", "default", "--clusterset", "nosuch"}, "no cluster that you may view matches"},
	} {
		if out, stderr, code := user.Clusteradm(t, append([]string{"auth", "can-i"}, c.args...)...); code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("can-i %v exits with %d, want 1 and %q:\n%s%s", c.args, code, c.want, out, stderr)
		}
	}
	var status accessv1alpha1.FleetSubjectReviewStatus
	out := works(reviewer, "auth", "who-can", "delete", "secrets", "-n", "default", "-o", "json")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if !slices.ContainsFunc(status.Subjects, func(s accessv1alpha1.SubjectAccess) bool { return s.Name == user.Name && len(s.Grants) == 1 }) {
		t.Errorf("subjects = %s, want %s with one grant", framework.ToJSON(status.Subjects), user.Name)
	}
	for what, args := range map[string][]string{
		"secrets":          {"auth", "can-i", "delete", ""},
		"serviceaccount":   {"auth", "explain", ""},
		"name":             {"auth", "who-can", "-o", ""},
		"deletecollection": {"auth", "can-i", ""},
	} {
		if out := works(reviewer, append([]string{"__complete"}, args...)...); !slices.Contains(strings.Fields(out), what) {
			t.Errorf("completion of %v does not contain %s:\n%s", args, what, out)
		}
	}
}

// TestReviewNamesTheMissingRole binds a role that does not exist on the cluster.
func TestReviewNamesTheMissingRole(t *testing.T) {
	f := framework.Shared(t)
	reviewer, user := framework.NewCaller(t, f.Hub, framework.Unique("reviewer")), framework.Unique("user")
	bindEverywhere(t, reviewer, reviewRole)
	reviewer.Bind(t, framework.Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	bindings := f.ManagedClient.RbacV1().RoleBindings("default")
	framework.Must(bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: []rbacv1.Subject{*framework.UserSubject(user)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nosuch"},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), user, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "the review names the missing role", func(context.Context) error {
		if got := decides(t, reviewer, user, accessv1alpha1.AccessDenied); !strings.Contains(got.Reason, `ClusterRole "nosuch" is bound to it, but does not exist on the cluster`) {
			return fmt.Errorf("reason = %q", got.Reason)
		}
		return nil
	})
}

// TestGroupWithCommas grants a permission to a group whose name is a part of the name of another group. The members of the
// other group do not have the permission.
func TestGroupWithCommas(t *testing.T) {
	f := framework.Shared(t)
	reviewer, name := framework.NewCaller(t, f.Hub, framework.Unique("reviewer")), framework.Unique("group")
	bindEverywhere(t, reviewer, reviewRole)
	reviewer.Bind(t, framework.Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	part, whole := "OU="+name, "CN=ops,OU="+name+",DC=example"
	grantOnCluster(t, f, name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: part})
	canI := func(group string) (string, int) {
		out, complaints, code := reviewer.Clusteradm(t, "auth", "can-i", "delete", "secrets", "-n", "default", "--subject=dana", "--group="+group)
		return out + complaints, code
	}
	framework.Eventually(t, "the group "+part+" is allowed", func(context.Context) error {
		if out, code := canI(part); code != 0 {
			return fmt.Errorf("clusteradm auth can-i: exit code %d:\n%s", code, out)
		}
		return nil
	})
	if out, code := canI(whole); code != 1 || !strings.Contains(out, "Denied") {
		t.Errorf("clusteradm auth can-i with group %s: exit code %d, want 1 and Denied:\n%s", whole, code, out)
	}
}

// TestReviewsNeedPermission checks who may create which review, and that clusters stay hidden.
func TestReviewsNeedPermission(t *testing.T) {
	f := framework.Shared(t)
	stranger := framework.NewCaller(t, f.Hub, framework.Unique("stranger"))
	reviews := stranger.OCM.AccessV1alpha1()
	// The hub may not know the binding of the role yet.
	framework.Eventually(t, "a self review is allowed", func(ctx context.Context) error {
		got, err := reviews.SelfFleetAccessReviews().Create(ctx, &accessv1alpha1.SelfFleetAccessReview{
			Spec: accessv1alpha1.SelfFleetAccessReviewSpec{AccessRequest: deleteSecrets},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if s := got.Status; len(s.Clusters) != 0 || s.Allowed+s.Denied+s.Unknown != 0 {
			t.Errorf("review of a user who may view no cluster = %s, want no cluster", framework.ToJSON(s))
		}
		return nil
	})
	if _, err := reviews.FleetAccessReviews().Create(t.Context(), &accessv1alpha1.FleetAccessReview{
		Spec: accessv1alpha1.FleetAccessReviewSpec{User: "alice", AccessRequest: deleteSecrets},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("fleetaccessreview of a stranger: error = %v, want forbidden", err)
	}
	if _, err := reviews.FleetSubjectReviews().Create(t.Context(), &accessv1alpha1.FleetSubjectReview{
		Spec: accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: deleteSecrets},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("fleetsubjectreview of a stranger: error = %v, want forbidden", err)
	}
	if out, stderr, code := stranger.Clusteradm(t, "auth", "can-i", "delete", "secrets"); code != 1 || !strings.Contains(stderr, "you may view no cluster") {
		t.Errorf("clusteradm auth can-i of a stranger: exit code %d, want 1 and the reason:\n%s%s", code, out, stderr)
	}
	bindEverywhere(t, stranger, "view")
	stranger.AwaitAllowed(t, "", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	if _, err := reviews.FleetSubjectReviews().Create(t.Context(), &accessv1alpha1.FleetSubjectReview{
		Spec: accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: deleteSecrets},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("fleetsubjectreview of a user with view: error = %v, want forbidden", err)
	}
}

// TestReviewNamesTheClusterPermission grants by a ClusterPermission, and reads who delivered the binding.
func TestReviewNamesTheClusterPermission(t *testing.T) {
	f := framework.Shared(t)
	reviewer, user := framework.NewCaller(t, f.Hub, framework.Unique("reviewer")), framework.Unique("user")
	bindEverywhere(t, reviewer, reviewRole)
	reviewer.Bind(t, framework.Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	cp := framework.Permission(framework.Unique("delivered"))
	(*cp.Spec.Roles)[0].Rules = []rbacv1.PolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
	(*cp.Spec.RoleBindings)[0].Subject = framework.UserSubject(user)
	framework.CreatePermission(t, f.OCM, cp)
	f.Applied(t, cp.Name)
	framework.Eventually(t, "the review names the ClusterPermission", func(ctx context.Context) error {
		got := decides(t, reviewer, user, accessv1alpha1.AccessAllowed)
		if len(got.Chains) != 1 || got.Chains[0].ClusterPermission != cp.Name {
			return fmt.Errorf("chains = %s, want one of the ClusterPermission %s", framework.ToJSON(got.Chains), cp.Name)
		}
		return nil
	})
	out, complaints, code := reviewer.Clusteradm(t, "auth", "explain", "user", user)
	if code != 0 || !strings.Contains(out, cp.Name) {
		t.Errorf("clusteradm auth explain: exit code %d, want 0 and the ClusterPermission %s:\n%s%s", code, cp.Name, out, complaints)
	}
	var found accessv1alpha1.FleetSubjectReviewStatus
	out, complaints, code = reviewer.Clusteradm(t, "auth", "who-can", "delete", "secrets", "-n", "default", "-o", "json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != 0 {
		t.Fatalf("clusteradm auth who-can: exit code %d, %v, want 0:\n%s%s", code, err, out, complaints)
	}
	if !slices.ContainsFunc(found.Subjects, func(s accessv1alpha1.SubjectAccess) bool {
		return s.Name == user && len(s.Grants) == 1 && s.Grants[0].ClusterPermission == cp.Name
	}) {
		t.Errorf("subjects = %s, want %s with one grant of the ClusterPermission %s", framework.ToJSON(found.Subjects), user, cp.Name)
	}
}

// TestReviewBelievesNoManifestWork delivers a binding by a ManifestWork that claims to belong to a ClusterPermission, by its
// owner reference and its annotation. The reviews do not name the ClusterPermission.
func TestReviewBelievesNoManifestWork(t *testing.T) {
	f := framework.Shared(t)
	reviewer, user := framework.NewCaller(t, f.Hub, framework.Unique("reviewer")), framework.Unique("user")
	bindEverywhere(t, reviewer, reviewRole)
	reviewer.Bind(t, framework.Cluster1, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewRole})
	innocent := framework.CreatePermission(t, f.OCM, framework.Permission(framework.Unique("innocent")))
	f.Applied(t, innocent.Name)
	forged := framework.ConfigMapWork(framework.Unique("forged"),
		fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":%[1]q,"namespace":"default"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["delete"]}]}`, user),
		fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":%[1]q,"namespace":"default"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},`+
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[1]q}]}`, user))
	forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(innocent, rbacv1alpha1.SchemeGroupVersion.WithKind("ClusterPermission"))}
	forged.Annotations = map[string]string{rbacv1alpha1.DeliveredAnnotation: innocent.Name}
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	framework.Must(works.Create(t.Context(), forged, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), forged.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	framework.Eventually(t, "the ManifestWork is applied", func(ctx context.Context) error {
		work, err := works.Get(ctx, forged.Name, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			return fmt.Errorf("conditions = %s", framework.ToJSON(work.Status.Conditions))
		}
		return err
	})
	got := decides(t, reviewer, user, accessv1alpha1.AccessAllowed)
	if len(got.Chains) != 1 || got.Chains[0].ClusterPermission != "" {
		t.Errorf("chains = %s, want one without the ClusterPermission %s", framework.ToJSON(got.Chains), innocent.Name)
	}
	out, complaints, code := reviewer.Clusteradm(t, "auth", "who-can", "delete", "secrets", "-n", "default", "-o", "json")
	if code != 0 || !strings.Contains(out, user) || strings.Contains(out, innocent.Name) {
		t.Errorf("clusteradm auth who-can: exit code %d, want 0 and %s without the ClusterPermission %s:\n%s%s", code, user, innocent.Name, out, complaints)
	}
}
