// Package multiclusterroleassignment writes the ClusterPermissions of MulticlusterRoleAssignments.
//
// The Planner decides which grants each cluster gets: in a request, to refuse or to preview it, and in the Controller,
// which writes the ClusterPermissions and reports their state.
//
//	ManagedClusters, sets, decisions ──► Planner ──► Controller ──► ClusterPermissions ──► ManifestWorks
//	                                        ▲             ▲                 │
//	     request ───────────────────────────┘             └─────────────────┘
package multiclusterroleassignment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
)

// checkers is the number of clusters that are checked in parallel for one MulticlusterRoleAssignment.
const checkers = 16

// Sets finds the clusters of ManagedClusterSets.
type Sets interface {
	// Members returns the sorted names of the clusters of a set, and reports whether the set exists.
	Members(set string) (names []string, found bool, err error)
	// SetsOf returns the names of the sets of a cluster.
	SetsOf(cluster *clusterv1.ManagedCluster) ([]string, error)
}

// Pass decides about the grants of one MulticlusterRoleAssignment.
type Pass interface {
	// Refused returns the grants of a ClusterPermission that its author may not make, without their subject, and the
	// reasons. before is the spec that is delivered already, or nil. The error is a *refusal.UncheckedError if
	// the author is not checked.
	Refused(ctx context.Context, author *rbacv1beta1.AssignmentAuthor, permission *rbacv1alpha1.ClusterPermission, setsOf func() ([]string, error), before *rbacv1alpha1.ClusterPermissionSpec) (map[rbacv1beta1.Grant]string, error)
}

// Planner decides which grants each cluster gets. It reads caches, and may be used concurrently.
type Planner struct {
	Sets       Sets
	Clusters   clusterlisters.ManagedClusterLister
	Placements *Placements
	// Permissions are all ClusterPermissions. NewController adds the index by MulticlusterRoleAssignment.
	Permissions cache.Indexer
}

// Plan is the desired state of a MulticlusterRoleAssignment.
type Plan struct {
	Assignment *rbacv1beta1.MulticlusterRoleAssignment
	// Selections are the selections of the role assignments, in the order of the spec.
	Selections []Selection
	// Clusters are the selected clusters and the clusters with a ClusterPermission, sorted by name.
	Clusters []*Cluster
	// Stale are the ClusterPermissions of a deleted MulticlusterRoleAssignment of the same name.
	Stale []*rbacv1alpha1.ClusterPermission
	// Excess are the selected clusters that get nothing, because the clusters or their grants exceed the limits.
	Excess []string
}

// Selection contains the clusters that a role assignment selects.
type Selection struct {
	// Clusters are the names of the clusters, sorted.
	Clusters []string
	// Unknown is the reason why the clusters are not known, or empty. Existing grants stay.
	Unknown string
	// Missing are the sets and Placements that do not exist or have no decision.
	Missing []string
	grants  []rbacv1beta1.Grant
}

// Cluster is the desired state of a cluster.
type Cluster struct {
	Name string
	// Selected is true if a role assignment selects the cluster.
	Selected bool
	// Grants are the grants that the cluster gets, sorted.
	Grants []rbacv1beta1.Grant
	// Refused are the grants that their author may not make, sorted. Reason is the reason for one of them.
	Refused []rbacv1beta1.Grant
	Reason  string
	// Unchecked is true if grants are refused without a check of their author: see refusal.UncheckedError.
	Unchecked bool
	// Existing is the ClusterPermission of the cluster, or nil.
	Existing *rbacv1alpha1.ClusterPermission

	// selectedBy are the indexes of the role assignments that select the cluster.
	selectedBy []int
}

// had returns the spec that the cluster has already, or nil, and its grants. A spec that waits for approval was never
// allowed, so it grants nothing.
func (c *Cluster) had() (*rbacv1alpha1.ClusterPermissionSpec, []rbacv1beta1.Grant) {
	if c.Existing == nil {
		return nil, nil
	}
	spec, _ := c.Existing.Delivered()
	if spec == nil {
		return nil, nil
	}
	return spec, render.Granted(spec)
}

