// Package status computes the status of a ManifestWork from the results of its manifests. It
// makes no request.
package status

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Presence reports whether an object exists.
type Presence int

// Values of Presence.
const (
	Unknown Presence = iota
	Present
	Absent
)

// Result is the result of one manifest in a pass.
type Result struct {
	// Err is the reason why the manifest is not applied.
	Err error
	// Presence reports whether the object exists. PresenceErr is the reason why that is unknown.
	Presence    Presence
	PresenceErr error
	// Feedback, FeedbackErr and Rules are the results of feedback and condition rules.
	Feedback    []workv1.FeedbackValue
	FeedbackErr error
	Rules       []metav1.Condition
	// Note is added to the message of an applied manifest.
	Note string
	// Frozen is true if the manifest is complete and so was not applied.
	Frozen bool
	// Keep is true if feedback values and rule conditions stay as they were last reported.
	Keep bool
}

const (
	// maxMessage bounds the message of a condition, in bytes.
	maxMessage = 2048
	// maxFeedback bounds the values of a ManifestWork, in bytes. A larger status might not be
	// stored.
	maxFeedback = 256 << 10
)

// byRule reports whether a condition of a manifest is the result of a condition rule.
func byRule(condition metav1.Condition) bool {
	return strings.HasPrefix(condition.Reason, "ConditionRule")
}

type conditions struct {
	generation int64
	wanted     []metav1.Condition
}

func (c *conditions) add(kind string, status metav1.ConditionStatus, reason, message string) {
	c.wanted = append(c.wanted, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: Truncate(message), ObservedGeneration: c.generation})
}

// after returns the collected conditions, with the transition times and the order of the given
// conditions.
func (c *conditions) after(before []metav1.Condition) []metav1.Condition {
	result := slices.DeleteFunc(slices.Clone(before), func(condition metav1.Condition) bool {
		return meta.FindStatusCondition(c.wanted, condition.Type) == nil
	})
	for _, condition := range c.wanted {
		meta.SetStatusCondition(&result, condition)
	}
	return result
}

// Manifest returns the status of one manifest. previous is the last reported status, or nil.
func Manifest(previous *workv1.ManifestCondition, generation int64, it *decide.Item, result Result) workv1.ManifestCondition {
	if previous == nil {
		previous, result.Keep = &workv1.ManifestCondition{}, false
	}
	status := workv1.ManifestCondition{ResourceMeta: it.Meta()}
	c := &conditions{generation: generation}

	var ignoreField *decide.IgnoreFieldError
	var frozen *metav1.Condition
	if result.Frozen {
		frozen = meta.FindStatusCondition(previous.Conditions, workv1.WorkApplied)
	}
	switch {
	case frozen != nil:
		// The condition keeps the generation in which the manifest was last applied.
		c.wanted = append(c.wanted, *frozen)
	case result.Err == nil:
		message := "The manifest is applied"
		if result.Note != "" {
			message += ". " + result.Note
		}
		c.add(workv1.WorkApplied, metav1.ConditionTrue, workv1.ReasonAppliedManifestComplete, message)
	case errors.As(result.Err, &ignoreField):
		c.add(workv1.WorkApplied, metav1.ConditionFalse, workv1.ReasonAppliedManifestSSAIgnoreFieldError, Message(result.Err))
	default:
		c.add(workv1.WorkApplied, metav1.ConditionFalse, cmp.Or(decide.GuardReason(result.Err), workv1.ReasonAppliedManifestFailed), Message(result.Err))
	}

	rules := result.Rules
	status.StatusFeedbacks.Values = result.Feedback
	if result.Keep {
		status.StatusFeedbacks = *previous.StatusFeedbacks.DeepCopy()
		rules = slices.DeleteFunc(slices.Clone(previous.Conditions), func(condition metav1.Condition) bool {
			return !byRule(condition) || condition.Type == workv1.WorkAvailable
		})
	}
	for _, rule := range rules {
		// A rule decides only whether an existing object is available.
		if rule.Type != workv1.WorkAvailable || result.Presence == Present {
			c.add(rule.Type, rule.Status, rule.Reason, rule.Message)
		}
	}
	switch {
	case meta.FindStatusCondition(c.wanted, workv1.WorkAvailable) != nil:
	case result.Presence == Present:
		c.add(workv1.WorkAvailable, metav1.ConditionTrue, workv1.ReasonResourceAvailable, "The object exists")
	case result.Presence == Absent:
		c.add(workv1.WorkAvailable, metav1.ConditionFalse, workv1.ReasonResourceNotAvailable, "The object does not exist")
	case it.GVR.Resource == "":
		c.add(workv1.WorkAvailable, metav1.ConditionUnknown, workv1.ReasonIncompleteResourceMeta, "The resource of the manifest is unknown")
	default:
		message := "The object was not read"
		if result.PresenceErr != nil {
			message = Message(result.PresenceErr)
		}
		c.add(workv1.WorkAvailable, metav1.ConditionUnknown, workv1.ReasonFetchingResourceFailed, message)
	}

	nothing, isNothing := result.FeedbackErr.(*decide.SelectsNothing)
	switch {
	case result.Keep:
		if synced := meta.FindStatusCondition(previous.Conditions, workv1.ManifestStatusFeedbackSynced); synced != nil {
			c.add(synced.Type, synced.Status, synced.Reason, synced.Message)
		}
	case len(it.Config.FeedbackRules) == 0:
		c.add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionTrue, workv1.ReasonNoStatusFeedbackSynced, "No feedback rules")
	case result.Presence != Present:
		c.add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed, "The object was not read")
	case isNothing:
		// Fields such as readyReplicas do not always exist.
		c.add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionTrue, workv1.ReasonStatusFeedbackSynced, nothing.Error())
	case result.FeedbackErr != nil:
		c.add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed, Message(result.FeedbackErr))
	default:
		c.add(workv1.ManifestStatusFeedbackSynced, metav1.ConditionTrue, workv1.ReasonStatusFeedbackSynced, "All values are reported")
	}
	status.Conditions = c.after(previous.Conditions)
	return status
}

