package multiclusterroleassignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
	permissionclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	assignmentclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1beta1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	setinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1beta2"
	permissioninformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	assignmentinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1beta1"
	assignmentlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
)

const (
	// byAssignment indexes ClusterPermissions by namespace/name of their MulticlusterRoleAssignment.
	byAssignment = "byMulticlusterRoleAssignment"
	// bySelection indexes MulticlusterRoleAssignments by what they select: see selectionKeys.
	bySelection = "bySelection"

	// writers and removers are the numbers of concurrent writes and deletions for one MulticlusterRoleAssignment. On two
	// cores, two writers need as much time for 1,000 clusters as four, and other requests wait half as long.
	writers, removers = 2, 4
	// timeout bounds the writes for one MulticlusterRoleAssignment. The next attempt continues.
	timeout = 5 * time.Minute
	// soonRetry is the interval of retries for a cluster whose namespace on the hub is missing or has another
	// ClusterPermission with the same name. The namespace is created soon after the cluster is accepted.
	soonRetry = 3 * time.Second
	// lateRetry is the interval of retries for grants that their author may not make. Permissions change without an
	// event.
	lateRetry = 30 * time.Second
	// summaryDelay batches the states of ClusterPermissions: after a change, every cluster reports.
	summaryDelay = time.Second
)

// Controller writes the ClusterPermissions of MulticlusterRoleAssignments, restores ClusterPermissions that another
// client changed or deleted, and reports their state. It runs on one replica at a time.
//
// Owner references cannot cross namespaces. Instead, a label and annotations that only the server can set identify the
// MulticlusterRoleAssignment of a ClusterPermission. So the Controller finds the ClusterPermissions of a
// MulticlusterRoleAssignment that was deleted while no server ran.
type Controller struct {
	reconcile.Loop
	planner     *Planner
	newPass     func(*rbacv1beta1.MulticlusterRoleAssignment) Pass
	assignments assignmentclient.MulticlusterRoleAssignmentsGetter
	permissions permissionclient.ClusterPermissionsGetter
	lister      assignmentlisters.MulticlusterRoleAssignmentLister
	index       cache.Indexer
}

// Informers are the informers of a Controller. The caller starts them.
type Informers struct {
	Assignments assignmentinformers.MulticlusterRoleAssignmentInformer
	Permissions permissioninformers.ClusterPermissionInformer
	Clusters    clusterinformers.ManagedClusterInformer
	Sets        setinformers.ManagedClusterSetInformer
}

// NewController returns a Controller. newPass returns a Pass for one plan, or nil if authors may grant everything.
func NewController(planner *Planner, newPass func(*rbacv1beta1.MulticlusterRoleAssignment) Pass, assignments assignmentclient.MulticlusterRoleAssignmentsGetter, permissions permissionclient.ClusterPermissionsGetter, from Informers) (*Controller, error) {
	c := &Controller{
		planner: planner, newPass: newPass, assignments: assignments, permissions: permissions,
		lister: from.Assignments.Lister(), index: from.Assignments.Informer().GetIndexer(),
	}
	if err := from.Assignments.Informer().AddIndexers(cache.Indexers{bySelection: reconcile.Index(selectionKeys)}); err != nil {
		return nil, fmt.Errorf("indexing MulticlusterRoleAssignments: %w", err)
	}
	if err := IndexPermissions(from.Permissions); err != nil {
		return nil, err
	}
	c.Loop = reconcile.Loop{
		Name:      "multiclusterroleassignment",
		Reconcile: c.reconcile,
		Urgent:    c.removed,
		Timeout:   timeout,
		Feeds: []reconcile.Feed{
			{Informer: from.Assignments.Informer(), Keys: reconcile.Own, Ignore: reconcile.Same(sameAssignment)},
			{Informer: from.Permissions.Informer(), Keys: reconcile.Keys(assignmentKeys), Ignore: reconcile.Same(sameState), Delay: summaryDelay},
			{Informer: from.Clusters.Informer(), Keys: reconcile.Keys(c.clusterKeys), Ignore: reconcile.Same(sameCluster)},
			{Informer: from.Sets.Informer(), Keys: reconcile.Keys(c.setKeys), Ignore: reconcile.Same(sameSet)},
			{Informer: planner.Placements.informer, Keys: reconcile.Keys(c.decisionKeys), MaybeAbsent: true, OnceKnown: c.withPlacements},
		},
	}
	return c, nil
}

