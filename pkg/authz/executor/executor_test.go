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

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
)

const deployerRule = `{apiGroups: [work.open-cluster-management.io], resources: [manifestworks], resourceNames: ["system:serviceaccount:apps:deployer"], verbs: [execute-as]}`

func named(namespace, name string) *work.ManifestWorkExecutor {
	return &work.ManifestWorkExecutor{Subject: work.ManifestWorkExecutorSubject{
		Type:           work.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &work.ManifestWorkSubjectServiceAccount{Namespace: namespace, Name: name},
	}}
}

// hubSays is what the hub says to a question, which it keeps. It has no opinion
// unless it allows or denies.
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
		options  Options
		executor *work.ManifestWorkExecutor
		// allowed, forbidden or error.
		want  string
		texts []string
		// not are texts that a refusal may not have.
		not []string
		// asked is the user and the name that the hub was asked about; "" if it was not.
		asked string
		// recorded is what the audit log has of the decision and its reason.
		recorded string
	}{
		"allowed by RBAC": {
			caller: alice, hub: hubSays{allows: true, reason: "RBAC: allowed by a role"}, executor: named("apps", "deployer"),
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: "allow: RBAC: allowed by a role",
		},
		"not allowed": {
			caller: alice, executor: named("apps", "deployer"),
			want: "forbidden", texts: []string{`manifestworks.work.open-cluster-management.io "w"`, `user "alice"`, "apps/deployer", "cluster c1", "a Role in namespace c1", deployerRule},
			not:   []string{"ManagedServiceAccountBinding"},
			asked: "alice system:serviceaccount:apps:deployer", recorded: `forbid: "alice" may not`,
		},
		"an allowing answer with an error": {
			caller: alice, hub: hubSays{allows: true, err: errors.New("half of it failed")}, executor: named("apps", "deployer"),
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: "allow: ",
		},
		"no answer": {
			caller: alice, hub: hubSays{err: errors.New("connection refused")}, executor: named("apps", "deployer"),
			options: Options{Bindings: toAlice, Accounts: deployer},
			want:    "error", texts: []string{"connection refused", `"alice"`}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"allowed by a binding": {
			caller: alice, executor: named("apps", "deployer"), options: Options{Bindings: toAlice, Accounts: deployer},
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer", recorded: `allow: ManagedServiceAccountBinding "c1/deployer-users"`,
		},
		"denied outright in spite of a binding": {
			caller: alice, hub: hubSays{denies: true}, executor: named("apps", "deployer"),
			options: Options{Bindings: toAlice, Accounts: deployer},
			want:    "forbidden", texts: []string{deployerRule}, asked: "alice system:serviceaccount:apps:deployer", recorded: "forbid: ",
		},
		"an account that nobody has bound the user to": {
			caller: alice, executor: named("apps", "deployer"), options: Options{Bindings: stored{}, Accounts: deployer},
			want: "forbidden", texts: []string{deployerRule, "or a ManagedServiceAccountBinding in namespace c1 that binds the user to ManagedServiceAccount deployer"},
			asked: "alice system:serviceaccount:apps:deployer",
		},
		"no account": {
			caller: alice, executor: named("apps", "deployer"), options: Options{Bindings: stored{}, Accounts: reported{}},
			want: "forbidden", texts: []string{deployerRule}, not: []string{"ManagedServiceAccountBinding"}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"an account of that name that is elsewhere": {
			caller: alice, executor: named("kube-system", "deployer"), options: Options{Bindings: toAlice, Accounts: deployer},
			want: "forbidden", texts: []string{`["system:serviceaccount:kube-system:deployer"]`, "apps/deployer"}, asked: "alice system:serviceaccount:kube-system:deployer",
		},
		"bindings that cannot be read": {
			caller: alice, executor: named("apps", "deployer"), options: Options{Bindings: failing{errors.New("etcd is away")}, Accounts: deployer},
			want: "error", texts: []string{"etcd is away"}, asked: "alice system:serviceaccount:apps:deployer",
		},
		"no ServiceAccount": {
			caller: alice, hub: hubSays{allows: true}, executor: &work.ManifestWorkExecutor{},
			want: "forbidden", texts: []string{"names no ServiceAccount"}, recorded: "forbid: ",
		},
		"no executor": {caller: alice, options: Options{NilExecutor: Allow}, want: "allowed"},
		"no executor, denied": {
			caller: alice, hub: hubSays{allows: true}, options: Options{NilExecutor: Deny},
			want: "forbidden", texts: []string{"spec.executor is required on this hub"}, recorded: "forbid: spec.executor is required",
		},
		"no executor, denied to the server too": {
			caller: loopback, hub: hubSays{allows: true}, options: Options{NilExecutor: Deny, Server: knownAs(server, nil)},
			want: "forbidden", texts: []string{"spec.executor is required on this hub"},
		},
		"no executor, checked and allowed": {
			caller: alice, hub: hubSays{allows: true}, options: Options{NilExecutor: Check},
			want: "allowed", asked: "alice system:serviceaccount::klusterlet-work-sa",
		},
		"no executor, checked and refused": {
			caller: alice, options: Options{NilExecutor: Check, Bindings: toAlice, Accounts: deployer},
			want: "forbidden", texts: []string{"without spec.executor", `resourceNames: ["system:serviceaccount::klusterlet-work-sa"]`},
			asked: "alice system:serviceaccount::klusterlet-work-sa",
		},
		"an executor where those are denied": {
			caller: alice, hub: hubSays{allows: true}, executor: named("apps", "deployer"), options: Options{NilExecutor: Deny},
			want: "allowed", asked: "alice system:serviceaccount:apps:deployer",
		},
		"the server": {
			caller: loopback, hub: hubSays{allows: true}, executor: named("apps", "deployer"), options: Options{Server: knownAs(server, nil)},
			want: "allowed", asked: "system:serviceaccount:hub:hub-apiserver system:serviceaccount:apps:deployer",
		},
		"the server, which may not": {
			caller: loopback, executor: named("apps", "deployer"), options: Options{Server: knownAs(server, nil)},
			want: "forbidden", texts: []string{`user "system:serviceaccount:hub:hub-apiserver"`, deployerRule},
			asked: "system:serviceaccount:hub:hub-apiserver system:serviceaccount:apps:deployer",
		},
		"the server, which does not know who it is": {
			caller: loopback, hub: hubSays{allows: true}, executor: named("apps", "deployer"), options: Options{Server: knownAs(nil, errors.New("hub is away"))},
			want: "error", texts: []string{"hub is away"},
		},
		"somebody with the server's name": {
			caller:   &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated}},
			executor: named("apps", "deployer"), options: Options{Server: knownAs(server, nil)},
			want: "forbidden", asked: "system:apiserver system:serviceaccount:apps:deployer",
		},
		"nobody": {
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
			test.options.Authorizer = authorizer.AuthorizerFunc(hub.answer)

			err := NewChecker(test.options).Check(ctx, "c1", "w", test.executor)
			got := map[bool]string{true: "allowed", false: "error"}[err == nil]
			if apierrors.IsForbidden(err) {
				got = "forbidden"
			}
			if got != test.want || got == "error" && !apierrors.IsInternalError(err) {
				t.Errorf("%s: %v", got, err)
			}
			for _, text := range test.texts {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not say %s", err, text)
				}
			}
			for _, text := range test.not {
				if err != nil && strings.Contains(err.Error(), text) {
					t.Errorf("%v\nsays %s", err, text)
				}
			}
			asked := ""
			if a := hub.asked; a != nil {
				asked = a.GetUser().GetName() + " " + a.GetName()
				if a.GetVerb() != "execute-as" || a.GetAPIGroup() != "work.open-cluster-management.io" || a.GetAPIVersion() != "v1" ||
					a.GetResource() != "manifestworks" || a.GetSubresource() != "" || a.GetNamespace() != "c1" || !a.IsResourceRequest() {
					t.Errorf("asked %+v", a)
				}
				// The full identity is asked about: webhook authorizers look at UID and extra too.
				if a.GetUser().GetName() == "alice" && a.GetUser() != alice {
					t.Errorf("asked about %+v", a.GetUser())
				}
			}
			if asked != test.asked {
				t.Errorf("asked %q, not %q", asked, test.asked)
			}
			annotations := audit.AuditContextFrom(ctx).GetEventAnnotations()
			recorded := annotations[decisionAnnotation] + ": " + annotations[reasonAnnotation]
			if !strings.HasPrefix(recorded, test.recorded) {
				t.Errorf("recorded %q, not %q", recorded, test.recorded)
			}
			if decision := annotations[decisionAnnotation]; decision != "" && (decision == "allow") != (err == nil) {
				t.Errorf("recorded %q of %v", recorded, err)
			}
		})
	}
}

