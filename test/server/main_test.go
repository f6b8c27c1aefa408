package server

import (
	"os"
	"testing"

	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunSharing(m, 2)) }

// fleet is a fleet with the methods of this package's tests.
type fleet struct{ *framework.Fleet }

// ownFleet starts a fleet for one test, which may kill its processes.
func ownFleet(t *testing.T, opts localhub.FleetOptions) *fleet {
	t.Helper()
	return &fleet{framework.OwnFleet(t, opts)}
}
