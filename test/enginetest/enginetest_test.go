package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// TestOracle checks that an engine that implements the contract literally passes the suite.
func TestOracle(t *testing.T) {
	Run(t, func(*testing.T) search.Engine { return newOracle() }, nil)
}
