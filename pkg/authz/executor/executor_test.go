package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const deployerRule = `{apiGroups: [work.open-cluster-management.io], resources: [manifestworks], resourceNames: ["system:serviceaccount:apps:deployer"], verbs: [execute-as]}`

func named(namespace, name string) *workv1.ManifestWorkExecutor {
	return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: namespace, Name: name},
	}}
}

// hubSays is a fake authorizer of the hub that records its access reviews. It has no
// opinion unless it allows or denies.
type hubSays struct {
	allows, denies bool
	reason         string
	err            error
	asked          authorizer.Attributes
}

func (h *hubSays) answer(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h.asked = a
	switch {
	case h.allows:
		return authorizer.DecisionAllow, h.reason, h.err
	case h.denies:
		return authorizer.DecisionDeny, h.reason, h.err
	}
	return authorizer.DecisionNoOpinion, h.reason, h.err
}

func TestCheck(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"devs"}, Extra: map[string][]string{"scope": {"all"}}}
	loopback := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}
	server := &user.DefaultInfo{Name: "system:serviceaccount:hub:hub-apiserver"}
	toAlice := stored{bindingOf("c1", "deployer", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"})}
	deployer := reported{"c1/deployer": {Namespace: "apps", Name: "deployer"}}

	for name, test := range map[string]struct {
		caller   user.Info
		hub      hubSays
		checker  Checker
		executor *workv1.ManifestWorkExecutor
		// allowed, forbidden or error.
		want  string
		texts []string
		// not are texts that a refusal must not contain.
		not []string
		// asked is the user and the name in the request to the authorizer, or "" if there is none.
		asked string
		// recorded is the prefix of decision and reason in the audit event.
		recorded string
	}{
		"allowed by RBAC": {
			caller: alice, hub: hubSays{allows: true, reason: "RBAC: allowed by a role"}, executor: named("apps", "deployer"),
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: "allow: RBAC: allowed by a role",
		},
		"not allowed": {
			caller: alice, executor: named("apps", "deployer"),
			want: "forbidden", texts: []string{`manifestworks.work.open-cluster-management.io "w"`, `user "alice"`, "apps/deployer", "cluster c1", `a Role in namespace "c1"`, deployerRule},
			not:   []string{"ManagedServiceAccountBinding"},
			asked: "alice system:serviceaccount:apps:deployer", recorded: `forbid: user "alice" cannot`,
		},
		"allowed with an error": {
			caller: alice, hub: hubSays{allows: true, err: errors.New("one of two failed")}, executor: named("apps", "deployer"),
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: "allow: ",
		},
		"no decision": {
			caller: alice, hub: hubSays{err: errors.New("connection refused")}, executor: named("apps", "deployer"),
			checker: Checker{Bindings: toAlice.Bindings, Accounts: deployer.ServiceAccount},
			want:    "error", texts: []string{"connection refused", `"alice"`}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"allowed by a binding": {
			caller: alice, executor: named("apps", "deployer"), checker: Checker{Bindings: toAlice.Bindings, Accounts: deployer.ServiceAccount},
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: `allow: ManagedServiceAccountBinding "c1/deployer-users"`,
		},
		"denied explicitly despite a binding": {
			caller: alice, hub: hubSays{denies: true}, executor: named("apps", "deployer"),
			checker: Checker{Bindings: toAlice.Bindings, Accounts: deployer.ServiceAccount},
			want:    "forbidden", texts: []string{deployerRule}, asked: "alice system:serviceaccount:apps:deployer", recorded: "forbid: ",
		},
		"an account without a binding of the user": {
			caller: alice, executor: named("apps", "deployer"), checker: Checker{Bindings: stored{}.Bindings, Accounts: deployer.ServiceAccount},
			want: "forbidden", texts: []string{deployerRule, `or with a ManagedServiceAccountBinding in namespace "c1" that binds the user to ManagedServiceAccount "deployer"`},
			asked: "alice system:serviceaccount:apps:deployer",
		},
		"no account": {
			caller: alice, executor: named("apps", "deployer"), checker: Checker{Bindings: stored{}.Bindings, Accounts: reported{}.ServiceAccount},
			want: "forbidden", texts: []string{deployerRule}, not: []string{"ManagedServiceAccountBinding"}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"an account of that name in another namespace": {
			caller: alice, executor: named("kube-system", "deployer"), checker: Checker{Bindings: toAlice.Bindings, Accounts: deployer.ServiceAccount},
			want: "forbidden", texts: []string{`["system:serviceaccount:kube-system:deployer"]`, "apps/deployer"}, asked: "alice system:serviceaccount:kube-system:deployer",
		},
		"bindings that cannot be read": {
			caller: alice, executor: named("apps", "deployer"), checker: Checker{Bindings: failing{errors.New("etcd is down")}.Bindings, Accounts: deployer.ServiceAccount},
			want: "error", texts: []string{"etcd is down"}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"no ServiceAccount": {
			caller: alice, hub: hubSays{allows: true}, executor: &workv1.ManifestWorkExecutor{},
			want: "forbidden", texts: []string{"names no ServiceAccount"}, recorded: "forbid: ",
		},
		"no executor": {caller: alice, checker: Checker{NilExecutor: Allow}, want: "allowed"},
		"no executor, denied": {
			caller: alice, hub: hubSays{allows: true}, checker: Checker{NilExecutor: Deny},
			want: "forbidden", texts: []string{"spec.executor is required on this hub"}, recorded: "forbid: spec.executor is required",
		},
		"no executor, denied to the server": {
			caller: loopback, hub: hubSays{allows: true}, checker: Checker{NilExecutor: Deny, Server: knownAs(server, nil)},
			want: "forbidden", texts: []string{"spec.executor is required on this hub"},
		},
		"no executor, checked and allowed": {
			caller: alice, hub: hubSays{allows: true}, checker: Checker{NilExecutor: Check},
			want: "allowed", asked: "alice system:serviceaccount::klusterlet-work-sa",
		},
		"no executor, checked and refused": {
			caller: alice, checker: Checker{NilExecutor: Check, Bindings: toAlice.Bindings, Accounts: deployer.ServiceAccount},
			want: "forbidden", texts: []string{"without spec.executor", `resourceNames: ["system:serviceaccount::klusterlet-work-sa"]`},
			asked: "alice system:serviceaccount::klusterlet-work-sa",
		},
		"an executor if an empty executor is denied": {
			caller: alice, hub: hubSays{allows: true}, executor: named("apps", "deployer"), checker: Checker{NilExecutor: Deny},
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer",
		},
		"the server": {
			caller: loopback, hub: hubSays{allows: true}, executor: named("apps", "deployer"), checker: Checker{Server: knownAs(server, nil)},
			want: "allowed", asked: "system:serviceaccount:hub:hub-apiserver system:serviceaccount:apps:deployer",
		},
		"the server, not allowed": {
			caller: loopback, executor: named("apps", "deployer"), checker: Checker{Server: knownAs(server, nil)},
			want: "forbidden", texts: []string{`user "system:serviceaccount:hub:hub-apiserver"`, deployerRule},
			asked: "system:serviceaccount:hub:hub-apiserver system:serviceaccount:apps:deployer",
		},
		"the server, without an identity": {
			caller: loopback, hub: hubSays{allows: true}, executor: named("apps", "deployer"), checker: Checker{Server: knownAs(nil, errors.New("hub is down"))},
			want: "error", texts: []string{"hub is down"},
		},
		"a user with the server's name": {
			caller:   &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated}},
			executor: named("apps", "deployer"), checker: Checker{Server: knownAs(server, nil)},
			want: "forbidden", asked: "system:apiserver system:serviceaccount:apps:deployer",
		},
		"no user": {
			hub: hubSays{allows: true}, executor: named("apps", "deployer"),
			want: "error", texts: []string{"no user"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := audit.WithAuditContext(t.Context())
			if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			if test.caller != nil {
				ctx = request.WithUser(ctx, test.caller)
			}
			hub := test.hub
			test.checker.Authorizer = authorizer.AuthorizerFunc(hub.answer)

			err := test.checker.Check(ctx, "c1", "w", test.executor)
			got := map[bool]string{true: "allowed", false: "error"}[err == nil]
			if apierrors.IsForbidden(err) {
				got = "forbidden"
			}
			if got != test.want || got == "error" && !apierrors.IsInternalError(err) {
				t.Errorf("Check() = %v, which is %s, want %s", err, got, test.want)
			}
			for _, text := range test.texts {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("Check() = %v, want an error that contains %s", err, text)
				}
			}
			for _, text := range test.not {
				if err != nil && strings.Contains(err.Error(), text) {
					t.Errorf("Check() = %v, want an error that does not contain %s", err, text)
				}
			}
			asked := ""
			if a := hub.asked; a != nil {
				asked = a.GetUser().GetName() + " " + a.GetName()
				if a.GetVerb() != "execute-as" || a.GetAPIGroup() != "work.open-cluster-management.io" || a.GetAPIVersion() != "v1" ||
					a.GetResource() != "manifestworks" || a.GetSubresource() != "" || a.GetNamespace() != "c1" || !a.IsResourceRequest() {
					t.Errorf("access review of Check() = %+v, want execute-as on manifestworks in c1", a)
				}
				// Webhook authorizers also use the UID and the extra fields of the user.
				if a.GetUser().GetName() == "alice" && a.GetUser() != alice {
					t.Errorf("user in the access review of Check() = %+v, want %+v", a.GetUser(), alice)
				}
			}
			if asked != test.asked {
				t.Errorf("access review of Check() = %q, want %q", asked, test.asked)
			}
			annotations := audit.AuditContextFrom(ctx).GetEventAnnotations()
			recorded := annotations[decisionAnnotation] + ": " + annotations[reasonAnnotation]
			if !strings.HasPrefix(recorded, test.recorded) {
				t.Errorf("audit annotations of Check() = %q, want prefix %q", recorded, test.recorded)
			}
			if decision := annotations[decisionAnnotation]; decision != "" && (decision == "allow") != (err == nil) {
				t.Errorf("audit annotations of Check() = %q with error %v, want allow without an error or forbid with one", recorded, err)
			}
		})
	}
}

// An update that replaces the executor requires the permission to use both, and has one decision in
// the audit event. A ManifestWork without executor acts as the agent.
func TestExecutorReplaced(t *testing.T) {
	const a, b = "system:serviceaccount:apps:deployer", "system:serviceaccount:apps:other"
	deployer, other := named("apps", "deployer"), named("apps", "other")
	const (
		notDeployer = `forbid: user "alice" cannot make ServiceAccount apps/deployer of cluster c1 the executor of a ManifestWork`
		notFormer   = `forbid: user "alice" cannot replace ServiceAccount apps/other of cluster c1 as the executor of a ManifestWork, because its objects would be removed or taken over`
		notAgent    = `forbid: user "alice" cannot write a ManifestWork without spec.executor, which acts as the agent of cluster c1`
		notFormerly = `forbid: user "alice" cannot set the executor of a ManifestWork that acts as the agent of cluster c1, because its objects would be removed or taken over`
	)
	for name, test := range map[string]struct {
		mode         NilExecutor
		former, next *workv1.ManifestWorkExecutor
		may          []string
		// bound is true if a binding allows the deployer.
		bound bool
		want  string
		// missing is the name in the rule of the refusal.
		missing string
	}{
		"both":                     {Allow, other, deployer, []string{a, b}, false, "allow: by role; by role", ""},
		"the new executor only":    {Allow, other, deployer, []string{a}, false, notFormer, b},
		"the former executor only": {Allow, other, deployer, []string{b}, false, notDeployer, a},
		"neither":                  {Allow, other, deployer, nil, false, notDeployer, a},
		"the new executor by a binding, and the former one": {Allow, other, deployer, []string{b}, true, `allow: ManagedServiceAccountBinding "c1/deployer-users"; by role`, ""},
		"the new executor by a binding only":                {Allow, other, deployer, nil, true, notFormer, b},
		"the former executor by a binding, and the new one": {Allow, deployer, other, []string{b}, true, `allow: by role; ManagedServiceAccountBinding "c1/deployer-users"`, ""},
		"removed":                   {Allow, other, nil, []string{b}, false, "allow: by role", ""},
		"removed, not the executor": {Allow, other, nil, nil, false, notFormer, b},
		"removed, neither executor nor agent, checked":        {Check, other, nil, nil, false, notAgent, AgentExecutor},
		"removed, the executor only, checked":                 {Check, other, nil, []string{b}, false, notAgent, AgentExecutor},
		"removed, the agent only, checked":                    {Check, other, nil, []string{AgentExecutor}, false, notFormer, b},
		"removed, both, checked":                              {Check, other, nil, []string{b, AgentExecutor}, false, "allow: by role; by role", ""},
		"removed, denied":                                     {Deny, other, nil, []string{b, AgentExecutor}, false, "forbid: spec.executor is required on this hub", ""},
		"added":                                               {Allow, nil, deployer, []string{a}, false, "allow: by role", ""},
		"added, not the agent, checked":                       {Check, nil, deployer, []string{a}, false, notFormerly, AgentExecutor},
		"added, both, checked":                                {Check, nil, deployer, []string{a, AgentExecutor}, false, "allow: by role; by role", ""},
		"added, not the agent, where an executor is required": {Deny, nil, deployer, []string{a}, false, notFormerly, AgentExecutor},
		"added, both, where an executor is required":          {Deny, nil, deployer, []string{a, AgentExecutor}, false, "allow: by role; by role", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := audit.WithAuditContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"}))
			if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			checker := Checker{NilExecutor: test.mode, Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if slices.Contains(test.may, a.GetName()) {
					return authorizer.DecisionAllow, "by role", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})}
			if test.bound {
				checker.Bindings = stored{bindingOf("c1", "deployer", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"})}.Bindings
				checker.Accounts = reported{"c1/deployer": {Namespace: "apps", Name: "deployer"}}.ServiceAccount
			}
			err := checker.Check(ctx, "c1", "w", test.next, test.former)
			annotations := audit.AuditContextFrom(ctx).GetEventAnnotations()
			if got := annotations[decisionAnnotation] + ": " + annotations[reasonAnnotation]; got != test.want {
				t.Errorf("audit annotations of Check() = %q, want %q", got, test.want)
			}
			if allowed := strings.HasPrefix(test.want, allow); allowed != (err == nil) || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("Check() = %v, want nil or Forbidden as in %q", err, test.want)
			}
			rule := `{apiGroups: [work.open-cluster-management.io], resources: [manifestworks], resourceNames: ["` + test.missing + `"], verbs: [execute-as]}`
			if test.missing != "" && (err == nil || strings.Count(err.Error(), "{") != 1 || !strings.Contains(err.Error(), rule)) {
				t.Errorf("Check() = %v, want only the rule %s", err, rule)
			}
		})
	}
}

