package multiclusterroleassignment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/roleassignment"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/roleassignment"
)

// members contains the clusters of each set.
type members map[string][]string

func (s members) Members(set string) ([]string, bool, error) {
	clusters, found := s[set]
	return clusters, found, nil
}

func (s members) SetsOf(cluster *clusterv1.ManagedCluster) ([]string, error) {
	var out []string
	for set, clusters := range s {
		if slices.Contains(clusters, cluster.Name) {
			out = append(out, set)
		}
	}
	return out, nil
}

// grants allows authors the listed grants, each as "author role cluster", and the grants before. The author "nobody"
// gets an error, and the author "busy" is not checked.
type grants []string

func (g grants) Refused(_ context.Context, author *rbacv1beta1.AssignmentAuthor, permission *rbacv1alpha1.ClusterPermission, _ func() ([]string, error), before *rbacv1alpha1.ClusterPermissionSpec) (map[rbacv1beta1.Grant]string, error) {
	switch author.Username {
	case "nobody":
		return nil, errors.New("the hub is down")
	case "busy":
		return nil, roleassignment.ErrTooManyReviews
	}
	var had []rbacv1beta1.Grant
	if before != nil {
		had = render.Granted(before)
	}
	refused := map[rbacv1beta1.Grant]string{}
	for _, grant := range render.Granted(&permission.Spec) {
		if slices.Contains(had, grant) {
			continue
		}
		if grant.Subject = ""; !slices.Contains(g, author.Username+" "+grant.ClusterRole+" "+permission.Namespace) {
			refused[grant] = "no permission"
		}
	}
	return refused, nil
}

func planner(t *testing.T, of members, existing ...*rbacv1alpha1.ClusterPermission) *Planner {
	t.Helper()
	clusters := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, members := range of {
		for _, name := range members {
			if err := clusters.Add(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	permissions := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byAssignment: func(obj any) ([]string, error) {
		return []string{assignmentKeys(obj.(*rbacv1alpha1.ClusterPermission))[0].String()}, nil
	}})
	for _, permission := range existing {
		if err := permissions.Add(permission); err != nil {
			t.Fatal(err)
		}
	}
	return &Planner{
		Sets: of, Clusters: clusterlisters.NewManagedClusterLister(clusters), Placements: &Placements{}, Permissions: permissions,
	}
}

// roles returns a MulticlusterRoleAssignment with a role assignment for each role. Each has the author and the set of
// the same index.
func roles(authors, of []string, names ...string) *rbacv1beta1.MulticlusterRoleAssignment {
	a := &rbacv1beta1.MulticlusterRoleAssignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "1"},
		Spec:       rbacv1beta1.MulticlusterRoleAssignmentSpec{Subject: rbacv1beta1.Subject{Kind: "User", Name: "ann"}},
	}
	for i, role := range names {
		name := fmt.Sprintf("%s-%d", role, i)
		a.Spec.RoleAssignments = append(a.Spec.RoleAssignments, rbacv1beta1.RoleAssignment{
			Name: name, ClusterRole: role,
			ClusterSelection: rbacv1beta1.ClusterSelection{Type: rbacv1beta1.SelectClusterSets, ClusterSets: []string{of[i]}},
		})
		a.Status.Authors = append(a.Status.Authors, rbacv1beta1.AssignmentAuthor{Username: authors[i], RoleAssignments: []string{name}})
	}
	return a
}

func grant(role string) rbacv1beta1.Grant {
	return rbacv1beta1.Grant{Subject: "User/ann", ClusterRole: role}
}

// text describes the grants of a plan.
func text(plan *Plan) string {
	out := ""
	for _, cluster := range plan.Clusters {
		out += cluster.Name + ":"
		for _, grant := range cluster.Grants {
			out += " +" + grant.ClusterRole
		}
		for _, grant := range cluster.Refused {
			out += " !" + grant.ClusterRole
		}
		out += "; "
	}
	return out
}

