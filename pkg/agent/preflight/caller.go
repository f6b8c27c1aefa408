package preflight

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

	"open-cluster-management.io/hub-apiserver/pkg/agent/accessreview"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// In mode Review, each API server sees the agent as the caller. If the API server requires
// permissions of the caller in addition to the verbs on the object, this package checks them for
// the executor. If the result depends on the caller in a way that cannot be checked, the object is
// denied.

const (
	all = "*"
	// aggregatedFor is the time that the result for a group version is cached.
	aggregatedFor = time.Minute
	// maxGroupVersions bounds the cache, because ManifestWorks may name any group version.
	maxGroupVersions = 1000
)

// identified maps resources whose objects identify the caller that creates them to the reason of a
// denial.
var identified = map[schema.GroupResource]string{
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: "the requester of the certificate would be the agent",
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       "it would describe the agent",
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  "it would describe the agent",
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   "it would describe the agent",
}

// callerRequests returns the requests that the API server authorizes for the caller that writes the
// target, in addition to the verbs on the target and to the requirements of grants.
func callerRequests(target work.Target) ([]accessreview.Request, error) {
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
		// The messages of the policy may contain any object of this kind.
		request := accessreview.Request{Verb: "get", Group: all, Version: all, Resource: all, Namespace: all, Name: all}
		if gv, err := schema.ParseGroupVersion(text("spec", "paramKind", "apiVersion")); err == nil {
			kind := gv.WithKind(text("spec", "paramKind", "kind"))
			request.Group, request.Version = gv.Group, gv.Version
			if clientgoscheme.Scheme.Recognizes(kind) {
				plural, _ := meta.UnsafeGuessKindToResource(kind)
				request.Resource = plural.Resource
			}
		}
		return []accessreview.Request{request}, nil
	case "validatingadmissionpolicybindings.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io":
		if _, given, err := unstructured.NestedMap(target.Object.Object, "spec", "paramRef"); err != nil || !given {
			return nil, err
		}
		// The policy defines the kind of the parameter, and may change later.
		return []accessreview.Request{{
			Verb: "get", Group: all, Version: all, Resource: all,
			Namespace: cmp.Or(text("spec", "paramRef", "namespace"), all), Name: cmp.Or(text("spec", "paramRef", "name"), all),
		}}, nil
	case "clustertrustbundles.certificates.k8s.io":
		if signer := text("spec", "signerName"); signer != "" {
			return []accessreview.Request{{Verb: "attest", Group: "certificates.k8s.io", Version: all, Resource: "signers", Name: signer}}, nil
		}
	}
	return nil, nil
}

// byCaller returns the reason why the agent must not write a target for an executor because the
// result depends on the caller. It returns "" if the agent may write the target.
func (p *pass) byCaller(ctx context.Context, target work.Target) (string, error) {
	if p.mode != Review || target.Strategy == workv1.UpdateStrategyTypeReadOnly {
		return "", nil
	}
	if reason := identified[target.Resource.GroupResource()]; reason != "" {
		return reason, nil
	}
	aggregated, err := p.aggregated.serves(ctx, target.Resource.GroupVersion(), p.acting)
	if err != nil || !aggregated {
		return "", err
	}
	// The agent has no more permissions than an executor that holds all permissions.
	held, err := p.rules(ctx, "")
	if err != nil {
		return "", err
	}
	if rbac.CoversEverything(held) {
		return "", nil
	}
	return "an aggregated API server serves this kind and would authorize the agent", nil
}

// callerText describes an object whose result depends on the caller.
func callerText(executor types.NamespacedName, reason string) string {
	return fmt.Sprintf("in mode Review the agent does not write it for the executor %s: %s; start the agent with --executor-mode=%s", executor, reason, Impersonate)
}

// requiredText describes the permissions that the API server requires of the caller and that the
// executor lacks.
func requiredText(executor types.NamespacedName, requests []accessreview.Request) string {
	var texts []string
	for _, request := range requests {
		rule := rbac.RuleFor(request.Attributes())
		if request.Name == all {
			rule.ResourceNames = nil
		}
		texts = append(texts, rbac.RoleText(strings.TrimSuffix(request.Namespace, all), rule))
	}
	return fmt.Sprintf("the executor %s lacks permissions that the API server requires to write it; grant them with %s", executor, strings.Join(texts, ", and with "))
}

// groupVersions caches for each group version whether an aggregated API server serves it.
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

// serves reports whether an aggregated API server serves a group version. It sends a
// request only if mayAsk is set.
func (g *groupVersions) serves(ctx context.Context, gv schema.GroupVersion, mayAsk bool) (bool, error) {
	if clientgoscheme.Scheme.IsGroupRegistered(gv.Group) {
		return false, nil
	}
	g.mu.Lock()
	known, asked := g.known[gv]
	g.mu.Unlock()
	if !mayAsk || asked && time.Since(known.asked) < aggregatedFor {
		return known.aggregated, nil
	}
	service, err := g.own.Resource(apiServices).Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return false, &apiServiceForbiddenError{err}
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

// apiServiceForbiddenError is the error of an agent that is not allowed to get APIServices.
type apiServiceForbiddenError struct{ error }

func (e *apiServiceForbiddenError) Unwrap() error { return e.error }

// apiServiceText returns the message of an apiServiceForbiddenError, or "" for any other error.
func apiServiceText(err error) string {
	var forbidden *apiServiceForbiddenError
	if !errors.As(err, &forbidden) {
		return ""
	}
	rule := rbac.RuleFor(accessreview.Request{Verb: "get", Group: apiServices.Group, Resource: apiServices.Resource}.Attributes())
	return fmt.Sprintf("the agent cannot get APIServices, which show whether an aggregated API server serves this kind; grant it to the agent with %s", rbac.RoleText("", rule))
}
