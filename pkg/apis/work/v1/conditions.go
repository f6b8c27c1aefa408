package v1

// IsReservedCondition reports whether the agent itself sets a condition of this type, so
// that no condition rule may.
func IsReservedCondition(conditionType string) bool {
	switch conditionType {
	case WorkApplied, WorkDeleting, ManifestStatusFeedbackSynced:
		return true
	}
	return false
}
