package executor

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
)

// stored contains the bindings of all namespaces.
type stored []authentication.ManagedServiceAccountBinding

func (s stored) Bindings(_ context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error) {
	var out []authentication.ManagedServiceAccountBinding
	for _, b := range s {
		if b.Namespace == namespace {
			out = append(out, b)
		}
	}
	return out, nil
}

// reported contains the ServiceAccounts of accounts, by cluster/account.
type reported map[string]types.NamespacedName

func (r reported) ServiceAccount(_ context.Context, namespace, account string) (types.NamespacedName, bool, error) {
	on, known := r[namespace+"/"+account]
	return on, known, nil
}

func bindingOf(namespace, account string, subjects ...rbacv1.Subject) authentication.ManagedServiceAccountBinding {
	return authentication.ManagedServiceAccountBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account + "-users"},
		Spec: authenticationv1alpha1.ManagedServiceAccountBindingSpec{
			Ref: authenticationv1alpha1.ManagedServiceAccountReference{Namespace: namespace, Name: account}, Subjects: subjects,
		},
	}
}

var (
	dave  = rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "dave"}
	team  = rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "team"}
	robot = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "ci", Name: "robot"}

	asDave  = &user.DefaultInfo{Name: "dave", Groups: []string{"system:authenticated"}}
	asTeam  = &user.DefaultInfo{Name: "erin", Groups: []string{"system:authenticated", "team"}}
	asRobot = &user.DefaultInfo{Name: "system:serviceaccount:ci:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci"}}
)

// onClusters contains the accounts deployer of cluster1 and cluster2, admin of cluster1,
// and moved, which the agent of cluster1 reports in another namespace.
var onClusters = reported{
	"cluster1/deployer": {Namespace: "addon", Name: "deployer"},
	"cluster2/deployer": {Namespace: "addon", Name: "deployer"},
	"cluster1/admin":    {Namespace: "addon", Name: "admin"},
	"cluster1/moved":    {Namespace: "kube-system", Name: "moved"},
}

type (
	bindingsReader interface {
		Bindings(ctx context.Context, namespace string) ([]authentication.ManagedServiceAccountBinding, error)
	}
	accountsReader interface {
		ServiceAccount(ctx context.Context, namespace, account string) (on types.NamespacedName, known bool, err error)
	}
)

// checker returns a Checker with an authorizer that always returns the same decision.
func checker(decision authorizer.Decision, bindings bindingsReader, accounts accountsReader) *Checker {
	return &Checker{
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return decision, "", nil
		}),
		Bindings: bindings.Bindings, Accounts: accounts.ServiceAccount,
	}
}

func (c *Checker) checkAs(ctx context.Context, caller user.Info, cluster, namespace, name string) error {
	return c.Check(request.WithUser(ctx, caller), cluster, "work", named(namespace, name))
}