// boundFeedback removes values beyond maxFeedback, starting with the last manifest.
func boundFeedback(manifests []workv1.ManifestCondition) {
	left := maxFeedback
	for i := range manifests {
		values := manifests[i].StatusFeedbacks.Values
		for j := range values {
			left -= decide.SizeOf(values[j].Name, &values[j].Value)
		}
		if left >= 0 || len(values) == 0 {
			continue
		}
		manifests[i].StatusFeedbacks.Values = nil
		if synced := meta.FindStatusCondition(manifests[i].Conditions, workv1.ManifestStatusFeedbackSynced); synced != nil {
			changed := *synced
			changed.Status, changed.Reason = metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed
			changed.Message = fmt.Sprintf("Not reported: the values of the ManifestWork take more than %d bytes", maxFeedback)
			meta.SetStatusCondition(&manifests[i].Conditions, changed)
		}
	}
}

// Work returns the status of a ManifestWork from the results of its items. If the ManifestWork is
// complete, frozen is true, and new generations are not applied.
func Work(before workv1.ManifestWorkStatus, generation int64, items []*decide.Item, results []Result, frozen bool) workv1.ManifestWorkStatus {
	manifests := make([]workv1.ManifestCondition, len(items))
	for i, it := range items {
		manifests[i] = Manifest(decide.Previous(before.ResourceStatus.Manifests, it.Meta()), generation, it, results[i])
	}
	boundFeedback(manifests)
	return aggregated(before, generation, manifests, frozen)
}

func aggregated(before workv1.ManifestWorkStatus, generation int64, manifests []workv1.ManifestCondition, frozen bool) workv1.ManifestWorkStatus {
	c := &conditions{generation: generation}
	applied, detail := aggregate(manifests, workv1.WorkApplied)
	if previous := meta.FindStatusCondition(before.Conditions, workv1.WorkApplied); frozen && previous != nil {
		c.wanted = append(c.wanted, *previous)
	} else if applied == metav1.ConditionTrue {
		c.add(workv1.WorkApplied, applied, workv1.ReasonAppliedManifestWorkComplete, "All manifests are applied")
	} else {
		c.add(workv1.WorkApplied, metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, detail)
	}
	switch available, detail := aggregate(manifests, workv1.WorkAvailable); available {
	case metav1.ConditionTrue:
		c.add(workv1.WorkAvailable, available, workv1.ReasonResourcesAvailable, "All objects are available")
	case metav1.ConditionFalse:
		c.add(workv1.WorkAvailable, available, workv1.ReasonResourcesNotAvailable, detail)
	default:
		c.add(workv1.WorkAvailable, available, workv1.ReasonResourcesStatusUnknown, detail)
	}
	for _, manifest := range manifests {
		for _, condition := range manifest.Conditions {
			kind := condition.Type
			if !byRule(condition) || meta.FindStatusCondition(c.wanted, kind) != nil {
				continue
			}
			value, detail := aggregate(manifests, kind)
			if value == metav1.ConditionTrue {
				detail = fmt.Sprintf("All manifests with a rule for condition %s have it", kind)
			}
			c.add(kind, value, workv1.ReasonConditionRulesAggregated, detail)
		}
	}
	return workv1.ManifestWorkStatus{
		Conditions:     c.after(before.Conditions),
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: manifests},
	}
}

// aggregate combines a condition of the manifests that have it. The result is False if any is
// False, otherwise Unknown if any is Unknown, otherwise True. The detail names the first manifest
// with that status.
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
			first[condition.Status] = decide.Describe(manifest.ResourceMeta) + ": " + condition.Message
		}
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		if counts[status] > 0 {
			return status, fmt.Sprintf("%d of %d manifests: %s is %s; %s", counts[status], len(manifests), kind, status, first[status])
		}
	}
	return metav1.ConditionTrue, ""
}