// Plan returns the desired state of a MulticlusterRoleAssignment. If pass is nil, authors may grant everything. If only
// is not nil, the plan omits the grants of other role assignments. If the hub cannot decide about a grant, Plan returns
// an error and a plan without that grant.
func (p *Planner) Plan(ctx context.Context, a *rbacv1beta1.MulticlusterRoleAssignment, pass Pass, only map[string]bool) (*Plan, error) {
	plan := &Plan{Assignment: a}
	clusters := map[string]*Cluster{}
	cluster := func(name string) *Cluster {
		if clusters[name] == nil {
			clusters[name] = &Cluster{Name: name}
		}
		return clusters[name]
	}
	for _, permission := range p.written(cache.MetaObjectToName(a)) {
		if permission.Annotations[rbacv1beta1.UIDAnnotation] != string(a.UID) {
			plan.Stale = append(plan.Stale, permission)
			continue
		}
		cluster(permission.Namespace).Existing = permission
	}
	for i := range a.Spec.RoleAssignments {
		assignment := &a.Spec.RoleAssignments[i]
		selection, err := p.resolve(&assignment.ClusterSelection)
		if err != nil {
			return nil, fmt.Errorf("selecting the clusters of role assignment %q: %w", assignment.Name, err)
		}
		selection.grants = render.Grants(&a.Spec.Subject, assignment)
		for _, name := range selection.Clusters {
			of := cluster(name)
			of.Selected, of.selectedBy = true, append(of.selectedBy, i)
		}
		plan.Selections = append(plan.Selections, selection)
	}
	for _, of := range clusters {
		plan.Clusters = append(plan.Clusters, of)
	}
	slices.SortFunc(plan.Clusters, func(a, b *Cluster) int { return strings.Compare(a.Name, b.Name) })
	plan.limit()
	return plan, p.decide(ctx, plan, pass, only)
}

// written returns the ClusterPermissions of a MulticlusterRoleAssignment.
func (p *Planner) written(name cache.ObjectName) []*rbacv1alpha1.ClusterPermission {
	return reconcile.Indexed[*rbacv1alpha1.ClusterPermission](p.Permissions, byAssignment, name.String())
}

// limit removes new clusters that exceed the limits. Clusters with a ClusterPermission have priority.
func (p *Plan) limit() {
	clusters, grants := 0, 0
	count := func(cluster *Cluster) bool {
		of := 0
		for _, i := range cluster.selectedBy {
			of += len(p.Selections[i].grants)
		}
		if cluster.Existing == nil && (clusters == rbacv1beta1.MaxClusters || grants+of > rbacv1beta1.MaxGrants) {
			return false
		}
		clusters, grants = clusters+1, grants+of
		return true
	}
	for _, cluster := range p.Clusters {
		if cluster.Existing != nil {
			count(cluster)
		}
	}
	p.Clusters = slices.DeleteFunc(p.Clusters, func(cluster *Cluster) bool {
		if cluster.Existing != nil || count(cluster) {
			return false
		}
		p.Excess = append(p.Excess, cluster.Name)
		return true
	})
}

// decide sets the grants of each cluster.
func (p *Planner) decide(ctx context.Context, plan *Plan, pass Pass, only map[string]bool) error {
	authors := authorsOf(plan.Assignment)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checkers)
	for _, cluster := range plan.Clusters {
		_, granted := cluster.had()
		had := sets.New(granted...)
		for _, selection := range plan.Selections {
			if selection.Unknown == "" {
				continue
			}
			for _, grant := range selection.grants {
				if had.Has(grant) {
					cluster.Grants = append(cluster.Grants, grant)
				}
			}
		}
		added := map[*rbacv1beta1.AssignmentAuthor][]rbacv1beta1.Grant{}
		for _, i := range cluster.selectedBy {
			name := plan.Assignment.Spec.RoleAssignments[i].Name
			if only != nil && !only[name] {
				continue
			}
			author := authors[name]
			for _, grant := range plan.Selections[i].grants {
				if pass == nil || had.Has(grant) {
					cluster.Grants = append(cluster.Grants, grant)
				} else {
					added[author] = append(added[author], grant)
				}
			}
		}
		cluster.Grants = render.Sorted(cluster.Grants)
		if len(added) > 0 {
			group.Go(func() error { return p.check(ctx, pass, plan.Assignment, cluster, added) })
		}
	}
	return group.Wait()
}

// check adds the grants that their authors may make on a cluster. The others are refused, unless another author may
// make them.
func (p *Planner) check(ctx context.Context, pass Pass, a *rbacv1beta1.MulticlusterRoleAssignment, cluster *Cluster, added map[*rbacv1beta1.AssignmentAuthor][]rbacv1beta1.Grant) error {
	setsOf := func() ([]string, error) {
		managed, err := p.Clusters.Get(cluster.Name)
		if err != nil {
			return nil, err
		}
		return p.Sets.SetsOf(managed)
	}
	before, _ := cluster.had()
	var refused []rbacv1beta1.Grant
	for author, grants := range added {
		if author == nil {
			refused, cluster.Reason = append(refused, grants...), "the author of the role assignment is not known; write the role assignment again"
			continue
		}
		reasons, err := pass.Refused(ctx, author, render.Permission(a, cluster.Name, grants), setsOf, before)
		if unchecked := (*refusal.UncheckedError)(nil); errors.As(err, &unchecked) {
			refused, cluster.Reason, cluster.Unchecked = append(refused, grants...), err.Error(), true
			continue
		}
		if err != nil {
			return err
		}
		for _, grant := range grants {
			reason, denied := reasons[rbacv1beta1.Grant{ClusterRole: grant.ClusterRole, Namespace: grant.Namespace}]
			if denied {
				refused, cluster.Reason = append(refused, grant), reason
			} else {
				cluster.Grants = append(cluster.Grants, grant)
			}
		}
	}
	cluster.Grants = render.Sorted(cluster.Grants)
	cluster.Refused = without(render.Sorted(refused), cluster.Grants)
	return nil
}