func TestBindings(t *testing.T) {
	deleted := bindingOf("cluster1", "admin", dave)
	now := metav1.Now()
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{"example.com/hold"}
	elsewhere := bindingOf("cluster1", "admin", dave)
	elsewhere.Spec.Ref.Namespace = "cluster2"
	all := []rbacv1.Subject{dave, team, robot}

	for name, test := range map[string]struct {
		bindings  stored
		caller    user.Info
		cluster   string
		namespace string
		account   string
		allowed   bool
	}{
		"user":            {stored{bindingOf("cluster1", "deployer", dave)}, asDave, "cluster1", "addon", "deployer", true},
		"group":           {stored{bindingOf("cluster1", "deployer", team)}, asTeam, "cluster1", "addon", "deployer", true},
		"service account": {stored{bindingOf("cluster1", "deployer", robot)}, asRobot, "cluster1", "addon", "deployer", true},
		"service account by its user name": {stored{bindingOf("cluster1", "deployer",
			rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: asRobot.Name})}, asRobot, "cluster1", "addon", "deployer", true},
		"the last of several": {stored{bindingOf("cluster1", "deployer"), bindingOf("cluster1", "admin", all...), bindingOf("cluster1", "deployer", all...)},
			asDave, "cluster1", "addon", "deployer", true},

		"no binding":                            {nil, asDave, "cluster1", "addon", "deployer", false},
		"no subjects":                           {stored{bindingOf("cluster1", "deployer")}, asDave, "cluster1", "addon", "deployer", false},
		"another user":                          {stored{bindingOf("cluster1", "deployer", dave)}, asTeam, "cluster1", "addon", "deployer", false},
		"a user with the name of the group":     {stored{bindingOf("cluster1", "deployer", team)}, &user.DefaultInfo{Name: "team"}, "cluster1", "addon", "deployer", false},
		"a group with the name of the user":     {stored{bindingOf("cluster1", "deployer", dave)}, &user.DefaultInfo{Name: "x", Groups: []string{"dave"}}, "cluster1", "addon", "deployer", false},
		"a user with the name of the account":   {stored{bindingOf("cluster1", "deployer", robot)}, &user.DefaultInfo{Name: "robot"}, "cluster1", "addon", "deployer", false},
		"a ServiceAccount of another namespace": {stored{bindingOf("cluster1", "deployer", robot)}, &user.DefaultInfo{Name: "system:serviceaccount:ci2:robot"}, "cluster1", "addon", "deployer", false},
		"an account of another group": {stored{bindingOf("cluster1", "deployer", rbacv1.Subject{Kind: "ManagedServiceAccount", Name: "dave"})},
			asDave, "cluster1", "addon", "deployer", false},
		"a binding of another account":                     {stored{bindingOf("cluster1", "admin", all...)}, asDave, "cluster1", "addon", "deployer", false},
		"a binding of another cluster":                     {stored{bindingOf("cluster2", "deployer", all...)}, asDave, "cluster1", "addon", "deployer", false},
		"a binding that is being deleted":                  {stored{deleted}, asDave, "cluster1", "addon", "admin", false},
		"a binding of an account of another namespace":     {stored{elsewhere}, asDave, "cluster1", "addon", "admin", false},
		"an account of the same name in another namespace": {stored{bindingOf("cluster1", "deployer", dave)}, asDave, "cluster1", "kube-system", "deployer", false},
		"an account that is not reported":                  {stored{bindingOf("cluster1", "absent", dave)}, asDave, "cluster1", "addon", "absent", false},
		"the default namespace of a moved account":         {stored{bindingOf("cluster1", "moved", dave)}, asDave, "cluster1", "addon", "moved", false},
		"the reported namespace of a moved account":        {stored{bindingOf("cluster1", "moved", dave)}, asDave, "cluster1", "kube-system", "moved", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := checker(authorizer.DecisionNoOpinion, test.bindings, onClusters).checkAs(t.Context(), test.caller, test.cluster, test.namespace, test.account)
			if test.allowed && err != nil || !test.allowed && !apierrors.IsForbidden(err) {
				t.Errorf("Check() = %v, want allowed = %t", err, test.allowed)
			}
			if err := checker(authorizer.DecisionDeny, test.bindings, onClusters).checkAs(t.Context(), test.caller, test.cluster, test.namespace, test.account); !apierrors.IsForbidden(err) {
				t.Errorf("Check() with an explicit denial of the hub = %v, want Forbidden", err)
			}
		})
	}
}

// If a binding names the caller but has no effect, the error contains the reason.
func TestIneffectiveBinding(t *testing.T) {
	bindings := stored{bindingOf("cluster1", "moved", dave), bindingOf("cluster1", "absent", dave)}
	c := checker(authorizer.DecisionNoOpinion, bindings, onClusters)
	for account, want := range map[string]string{
		"moved":  `ManagedServiceAccountBinding "moved-users" binds the user to ManagedServiceAccount "moved", but has no effect: the account is ServiceAccount kube-system/moved on this cluster`,
		"absent": `ManagedServiceAccountBinding "absent-users" binds the user to ManagedServiceAccount "absent", but has no effect: no agent has reported the account on this cluster`,
	} {
		if err := c.checkAs(t.Context(), asDave, "cluster1", "addon", account); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check() = %v, want %s", err, want)
		}
		// The error for users without a binding does not contain the namespace of the account.
		if err := c.checkAs(t.Context(), asTeam, "cluster1", "addon", account); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "kube-system") {
			t.Errorf("Check() of a user without a binding = %v, want Forbidden without the namespace", err)
		}
	}
}

type failing struct{ err error }

func (f failing) Bindings(context.Context, string) ([]authentication.ManagedServiceAccountBinding, error) {
	return nil, f.err
}

func (f failing) ServiceAccount(context.Context, string, string) (types.NamespacedName, bool, error) {
	return types.NamespacedName{}, false, f.err
}

// A failed check is not a denial.
func TestBindingsUnknown(t *testing.T) {
	broken := failing{errors.New("etcd is down")}
	for name, c := range map[string]*Checker{
		"bindings": checker(authorizer.DecisionNoOpinion, broken, onClusters),
		"accounts": checker(authorizer.DecisionNoOpinion, stored{bindingOf("cluster1", "deployer", dave)}, broken),
	} {
		if err := c.checkAs(t.Context(), asDave, "cluster1", "addon", "deployer"); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "etcd is down") {
			t.Errorf("Check() with broken %s = %v, want an InternalError", name, err)
		}
	}
}
