package work

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// presence says whether an object exists.
type presence int

const (
	presenceUnknown presence = iota
	present
	absent
)

// result is what came of one manifest in a pass.
type result struct {
	// err is why the manifest is not applied, nil if it is.
	err error
	// presence says whether the object exists, and presenceErr why that is not known.
	presence    presence
	presenceErr error
	// feedback, feedbackErr and rules are what the live object gives.
	feedback    []workv1.FeedbackValue
	feedbackErr error
	rules       []metav1.Condition
	// frozen is whether the manifest is complete and so was not applied.
	frozen bool
	// keep leaves feedback and rule-made conditions as they were reported before.
	keep bool
}

// maxMessage bounds the message of a condition.
const maxMessage = 2048

func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}

// isRuleMade reports whether a condition of a manifest comes from a condition rule.
func isRuleMade(condition metav1.Condition) bool {
	return strings.HasPrefix(condition.Reason, "ConditionRule")
}

// previousOf finds what was reported of a manifest before.
func previousOf(reported []workv1.ManifestCondition, about workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	for i := range reported {
		other := reported[i].ResourceMeta
		other.Ordinal = about.Ordinal
		// The resource is not known while the kind is not served.
		if about.Resource == "" || other.Resource == "" {
			other.Resource = about.Resource
		}
		if other == about {
			return &reported[i]
		}
	}
	return nil
}

// manifestStatus returns the status of one manifest. Conditions keep the time
// of their last transition from what was reported before.
func manifestStatus(previous *workv1.ManifestCondition, generation int64, it *item, res result) workv1.ManifestCondition {
	status := workv1.ManifestCondition{ResourceMeta: it.meta()}
	var wanted []metav1.Condition
	add := func(kind string, value metav1.ConditionStatus, reason, message string) {
		wanted = append(wanted, metav1.Condition{Type: kind, Status: value, Reason: reason, Message: truncate(message), ObservedGeneration: generation})
	}

	var ignoreField *ignoreFieldError
	var frozen *metav1.Condition
	if res.frozen && previous != nil {
		frozen = meta.FindStatusCondition(previous.Conditions, workv1.WorkApplied)
	}
	switch {
	case frozen != nil:
		// It was applied in the generation that this says, and will not be again.
		wanted = append(wanted, *frozen)
	case res.err == nil:
		add(workv1.WorkApplied, metav1.ConditionTrue, workv1.ReasonAppliedManifestComplete, "The manifest is applied")
	case errors.As(res.err, &ignoreField):
		add(workv1.WorkApplied, metav1.ConditionFalse, workv1.ReasonAppliedManifestSSAIgnoreFieldError, res.err.Error())
	default:
		add(workv1.WorkApplied, metav1.ConditionFalse, cmp.Or(guardReason(res.err), workv1.ReasonAppliedManifestFailed), res.err.Error())
	}

	rules := res.rules
	status.StatusFeedbacks.Values = res.feedback
	if res.keep && previous != nil {
		status.StatusFeedbacks = *previous.StatusFeedbacks.DeepCopy()
		rules = nil
		for _, condition := range previous.Conditions {
			if isRuleMade(condition) && condition.Type != workv1.WorkAvailable {
				rules = append(rules, condition)
			}
		}
	}
	ruledAvailable := false
	for _, rule := range rules {
		// A rule may say when an object is available, but not that an absent one is.
		if rule.Type == workv1.WorkAvailable {
			if res.presence != present {
				continue
			}
			ruledAvailable = true
		}
		add(rule.Type, rule.Status, rule.Reason, rule.Message)
	}
	switch {
	case ruledAvailable:
	case res.presence == present:
		add(workv1.WorkAvailable, metav1.ConditionTrue, workv1.ReasonResourceAvailable, "The object exists")
	case res.presence == absent:
		add(workv1.WorkAvailable, metav1.ConditionFalse, workv1.ReasonResourceNotAvailable, "The object does not exist")
	case it.gvr.Resource == "":
		add(workv1.WorkAvailable, metav1.ConditionUnknown, workv1.ReasonIncompleteResourceMeta, "The object cannot be looked up")
	default:
		message := "The object was not read"
		if res.presenceErr != nil {
			message = res.presenceErr.Error()
		}
		add(workv1.WorkAvailable, metav1.ConditionUnknown, workv1.ReasonFetchingResourceFailed, message)
	}

	switch {
	case res.keep && previous != nil:
		if synced := meta.FindStatusCondition(previous.Conditions, workv1.ManifestStatusFeedbackSynced); synced != nil {
			add(synced.Type, synced.Status, synced.Reason, synced.Message)
		}
	case len(it.config.FeedbackRules) == 0:
		add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionTrue, workv1.ReasonNoStatusFeedbackSynced, "No feedback rules")
	case res.presence != present:
		add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed, "The object was not read")
	case res.feedbackErr != nil:
		add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed, res.feedbackErr.Error())
	default:
		add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionTrue, workv1.ReasonStatusFeedbackSynced, "Every value is reported")
	}

	var before []metav1.Condition
	if previous != nil {
		before = previous.Conditions
	}
	status.Conditions = conditionsFrom(before, wanted)
	return status
}

