package executor

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunReserved(m, 2, 2)) }

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// shared returns the fleet that tests of the package share. They must leave it unchanged.
func shared(t *testing.T) *fleet {
	t.Helper()
	framework.UseShared(t)
	return framework.Must(audited())(t)
}

// ownFleet starts a fleet for one test. The test is allowed to kill processes of it.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	return &fleet{framework.OwnFleet(t, opts)}
}
