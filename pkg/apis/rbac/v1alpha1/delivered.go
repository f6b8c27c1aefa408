package v1alpha1

// Delivered returns the spec that is delivered to the managed cluster and its
// generation: the present one, unless it waits for approval. Then it is the one
// that was delivered before, or nil if there was none.
func (cp *ClusterPermission) Delivered() (*ClusterPermissionSpec, int64) {
	approval := cp.Status.Approval
	switch {
	case approval == nil || approval.Pending == nil:
		return &cp.Spec, cp.Generation
	case approval.Delivered == nil:
		return nil, 0
	}
	return &approval.Delivered.Spec, approval.Delivered.Generation
}
