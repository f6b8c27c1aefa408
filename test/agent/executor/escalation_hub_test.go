package executor_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// writeRBAC allows writes of RBAC objects, but not escalate and bind.
	writeRBAC  = `{apiGroups: [rbac.authorization.k8s.io], resources: ["*"], verbs: [get, create, update, patch, delete]}`
	getPods    = `{apiGroups: [""], resources: [pods], verbs: [get]}`
	allPods    = `{apiGroups: [""], resources: [pods], verbs: ["*"]}`
	all        = `{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`
	allURLs    = `{nonResourceURLs: ["*"], verbs: ["*"]}`
	getMetrics = `{nonResourceURLs: [/metrics], verbs: [get]}`

	podRole         = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	secretRole      = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}`
	bareRole        = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: NS}}`
	podClusterRole  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`
	bareClusterRole = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}}`
	secretsCluster  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}`
	metricsRole     = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}`
	healthRole      = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}, rules: [{nonResourceURLs: [/healthz], verbs: [get]}]}`
	aggregatedRole  = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: NS-r}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {NS: x}}]}}`

	bindRole          = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}]}`
	bindClusterRole   = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {kind: ClusterRole, name: NS-r}, subjects: [{kind: User, name: u}]}`
	bindRoleWithGroup = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{kind: User, name: u}]}`
	bindEverywhere    = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: NS-b}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-r}, subjects: [{kind: User, name: u}]}`
)

