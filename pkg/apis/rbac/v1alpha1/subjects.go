package v1alpha1

// A subject of this group and kind stands for the ServiceAccount that a
// ManagedServiceAccount has on the managed cluster.
const (
	ManagedServiceAccountGroup = "authentication.open-cluster-management.io"
	ManagedServiceAccountKind  = "ManagedServiceAccount"
)