func TestPlan(t *testing.T) {
	a := roles([]string{"bob", "carl", "dora"}, []string{"north", "north", "south"}, "view", "view", "edit")
	of := members{"north": {"c1", "c2"}, "south": {"c2", "c3"}}
	had := render.Permission(a, "c3", []rbacv1beta1.Grant{grant("edit"), grant("admin")})
	left := render.Permission(a, "c4", []rbacv1beta1.Grant{grant("view")})
	former := a.DeepCopy()
	former.UID = "0"
	stale := render.Permission(former, "c1", []rbacv1beta1.Grant{grant("view")})
	p, allowed := planner(t, of, had, left, stale), grants{"carl view c1", "bob view c2", "carl view c2"}

	plan, err := p.Plan(t.Context(), a, allowed, nil)
	if err != nil {
		t.Fatal(err)
	}
	// carl may grant view on c1 although bob may not. dora may grant nothing; c3 keeps edit, which it has.
	if got, want := text(plan), "c1: +view; c2: +view !edit; c3: +edit; c4:; "; got != want {
		t.Errorf("Plan() = %s, want %s", got, want)
	}
	if len(plan.Stale) != 1 || plan.Stale[0].Namespace != "c1" {
		t.Errorf("stale ClusterPermissions = %v, want that of c1", plan.Stale)
	}
	preview := plan.Preview()
	if got, want := fmt.Sprint(preview.Selected, preview.Changed, len(preview.Changes)), "3 4 4"; got != want {
		t.Errorf("selected, changed clusters and changes of Preview() = %s, want %s", got, want)
	}
	unchecked, err := p.Plan(t.Context(), a, nil, nil)
	if got, want := text(unchecked), "c1: +view; c2: +edit +view; c3: +edit; c4:; "; err != nil || got != want {
		t.Errorf("Plan() without a check = %s, %v, want %s", got, err, want)
	}
	only, err := p.Plan(t.Context(), a, allowed, map[string]bool{"view-0": true})
	if got, want := text(only), "c1: !view; c2: +view; c3:; c4:; "; err != nil || got != want {
		t.Errorf("Plan() of one role assignment = %s, %v, want %s", got, err, want)
	}
	a.Status.Authors = nil
	unknown, err := p.Plan(t.Context(), a, allowed, nil)
	if got, want := text(unknown), "c1: !view; c2: !edit !view; c3: +edit; c4:; "; err != nil || got != want {
		t.Errorf("Plan() without authors = %s, %v, want %s", got, err, want)
	}
}

func TestPlanWithoutDecision(t *testing.T) {
	a := roles([]string{"nobody", "bob"}, []string{"north", "south"}, "view", "edit")
	p := planner(t, members{"north": {"c1"}, "south": {"c2"}}, render.Permission(a, "c3", []rbacv1beta1.Grant{grant("view")}))
	plan, err := p.Plan(t.Context(), a, grants{"bob edit c2"}, nil)
	if err == nil || plan == nil {
		t.Fatalf("Plan() = %v, %v, want a plan and an error", plan, err)
	}
	for _, cluster := range plan.Clusters {
		if cluster.Name == "c1" && len(cluster.Grants) > 0 {
			t.Errorf("grants of c1 = %v, want none", cluster.Grants)
		}
		if cluster.Name == "c3" && (cluster.Existing == nil || len(cluster.Grants) > 0) {
			t.Errorf("c3 = %+v, want a revocation", cluster)
		}
	}
}

func TestPlanOfUnknownPlacements(t *testing.T) {
	a := roles([]string{"bob", "bob"}, []string{"north", "north"}, "view", "edit")
	had := render.Permission(a, "c3", []rbacv1beta1.Grant{grant("edit"), grant("admin"), grant("view")})
	a.Spec.RoleAssignments[0].ClusterSelection = rbacv1beta1.ClusterSelection{
		Type: rbacv1beta1.SelectPlacements, Placements: []rbacv1beta1.PlacementRef{{Namespace: "n", Name: "p"}},
	}
	p := planner(t, members{"north": {}}, had)
	plan, err := p.Plan(t.Context(), a, grants{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Only the grant of the role assignment with a Placement stays.
	if got, want := text(plan), "c3: +view; "; got != want {
		t.Errorf("Plan() = %s, want %s", got, want)
	}
}

// TestPendingSpecGrantsNothing checks that only the delivered spec of a ClusterPermission counts as granted: for the
// check of the authors, for the escalation check, for Placements that are not known, and in the preview.
func TestPendingSpecGrantsNothing(t *testing.T) {
	a := roles([]string{"bob", "bob", "carl"}, []string{"north", "north", "north"}, "view", "admin", "edit")
	unknown := roles([]string{"bob", "bob"}, []string{"north", "north"}, "view", "admin")
	for i := range unknown.Spec.RoleAssignments {
		unknown.Spec.RoleAssignments[i].ClusterSelection = rbacv1beta1.ClusterSelection{
			Type: rbacv1beta1.SelectPlacements, Placements: []rbacv1beta1.PlacementRef{{Namespace: "n", Name: "p"}},
		}
	}
	spec := func(grants ...rbacv1beta1.Grant) rbacv1alpha1.ClusterPermissionSpec {
		return render.Permission(a, "c1", grants).Spec
	}
	pending := &rbacv1alpha1.PendingGeneration{Generation: 2}
	for name, test := range map[string]struct {
		approval        *rbacv1alpha1.Approval
		plan, ofUnknown string
		// granted are the grants that the preview adds.
		granted int
	}{
		// bob may not grant view or admin. carl may grant edit.
		"delivered":              {nil, "c1: +admin +edit +view; ", "c1: +admin +view; ", 1},
		"pending change":         {&rbacv1alpha1.Approval{Pending: pending, Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 1, Spec: spec(grant("view"))}}, "c1: +edit +view !admin; ", "c1: +view; ", 1},
		"pending, never granted": {&rbacv1alpha1.Approval{Pending: pending}, "c1: +edit !admin !view; ", "c1:; ", 1},
		"approved":               {&rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 2}}, "c1: +admin +edit +view; ", "c1: +admin +view; ", 1},
	} {
		t.Run(name, func(t *testing.T) {
			existing := render.Permission(a, "c1", []rbacv1beta1.Grant{grant("view"), grant("admin")})
			existing.Generation, existing.Status.Approval = 2, test.approval
			p := planner(t, members{"north": {"c1"}}, existing)
			plan, err := p.Plan(t.Context(), a, grants{"carl edit c1"}, nil)
			if got := text(plan); err != nil || got != test.plan {
				t.Errorf("Plan() = %s, %v, want %s", got, err, test.plan)
			}
			change := plan.Preview().Changes[0]
			if got := len(change.Grant); got != test.granted || len(change.Revoke) > 0 {
				t.Errorf("Preview() = %+v, want %d grants and no revocation", change, test.granted)
			}
			plan, err = p.Plan(t.Context(), unknown, grants{}, nil)
			if got := text(plan); err != nil || got != test.ofUnknown {
				t.Errorf("Plan() of unknown Placements = %s, %v, want %s", got, err, test.ofUnknown)
			}
		})
	}
}

