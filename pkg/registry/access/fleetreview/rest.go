// Package fleetreview serves selffleetaccessreviews, fleetaccessreviews and fleetsubjectreviews: virtual resources that
// say who may do what on the clusters of the fleet. Results cover the clusters that the caller may view.
package fleetreview

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	setlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1beta2"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Options are the dependencies of reviews.
type Options struct {
	Index *access.Index
	// Scopes decide which clusters a caller may view.
	Scopes   search.Scopes
	Clusters clusterlisters.ManagedClusterLister
	Sets     setlisters.ManagedClusterSetLister
	// Permissions are named by the bindings that they delivered.
	Permissions rbaclisters.ClusterPermissionLister
	// Synced reports whether all of them are listed.
	Synced func() bool
	// HubCluster is the name of the cluster that is the hub itself. It may be empty.
	HubCluster string
}

const (
	maxChains       = 10
	maxHoldings     = 200
	maxNamed        = 100
	reasonLocalName = "your identity exists on the hub only"
	reasonTooMany   = "the subject has more bindings than the response can contain"
	noteGroups      = "groups are not expanded: RBAC does not know their members"
	noteOthers      = "on the clusters in otherAuthorizers, another authorizer may allow other subjects"
)

// NewSelf returns the storage of selffleetaccessreviews.
func NewSelf(o Options) rest.Storage {
	return &definition.Question[*accessv1alpha1.SelfFleetAccessReview]{
		Base: definition.Base{Object: &accessv1alpha1.SelfFleetAccessReview{}, Singular: "selffleetaccessreview"},
		Answer: func(ctx context.Context, review *accessv1alpha1.SelfFleetAccessReview) (runtime.Object, error) {
			caller, err := authz.Caller(ctx)
			if err != nil {
				return nil, err
			}
			spec := &review.Spec
			a, after, errs := validateRequest(&spec.AccessRequest, &spec.Page, &spec.Clusters, true)
			if len(errs) > 0 {
				return nil, invalid("SelfFleetAccessReview", review.Name, errs)
			}
			clusters, err := o.selected(ctx, &spec.Clusters)
			if err != nil {
				return nil, err
			}
			// The caller may also be called so on managed clusters. On the hub, it is another subject.
			on := func(cluster string) (s access.Subject, none string) {
				if cluster == o.HubCluster {
					return access.Subject{User: caller.GetName(), Groups: caller.GetGroups()}, ""
				}
				if s, known := access.SubjectOf(visibility.ManagedSubjects(caller)); known {
					return s, ""
				}
				return access.Subject{}, reasonLocalName
			}
			review.Status, err = o.review(on, a, clusters, limitOf(&spec.Page), after)
			return review, err
		},
	}
}

// NewAccess returns the storage of fleetaccessreviews.
func NewAccess(o Options) rest.Storage {
	return &definition.Question[*accessv1alpha1.FleetAccessReview]{
		Base: definition.Base{Object: &accessv1alpha1.FleetAccessReview{}, Singular: "fleetaccessreview"},
		Answer: func(ctx context.Context, review *accessv1alpha1.FleetAccessReview) (runtime.Object, error) {
			spec := &review.Spec
			a, after, errs := validateRequest(&spec.AccessRequest, &spec.Page, &spec.Clusters, true)
			if errs = append(errs, validateSubject(spec)...); len(errs) > 0 {
				return nil, invalid("FleetAccessReview", review.Name, errs)
			}
			clusters, err := o.selected(ctx, &spec.Clusters)
			if err != nil {
				return nil, err
			}
			s := access.SubjectFor(spec.User, spec.Groups)
			if account := spec.ServiceAccount; account != nil {
				s = access.SubjectFor(serviceaccount.MakeUsername(account.Namespace, account.Name), nil)
				clusters = slices.DeleteFunc(clusters, func(name string) bool { return name != account.Cluster })
			}
			review.Status, err = o.review(func(string) (access.Subject, string) { return s, "" }, a, clusters, limitOf(&spec.Page), after)
			return review, err
		},
	}
}

