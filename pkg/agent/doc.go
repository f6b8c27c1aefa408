// Package agent is the managed-cluster agent: it connects one managed cluster to its hub. The
// subpackages contain the controllers. This package turns flags into clients and runs the
// controllers.
package agent
