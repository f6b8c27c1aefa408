package multiclusterroleassignment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
)

var (
	kind = rbacv1beta1.SchemeGroupVersion.WithKind("MulticlusterRoleAssignment").GroupKind()

	assignmentsPath = field.NewPath("spec", "roleAssignments")
)

// shownClusters is the number of clusters that a message names. It counts the others.
const shownClusters = 10

// REST serves MulticlusterRoleAssignments. Its checks run after admission, when the object is complete. The response to
// a dry-run contains the changes that the write would make.
type REST struct {
	*definition.REST
	Options
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	pass, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	w := &write{Options: &r.Options, pass: pass}
	created, err := r.REST.Create(ctx, obj, w.guard().AdmitCreate(admit), options)
	if err != nil || !dryrun.IsDryRun(options.DryRun) {
		return created, err
	}
	return created, r.preview(ctx, created, pass)
}

// Update implements rest.Updater. It also serves patches and server-side apply. A dry-run that keeps the spec has no
// preview, so that kubectl diff finds no difference.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	pass, end, err := r.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	w := &write{Options: &r.Options, pass: pass}
	updated, created, err := r.REST.Update(ctx, name, objInfo, w.guard().AdmitCreate(admitCreate), w.guard().AdmitUpdate(admitUpdate), forceAllowCreate, options)
	if err != nil || !dryrun.IsDryRun(options.DryRun) || !w.changed {
		return updated, created, err
	}
	return updated, created, r.preview(ctx, updated, pass)
}

// begin returns the Pass for all checks of a request, until end is called. A caller may choose the number of access
// reviews, so its requests are limited. The error has status 429.
func (o *Options) begin(ctx context.Context) (pass *roleassignment.Pass, end func(), err error) {
	caller, err := authz.Caller(ctx)
	if err != nil {
		return nil, nil, err
	}
	if end, err = o.Checks.Take(caller); err != nil {
		return nil, nil, err
	}
	return o.Checker.NewPass(callers.Of(caller), 1), end, nil
}

// write is a write of a MulticlusterRoleAssignment.
type write struct {
	*Options
	pass *roleassignment.Pass
	// changed is true if the write changes the spec.
	changed bool
}

func (w *write) guard() definition.Guard[*rbac.MulticlusterRoleAssignment] {
	return func(ctx context.Context, a, old *rbac.MulticlusterRoleAssignment) error {
		// Labels, annotations and finalizers can be changed even if the unchanged spec could not be granted now.
		if w.changed = old == nil || !equality.Semantic.DeepEqual(a.Spec, old.Spec); !w.changed {
			return nil
		}
		return w.check(ctx, a, old, w.pass)
	}
}

// check refuses role assignments that a write adds or changes and that the caller may not make. old is nil for a new
// object.
func (o *Options) check(ctx context.Context, a, old *rbac.MulticlusterRoleAssignment, pass *roleassignment.Pass) error {
	assignment := versioned(a)
	changed := changedNames(a, old)
	var errs field.ErrorList
	for i := range assignment.Spec.RoleAssignments {
		item, path := &assignment.Spec.RoleAssignments[i], assignmentsPath.Index(i)
		if !changed[item.Name] {
			continue
		}
		exists, err := o.RoleExists(ctx, item.ClusterRole)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up ClusterRole %q of the hub: %w", item.ClusterRole, err))
		}
		if !exists {
			errs = append(errs, field.NotFound(path.Child("clusterRole"), item.ClusterRole))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(kind, a.Name, errs)
	}
	for i := range assignment.Spec.RoleAssignments {
		if item := &assignment.Spec.RoleAssignments[i]; changed[item.Name] {
			if err := pass.Selects(ctx, a.Name, assignmentsPath.Index(i).Child("clusterSelection").String(), &item.ClusterSelection); err != nil {
				return err
			}
		}
	}
	plan, err := o.plan(ctx, assignment, o.Refuse || o.Warn, pass, changed)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("selecting clusters: %w", err))
	}
	if n := len(plan.Excess); n > 0 {
		return apierrors.NewInvalid(kind, a.Name, field.ErrorList{field.Forbidden(assignmentsPath, fmt.Sprintf(
			"all role assignments together must select at most %d clusters and make at most %d grants on them; %d clusters exceed these limits; use several MulticlusterRoleAssignments",
			rbacv1beta1.MaxClusters, rbacv1beta1.MaxGrants, n))})
	}
	lines := refusals(plan, changed)
	if len(lines) > 0 && o.Refuse {
		return apierrors.NewForbidden(rbacv1beta1.Resource("multiclusterroleassignments"), a.Name, errors.New(strings.Join(lines, "\n")))
	}
	if slices.ContainsFunc(plan.Clusters, unchecked) {
		if o.Refuse {
			return apierrors.NewInvalid(kind, a.Name, field.ErrorList{field.Forbidden(assignmentsPath, roleassignment.ErrTooManyReviews.Error())})
		}
		lines = append(lines, fmt.Sprintf("%s: some clusters are %s", assignmentsPath, roleassignment.ErrTooManyReviews))
	}
	for _, line := range lines {
		warning.AddWarning(ctx, "", line)
	}
	for i, selection := range plan.Selections {
		if !changed[assignment.Spec.RoleAssignments[i].Name] {
			continue
		}
		path := assignmentsPath.Index(i).Child("clusterSelection")
		switch {
		case selection.Unknown != "":
			warning.AddWarning(ctx, "", fmt.Sprintf("%s: the clusters are not known: %s", path, selection.Unknown))
		case len(selection.Clusters) == 0:
			warning.AddWarning(ctx, "", fmt.Sprintf("%s: no cluster is selected%s", path, missing(selection.Missing)))
		}
	}
	return nil
}

