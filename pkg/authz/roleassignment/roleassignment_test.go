package roleassignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
)

// hub allows the listed requests, each as "verb resource[/subresource] [namespace/]name".
type hub struct {
	allowed []string
	asked   atomic.Int32
	err     error
}

func (h *hub) decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h.asked.Add(1)
	if h.err != nil {
		return authorizer.DecisionNoOpinion, "", h.err
	}
	text := a.GetVerb() + " " + a.GetResource()
	if a.GetSubresource() != "" {
		text += "/" + a.GetSubresource()
	}
	for _, part := range []string{a.GetNamespace(), a.GetName()} {
		if part != "" {
			text += " " + part
		}
	}
	if a.GetUser().GetName() == "ann" && slices.Contains(h.allowed, text) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (h *hub) pass() *Pass { return h.passOf(1) }

func (h *hub) passOf(authors int) *Pass {
	checker := &Checker{Authorizer: authorizer.AuthorizerFunc(h.decide), Reviews: callers.NewReviews(),
		Delivered: func(context.Context, string) ([]workv1.Manifest, error) { return nil, nil }}
	return checker.NewPass("ann", authors)
}

// bindings returns a ClusterPermission that binds ClusterRole view everywhere and edit in the namespace default.
func bindings() *rbacv1alpha1.ClusterPermission {
	subject := &rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "p"},
		Spec: rbacv1alpha1.ClusterPermissionSpec{
			ClusterRoleBindings: &[]rbacv1alpha1.ClusterRoleBinding{{Name: "a", Subject: subject, RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}},
			RoleBindings: &[]rbacv1alpha1.RoleBinding{{Name: "b", Namespace: "default", Subject: subject,
				RoleRef: rbacv1alpha1.RoleRef{APIGroup: ptr.To(rbacv1.GroupName), Kind: "ClusterRole", Name: ptr.To("edit")}}},
		},
	}
}

