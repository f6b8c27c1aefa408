package search

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunSharing(m, 2)) }

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// shared returns the fleet that the tests of the package share. Each test deletes its own objects.
func shared(t *testing.T) *fleet {
	t.Helper()
	return &fleet{framework.Shared(t)}
}

// ownFleet starts a fleet for one test, which may kill its processes.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	return &fleet{framework.OwnFleet(t, opts)}
}

// caller is a caller with the methods of this package's tests.
type caller struct{ *framework.Caller }

// newCaller returns a user without permissions.
func newCaller(t *testing.T, hub *localhub.Cluster, name string, groups ...string) *caller {
	t.Helper()
	return &caller{framework.NewCaller(t, hub, name, groups...)}
}

// newAccountCaller returns a ServiceAccount of the hub without permissions.
func newAccountCaller(t *testing.T, hub *localhub.Cluster, namespace, name string) *caller {
	t.Helper()
	return &caller{framework.NewAccountCaller(t, hub, namespace, name)}
}