// subjectOn returns the subject that a review is about on a cluster, or the reason why there is none.
type subjectOn func(cluster string) (s access.Subject, none string)

// review answers for each of the clusters, which are sorted. Without attributes, it returns what the subject holds.
func (o Options) review(on subjectOn, a *access.Attributes, clusters []string, limit int, after string) (accessv1alpha1.FleetAccessReviewStatus, error) {
	status := accessv1alpha1.FleetAccessReviewStatus{}
	first, found := slices.BinarySearch(clusters, after)
	if found {
		first++
	}
	page := clusters[first:min(first+limit, len(clusters))]
	var entries func(i int, left *budget) accessv1alpha1.ClusterAccess
	if a == nil {
		// The zero subject is in no binding.
		states, _ := o.Index.Holdings(access.Subject{}, clusters, 0)
		for i := range states {
			if !states[i].Known {
				status.Unknown++
			}
		}
		entries = o.holdings(on, page)
	} else {
		answers := o.canI(on, *a, clusters)
		for i := range answers {
			switch answers[i].Decision {
			case access.Allowed:
				status.Allowed++
			case access.Denied:
				status.Denied++
			default:
				status.Unknown++
			}
		}
		entries = func(i int, left *budget) accessv1alpha1.ClusterAccess { return answerOf(&answers[first+i], left) }
	}
	left := newBudget()
	n := 0
	for ; n < len(page) && !left.spent(); n++ {
		entry := entries(n, left)
		if err := o.name(&entry); err != nil {
			return status, err
		}
		status.Clusters = append(status.Clusters, entry)
	}
	if rest := len(clusters) - first - n; rest > 0 {
		status.Continue = continueAfter(page[n-1])
		status.RemainingItemCount = ptr.To(int64(rest))
	}
	return status, nil
}

// name sets the ClusterPermissions that delivered the bindings of an entry.
func (o Options) name(entry *accessv1alpha1.ClusterAccess) error {
	if len(entry.Chains) == 0 && len(entry.Holdings) == 0 {
		return nil
	}
	names, err := o.deliveredBy(entry.Cluster)
	if err != nil || len(names) == 0 {
		return err
	}
	deliverer := func(r accessv1alpha1.RBACReference) string {
		return names[rbac.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}]
	}
	for i := range entry.Chains {
		entry.Chains[i].ClusterPermission = deliverer(entry.Chains[i].Binding)
	}
	for i := range entry.Holdings {
		entry.Holdings[i].ClusterPermission = deliverer(entry.Holdings[i].Binding)
	}
	return nil
}

// split calls ask with the clusters on which the subject is the same: the hub, and the others around it.
func (o Options) split(on subjectOn, clusters []string, ask func(part []string, s access.Subject, none string)) {
	for len(clusters) > 0 {
		n := slices.Index(clusters, o.HubCluster)
		switch n {
		case -1:
			n = len(clusters)
		case 0:
			n = 1
		}
		s, none := on(clusters[0])
		ask(clusters[:n], s, none)
		clusters = clusters[n:]
	}
}

func (o Options) canI(on subjectOn, a access.Attributes, clusters []string) []access.Answer {
	var answers []access.Answer
	o.split(on, clusters, func(part []string, s access.Subject, none string) {
		for _, answer := range o.Index.CanI(s, a, part, maxChains) {
			if none != "" && answer.Decision != access.Unknown {
				answer = access.Answer{Cluster: answer.Cluster, Decision: access.Denied, Reason: none}
			}
			answers = append(answers, answer)
		}
	})
	return answers
}

