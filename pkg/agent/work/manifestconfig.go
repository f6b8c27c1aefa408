package work

import (
	"strings"

	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// manifestConfig is what the manifestConfigs of a work say about one manifest,
// with defaults filled in.
type manifestConfig struct {
	Strategy       workv1.UpdateStrategy     `json:"strategy"`
	FeedbackRules  []workv1.FeedbackRule     `json:"feedbackRules,omitempty"`
	ScrapeType     workv1.FeedbackScrapeType `json:"scrapeType"`
	ConditionRules []workv1.ConditionRule    `json:"conditionRules,omitempty"`
}

// configFor merges the entries that match an object: the first that sets a
// field decides it, but for the scrape type, which is that of the last. Objects
// are watched whatever it is, so values are never older than a watch.
func configFor(options []workv1.ManifestConfigOption, id objectID) manifestConfig {
	var config manifestConfig
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
		if option.FeedbackScrapeType != "" {
			config.ScrapeType = option.FeedbackScrapeType
		}
		if len(config.ConditionRules) == 0 {
			config.ConditionRules = option.ConditionRules
		}
	}
	if config.Strategy.Type == "" {
		config.Strategy.Type = workv1.UpdateStrategyTypeUpdate
	}
	if config.ScrapeType == "" {
		config.ScrapeType = workv1.FeedbackPollType
	}
	return config
}

// identifierMatches compares group and resource exactly; name and namespace of
// the pattern may contain the wildcard *.
func identifierMatches(pattern workv1.ResourceIdentifier, id objectID) bool {
	return ptr.Deref(pattern.Group, "") == id.group && pattern.Resource == id.resource &&
		wildcardMatches(ptr.Deref(pattern.Namespace, ""), id.namespace) && wildcardMatches(pattern.Name, id.name)
}

// wildcardMatches reports whether text matches pattern, in which each * stands
// for any number of characters. A pattern that is longer than any name matches nothing.
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
	// Taking each middle part at its first occurrence leaves the most for the rest.
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}

// orphans reports whether an object of a work with this delete option stays on
// the managed cluster when it leaves the work or the work is deleted.
func orphans(option *workv1.DeleteOption, id objectID) bool {
	if option == nil {
		return false
	}
	switch option.PropagationPolicy {
	case workv1.DeletePropagationPolicyTypeOrphan:
		return true
	case workv1.DeletePropagationPolicyTypeSelectivelyOrphan:
		if option.SelectivelyOrphan == nil {
			return false
		}
		for _, rule := range option.SelectivelyOrphan.OrphaningRules {
			if (objectID{ptr.Deref(rule.Group, ""), rule.Resource, ptr.Deref(rule.Namespace, ""), rule.Name}) == id {
				return true
			}
		}
	}
	return false
}
