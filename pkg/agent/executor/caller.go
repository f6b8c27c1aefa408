package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// In mode Review every API server sees the agent as the caller. What one asks of the
// caller, beyond the verbs of the object that is written, is therefore asked here on
// behalf of the executor. An object that an API server judges by the caller in a way
// that cannot be asked for is refused.

const (
	all = "*"
	// aggregatedFor is how long it is remembered who serves a group version.
	aggregatedFor = time.Minute
	// maxGroupVersions bounds how many are remembered: works name any.
	maxGroupVersions = 1000
)

// identified are resources whose objects say who created them, or are about who
// created them.
var identified = map[schema.GroupResource]string{
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: "the requester of the certificate would be the agent",
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       "it would be about the agent",
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  "it would be about the agent",
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   "it would be about the agent",
}

// callerRequests returns what the API server asks of the caller who writes the target,
// in addition to the verbs of the target itself and to what grants take.
func callerRequests(target work.Target) ([]access.Request, error) {
	if target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return nil, nil
	}
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(target.Object.Object, fields...)
		return value
	}
	switch target.Resource.GroupResource().String() {
	case "validatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicies.admissionregistration.k8s.io":
		if _, given, err := unstructured.NestedMap(target.Object.Object, "spec", "paramKind"); err != nil || !given {
			return nil, err
		}
		// The policy can show, in messages, any object of this kind.
		request := access.Request{Verb: "get", Group: all, Version: all, Resource: all, Namespace: all, Name: all}
		if gv, err := schema.ParseGroupVersion(text("spec", "paramKind", "apiVersion")); err == nil {
			kind := gv.WithKind(text("spec", "paramKind", "kind"))
			request.Group, request.Version = gv.Group, gv.Version
			if clientgoscheme.Scheme.Recognizes(kind) {
				plural, _ := meta.UnsafeGuessKindToResource(kind)
				request.Resource = plural.Resource
			}
		}
		return []access.Request{request}, nil
	case "validatingadmissionpolicybindings.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io":
		if _, given, err := unstructured.NestedMap(target.Object.Object, "spec", "paramRef"); err != nil || !given {
			return nil, err
		}
		// The policy says of which kind the parameter is, and may change.
		return []access.Request{{
			Verb: "get", Group: all, Version: all, Resource: all,
			Namespace: cmp.Or(text("spec", "paramRef", "namespace"), all), Name: cmp.Or(text("spec", "paramRef", "name"), all),
		}}, nil
	case "clustertrustbundles.certificates.k8s.io":
		if signer := text("spec", "signerName"); signer != "" {
			return []access.Request{{Verb: "attest", Group: "certificates.k8s.io", Version: all, Resource: "signers", Name: signer}}, nil
		}
	}
	return nil, nil
}

// byCaller returns why the agent must not write a target for an executor, since an
// API server judges it by who writes it; empty if none does.
func (p *pass) byCaller(ctx context.Context, target work.Target) (string, error) {
	if p.mode != Review || target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return "", nil
	}
	if why := identified[target.Resource.GroupResource()]; why != "" {
		return why, nil
	}
	aggregated, err := p.aggregated.serves(ctx, target.Resource.GroupVersion(), p.acting)
	if err != nil || !aggregated {
		return "", err
	}
	// Nothing can be judged in favor of who may do everything.
	held, err := p.rules(ctx, "")
	if err != nil {
		return "", err
	}
	if missing, ok := uncovered(held, everything); ok && len(missing) == 0 {
		return "", nil
	}
	return "an aggregated API server serves this kind and would judge the agent", nil
}

// callerText says that an API server would judge the agent.
func callerText(executor types.NamespacedName, why string) string {
	return fmt.Sprintf("in mode Review the agent does not write it for the executor %s: %s; it takes an agent with --executor-mode=%s", executor, why, Impersonate)
}

// asksText says what the API server asks of the caller and the executor lacks.
func asksText(executor types.NamespacedName, requests []access.Request) string {
	var texts []string
	for _, request := range requests {
		rule := ruleOf(request)
		if request.Name == all {
			rule.ResourceNames = nil
		}
		texts = append(texts, fmt.Sprintf("writing it takes the rule %s in %s", ruleText(rule), strings.TrimSuffix(holder(strings.TrimSuffix(request.Namespace, all)), ",")))
	}
	return fmt.Sprintf("the executor %s lacks what the API server asks of the caller: %s", executor, strings.Join(texts, ", "))
}

// groupVersions remembers which group versions aggregated API servers serve.
type groupVersions struct {
	own dynamic.Interface

	mu    sync.Mutex
	known map[schema.GroupVersion]servedBy
}

type servedBy struct {
	aggregated bool
	asked      time.Time
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// serves reports whether an aggregated API server serves a group version. That takes a
// request, so only a pass that acts asks.
func (g *groupVersions) serves(ctx context.Context, gv schema.GroupVersion, ask bool) (bool, error) {
	if clientgoscheme.Scheme.IsGroupRegistered(gv.Group) {
		return false, nil
	}
	g.mu.Lock()
	known, asked := g.known[gv]
	g.mu.Unlock()
	if !ask || asked && time.Since(known.asked) < aggregatedFor {
		return known.aggregated, nil
	}
	service, err := g.own.Resource(apiServices).Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, &notToldError{err}
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("APIService of %s: %w", gv, err)
	}
	aggregated := false
	if err == nil {
		_, aggregated, _ = unstructured.NestedMap(service.Object, "spec", "service")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil || len(g.known) >= maxGroupVersions {
		g.known = map[schema.GroupVersion]servedBy{}
	}
	g.known[gv] = servedBy{aggregated: aggregated, asked: time.Now()}
	return aggregated, nil
}

// notToldError is the error of an agent that may not see who serves a kind.
type notToldError struct{ error }

func (e *notToldError) Unwrap() error { return e.error }

// untold returns why a target cannot be judged if the agent may not see who serves
// its kind; empty for any other error.
func untold(err error) string {
	var told *notToldError
	if !errors.As(err, &told) {
		return ""
	}
	rule := ruleOf(access.Request{Verb: "get", Group: apiServices.Group, Resource: apiServices.Resource})
	return fmt.Sprintf("the agent may not see whether an aggregated API server serves this kind; it takes a ClusterRole of the agent with the rule %s", ruleText(rule))
}