func TestRefused(t *testing.T) {
	view, edit := rbacv1beta1.Grant{ClusterRole: "view"}, rbacv1beta1.Grant{ClusterRole: "edit", Namespace: "default"}
	sets := func() ([]string, error) { return []string{"east", "west"}, nil }
	for name, test := range map[string]struct {
		allowed []string
		author  string
		before  *rbacv1alpha1.ClusterPermissionSpec
		want    []rbacv1beta1.Grant
	}{
		"nothing":                          {nil, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"bind all ClusterPermissions":      {[]string{"bind clusterpermissions"}, "ann", nil, nil},
		"bind of another user":             {[]string{"bind clusterpermissions"}, "bob", nil, []rbacv1beta1.Grant{view, edit}},
		"bind in the namespace":            {[]string{"bind clusterpermissions cluster1 p"}, "ann", nil, nil},
		"bind in the namespace of another": {[]string{"bind clusterpermissions cluster1 p"}, "bob", nil, []rbacv1beta1.Grant{view, edit}},
		"bind in another namespace":        {[]string{"bind clusterpermissions cluster2 p"}, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"escalate does not suffice":        {[]string{"escalate clusterpermissions cluster1 p"}, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"bind of the role only":            {[]string{"bind clusterroles view"}, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"bind of a set only":               {[]string{"create managedclustersets/bind west"}, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"bind of the role and a set":       {[]string{"bind clusterroles view", "create managedclustersets/bind west"}, "ann", nil, []rbacv1beta1.Grant{edit}},
		"bind of the role and another set": {[]string{"bind clusterroles view", "create managedclustersets/bind north"}, "ann", nil, []rbacv1beta1.Grant{view, edit}},
		"delivered before":                 {nil, "ann", &bindings().Spec, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hub{allowed: test.allowed}
			// The author counts, not the caller of the request.
			ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
			refused, err := h.pass().Refused(ctx, &rbacv1beta1.AssignmentAuthor{Username: test.author}, bindings(), sets, test.before)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(maps.Keys(refused)); len(got) != len(test.want) || slices.ContainsFunc(test.want, func(g rbacv1beta1.Grant) bool { return refused[g] == "" }) {
				t.Errorf("Refused() = %v, want reasons for %v", refused, test.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	h := &hub{err: errors.New("the hub is down")}
	author := &rbacv1beta1.AssignmentAuthor{Username: "ann"}
	if _, err := h.pass().Refused(t.Context(), author, bindings(), func() ([]string, error) { return nil, nil }, nil); !apierrors.IsInternalError(err) {
		t.Errorf("Refused() without the hub = %v, want an InternalError", err)
	}
	h.err = nil
	if _, err := h.pass().Refused(t.Context(), author, bindings(), func() ([]string, error) { return nil, errors.New("no sets") }, nil); err == nil || !strings.Contains(err.Error(), "no sets") {
		t.Errorf("Refused() without sets = %v, want the error of the sets", err)
	}
}

func TestPassAsksOnce(t *testing.T) {
	h := &hub{allowed: []string{"bind clusterpermissions"}}
	pass := h.pass()
	for range 3 {
		if _, err := pass.Refused(t.Context(), &rbacv1beta1.AssignmentAuthor{Username: "ann"}, bindings(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.asked.Load(); got != 1 {
		t.Errorf("requests to the hub for three clusters = %d, want 1", got)
	}
}

// TestReviewsAreBounded checks an author with permission for single clusters on more clusters than a request may check,
// concurrently as a plan does, and twice as a dry run does.
func TestReviewsAreBounded(t *testing.T) {
	const clusters = authz.MaxReviews + 200
	h := &hub{}
	for i := range clusters {
		h.allowed = append(h.allowed, fmt.Sprintf("bind clusterpermissions c%d p", i))
	}
	none := func() ([]string, error) { return nil, nil }
	check := func(pass *Pass, author string) (allowed, unchecked int) {
		var mu sync.Mutex
		var group errgroup.Group
		group.SetLimit(16)
		for i := range clusters {
			group.Go(func() error {
				permission := bindings()
				permission.Namespace = fmt.Sprintf("c%d", i)
				refused, err := pass.Refused(t.Context(), &rbacv1beta1.AssignmentAuthor{Username: author}, permission, none, nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, ErrTooManyReviews):
					unchecked++
				case err != nil:
					return err
				case len(refused) == 0:
					allowed++
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		return allowed, unchecked
	}
	pass := h.pass()
	for range 2 {
		if allowed, unchecked := check(pass, "ann"); allowed != authz.MaxReviews || unchecked != clusters-authz.MaxReviews {
			t.Errorf("allowed and unchecked clusters = %d, %d, want %d, %d", allowed, unchecked, authz.MaxReviews, clusters-authz.MaxReviews)
		}
	}
	if got := h.asked.Load(); got != authz.MaxReviews+1 {
		t.Errorf("reviews = %d, want %d and one for all clusters", got, authz.MaxReviews)
	}
	// An author who is refused everywhere leaves the share of another.
	pass = h.passOf(2)
	if allowed, unchecked := check(pass, "bob"); allowed != 0 || unchecked != clusters-authz.MaxReviews/2 {
		t.Errorf("allowed and unchecked clusters of an author without permission = %d, %d, want 0, %d", allowed, unchecked, clusters-authz.MaxReviews/2)
	}
	if allowed, _ := check(pass, "ann"); allowed != authz.MaxReviews/2 {
		t.Errorf("allowed clusters of the second author = %d, want %d", allowed, authz.MaxReviews/2)
	}
	h.allowed = append(h.allowed, "bind clusterpermissions")
	if allowed, _ := check(h.pass(), "ann"); allowed != clusters {
		t.Errorf("allowed clusters with permission for all = %d, want %d", allowed, clusters)
	}
}

func TestSelects(t *testing.T) {
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"})
	for name, test := range map[string]struct {
		selection rbacv1beta1.ClusterSelection
		allowed   string
		path      string
	}{
		"placement": {rbacv1beta1.ClusterSelection{Placements: []rbacv1beta1.PlacementRef{{Namespace: "n", Name: "p"}}}, "get placements n p", "path.placements[0]"},
		"set":       {rbacv1beta1.ClusterSelection{ClusterSets: []string{"s"}}, "get managedclustersets s", "path.clusterSets[0]"},
		"labels":    {rbacv1beta1.ClusterSelection{LabelSelector: &metav1.LabelSelector{}}, "list managedclusters", "path.labelSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&hub{}).pass().Selects(ctx, "a", "path", &test.selection)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.path+`: user "ann" cannot `+strings.Fields(test.allowed)[0]) {
				t.Errorf("Selects() = %v, want 403 for %s", err, test.path)
			}
			if err := (&hub{allowed: []string{test.allowed}}).pass().Selects(ctx, "a", "path", &test.selection); err != nil {
				t.Errorf("Selects() with permission = %v, want nil", err)
			}
		})
	}
}