// conditionsFrom returns the wanted conditions, each with the time of its last
// transition. They keep the order they had before.
func conditionsFrom(before, wanted []metav1.Condition) []metav1.Condition {
	var conditions []metav1.Condition
	for _, condition := range before {
		if slices.ContainsFunc(wanted, func(w metav1.Condition) bool { return w.Type == condition.Type }) {
			conditions = append(conditions, condition)
		}
	}
	for _, condition := range wanted {
		meta.SetStatusCondition(&conditions, condition)
	}
	return conditions
}

// workStatus returns the status of a work from that of its manifests. A work
// that is frozen, since it is complete, does not apply new generations.
func workStatus(before workv1.ManifestWorkStatus, generation int64, manifests []workv1.ManifestCondition, frozen bool) workv1.ManifestWorkStatus {
	var wanted []metav1.Condition
	add := func(kind string, value metav1.ConditionStatus, reason, message string) {
		wanted = append(wanted, metav1.Condition{Type: kind, Status: value, Reason: reason, Message: truncate(message), ObservedGeneration: generation})
	}

	applied, detail := aggregate(manifests, workv1.WorkApplied)
	if previous := meta.FindStatusCondition(before.Conditions, workv1.WorkApplied); frozen && previous != nil {
		wanted = append(wanted, *previous)
	} else if applied == metav1.ConditionTrue {
		add(workv1.WorkApplied, applied, workv1.ReasonAppliedManifestWorkComplete, "Every manifest is applied")
	} else {
		add(workv1.WorkApplied, metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, detail)
	}
	switch available, detail := aggregate(manifests, workv1.WorkAvailable); available {
	case metav1.ConditionTrue:
		add(workv1.WorkAvailable, available, workv1.ReasonResourcesAvailable, "Every object is available")
	case metav1.ConditionFalse:
		add(workv1.WorkAvailable, available, workv1.ReasonResourcesNotAvailable, detail)
	default:
		add(workv1.WorkAvailable, available, workv1.ReasonResourcesStatusUnknown, detail)
	}

	var ruled []string
	for _, manifest := range manifests {
		for _, condition := range manifest.Conditions {
			if isRuleMade(condition) && condition.Type != workv1.WorkAvailable && !slices.Contains(ruled, condition.Type) {
				ruled = append(ruled, condition.Type)
			}
		}
	}
	for _, kind := range ruled {
		value, detail := aggregate(manifests, kind)
		if value == metav1.ConditionTrue {
			detail = "Every manifest with a rule for it is " + kind
		}
		add(kind, value, workv1.ReasonConditionRulesAggregated, detail)
	}
	return workv1.ManifestWorkStatus{
		Conditions:     conditionsFrom(before.Conditions, wanted),
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: manifests},
	}
}

// aggregate combines a condition of the manifests that have it: False if any
// is, else Unknown if any is, else True. The detail names the first manifest
// that decided.
func aggregate(manifests []workv1.ManifestCondition, kind string) (metav1.ConditionStatus, string) {
	counts := map[metav1.ConditionStatus]int{}
	first := map[metav1.ConditionStatus]string{}
	for _, manifest := range manifests {
		condition := meta.FindStatusCondition(manifest.Conditions, kind)
		if condition == nil {
			continue
		}
		counts[condition.Status]++
		if counts[condition.Status] == 1 {
			first[condition.Status] = describe(manifest.ResourceMeta) + ": " + condition.Message
		}
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		if counts[status] > 0 {
			return status, fmt.Sprintf("%d of %d manifests: %s is %s; %s", counts[status], len(manifests), kind, status, first[status])
		}
	}
	return metav1.ConditionTrue, ""
}

func describe(about workv1.ManifestResourceMeta) string {
	name := about.Name
	if about.Namespace != "" {
		name = about.Namespace + "/" + name
	}
	if about.Kind == "" {
		return fmt.Sprintf("manifest %d", about.Ordinal)
	}
	return about.Kind + " " + name
}
