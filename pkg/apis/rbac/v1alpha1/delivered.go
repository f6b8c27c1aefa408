package v1alpha1

// Delivered returns the spec that is delivered to the managed cluster, and its generation. While the current spec waits
// for approval, this is the last delivered spec, or nil if there is none.
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
