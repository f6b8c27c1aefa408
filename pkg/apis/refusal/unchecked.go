package refusal

// UncheckedError is the error of a permission that was neither found nor denied, because the check of a request or of an
// object has a limit.
type UncheckedError struct {
	// Reason is the limit, and how the permission can be granted so that the check stays below it.
	Reason string
}

func (e *UncheckedError) Error() string { return "not checked: " + e.Reason }