// The audit log has one decision of a write that takes the executor off a work: that
// of both questions.
func TestExecutorTakenAway(t *testing.T) {
	for name, test := range map[string]struct {
		mode NilExecutor
		may  []string
		want string
	}{
		"allowed":                             {Allow, []string{"system:serviceaccount:apps:deployer"}, "allow: by role"},
		"not the executor":                    {Allow, nil, `forbid: "alice" may not have a work act as ServiceAccount apps/deployer of cluster c1`},
		"neither executor nor agent, checked": {Check, nil, `forbid: "alice" may not have a work act as ServiceAccount apps/deployer of cluster c1`},
		"the executor only, checked":          {Check, []string{"system:serviceaccount:apps:deployer"}, `forbid: "alice" may not have a work without spec.executor act as the agent of cluster c1`},
		"the agent only, checked":             {Check, []string{AgentExecutor}, `forbid: "alice" may not have a work act as ServiceAccount apps/deployer of cluster c1`},
		"both, checked":                       {Check, []string{"system:serviceaccount:apps:deployer", AgentExecutor}, "allow: by role; by role"},
		"required":                            {Deny, []string{"system:serviceaccount:apps:deployer"}, "forbid: spec.executor is required on this hub"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := audit.WithAuditContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"}))
			if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelMetadata}, nil); err != nil {
				t.Fatal(err)
			}
			hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if slices.Contains(test.may, a.GetName()) {
					return authorizer.DecisionAllow, "by role", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			err := NewChecker(Options{Authorizer: hub, NilExecutor: test.mode}).Check(ctx, "c1", "w", named("apps", "deployer"), nil)
			annotations := audit.AuditContextFrom(ctx).GetEventAnnotations()
			if got := annotations[decisionAnnotation] + ": " + annotations[reasonAnnotation]; got != test.want {
				t.Errorf("recorded %q, not %q", got, test.want)
			}
			if allowed := strings.HasPrefix(test.want, allow); allowed != (err == nil) || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func knownAs(server user.Info, err error) func(context.Context) (user.Info, error) {
	return func(context.Context) (user.Info, error) { return server, err }
}

// The name of a work without executor is none that an executor can have, so that
// neither stands for the other.
func TestNamesAreDistinct(t *testing.T) {
	var asked []string
	hub := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.GetName())
		return authorizer.DecisionAllow, "", nil
	})
	checker := NewChecker(Options{Authorizer: hub, NilExecutor: Check})
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	for _, executor := range []*work.ManifestWorkExecutor{nil, named("open-cluster-management-agent", "klusterlet-work-sa"), named("a", "b")} {
		if err := checker.Check(ctx, "c1", "w", executor); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(asked)
	if len(slices.Compact(slices.Clone(asked))) != len(asked) {
		t.Errorf("asked %q", asked)
	}
}