// TestGrantsAgainstAPIServer checks that Admit denies the same RBAC objects as the API server.
func TestGrantsAgainstAPIServer(t *testing.T) {
	t.Parallel()
	const (
		update     = workv1.UpdateStrategyTypeUpdate
		createOnly = workv1.UpdateStrategyTypeCreateOnly
		apply      = workv1.UpdateStrategyTypeServerSideApply
	)
	type rules = []string
	for _, test := range []struct {
		name string
		// there contains the objects that exist on the cluster.
		there rules
		// here contains the rules of the executor in its namespace, and everywhere its cluster-wide
		// rules.
		here, everywhere rules
		strategy         workv1.UpdateStrategyType
		manifests        []string
		// denied are the ordinals of the denied manifests.
		denied []int
	}{
		{"a role with held rules", nil, rules{getPods}, nil, update, []string{podRole}, nil},
		{"a role with fewer rules than held", nil, rules{allPods}, nil, update, []string{podRole}, nil},
		{"a role with rules held cluster-wide", nil, nil, rules{getPods}, update, []string{podRole}, nil},
		{"a role with rules that are not held", nil, rules{getPods}, nil, update, []string{secretRole}, []int{0}},
		{"a role with held rules, by server-side apply", nil, rules{getPods}, nil, apply, []string{podRole}, nil},
		{"a role with rules that are not held, by server-side apply", nil, rules{getPods}, nil, apply, []string{secretRole}, []int{0}},
		{"an existing role that gets rules that are not held", rules{podRole}, rules{getPods}, nil, update, []string{secretRole}, []int{0}},
		{"an existing role that loses rules", rules{secretRole}, rules{getPods}, nil, update, []string{podRole}, nil},
		{"an existing role that keeps rules that are not held", rules{secretRole}, rules{getPods}, nil, update, []string{bareRole}, []int{0}},
		{"a role without rules", nil, nil, nil, update, []string{bareRole}, nil},
		{"escalate", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`}, nil, update, []string{secretRole}, nil},
		{"escalate of one role does not allow POST", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [r], verbs: [escalate]}`}, nil, update, []string{secretRole}, []int{0}},
		{"escalate of one role is enough for server-side apply", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [r], verbs: [escalate]}`}, nil, apply, []string{secretRole}, nil},
		{"escalate of another role", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [other], verbs: [escalate]}`}, nil, apply, []string{secretRole}, []int{0}},
		{"escalate of ClusterRoles is not of Roles", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [escalate]}`}, nil, update, []string{secretRole}, []int{0}},
		{"a role that is only created", nil, rules{getPods}, nil, createOnly, []string{secretRole}, []int{0}},

		{"a ClusterRole with rules held cluster-wide", nil, nil, rules{getPods}, update, []string{podClusterRole}, nil},
		{"a ClusterRole with rules held in a namespace", nil, rules{getPods}, nil, update, []string{podClusterRole}, []int{0}},
		{"URLs that are held", nil, nil, rules{getMetrics}, update, []string{metricsRole}, nil},
		{"URLs, with escalate", nil, nil, rules{all}, update, []string{metricsRole}, nil},
		{"URLs that are not held", nil, nil, rules{getPods}, update, []string{metricsRole}, []int{0}},
		{"URLs held by all authenticated users", nil, nil, nil, update, []string{healthRole}, nil},
		{"an aggregated ClusterRole", nil, nil, rules{getPods}, update, []string{aggregatedRole}, []int{0}},
		{"an aggregated ClusterRole, with all permissions", nil, nil, rules{all, allURLs}, update, []string{aggregatedRole}, nil},
		{"an aggregated ClusterRole, with escalate", nil, nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [escalate]}`}, apply, []string{aggregatedRole}, nil},
		{"an aggregated ClusterRole that gets rules", rules{aggregatedRole}, nil, rules{getPods}, update, []string{podClusterRole}, []int{0}},
		{"an aggregated ClusterRole that gets rules by server-side apply", rules{aggregatedRole}, nil, rules{getPods}, apply, []string{podClusterRole}, []int{0}},
		{"an aggregated ClusterRole that gets no rules", rules{aggregatedRole}, nil, rules{getPods}, update, []string{bareClusterRole}, []int{0}},

		{"a binding to held rules", rules{podRole}, rules{getPods}, nil, update, []string{bindRole}, nil},
		{"a binding to rules that are not held", rules{secretRole}, rules{getPods}, nil, update, []string{bindRole}, []int{0}},
		{"a binding by server-side apply", rules{secretRole}, rules{getPods}, nil, apply, []string{bindRoleWithGroup}, []int{0}},
		{"a binding that is only created", rules{secretRole}, rules{getPods}, nil, createOnly, []string{bindRole}, []int{0}},
		{"bind", rules{secretRole}, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [r], verbs: [bind]}`}, nil, update, []string{bindRole}, nil},
		{"bind of another role", rules{secretRole}, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [other], verbs: [bind]}`}, nil, update, []string{bindRole}, []int{0}},
		{"bind of a ClusterRole in a namespace", rules{secretsCluster}, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]}`}, nil, update, []string{bindClusterRole}, nil},
		{"bind of a ClusterRole in a namespace, bound cluster-wide", rules{secretsCluster}, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]}`}, nil, update, []string{bindEverywhere}, []int{0}},
		{"rules held in a namespace, bound there", rules{podClusterRole}, rules{getPods}, nil, update, []string{bindClusterRole}, nil},
		{"rules held in a namespace, bound cluster-wide", rules{podClusterRole}, rules{getPods}, nil, update, []string{bindEverywhere}, []int{0}},
		{"a binding to a role that does not exist", nil, rules{all}, rules{all, allURLs}, update, []string{bindRole}, nil},
		{"a binding to a role that does not exist, without bind", nil, rules{allPods}, nil, update, []string{bindRole}, []int{0}},
		{"bind of a role that does not exist", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [bind]}`}, nil, update, []string{bindRole}, nil},

		{"a binding to a role of the same ManifestWork", nil, rules{getPods}, nil, update, []string{podRole, bindRole}, nil},
		{"a ClusterRole of the same ManifestWork, bound cluster-wide", nil, nil, rules{getPods}, update, []string{podClusterRole, bindEverywhere}, nil},
		{"a role of the same ManifestWork, with escalate but not bind", nil, rules{`{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`}, nil, update, []string{secretRole, bindRole}, []int{1}},
		{"a role of the same ManifestWork that loses rules", rules{secretRole}, rules{getPods}, nil, update, []string{podRole, bindRole}, nil},
		{"a role that is only created, and exists with more rules", rules{secretRole}, rules{getPods}, nil, createOnly, []string{podRole, bindRole}, []int{1}},
		{"a role that is only created, and exists with fewer rules", rules{podRole}, rules{getPods, `{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`}, nil,
			createOnly, []string{secretRole, bindRole}, nil},
		{"a role of the same ManifestWork that keeps held rules", rules{podRole}, rules{getPods}, nil, update, []string{bareRole, bindRole}, nil},
		{"a role of the same ManifestWork that keeps rules that are not held", rules{secretRole}, rules{getPods}, nil, update, []string{bareRole, bindRole}, []int{0, 1}},
		{"a role of the same ManifestWork that is only created", nil, rules{getPods}, nil, createOnly, []string{podRole, bindRole}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.make(test.there...)
			f.allow("", writeRBAC)
			f.allow(f.namespace, test.here...)
			f.allow("", test.everywhere...)
			request := f.request(test.strategy, test.manifests...)
			client, err := f.executors(nil).Admit(t.Context(), request)
			if got := deniedOf(t, err); !slices.Equal(got, test.denied) {
				t.Errorf("manifests denied by Admit() = %v, want %v: %v", got, test.denied, err)
			}
			if (client != nil) != (len(test.denied) == 0) {
				t.Errorf("Admit() = client %v, want a client only if no manifest is denied", client)
			}
			if got := f.deniedByServer(request); !slices.Equal(got, test.denied) {
				t.Errorf("manifests denied by the API server = %v, want %v", got, test.denied)
			}
		})
	}
}

// deniedOf returns the ordinals of the denied manifests.
func deniedOf(t *testing.T, err error) []int {
	t.Helper()
	var refusal *work.Refusal
	if err != nil && !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	if refusal == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(refusal.Manifests))
}

// deniedByServer applies all targets as the executor, and returns the ordinals of the targets that the
// API server denies.
func (f *fixture) deniedByServer(request work.AdmitRequest) []int {
	f.Helper()
	config := managed.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: f.userName()}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	var denied []int
	for _, target := range request.Targets {
		err := apply(f.Context(), client, target)
		switch {
		// The API server returns NotFound for a binding to a role that does not exist.
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			f.Logf("manifest %d: %v", target.Ordinal, err)
			denied = append(denied, target.Ordinal)
		case err != nil:
			f.Fatalf("apply(manifest %d) = %v, want nil or a denial", target.Ordinal, err)
		}
	}
	return denied
}
