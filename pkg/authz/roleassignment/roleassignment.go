// Package roleassignment checks whether the author of a MulticlusterRoleAssignment may select clusters and grant roles
// on them.
//
// An author may make a grant on a cluster if one of these holds:
//   - The author may bind the ClusterRole of the hub, and may bind a ManagedClusterSet of the cluster.
//   - The author may write the same grant in a ClusterPermission in the namespace of the cluster.
package roleassignment

import (
	"context"
	"fmt"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/escalation"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// ErrTooManyReviews means that an author was not checked on a cluster, because the check requires an access review for
// each cluster and authz.MaxReviews is reached.
var ErrTooManyReviews error = &refusal.UncheckedError{Reason: fmt.Sprintf(
	"the author may make the grant on single clusters at most, and at most %d clusters are checked one by one; grant the author permission for a set of the clusters or for all namespaces, or select fewer clusters", authz.MaxReviews)}

// Checker checks the permissions of authors. It may be used concurrently.
type Checker struct {
	// Authorizer decides about access to the hub.
	Authorizer authorizer.Authorizer
	// Reviews limits the concurrent use of Authorizer.
	Reviews *callers.Reviews
	// Delivered is that of an escalation.Checker.
	Delivered func(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// Pass caches the decisions about one MulticlusterRoleAssignment. It must not be kept, because permissions change. It
// may be used concurrently.
type Pass struct {
	authorizer authorizer.Authorizer
	escalation *escalation.Checker
	// share is the maximum number of clusters on which one author is checked.
	share int

	// decided maps each question to its decision.
	decided sync.Map

	mu sync.Mutex
	// checked contains the clusters on which an author is checked, by author.
	checked map[string]sets.Set[string]
	// clusters is the number of clusters in checked.
	clusters int
}

type question struct{ author, verb, group, resource, subresource, namespace, name string }

// decision is a decision of the authorizer, which is requested once.
type decision struct {
	once     sync.Once
	decision authorizer.Decision
	reason   string
	err      error
}

// NewPass returns a Pass without decisions. Its reviews count for a caller. The number of authors divides
// authz.MaxReviews, so that clusters on which one author is refused do not keep the others from being checked.
func (c *Checker) NewPass(caller string, authors int) *Pass {
	p := &Pass{share: authz.MaxReviews / max(1, authors), checked: map[string]sets.Set[string]{}}
	next := c.Reviews.For(caller, c.Authorizer)
	p.authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked := question{key(a.GetUser()), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()}
		stored, _ := p.decided.LoadOrStore(asked, &decision{})
		known := stored.(*decision)
		known.once.Do(func() { known.decision, known.reason, known.err = next.Authorize(ctx, a) })
		return known.decision, known.reason, known.err
	})
	p.escalation = &escalation.Checker{Authorizer: p.authorizer, Delivered: c.Delivered}
	return p
}

// admits reports whether an author may be checked on a cluster.
func (p *Pass) admits(author, cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	checked := p.checked[author]
	if checked.Has(cluster) {
		return true
	}
	if len(checked) >= p.share || p.clusters >= authz.MaxReviews {
		return false
	}
	if checked == nil {
		checked = sets.Set[string]{}
		p.checked[author] = checked
	}
	checked.Insert(cluster)
	p.clusters++
	return true
}

// key identifies an author within a Pass. Authors with the same identity have the same key.
func key(u user.Info) string {
	return fmt.Sprintf("%q %q %q %q", u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
}

// Refused returns the grants of a ClusterPermission that its author may not make, without their subject, and the
// reasons. setsOf returns the ManagedClusterSets of the cluster. before is the spec of the ClusterPermission that is
// delivered already, or nil. Its grants are not checked again. The error is ErrTooManyReviews, or means that the check
// failed.
func (p *Pass) Refused(ctx context.Context, author *rbacv1beta1.AssignmentAuthor, permission *rbacv1alpha1.ClusterPermission, setsOf func() ([]string, error), before *rbacv1alpha1.ClusterPermissionSpec) (map[rbacv1beta1.Grant]string, error) {
	caller := &user.DefaultInfo{Name: author.Username, UID: author.UID, Groups: author.Groups, Extra: author.Extra}
	// A permission for all namespaces includes the namespaces of all clusters.
	everywhere, err := p.allowed(ctx, caller, bindPermissions())
	if err != nil || everywhere {
		return nil, err
	}
	left, err := p.withoutBound(ctx, caller, permission, setsOf)
	if err != nil || len(ptr.Deref(left.Spec.ClusterRoleBindings, nil)) == 0 && len(ptr.Deref(left.Spec.RoleBindings, nil)) == 0 {
		return nil, err
	}
	if !p.admits(key(caller), permission.Namespace) {
		return nil, ErrTooManyReviews
	}
	refusal, err := p.escalation.Check(request.WithUser(ctx, caller), left, before)
	if err != nil || refusal == nil {
		return nil, err
	}
	grants := map[string]rbacv1beta1.Grant{}
	for i, binding := range ptr.Deref(left.Spec.ClusterRoleBindings, nil) {
		grants[fmt.Sprintf("spec.clusterRoleBindings[%d]", i)] = rbacv1beta1.Grant{ClusterRole: binding.RoleRef.Name}
	}
	for i, binding := range ptr.Deref(left.Spec.RoleBindings, nil) {
		grants[fmt.Sprintf("spec.roleBindings[%d]", i)] = rbacv1beta1.Grant{ClusterRole: ptr.Deref(binding.RoleRef.Name, ""), Namespace: binding.Namespace}
	}
	refused := map[rbacv1beta1.Grant]string{}
	for _, missing := range refusal.Missing {
		grant, known := grants[missing.Path]
		if !known {
			return nil, apierrors.NewInternalError(fmt.Errorf("the escalation check names %s, which is no binding", missing.Path))
		}
		refused[grant] = p.remedy(caller, permission.Namespace, grant.ClusterRole)
	}
	return refused, nil
}

func (p *Pass) remedy(author user.Info, cluster, role string) string {
	return fmt.Sprintf("user %q cannot grant ClusterRole %q on managed cluster %q, because the user does not hold it there; grant it with %s, or with a ClusterRole, bound by a ClusterRoleBinding, that contains the rules %s and %s for a set of the cluster",
		author.GetName(), role, cluster, rbac.RoleText(cluster, rbac.RuleFor(bindPermissions())),
		rbac.RuleText(rbac.RuleFor(bindRole(role))), rbac.RuleText(rbac.RuleFor(bindSet(""))))
}

// withoutBound returns the permission without the bindings that the author may make by a set of the cluster.
func (p *Pass) withoutBound(ctx context.Context, author user.Info, permission *rbacv1alpha1.ClusterPermission, setsOf func() ([]string, error)) (*rbacv1alpha1.ClusterPermission, error) {
	left := &rbacv1alpha1.ClusterPermission{ObjectMeta: permission.ObjectMeta, Spec: *permission.Spec.DeepCopy()}
	bySet, err := p.bindsASet(ctx, author, setsOf)
	if err != nil || !bySet {
		return left, err
	}
	bound := map[string]bool{}
	binds := func(role string) bool {
		if known, checked := bound[role]; checked || err != nil {
			return known
		}
		bound[role], err = p.allowed(ctx, author, bindRole(role))
		return bound[role]
	}
	if list := left.Spec.ClusterRoleBindings; list != nil {
		*list = slices.DeleteFunc(*list, func(b rbacv1alpha1.ClusterRoleBinding) bool { return binds(b.RoleRef.Name) })
	}
	if list := left.Spec.RoleBindings; list != nil {
		*list = slices.DeleteFunc(*list, func(b rbacv1alpha1.RoleBinding) bool { return binds(ptr.Deref(b.RoleRef.Name, "")) })
	}
	return left, err
}

// bindsASet reports whether the author may bind one of the sets.
func (p *Pass) bindsASet(ctx context.Context, author user.Info, setsOf func() ([]string, error)) (bool, error) {
	names, err := setsOf()
	if err != nil {
		return false, err
	}
	for _, set := range names {
		if allowed, err := p.allowed(ctx, author, bindSet(set)); err != nil || allowed {
			return allowed, err
		}
	}
	return false, nil
}

// allowed returns the cached decision of the hub.
func (p *Pass) allowed(ctx context.Context, author user.Info, access authorizationv1.ResourceAttributes) (bool, error) {
	allowed, err := authz.Allowed(ctx, p.authorizer, author, access)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return allowed, nil
}

func bindPermissions() authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "bind", Group: rbacv1alpha1.GroupName, Version: "*", Resource: "clusterpermissions"}
}

