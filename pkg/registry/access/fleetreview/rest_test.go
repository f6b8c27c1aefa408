package fleetreview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility/visibilitytest"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	setlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1beta2"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// policy allows viewer to view the clusters a, b and c, and root everything.
const policy = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view-cluster}
rules:
- {apiGroups: [view.open-cluster-management.io], resources: [managedclusterviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: a, name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view-cluster}
subjects: [{kind: User, name: viewer, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: b, name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view-cluster}
subjects: [{kind: User, name: viewer, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: c, name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view-cluster}
subjects: [{kind: User, name: viewer, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: everything}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: root}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: everything}
subjects: [{kind: User, name: root, apiGroup: rbac.authorization.k8s.io}, {kind: User, name: "system:admin", apiGroup: rbac.authorization.k8s.io}]
`

type scopes struct{ t *testing.T }

func (s scopes) Scope(_ context.Context, caller user.Info) (visibility.Scope, error) {
	return visibilitytest.Scope(s.t, policy, caller), nil
}

func (scopes) Subscribe(user.Info) (<-chan struct{}, func()) { return nil, func() {} }

// newOptions returns a fleet of the hub and the clusters a to e. On all but c, alice may
// delete Secrets. Nothing is known of b. Clusters a and d are in the set north. The ClusterPermission
// cleaners delivered the binding to a.
func newOptions(t *testing.T) Options {
	t.Helper()
	return deliveredOptions(t, map[string]string{"a": "cleaners"})
}

// deliveredOptions returns the same fleet with the ClusterPermissions that delivered the binding to clusters.
func deliveredOptions(t *testing.T, permissions map[string]string) Options {
	t.Helper()
	index := access.New()
	clusters, sets := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"hub", "a", "b", "c", "d", "e"} {
		u := &access.Update{Full: true, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
		if name != "c" {
			u.Roles[rbac.Key{Kind: "ClusterRole", Name: "cleaner"}] = []rbacv1.PolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
			u.Bindings[rbac.Key{Kind: "ClusterRoleBinding", Name: "cleaner"}] = access.Binding{
				RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cleaner"},
				Subjects: []rbacv1.Subject{
					{Kind: "User", Name: "alice"}, {Kind: "User", Name: "root"}, {Kind: "User", Name: "system:admin"}, {Kind: "Group", Name: "cleaners"},
					{Kind: "ServiceAccount", Namespace: "ops", Name: "cleaner"},
				},
			}
		}
		index.Update(name, u)
		index.SetState(name, access.State{Known: name != "b", Reason: "the agent is not connected"})
		labels := map[string]string{"env": "test"}
		if name == "a" || name == "d" {
			labels = map[string]string{clusterv1beta2.ClusterSetLabel: "north", "env": "prod"}
		}
		if name != "hub" {
			if err := clusters.Add(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := sets.Add(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "north"}}); err != nil {
		t.Fatal(err)
	}
	delivering := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for cluster, name := range permissions {
		permission := &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
		permission.Status.ResourceStatus = &rbacv1alpha1.ResourceStatus{ClusterRoleBindings: []rbacv1alpha1.ClusterScopedResourceStatus{
			{Name: "cleaner", Conditions: []metav1.Condition{{Type: rbacv1alpha1.ConditionResourceApplied, Status: metav1.ConditionTrue}}},
		}}
		notApplied := &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "a-not-applied"}}
		notApplied.Status.ResourceStatus = permission.Status.ResourceStatus.DeepCopy()
		notApplied.Status.ResourceStatus.ClusterRoleBindings[0].Conditions[0].Status = metav1.ConditionFalse
		newer := permission.DeepCopy()
		newer.Name, newer.CreationTimestamp = "a-newer", metav1.Now()
		for _, p := range []*rbacv1alpha1.ClusterPermission{permission, notApplied, newer} {
			if err := delivering.Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return Options{
		Permissions: rbaclisters.NewClusterPermissionLister(delivering), Index: index, Scopes: scopes{t}, Clusters: clusterlisters.NewManagedClusterLister(clusters), Sets: setlisters.NewManagedClusterSetLister(sets),
		Synced: func() bool { return true }, HubCluster: "hub",
	}
}

func create(t *testing.T, storage rest.Storage, caller string, review runtime.Object, groups ...string) (runtime.Object, error) {
	t.Helper()
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: caller, Groups: groups})
	return storage.(rest.Creater).Create(ctx, review, rest.ValidateAllObjectFunc, nil)
}

var deleteSecrets = accessv1alpha1.AccessRequest{ResourceAttributes: &accessv1alpha1.ResourceAttributes{Verb: "delete", Resource: "secrets", Namespace: "prod"}}

func of(t *testing.T, o Options, caller string, spec accessv1alpha1.FleetAccessReviewSpec) accessv1alpha1.FleetAccessReviewStatus {
	t.Helper()
	got, err := create(t, NewAccess(o), caller, &accessv1alpha1.FleetAccessReview{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return got.(*accessv1alpha1.FleetAccessReview).Status
}

// text returns the decisions of a status as one line.
func text(s *accessv1alpha1.FleetAccessReviewStatus) string {
	entries := []string{fmt.Sprintf("%d/%d/%d", s.Allowed, s.Denied, s.Unknown)}
	for _, c := range s.Clusters {
		entries = append(entries, c.Cluster+"="+string(c.Decision))
	}
	return strings.Join(entries, " ")
}

func TestAccessReview(t *testing.T) {
	o := newOptions(t)
	alice := func(change func(*accessv1alpha1.FleetAccessReviewSpec)) accessv1alpha1.FleetAccessReviewSpec {
		spec := accessv1alpha1.FleetAccessReviewSpec{User: "alice", AccessRequest: deleteSecrets}
		change(&spec)
		return spec
	}
	for _, c := range []struct {
		name, caller, want string
		spec               accessv1alpha1.FleetAccessReviewSpec
	}{
		{"visible clusters only", "viewer", "1/1/1 a=Allowed b=Unknown c=Denied", alice(func(*accessv1alpha1.FleetAccessReviewSpec) {})},
		{"no cluster", "nobody", "0/0/0", alice(func(*accessv1alpha1.FleetAccessReviewSpec) {})},
		{"all clusters and the hub", "root", "4/1/1 a=Allowed b=Unknown c=Denied d=Allowed e=Allowed hub=Allowed", alice(func(*accessv1alpha1.FleetAccessReviewSpec) {})},
		{"names, one of them invisible", "viewer", "1/0/0 a=Allowed", alice(func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Clusters.Names = []string{"d", "a", "none"} })},
		{"labels", "root", "2/0/0 a=Allowed d=Allowed", alice(func(s *accessv1alpha1.FleetAccessReviewSpec) {
			s.Clusters.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
		})},
		{"set", "viewer", "1/0/0 a=Allowed", alice(func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Clusters.ClusterSets = []string{"north"} })},
		{"set that does not exist", "root", "0/0/0", alice(func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Clusters.ClusterSets = []string{"south"} })},
		{"group", "viewer", "1/1/1 a=Allowed b=Unknown c=Denied", accessv1alpha1.FleetAccessReviewSpec{Groups: []string{"cleaners"}, AccessRequest: deleteSecrets}},
		{"ServiceAccount", "root", "1/0/0 d=Allowed", accessv1alpha1.FleetAccessReviewSpec{
			ServiceAccount: &accessv1alpha1.ClusterServiceAccount{Cluster: "d", Namespace: "ops", Name: "cleaner"}, AccessRequest: deleteSecrets,
		}},
		{"ServiceAccount of an invisible cluster", "viewer", "0/0/0", accessv1alpha1.FleetAccessReviewSpec{
			ServiceAccount: &accessv1alpha1.ClusterServiceAccount{Cluster: "d", Namespace: "ops", Name: "cleaner"}, AccessRequest: deleteSecrets,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := of(t, o, c.caller, c.spec)
			if text(&got) != c.want {
				t.Errorf("review of %s = %s, want %s", c.caller, text(&got), c.want)
			}
			for _, entry := range got.Clusters {
				if want := map[bool]string{true: "cleaners"}[entry.Cluster == "a"]; len(entry.Chains) > 0 && entry.Chains[0].ClusterPermission != want {
					t.Errorf("ClusterPermission on %s = %q, want %q", entry.Cluster, entry.Chains[0].ClusterPermission, want)
				}
				if (entry.Decision == accessv1alpha1.AccessAllowed) != (len(entry.Chains) == 1) || (entry.Reason == "") != (len(entry.Chains) == 1) {
					t.Errorf("cluster %s is %s with %d chains and reason %q", entry.Cluster, entry.Decision, len(entry.Chains), entry.Reason)
				}
			}
		})
	}
}

func TestPages(t *testing.T) {
	o := newOptions(t)
	spec := accessv1alpha1.FleetAccessReviewSpec{User: "alice", AccessRequest: deleteSecrets}
	spec.Limit = ptr.To[int32](2)
	var got []string
	for {
		page := of(t, o, "root", spec)
		got = append(got, text(&page))
		if spec.Continue = page.Continue; spec.Continue == "" {
			break
		}
		if *page.RemainingItemCount != int64(6-2*len(got)) {
			t.Errorf("remaining clusters after page %d = %d, want %d", len(got), *page.RemainingItemCount, 6-2*len(got))
		}
	}
	want := []string{"4/1/1 a=Allowed b=Unknown", "4/1/1 c=Denied d=Allowed", "4/1/1 e=Allowed hub=Allowed"}
	if !slices.Equal(got, want) {
		t.Errorf("pages = %q, want %q", got, want)
	}
}

func TestHoldings(t *testing.T) {
	got := of(t, newOptions(t), "root", accessv1alpha1.FleetAccessReviewSpec{User: "alice"})
	if want := "0/0/1 a= b=Unknown c= d= e= hub="; text(&got) != want {
		t.Errorf("review without attributes = %s, want %s", text(&got), want)
	}
	for _, c := range got.Clusters {
		if want := c.Cluster != "b" && c.Cluster != "c"; want != (len(c.Holdings) == 1) || want && (c.Holdings[0].Binding.Name != "cleaner" || len(c.Holdings[0].Rules) != 1) {
			t.Errorf("holdings on %s = %+v, want one: %t", c.Cluster, c.Holdings, want)
		}
	}
}

func TestSelfReview(t *testing.T) {
	o := newOptions(t)
	for caller, want := range map[string]string{
		"root":         "4/1/1 a=Allowed b=Unknown c=Denied d=Allowed e=Allowed hub=Allowed",
		"viewer":       "0/2/1 a=Denied b=Unknown c=Denied",
		"system:admin": "1/4/1 a=Denied b=Unknown c=Denied d=Denied e=Denied hub=Allowed", // another user on each cluster
	} {
		got, err := create(t, NewSelf(o), caller, &accessv1alpha1.SelfFleetAccessReview{Spec: accessv1alpha1.SelfFleetAccessReviewSpec{AccessRequest: deleteSecrets}}, user.AllAuthenticated)
		if err != nil {
			t.Fatal(err)
		}
		if status := got.(*accessv1alpha1.SelfFleetAccessReview).Status; text(&status) != want {
			t.Errorf("review of %s = %s, want %s", caller, text(&status), want)
		}
	}
}

func TestSubjectReview(t *testing.T) {
	o := newOptions(t)
	var got []string
	spec := accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: deleteSecrets, Page: accessv1alpha1.Page{Limit: ptr.To[int32](4)}}
	for {
		review, err := create(t, NewSubjects(o), "viewer", &accessv1alpha1.FleetSubjectReview{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		status := review.(*accessv1alpha1.FleetSubjectReview).Status
		if status.Total != 6 || status.Unknown != 1 || len(status.UnknownClusters) != 1 {
			t.Errorf("total %d, unknown %d %v, want 6, 1 and cluster b", status.Total, status.Unknown, status.UnknownClusters)
		}
		for _, s := range status.Subjects {
			line := s.Kind + "/" + s.Name
			for _, g := range s.Grants {
				line += fmt.Sprintf(" %d%v", g.ClusterCount, g.Clusters)
			}
			got = append(got, line)
		}
		if spec.Continue = status.Continue; spec.Continue == "" {
			if !slices.Contains(status.Notes, noteGroups) {
				t.Errorf("notes = %q, want that groups are not expanded", status.Notes)
			}
			break
		}
	}
	want := []string{"User/alice 1[a]", "User/root 1[a]", "User/system:admin 1[a]", "ServiceAccount/cleaner 1[a]", "Group/cleaners 1[a]", "Group/system:masters"}
	if !slices.Equal(got, want) {
		t.Errorf("subjects = %q, want %q", got, want)
	}
}

// TestSubjectReviewPagesOfLongNames checks that reported names of any length end no list: every token is accepted, and the
// pages contain each subject once.
func TestSubjectReviewPagesOfLongNames(t *testing.T) {
	o := newOptions(t)
	u := &access.Update{Bindings: map[rbac.Key]access.Binding{}}
	want := map[string]bool{}
	for i, length := range []int{1, 511, 512, 513, 544, 545, 546, 3 << 10, 4 << 10, 64 << 10, 1 << 20} {
		for j, kind := range []string{"User", "User", "Group"} {
			binding := fmt.Sprintf("long-%02d-%d", i, j)
			u.Bindings[rbac.Key{Kind: "ClusterRoleBinding", Name: binding}] = access.Binding{
				RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "cleaner"},
				Subjects: []rbacv1.Subject{{Kind: kind, Name: strings.Repeat("z", length-1) + fmt.Sprint(j)}},
			}
			want[binding] = true
		}
	}
	o.Index.Update("a", u)
	spec := accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: deleteSecrets, Page: accessv1alpha1.Page{Limit: ptr.To[int32](1)}}
	pages := 0
	for {
		review, err := create(t, NewSubjects(o), "viewer", &accessv1alpha1.FleetSubjectReview{Spec: spec})
		if err != nil {
			t.Fatalf("page %d after a token of %d bytes: %v", pages+1, len(spec.Continue), err)
		}
		pages++
		status := review.(*accessv1alpha1.FleetSubjectReview).Status
		for _, s := range status.Subjects {
			if len(s.Grants) > 0 && strings.HasPrefix(s.Grants[0].Binding.Name, "long-") {
				if !want[s.Grants[0].Binding.Name] {
					t.Errorf("page %d contains the subject of %s again", pages, s.Grants[0].Binding.Name)
				}
				delete(want, s.Grants[0].Binding.Name)
			}
		}
		if spec.Continue = status.Continue; spec.Continue == "" {
			if len(want) > 0 || pages != int(status.Total) {
				t.Errorf("%d pages of %d subjects, without those of %v", pages, status.Total, want)
			}
			return
		}
		if len(spec.Continue) > maxText {
			t.Errorf("token after page %d has %d bytes, want at most %d", pages, len(spec.Continue), maxText)
		}
	}
}

func TestBounds(t *testing.T) {
	o := newOptions(t)
	long := strings.Repeat("x", maxText+1)
	for want, change := range map[string]func(*accessv1alpha1.FleetAccessReviewSpec){
		"spec.user":                    func(s *accessv1alpha1.FleetAccessReviewSpec) { s.User = "" },
		"spec.groups":                  func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Groups = make([]string, maxGroups+1) },
		"spec.groups[0]":               func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Groups = []string{long} },
		"spec.resourceAttributes.verb": func(s *accessv1alpha1.FleetAccessReviewSpec) { s.ResourceAttributes.Verb = "" },
		"spec.resourceAttributes.name": func(s *accessv1alpha1.FleetAccessReviewSpec) { s.ResourceAttributes.Name = long },
		"spec.limit":                   func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Limit = ptr.To[int32](maxLimit + 1) },
		"spec.continue":                func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Continue = "%" },
		"spec.clusters.names":          func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Clusters.Names = make([]string, maxNames+1) },
		"spec.clusters.clusterSets":    func(s *accessv1alpha1.FleetAccessReviewSpec) { s.Clusters.ClusterSets = make([]string, maxSets+1) },
		"spec.serviceAccount": func(s *accessv1alpha1.FleetAccessReviewSpec) {
			s.ServiceAccount = &accessv1alpha1.ClusterServiceAccount{Cluster: "a", Namespace: "b", Name: "c"}
		},
		"spec.clusters.labelSelector.matchLabels": func(s *accessv1alpha1.FleetAccessReviewSpec) {
			s.Clusters.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"%": ""}}
		},
		"spec.nonResourceAttributes": func(s *accessv1alpha1.FleetAccessReviewSpec) {
			s.NonResourceAttributes = &accessv1alpha1.NonResourceAttributes{Path: "/", Verb: "get"}
		},
	} {
		spec := accessv1alpha1.FleetAccessReviewSpec{User: "alice", AccessRequest: *deleteSecrets.DeepCopy()}
		change(&spec)
		_, err := create(t, NewAccess(o), "root", &accessv1alpha1.FleetAccessReview{Spec: spec})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want+":") {
			t.Errorf("error = %v, want one for %s", err, want)
		}
	}
}

// TestSubjectReviewNamesClusterPermissions checks that grants are separate for each ClusterPermission that delivered the
// binding, and that their number is bounded.
func TestSubjectReviewNamesClusterPermissions(t *testing.T) {
	for _, c := range []struct {
		name        string
		permissions map[string]string
		want        string
	}{
		{"no cluster", nil, "[a d e hub]"},
		{"one of the clusters", map[string]string{"a": "cleaners"}, "[d e hub] cleaners[a]"},
		{"several with the same name", map[string]string{"a": "cleaners", "d": "cleaners"}, "[e hub] cleaners[a d]"},
		{"several with different names", map[string]string{"a": "cleaners", "d": "others", "e": "others"}, "[hub] cleaners[a] others[d e]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			review, err := create(t, NewSubjects(deliveredOptions(t, c.permissions)), "root", &accessv1alpha1.FleetSubjectReview{Spec: accessv1alpha1.FleetSubjectReviewSpec{AccessRequest: deleteSecrets}})
			if err != nil {
				t.Fatal(err)
			}
			alice := review.(*accessv1alpha1.FleetSubjectReview).Status.Subjects[0]
			var got []string
			for _, g := range alice.Grants {
				if int(g.ClusterCount) != len(g.Clusters) {
					t.Errorf("clusterCount = %d, want %d", g.ClusterCount, len(g.Clusters))
				}
				got = append(got, fmt.Sprint(g.ClusterPermission, g.Clusters))
			}
			if alice.Name != "alice" || strings.Join(got, " ") != c.want || alice.Truncated {
				t.Errorf("grants of %s = %v, truncated %t, want those of alice, %s, not truncated", alice.Name, got, alice.Truncated, c.want)
			}
		})
	}
	var clusters []string
	by := deliveries{{Kind: "ClusterRoleBinding", Name: "b"}: {}}
	for i := range 2 * maxChains {
		clusters = append(clusters, fmt.Sprint("c", i))
		by[rbac.Key{Kind: "ClusterRoleBinding", Name: "b"}][clusters[i]] = fmt.Sprint("p", i)
	}
	grant := access.Grant{Chain: &access.Chain{Binding: rbac.Key{Kind: "ClusterRoleBinding", Name: "b"}}, Clusters: clusters}
	if got := subjectAccessOf(&access.SubjectAnswer{Grants: []access.Grant{grant}}, by, newBudget()); len(got.Grants) != maxChains || !got.Truncated {
		t.Errorf("grants = %d, truncated %t, want %d, truncated", len(got.Grants), got.Truncated, maxChains)
	}
}

// TestLargeReport checks that what a cluster reports cannot make a response large.
func TestLargeReport(t *testing.T) {
	o := newOptions(t)
	words := make([]string, 5000)
	for i := range words {
		words[i] = fmt.Sprintf("%0500d", i)
	}
	index := o.Index
	u := &access.Update{Roles: map[rbac.Key][]rbacv1.PolicyRule{{Kind: "ClusterRole", Name: "cleaner"}: {
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: append(words, "secrets")},
	}}}
	index.Update("a", u)
	got := of(t, o, "viewer", accessv1alpha1.FleetAccessReviewSpec{User: "alice", AccessRequest: deleteSecrets})
	if rule := got.Clusters[0].Chains[0].Rule; len(rule.Resources) != maxWords+1 || rule.Resources[maxWords] != "..." || len(rule.Resources[0]) != maxWord {
		t.Errorf("the rule in the response has %d resources, the first with %d bytes, want %d and %d", len(rule.Resources), len(rule.Resources[0]), maxWords+1, maxWord)
	}
}