// TestUncheckedGrants checks that a grant is refused if its author is not checked, unless another author may make it.
func TestUncheckedGrants(t *testing.T) {
	a := roles([]string{"busy", "carl", "busy"}, []string{"north", "north", "south"}, "view", "view", "edit")
	p := planner(t, members{"north": {"c1"}, "south": {"c2"}})
	plan, err := p.Plan(t.Context(), a, grants{"carl view c1"}, nil)
	if got, want := text(plan), "c1: +view; c2: !edit; "; err != nil || got != want {
		t.Fatalf("Plan() = %s, %v, want %s", got, err, want)
	}
	if c2 := plan.Clusters[1]; !c2.Unchecked || c2.Reason != roleassignment.ErrTooManyReviews.Error() {
		t.Errorf("unchecked, reason of c2 = %v, %q, want %q", c2.Unchecked, c2.Reason, roleassignment.ErrTooManyReviews)
	}
}

func TestPlanLimits(t *testing.T) {
	a := roles([]string{"bob"}, []string{"north"}, "view")
	var clusters []string
	for i := range rbacv1beta1.MaxClusters + 2 {
		clusters = append(clusters, fmt.Sprintf("c%04d", i))
	}
	last := clusters[len(clusters)-1]
	p := planner(t, members{"north": clusters}, render.Permission(a, last, []rbacv1beta1.Grant{grant("view")}))
	plan, err := p.Plan(t.Context(), a, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(plan.Clusters); got != rbacv1beta1.MaxClusters || plan.Clusters[got-1].Name != last {
		t.Errorf("clusters of the plan = %d up to %s, want %d with %s, which has the grant already", got, plan.Clusters[got-1].Name, rbacv1beta1.MaxClusters, last)
	}
	if want := clusters[len(clusters)-3 : len(clusters)-1]; !slices.Equal(plan.Excess, want) {
		t.Errorf("excess clusters = %v, want %v", plan.Excess, want)
	}
	for i := range 30 {
		a.Spec.RoleAssignments[0].TargetNamespaces = append(a.Spec.RoleAssignments[0].TargetNamespaces, fmt.Sprintf("n%d", i))
	}
	plan, err = p.Plan(t.Context(), a, nil, nil)
	if want := rbacv1beta1.MaxGrants / 30; err != nil || len(plan.Clusters) != want {
		t.Errorf("clusters with 30 grants each = %d, %v, want %d", len(plan.Clusters), err, want)
	}
}

func TestStatus(t *testing.T) {
	a := roles([]string{"bob", "bob"}, []string{"north", "south"}, "view", "edit")
	p := planner(t, members{"north": {"c1", "c2"}})
	plan, err := p.Plan(t.Context(), a, grants{"bob view c1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	status := newStatus(plan, map[string]*state{"c1": {applied: true, health: health{ready: true}}, "c2": {}})
	if c := status.Clusters; c.Selected != 2 || c.Ready != 1 || len(c.Failing) != 1 || c.Failing[0].Name != "c2" || c.Failing[0].Reason != reasonForbidden {
		t.Errorf("clusters = %+v, want 2 selected, 1 ready and c2 forbidden", c)
	}
	if got, want := fmt.Sprint(status.RoleAssignments[0].Reason, " ", status.RoleAssignments[1].Reason), "ApplicationFailed InvalidReference"; got != want {
		t.Errorf("reasons of the role assignments = %s, want %s", got, want)
	}
	if got := fmt.Sprint(status.Conditions[0].Status, status.Conditions[1].Status, status.AppliedClusters); got != "FalseFalse[c1]" {
		t.Errorf("conditions and applied clusters = %s, want FalseFalse[c1]", got)
	}
}