// Adding an owner reference requires the permission to delete the ManifestWork.
func TestCheckOwners(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		hub := &hubSays{allows: allowed}
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
		err := (&Checker{Authorizer: authorizer.AuthorizerFunc(hub.answer)}).CheckOwners(ctx, "c1", "w")
		if allowed != (err == nil) || !allowed && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `resourceNames: [w], verbs: [delete]`)) {
			t.Errorf("CheckOwners() with the permission %t = %v, want nil with it and otherwise Forbidden with the rule", allowed, err)
		}
		if a := hub.asked; a.GetVerb() != "delete" || a.GetResource() != "manifestworks" || a.GetNamespace() != "c1" || a.GetName() != "w" {
			t.Errorf("access review of CheckOwners() = %+v, want delete on ManifestWork w in c1", a)
		}
	}
}

func knownAs(server user.Info, err error) func(context.Context) (user.Info, error) {
	return func(context.Context) (user.Info, error) { return server, err }
}

// The name for a ManifestWork without executor differs from the names of all executors,
// so a rule for one does not allow the other.
func TestNamesAreDistinct(t *testing.T) {
	var asked []string
	hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.GetName())
		return authorizer.DecisionAllow, "", nil
	})
	checker := &Checker{Authorizer: hub, NilExecutor: Check}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	for _, executor := range []*workv1.ManifestWorkExecutor{nil, named("open-cluster-management-agent", "klusterlet-work-sa"), named("a", "b")} {
		if err := checker.Check(ctx, "c1", "w", executor); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(asked)
	if len(slices.Compact(slices.Clone(asked))) != len(asked) {
		t.Errorf("names in the access reviews of Check() = %q, want different names", asked)
	}
}