// IndexPermissions adds the index that a Planner requires.
func IndexPermissions(permissions permissioninformers.ClusterPermissionInformer) error {
	err := permissions.Informer().AddIndexers(cache.Indexers{byAssignment: reconcile.IndexNames(assignmentKeys)})
	if err != nil {
		return fmt.Errorf("indexing ClusterPermissions by MulticlusterRoleAssignment: %w", err)
	}
	return nil
}

// assignmentKeys returns the MulticlusterRoleAssignment of a ClusterPermission.
func assignmentKeys(permission *rbacv1alpha1.ClusterPermission) []cache.ObjectName {
	if permission.Labels[rbacv1beta1.NamespaceLabel] == "" {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(permission.Labels[rbacv1beta1.NamespaceLabel], permission.Annotations[rbacv1beta1.NameAnnotation])}
}

const labelKey, placementsKey = "labels", "placements"

func setKey(set string) string                       { return "set/" + set }
func placementKey(placement cache.ObjectName) string { return "placement/" + placement.String() }

// selectionKeys returns the sets and Placements of a MulticlusterRoleAssignment, labelKey if it selects labels, and
// placementsKey if it selects Placements.
func selectionKeys(assignment *rbacv1beta1.MulticlusterRoleAssignment) []string {
	var keys []string
	for i := range assignment.Spec.RoleAssignments {
		switch selection := &assignment.Spec.RoleAssignments[i].ClusterSelection; selection.Type {
		case rbacv1beta1.SelectClusterSets:
			for _, set := range selection.ClusterSets {
				keys = append(keys, setKey(set))
			}
		case rbacv1beta1.SelectLabels:
			keys = append(keys, labelKey)
		case rbacv1beta1.SelectPlacements:
			keys = append(keys, placementsKey)
			for _, ref := range selection.Placements {
				keys = append(keys, placementKey(cache.NewObjectName(ref.Namespace, ref.Name)))
			}
		}
	}
	return keys
}

// selecting returns the MulticlusterRoleAssignments with a key of selectionKeys.
func (c *Controller) selecting(key string) []*rbacv1beta1.MulticlusterRoleAssignment {
	return reconcile.Indexed[*rbacv1beta1.MulticlusterRoleAssignment](c.index, bySelection, key)
}

// clusterKeys returns the MulticlusterRoleAssignments that select a cluster, or that have a ClusterPermission in its
// namespace.
func (c *Controller) clusterKeys(cluster *clusterv1.ManagedCluster) []cache.ObjectName {
	var keys []cache.ObjectName
	setsOf, err := c.planner.Sets.SetsOf(cluster)
	if err != nil {
		utilruntime.HandleError(err)
	}
	for _, set := range setsOf {
		keys = append(keys, reconcile.Names(c.selecting(setKey(set)))...)
	}
	for _, assignment := range c.selecting(labelKey) {
		if slices.ContainsFunc(assignment.Spec.RoleAssignments, func(r rbacv1beta1.RoleAssignment) bool {
			return selects(&r.ClusterSelection, labels.Set(cluster.Labels))
		}) {
			keys = append(keys, cache.MetaObjectToName(assignment))
		}
	}
	for _, decided := range c.planner.Placements.decisions(byCluster, cluster.Name) {
		keys = append(keys, reconcile.Names(c.selecting(placementKey(decided.placement())))...)
	}
	for _, permission := range reconcile.Indexed[*rbacv1alpha1.ClusterPermission](c.planner.Permissions, cache.NamespaceIndex, cluster.Name) {
		keys = append(keys, assignmentKeys(permission)...)
	}
	return keys
}

func (c *Controller) setKeys(set *clusterv1beta2.ManagedClusterSet) []cache.ObjectName {
	return reconcile.Names(c.selecting(setKey(set.Name)))
}

