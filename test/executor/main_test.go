package executor

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.Run(m)) }

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// shared returns the fleet of all tests of the package that leave it as they found it.
func shared(t *testing.T) *fleet {
	t.Helper()
	return &fleet{framework.Shared(t)}
}

// ownFleet starts a fleet that the test may kill parts of.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	return &fleet{framework.OwnFleet(t, opts)}
}
