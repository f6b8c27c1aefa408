package decide

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Config is the merged and defaulted manifestConfigs of one manifest.
type Config struct {
	Strategy       workv1.UpdateStrategy  `json:"strategy"`
	FeedbackRules  []workv1.FeedbackRule  `json:"feedbackRules,omitempty"`
	ConditionRules []workv1.ConditionRule `json:"conditionRules,omitempty"`
}

// Applier returns the field manager of server-side apply.
func (c Config) Applier() string {
	return cmp.Or(ptr.Deref(c.Strategy.ServerSideApply, workv1.ServerSideApplyConfig{}).FieldManager, workv1.DefaultFieldManager)
}

// ConfigFor merges the options that match an object. The first option that sets a field takes effect. All
// objects are watched, regardless of the scrape type.
func ConfigFor(options []workv1.ManifestConfigOption, id ObjectID) Config {
	var config Config
	for _, option := range options {
		if !identifierMatches(option.ResourceIdentifier, id) {
			continue
		}
		if config.Strategy.Type == "" && option.UpdateStrategy != nil {
			config.Strategy = *option.UpdateStrategy.DeepCopy()
		}
		if len(config.FeedbackRules) == 0 {
			config.FeedbackRules = option.FeedbackRules
		}
		if len(config.ConditionRules) == 0 {
			config.ConditionRules = option.ConditionRules
		}
	}
	if config.Strategy.Type == "" {
		config.Strategy.Type = workv1.UpdateStrategyTypeUpdate
	}
	return config
}

// identifierMatches reports whether a pattern matches an object. Group and resource must be equal.
// Name and namespace may contain the wildcard *.
func identifierMatches(pattern workv1.ResourceIdentifier, id ObjectID) bool {
	return ptr.Deref(pattern.Group, "") == id.Group && pattern.Resource == id.Resource &&
		wildcardMatches(ptr.Deref(pattern.Namespace, ""), id.Namespace) && wildcardMatches(pattern.Name, id.Name)
}

// wildcardMatches reports whether text matches pattern. The wildcard * matches any number of
// characters. A pattern that is longer than any name does not match.
func wildcardMatches(pattern, text string) bool {
	if len(pattern) > limits.MaxNameBytes {
		return false
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	// The first occurrence of each part leaves the longest text for the following parts.
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// Orphans reports whether an object stays on the managed cluster when its manifest or its
// ManifestWork is removed.
func Orphans(option *workv1.DeleteOption, id ObjectID) bool {
	switch {
	case option == nil:
		return false
	case option.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan:
		return true
	case option.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan || option.SelectivelyOrphan == nil:
		return false
	}
	return slices.ContainsFunc(option.SelectivelyOrphan.OrphaningRules, func(rule workv1.OrphaningRule) bool {
		return id == ObjectID{Group: ptr.Deref(rule.Group, ""), Resource: rule.Resource, Namespace: ptr.Deref(rule.Namespace, ""), Name: rule.Name}
	})
}
