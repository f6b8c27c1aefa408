package enginetest

import (
	"testing"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// TestOracle shows that an engine that does what the contract says passes the suite.
func TestOracle(t *testing.T) {
	Run(t, func(*testing.T) search.Engine { return newOracle() }, Options{})
}