// plan returns the plan of an assignment. If check is false, authors may grant everything.
func (o *Options) plan(ctx context.Context, a *rbacv1beta1.MulticlusterRoleAssignment, check bool, pass *roleassignment.Pass, only map[string]bool) (*multiclusterroleassignment.Plan, error) {
	if !check {
		return o.Planner.Plan(ctx, a, nil, only)
	}
	return o.Planner.Plan(ctx, a, pass, only)
}

func unchecked(cluster *multiclusterroleassignment.Cluster) bool { return cluster.Unchecked }

func missing(objects []string) string {
	if len(objects) == 0 {
		return ""
	}
	return ": " + objects[0]
}

// maxRefusals is the maximum number of role assignments in a refusal.
const maxRefusals = 10

// refusals returns a line for each changed role assignment with grants that the caller may not make.
func refusals(plan *multiclusterroleassignment.Plan, changed map[string]bool) []string {
	var lines []string
	for i := range plan.Assignment.Spec.RoleAssignments {
		item := &plan.Assignment.Spec.RoleAssignments[i]
		if !changed[item.Name] || len(lines) == maxRefusals {
			continue
		}
		grants := render.Grants(&plan.Assignment.Spec.Subject, item)
		var names []string
		reason, count := "", 0
		for _, cluster := range plan.Clusters {
			if cluster.Unchecked || !slices.ContainsFunc(cluster.Refused, func(g rbacv1beta1.Grant) bool { return slices.Contains(grants, g) }) {
				continue
			}
			if count++; count <= shownClusters {
				names = append(names, cluster.Name)
			}
			reason = cluster.Reason
		}
		if count == 0 {
			continue
		}
		more := ""
		if count > shownClusters {
			more = fmt.Sprintf(" and %d more", count-shownClusters)
		}
		lines = append(lines, fmt.Sprintf("%s: refused on %d clusters (%s%s): %s", assignmentsPath.Index(i), count, strings.Join(names, ", "), more, reason))
	}
	return lines
}

// preview sets the changes that the object would make.
func (o *Options) preview(ctx context.Context, obj runtime.Object, pass *roleassignment.Pass) error {
	a, ok := obj.(*rbac.MulticlusterRoleAssignment)
	if !ok {
		return nil
	}
	assignment := versioned(a)
	plan, err := o.plan(ctx, assignment, o.Refuse, pass, nil)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("selecting clusters: %w", err))
	}
	a.Status.Preview = plan.Preview()
	return nil
}

// versioned returns a shallow copy of an object in the served version.
func versioned(a *rbac.MulticlusterRoleAssignment) *rbacv1beta1.MulticlusterRoleAssignment {
	out := rbacv1beta1.MulticlusterRoleAssignment(*a)
	return &out
}