func (c *Controller) decisionKeys(decided *decision) []cache.ObjectName {
	return reconcile.Names(c.selecting(placementKey(decided.placement())))
}

// withPlacements returns the MulticlusterRoleAssignments that refer to Placements.
func (c *Controller) withPlacements() []cache.ObjectName {
	return reconcile.Names(c.selecting(placementsKey))
}

// sameAssignment reports whether an update keeps everything that the Controller reads, except its own status.
func sameAssignment(a, b *rbacv1beta1.MulticlusterRoleAssignment) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

// sameState reports whether an update of a ClusterPermission keeps the fields that the Controller writes or
// summarizes.
func sameState(a, b *rbacv1alpha1.ClusterPermission) bool {
	return a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations) && healthOf(a) == healthOf(b)
}

func sameCluster(a, b *clusterv1.ManagedCluster) bool {
	return managedclusterset.SameLabels(a, b) && a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

func sameSet(a, b *clusterv1beta2.ManagedClusterSet) bool {
	return a.UID == b.UID && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// removed reports whether a MulticlusterRoleAssignment is deleted. A revocation has priority over grants.
func (c *Controller) removed(name cache.ObjectName) bool {
	assignment, err := c.lister.MulticlusterRoleAssignments(name.Namespace).Get(name.Name)
	return apierrors.IsNotFound(err) || err == nil && assignment.DeletionTimestamp != nil
}

func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	assignment, err := c.lister.MulticlusterRoleAssignments(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, c.removeOrphans(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	if assignment.DeletionTimestamp != nil {
		return 0, c.remove(ctx, c.planner.written(name))
	}
	plan, undecided := c.planner.Plan(ctx, assignment, c.newPass(assignment), nil)
	if plan == nil {
		return 0, undecided
	}
	// A revocation does not wait for a grant, or until the hub can decide about one.
	obsolete := plan.Stale
	for _, cluster := range plan.Clusters {
		if cluster.Existing != nil && len(cluster.Grants) == 0 {
			obsolete = append(obsolete, cluster.Existing)
		}
	}
	removed := c.remove(ctx, obsolete)
	states, written := c.write(ctx, plan)
	if undecided != nil {
		return 0, errors.Join(removed, written, undecided)
	}
	reported := c.updateStatus(ctx, assignment, plan, states)
	if err := errors.Join(removed, written, reported); err != nil {
		return 0, err
	}
	again := time.Duration(0)
	for _, state := range states {
		if state.again > 0 && (again == 0 || state.again < again) {
			again = state.again
		}
	}
	return again, nil
}

// removeOrphans deletes the ClusterPermissions of a MulticlusterRoleAssignment that does not exist.
func (c *Controller) removeOrphans(ctx context.Context, name cache.ObjectName) error {
	permissions := c.planner.written(name)
	if len(permissions) == 0 {
		return nil
	}
	// The cache may not contain a new MulticlusterRoleAssignment yet. Its event follows.
	current, err := reconcile.OrNil(c.assignments.MulticlusterRoleAssignments(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
	if err != nil {
		return err
	}
	if current != nil {
		permissions = slices.DeleteFunc(permissions, func(p *rbacv1alpha1.ClusterPermission) bool {
			return p.Annotations[rbacv1beta1.UIDAnnotation] == string(current.UID)
		})
	}
	return c.remove(ctx, permissions)
}

// remove deletes ClusterPermissions. An error for one does not stop the others.
func (c *Controller) remove(ctx context.Context, permissions []*rbacv1alpha1.ClusterPermission) error {
	var group errgroup.Group
	group.SetLimit(removers)
	for _, permission := range permissions {
		if permission.DeletionTimestamp != nil {
			continue
		}
		group.Go(func() error {
			err := c.permissions.ClusterPermissions(permission.Namespace).Delete(ctx, permission.Name, *metav1.NewPreconditionDeleteOptions(string(permission.UID)))
			if err = reconcile.IgnoreOutdated(err); err != nil {
				return fmt.Errorf("deleting ClusterPermission %s/%s of a MulticlusterRoleAssignment: %w", permission.Namespace, permission.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// write creates and updates the ClusterPermissions of a plan. It returns the states of the selected clusters.
func (c *Controller) write(ctx context.Context, plan *Plan) (map[string]*state, error) {
	states := make(map[string]*state, len(plan.Clusters))
	var group errgroup.Group
	group.SetLimit(writers)
	for _, cluster := range plan.Clusters {
		if !cluster.Selected && len(cluster.Grants) == 0 {
			continue
		}
		of := &state{}
		if len(cluster.Refused) > 0 {
			of.again = lateRetry
		}
		states[cluster.Name] = of
		if len(cluster.Grants) == 0 {
			continue // every grant is refused
		}
		wanted := render.Permission(plan.Assignment, cluster.Name, cluster.Grants)
		if cluster.Existing != nil && upToDate(cluster.Existing, wanted) {
			of.applied, of.health = true, healthOf(cluster.Existing)
			continue
		}
		group.Go(func() error { return c.writeOne(ctx, cluster.Existing, wanted, of) })
	}
	return states, group.Wait()
}

// upToDate reports whether a ClusterPermission has the wanted content.
func upToDate(existing, wanted *rbacv1alpha1.ClusterPermission) bool {
	return existing.DeletionTimestamp == nil && existing.Labels[rbacv1beta1.ManagedByLabel] == rbacv1beta1.ManagedByValue &&
		equality.Semantic.DeepEqual(existing.Spec, wanted.Spec)
}

// writeOne writes one ClusterPermission. It returns an error that requires an immediate retry.
func (c *Controller) writeOne(ctx context.Context, existing, wanted *rbacv1alpha1.ClusterPermission, of *state) error {
	client := c.permissions.ClusterPermissions(wanted.Namespace)
	var written *rbacv1alpha1.ClusterPermission
	var err error
	switch {
	case existing == nil:
		written, err = client.Create(ctx, wanted, metav1.CreateOptions{})
	case existing.DeletionTimestamp != nil:
		of.health = health{reason: reasonPending, message: "The ClusterPermission is being deleted."}
		return nil // the event of its deletion triggers the next attempt
	default:
		update := existing.DeepCopy()
		update.Spec = wanted.Spec
		metav1.SetMetaDataLabel(&update.ObjectMeta, rbacv1beta1.ManagedByLabel, rbacv1beta1.ManagedByValue)
		written, err = client.Update(ctx, update, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		of.applied, of.health = true, healthOf(written)
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		of.again = soonRetry
		of.health = health{reason: "NamespaceMissing", failed: true, message: "The namespace of the cluster on the hub does not exist or is being deleted."}
	case apierrors.IsAlreadyExists(err):
		of.again = soonRetry
		of.health = health{reason: "NameTaken", failed: true, message: fmt.Sprintf("The namespace of the cluster contains ClusterPermission %q, which is not of this MulticlusterRoleAssignment. Delete it.", wanted.Name)}
	case apierrors.IsConflict(err):
		// The event of the change triggers the next attempt.
		of.health = health{reason: reasonPending, message: "The ClusterPermission was changed at the same time."}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		// The cause is a quota, an admission policy, or a cluster that was just deleted.
		of.again = lateRetry
		of.health = health{reason: "Refused", failed: true, message: clip(err.Error())}
	default:
		of.health = health{reason: "WriteFailed", failed: true, message: clip(err.Error())}
		return fmt.Errorf("writing ClusterPermission %s/%s of a MulticlusterRoleAssignment: %w", wanted.Namespace, wanted.Name, err)
	}
	return nil
}

// updateStatus writes the status if it changes.
func (c *Controller) updateStatus(ctx context.Context, assignment *rbacv1beta1.MulticlusterRoleAssignment, plan *Plan, states map[string]*state) error {
	status := newStatus(plan, states)
	if equality.Semantic.DeepEqual(status, assignment.Status) {
		return nil
	}
	update := assignment.DeepCopy()
	update.Status = status
	_, err := c.assignments.MulticlusterRoleAssignments(assignment.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	return reconcile.IgnoreOutdated(err)
}
