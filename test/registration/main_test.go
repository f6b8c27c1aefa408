package registration

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunReserved(m, 1, 3)) }

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// ownFleet starts a fleet for one test. The test may kill its processes.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	return &fleet{framework.OwnFleet(t, opts)}
}