// authorsOf returns the authors of the role assignments by name.
func authorsOf(a *rbacv1beta1.MulticlusterRoleAssignment) map[string]*rbacv1beta1.AssignmentAuthor {
	authors := map[string]*rbacv1beta1.AssignmentAuthor{}
	for i := range a.Status.Authors {
		for _, name := range a.Status.Authors[i].RoleAssignments {
			authors[name] = &a.Status.Authors[i]
		}
	}
	return authors
}

// resolve returns the clusters of a selection that exist and are not being deleted.
func (p *Planner) resolve(selection *rbacv1beta1.ClusterSelection) (Selection, error) {
	var out Selection
	var names []string
	switch selection.Type {
	case rbacv1beta1.SelectClusterSets:
		for _, set := range selection.ClusterSets {
			members, found, err := p.Sets.Members(set)
			if err != nil {
				return out, err
			}
			if !found {
				out.Missing = append(out.Missing, fmt.Sprintf("ManagedClusterSet %q does not exist", set))
			}
			names = append(names, members...)
		}
	case rbacv1beta1.SelectLabels:
		selector, err := metav1.LabelSelectorAsSelector(selection.LabelSelector)
		if err != nil {
			return out, err
		}
		clusters, err := p.Clusters.List(selector)
		if err != nil {
			return out, err
		}
		for _, cluster := range clusters {
			names = append(names, cluster.Name)
		}
	case rbacv1beta1.SelectPlacements:
		if !p.Placements.known() {
			out.Unknown = "the hub does not serve PlacementDecisions, or the server has not read them yet"
			return out, nil
		}
		for _, ref := range selection.Placements {
			placement := cache.NewObjectName(ref.Namespace, ref.Name)
			decisions := p.Placements.decisions(byPlacement, placement.String())
			if len(decisions) == 0 {
				out.Missing = append(out.Missing, fmt.Sprintf("Placement %q has no PlacementDecision", placement))
			}
			for _, decided := range decisions {
				names = append(names, decided.clusters...)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		cluster, err := reconcile.OrNil(p.Clusters.Get(name))
		if err != nil {
			return out, err
		}
		if cluster != nil && cluster.DeletionTimestamp == nil {
			out.Clusters = append(out.Clusters, name)
		}
	}
	return out, nil
}

// selects reports whether a selection by labels matches the labels of a cluster.
func selects(selection *rbacv1beta1.ClusterSelection, set labels.Set) bool {
	if selection.Type != rbacv1beta1.SelectLabels {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(selection.LabelSelector)
	return err == nil && selector.Matches(set)
}

// Preview returns the changes that the plan makes.
func (p *Plan) Preview() *rbacv1beta1.AssignmentPreview {
	preview := &rbacv1beta1.AssignmentPreview{}
	items := map[string]int{}
	for _, cluster := range p.Clusters {
		if cluster.Selected {
			preview.Selected++
		}
		_, had := cluster.had()
		change := rbacv1beta1.AssignmentChange{
			Grant: without(cluster.Grants, had), Revoke: without(had, cluster.Grants), Refuse: cluster.Refused,
		}
		if len(change.Grant)+len(change.Revoke)+len(change.Refuse) == 0 {
			continue
		}
		preview.Changed++
		key := fmt.Sprint(change)
		i, known := items[key]
		if !known {
			i = len(preview.Changes)
			items[key] = i
			preview.Changes = append(preview.Changes, change)
		}
		preview.Changes[i].Clusters = append(preview.Changes[i].Clusters, cluster.Name)
	}
	return preview
}

// without returns the grants that others does not contain.
func without(grants, others []rbacv1beta1.Grant) []rbacv1beta1.Grant {
	known := sets.New(others...)
	var out []rbacv1beta1.Grant
	for _, grant := range grants {
		if !known.Has(grant) {
			out = append(out, grant)
		}
	}
	return out
}