func bindRole(name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "bind", Group: rbacv1.GroupName, Version: "*", Resource: "clusterroles", Name: name}
}

func bindSet(name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: "create", Group: clusterv1beta2.GroupName, Version: "*", Resource: "managedclustersets", Subresource: "bind", Name: name,
	}
}

// Selects returns nil if the caller of ctx may select clusters by a selection, or a Forbidden error on the
// MulticlusterRoleAssignment of that name. Its status names the selected clusters, so the caller requires permission to
// get each Placement and ManagedClusterSet, and to list ManagedClusters for a label selector. fldPath is the path of
// the selection.
func (p *Pass) Selects(ctx context.Context, name, fldPath string, selection *rbacv1beta1.ClusterSelection) error {
	caller, err := authz.Caller(ctx)
	if err != nil {
		return err
	}
	check := func(path string, access authorizationv1.ResourceAttributes) error {
		access.Group, access.Version = clusterv1beta2.GroupName, "*"
		allowed, err := p.allowed(ctx, caller, access)
		if err != nil || allowed {
			return err
		}
		return apierrors.NewForbidden(rbacv1beta1.Resource("multiclusterroleassignments"), name, fmt.Errorf("%s%s: user %q cannot %s; grant it with %s",
			fldPath, path, caller.GetName(), authz.Describe(access), rbac.RoleText(access.Namespace, rbac.RuleFor(access))))
	}
	for i, placement := range selection.Placements {
		access := authorizationv1.ResourceAttributes{Verb: "get", Resource: "placements", Namespace: placement.Namespace, Name: placement.Name}
		if err := check(fmt.Sprintf(".placements[%d]", i), access); err != nil {
			return err
		}
	}
	for i, set := range selection.ClusterSets {
		access := authorizationv1.ResourceAttributes{Verb: "get", Resource: "managedclustersets", Name: set}
		if err := check(fmt.Sprintf(".clusterSets[%d]", i), access); err != nil {
			return err
		}
	}
	if selection.LabelSelector != nil {
		return check(".labelSelector", authorizationv1.ResourceAttributes{Verb: "list", Resource: "managedclusters"})
	}
	return nil
}