// holdings returns the entries of a page in a review without attributes.
func (o Options) holdings(on subjectOn, page []string) func(i int, left *budget) accessv1alpha1.ClusterAccess {
	var held []access.ClusterHoldings
	more := false
	o.split(on, page, func(part []string, s access.Subject, none string) {
		list, omitted := o.Index.Holdings(s, part, maxHoldings)
		for _, h := range list {
			if none != "" && h.Known {
				h = access.ClusterHoldings{Cluster: h.Cluster, Known: true, Reason: none}
			}
			held = append(held, h)
		}
		more = more || omitted > 0
	})
	return func(i int, left *budget) accessv1alpha1.ClusterAccess {
		h := &held[i]
		entry := accessv1alpha1.ClusterAccess{Cluster: h.Cluster, Reason: h.Reason}
		switch {
		case !h.Known:
			entry.Decision = accessv1alpha1.AccessUnknown
		case h.Masters:
			entry.Reason = access.ReasonMasters
		}
		for _, holding := range h.Holdings {
			if left.spent() {
				entry.Reason = reasonTooMany
				return entry
			}
			entry.Holdings = append(entry.Holdings, holdingOf(holding, left))
		}
		if more && len(h.Holdings) == maxHoldings {
			entry.Reason = reasonTooMany
		}
		return entry
	}
}

// NewSubjects returns the storage of fleetsubjectreviews.
func NewSubjects(o Options) rest.Storage {
	return &definition.Question[*accessv1alpha1.FleetSubjectReview]{
		Base: definition.Base{Object: &accessv1alpha1.FleetSubjectReview{}, Singular: "fleetsubjectreview"},
		Answer: func(ctx context.Context, review *accessv1alpha1.FleetSubjectReview) (runtime.Object, error) {
			spec := &review.Spec
			a, token, errs := validateRequest(&spec.AccessRequest, &spec.Page, &spec.Clusters, false)
			after, err := subjectAfter(token)
			if err != nil {
				errs = append(errs, err)
			}
			if len(errs) > 0 {
				return nil, invalid("FleetSubjectReview", review.Name, errs)
			}
			clusters, selectErr := o.selected(ctx, &spec.Clusters)
			if selectErr != nil {
				return nil, selectErr
			}
			found := o.Index.WhoCan(access.Who{
				Attributes: *a, Clusters: clusters, Escalations: spec.Escalations, Limit: limitOf(&spec.Page), After: after, MaxGrants: maxChains,
			})
			by, deliveredErr := o.deliveriesTo(clusters)
			if deliveredErr != nil {
				return nil, deliveredErr
			}
			review.Status = subjectStatus(&found, by)
			return review, nil
		},
	}
}

func subjectStatus(found *access.WhoAnswer, by deliveries) accessv1alpha1.FleetSubjectReviewStatus {
	status := accessv1alpha1.FleetSubjectReviewStatus{
		Total: int32(found.Total), Unknown: int32(len(found.Unknown)),
		OtherAuthorizers: found.OtherAuthorizers[:min(len(found.OtherAuthorizers), maxNamed)],
	}
	for _, u := range found.Unknown[:min(len(found.Unknown), maxNamed)] {
		status.UnknownClusters = append(status.UnknownClusters, accessv1alpha1.ClusterAccess{Cluster: u.Cluster, Decision: accessv1alpha1.AccessUnknown, Reason: u.Reason})
	}
	left := newBudget()
	remaining := found.Remaining
	var last rbac.Subject
	for i := range found.Subjects {
		if left.spent() {
			remaining += len(found.Subjects) - i
			break
		}
		last = found.Subjects[i].Subject
		status.Subjects = append(status.Subjects, subjectAccessOf(&found.Subjects[i], by, left))
	}
	if remaining > 0 {
		status.Continue = continueAfterSubject(last)
		status.RemainingItemCount = ptr.To(int64(remaining))
	}
	if slices.ContainsFunc(status.Subjects, func(s accessv1alpha1.SubjectAccess) bool { return s.Kind == "Group" }) {
		status.Notes = append(status.Notes, noteGroups)
	}
	if len(found.OtherAuthorizers) > 0 {
		status.Notes = append(status.Notes, noteOthers)
	}
	return status
}

func limitOf(page *accessv1alpha1.Page) int { return int(ptr.Deref(page.Limit, defaultLimit)) }

func invalid(kind, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(accessv1alpha1.SchemeGroupVersion.WithKind(kind).GroupKind(), name, errs)
}
