package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// The resources whose content the hub requires to know the permissions on the cluster.
var (
	roles               = schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}
	clusterRoles        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}
	roleBindings        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}
	clusterRoleBindings = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}

	accessResources = []schema.GroupResource{roles, clusterRoles, roleBindings, clusterRoleBindings}
)

// omittedProperty contains the reason why the content of an RBAC object is not reported.
const omittedProperty = "accessOmitted"

const (
	// interruption is the time without a watch of RBAC objects after which they may be out of date.
	interruption = time.Minute
	// reviewPeriod is the interval between reviews of the authorizers. reviewValidity is the time for which a result
	// is used.
	reviewPeriod   = 5 * time.Minute
	reviewValidity = 15 * time.Minute
	reviewTimeout  = 10 * time.Second
	reviewRetry    = time.Second
	maxReviewRetry = time.Minute
)

// accessText is an internal property of an RBAC object.
type accessText struct{ name, text string }

func rules(c content) []accessText {
	return []accessText{{inventory.Rules, compact(c.at([]string{"rules"}))}}
}

func bindingContent(c content) []accessText {
	return []accessText{
		{inventory.RoleRef, compact(c.at([]string{"roleRef"}))},
		{inventory.Subjects, compact(c.at([]string{"subjects"}))},
	}
}

// compact returns the JSON of a field, which is a list if it is missing.
func compact(field any) string {
	if field == nil {
		return "[]"
	}
	// The content of an object comes from JSON.
	text, _ := json.Marshal(field)
	return string(text)
}

func (e *extractor) extractAccess(c content, r *record, properties map[string]any) {
	var members []byte
	size := 0
	for _, part := range e.row.access(c) {
		size += len(part.text)
		quoted, _ := json.Marshal(part.text)
		if members != nil {
			members = append(members, ',')
		}
		members = append(fmt.Appendf(members, "%q:", part.name), quoted...)
	}
	if size > inventory.MaxAccessBytes {
		r.omitted = true
		properties[omittedProperty] = fmt.Sprintf("the content has %d bytes; at most %d are reported", size, inventory.MaxAccessBytes)
		return
	}
	r.access = members
}

// accessState is the part of the state that concerns RBAC. The lock of the state guards it.
type accessState struct {
	// accepted is true if the hub stores the content of RBAC objects.
	accepted bool
	// urgent is true if changes of RBAC objects are pending.
	urgent bool
	// objects and omitted are the numbers of RBAC objects with and without their content.
	objects, omitted int
	// describe returns what the collection knows. It is nil if RBAC is not reported. It must not use the state.
	describe func() inventory.AccessReport
	resource *resource
	uid      string
	last     inventory.AccessReport
}

// count adds a record n times.
func (a *accessState) count(r *record, n int) {
	switch {
	case r.access != nil && r.resource.Group == rbacv1.GroupName:
		a.objects += n
	case r.omitted:
		a.omitted += n
	case r.resource != a.resource:
		return
	}
	a.urgent = a.accepted
}

// reports makes the state describe itself in the reports of a cluster.
func (a *accessState) reports(cluster string, describe func() inventory.AccessReport) {
	a.describe = describe
	a.uid = cluster + "/" + inventory.AccessReportID
	a.resource = &resource{
		GroupVersionResource: schema.GroupVersionResource{Group: inventory.AccessGroup, Version: inventory.AccessVersion, Resource: inventory.AccessReportPlural},
		kind:                 inventory.AccessReportKind, reported: true,
	}
}

// describe updates the record that describes the reports. The caller must hold the lock, so that the record and the
// objects are part of the same report.
func (s *state) describe() {
	a := &s.access
	if a.describe == nil {
		return
	}
	known := s.records[a.uid]
	if !a.accepted {
		if known != nil {
			s.drop(known)
		}
		return
	}
	report := a.describe()
	report.Objects = a.objects
	if a.omitted > 0 && report.Complete {
		report.Complete, report.Reason = false, fmt.Sprintf("the content of %d roles or bindings exceeds %d bytes; search for %s:*", a.omitted, inventory.MaxAccessBytes, omittedProperty)
	}
	if known != nil && report == a.last {
		return
	}
	a.last = report
	status := "Complete"
	if !report.Complete {
		status = "Incomplete"
	}
	properties := map[string]string{
		"name": inventory.AccessReportID, "kind": inventory.AccessReportKind, "kind_plural": inventory.AccessReportPlural,
		"apigroup": inventory.AccessGroup, "apiversion": inventory.AccessVersion, "status": status,
	}
	if report.Reason != "" {
		properties["reason"] = report.Reason
	}
	// Neither can fail: both contain only texts, numbers and booleans.
	encoded, _ := json.Marshal(properties)
	text, _ := json.Marshal(report)
	quoted, _ := json.Marshal(string(text))
	s.store(&record{
		resource: a.resource, uid: a.uid, name: inventory.AccessReportID, properties: encoded,
		access: append(fmt.Appendf(nil, "%q:", inventory.Access), quoted...),
	})
}

