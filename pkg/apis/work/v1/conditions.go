package v1

// IsReservedCondition reports whether the agent itself sets conditions of this type, so that condition rules must not.
func IsReservedCondition(conditionType string) bool {
	return conditionType == WorkApplied || conditionType == WorkDeleting || conditionType == ManifestStatusFeedbackSynced
}
