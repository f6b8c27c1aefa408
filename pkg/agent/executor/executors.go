package executor

import (
	"context"
	"fmt"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// maxAccounts bounds the executors that are kept. To forget one costs no request.
const maxAccounts = 500

// Config configures Executors.
type Config struct {
	// Managed is the agent's configuration for the managed cluster. Clients that impersonate share
	// its connections and its rate limiter.
	Managed *rest.Config
	// Own and Authorization are clients that act as the agent.
	Own           dynamic.Interface
	Authorization authorizationv1client.AuthorizationV1Interface
}

// Executors selects the clients with which ManifestWorks act. It may be used concurrently.
type Executors struct {
	config  Config
	reviews *reviews

	mu       sync.Mutex
	accounts *lru.Cache
}

var _ work.Executors = (*Executors)(nil)

// New returns Executors. It sends no request.
func New(config Config) *Executors {
	return &Executors{config: config, reviews: newReviews(config.Authorization), accounts: lru.New(maxAccounts)}
}

type account struct {
	name types.NamespacedName
	// client acts as the executor. rules reads its own permissions.
	client dynamic.Interface
	rules  authorizationv1client.SelfSubjectRulesReviewInterface
	// slots limits its reviews in flight.
	slots chan struct{}
}

func (e *Executors) account(name types.NamespacedName) (*account, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.accounts.Get(name); ok {
		return known.(*account), nil
	}
	config := rest.CopyConfig(e.config.Managed)
	// The API server adds the groups of the ServiceAccount, even if it does not exist.
	config.Impersonate = rest.ImpersonationConfig{UserName: userName(name)}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	a := &account{name: name, client: client, rules: authorization.SelfSubjectRulesReviews(), slots: make(chan struct{}, parallelism)}
	e.accounts.Add(name, a)
	return a, nil
}

func userName(account types.NamespacedName) string {
	return serviceaccount.MakeUsername(account.Namespace, account.Name)
}

func groups(account types.NamespacedName) []string {
	return append(serviceaccount.MakeGroupNames(account.Namespace), "system:authenticated")
}

// Admit implements work.Executors. It rejects a ManifestWork if its executor lacks permissions for
// any of the objects, or if the agent can neither check them nor act as the executor.
func (e *Executors) Admit(ctx context.Context, request work.AdmitRequest) (dynamic.Interface, error) {
	name, named := work.ExecutorOf(request.Work)
	if !named {
		return e.config.Own, nil
	}
	if _, _, err := serviceaccount.SplitUsername(userName(name)); err != nil {
		return nil, &work.Refusal{Message: fmt.Sprintf("not applied: spec.executor names %q, which is not a valid ServiceAccount", name)}
	}
	a, err := e.account(name)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the executor %s: %w", name, err)
	}
	impersonation := authorizationv1.ResourceAttributes{Verb: "impersonate", Version: "v1", Resource: "serviceaccounts", Namespace: name.Namespace, Name: name.Name}
	decisions, err := e.reviews.decide(ctx, a, agentItself, []authorizationv1.ResourceAttributes{impersonation}, request.Fresh)
	if apierrors.IsForbidden(err) {
		return nil, &work.Refusal{Message: agentText(name, err, reviewItself)}
	}
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", name, err)
	}
	if !decisions[impersonation].allowed {
		return nil, &work.Refusal{Message: fmt.Sprintf("not applied: the agent cannot impersonate the executor %s; grant it to the agent with %s",
			name, rbac.RoleText(name.Namespace, rbac.RuleFor(impersonation)))}
	}
	c := &check{Executors: e, account: a, fresh: request.Fresh}
	denied, err := c.judge(ctx, request.Targets)
	if apierrors.IsForbidden(err) {
		return nil, &work.Refusal{Message: agentText(name, err, reviewOthers, readRoles)}
	}
	if err != nil {
		return nil, fmt.Errorf("executor %s: %w", name, err)
	}
	if len(denied) > 0 {
		klog.FromContext(ctx).V(2).Info("The executor lacks permissions to apply the ManifestWork", "executor", name.String(), "denied", len(denied))
		return nil, &work.Refusal{
			Message: fmt.Sprintf("not applied: the executor %s lacks permissions for %d of %d manifests; a ManifestWork is applied completely or not at all",
				name, len(denied), len(request.Work.Spec.Workload.Manifests)),
			Manifests: denied,
		}
	}
	return a.client, nil
}

// Rules that the agent needs to check the permissions of executors, and that executors need to read
// their own. Clusters grant reviews of the caller itself to all users, unless an administrator removes that.
var (
	reviewItself = reviewRule("selfsubjectaccessreviews")
	reviewOthers = reviewRule("subjectaccessreviews")
	readOwnRules = reviewRule("selfsubjectrulesreviews")
	readRoles    = rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{roles, clusterRoles}, Verbs: []string{"get"}}
)

func reviewRule(resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{authorizationv1.GroupName}, Resources: []string{resource}, Verbs: []string{"create"}}
}

// agentText is the message if the agent is not allowed to check the permissions of executors.
func agentText(executor types.NamespacedName, err error, rules ...rbacv1.PolicyRule) string {
	return fmt.Sprintf("not applied: the agent cannot check the permissions of the executor %s; grant it to the agent with %s: %v",
		executor, rbac.RoleText("", rules...), err)
}

// ownRulesText is the message if an executor is not allowed to read its own rules.
func ownRulesText(executor types.NamespacedName, err error) string {
	return fmt.Sprintf("not applied: the executor %s cannot read its own permissions, which Roles and bindings require; grant it to the executor with %s: %v",
		executor, rbac.RoleText("", readOwnRules), err)
}