// accept sets whether the hub stores the content of RBAC objects, and reports whether that has changed.
func (s *state) accept(accepted bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.access.accepted != accepted
	s.access.accepted = accepted
	return changed
}

// authorizers is the result of the last review.
type authorizers struct {
	reviewed time.Time
	others   bool
	// denied is true if the agent lacks permission to review the access of others.
	denied bool
}

// accessSources knows how far the collected RBAC objects can be relied on.
type accessSources struct {
	settings      *Settings
	authorization authorizationclient.AuthorizationV1Interface
	// changed wakes the reporter.
	changed func()

	mu         sync.Mutex
	collectors map[schema.GroupResource]*collector
	authorizers
}

// set registers the collector of a resource, or removes it if c is nil. It must be called before the objects of a
// removed collector are dropped.
func (a *accessSources) set(gr schema.GroupResource, c *collector) {
	if gr.Group != rbacv1.GroupName {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.collectors[gr] = c
}

func (a *accessSources) report() inventory.AccessReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	report := inventory.AccessReport{OtherAuthorizers: a.others, Reason: a.problem()}
	report.Complete = report.Reason == ""
	return report
}

// problem returns the reason why the objects are not complete, or "".
func (a *accessSources) problem() string {
	if len(a.settings.includedNamespaces)+len(a.settings.excludedNamespaces) > 0 {
		return "the configuration of the agent selects namespaces"
	}
	for _, gr := range accessResources {
		switch c := a.collectors[gr]; {
		case !a.settings.reports(gr):
			return fmt.Sprintf("the configuration of the agent excludes %s", gr)
		case c == nil:
			return fmt.Sprintf("the API server has no %s, or they are not found yet", gr)
		case !c.listed.Load() && c.denied.Load():
			return fmt.Sprintf("the agent lacks permission to list %s", gr)
		case !c.listed.Load():
			return fmt.Sprintf("the agent has not listed %s yet", gr)
		case c.interrupted():
			return fmt.Sprintf("the agent cannot watch %s", gr)
		}
	}
	switch {
	case a.denied:
		return "the agent lacks permission to create subjectaccessreviews.authorization.k8s.io"
	case a.reviewed.IsZero():
		return "the authorizers of the API server are not known yet"
	case time.Since(a.reviewed) > reviewValidity:
		return "the API server does not answer the agent"
	}
	return ""
}

// review periodically finds out whether the API server asks other authorizers than RBAC, until ctx ends.
func (a *accessSources) review(ctx context.Context) {
	retry := backoff(reviewRetry, maxReviewRetry)
	for ctx.Err() == nil {
		delay := wait.Jitter(reviewPeriod, 0.2)
		if err := a.reviewOnce(ctx); err != nil {
			delay = retry.Step()
			klog.FromContext(ctx).V(2).Info("Cannot review the authorizers of the cluster", "err", err, "retryAfter", delay)
		} else {
			retry = backoff(reviewRetry, maxReviewRetry)
		}
		reconcile.Pause(ctx, delay, nil)
	}
}

func (a *accessSources) reviewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	// Webhook authorizers make the rules of every user incomplete.
	rules, err := a.authorization.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review rules: %w", err)
	}
	// AlwaysAllow and ABAC do not.
	probe, err := a.authorization.SubjectAccessReviews().Create(ctx, rbac.NewProbe(), metav1.CreateOptions{})
	denied := apierrors.IsForbidden(err)
	if err != nil && !denied {
		return fmt.Errorf("review the access of others: %w", err)
	}
	result := authorizers{reviewed: time.Now(), others: rules.Status.Incomplete, denied: denied}
	if !denied && rbac.ShowsOtherAuthorizers(&probe.Status) {
		result.others = true
	}
	a.mu.Lock()
	a.authorizers = result
	a.mu.Unlock()
	a.changed()
	return nil
}

// watching records whether the last attempt to list or watch succeeded.
func (c *collector) watching(ok bool) {
	if ok {
		c.brokenSince.Store(0)
	} else {
		c.brokenSince.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// interrupted reports whether the objects may be out of date, because they have not been watched for some time.
func (c *collector) interrupted() bool {
	since := c.brokenSince.Load()
	return since != 0 && time.Since(time.Unix(0, since)) > interruption
}
