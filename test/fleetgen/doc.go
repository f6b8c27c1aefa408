// Package fleetgen generates fleets for tests and measurements: clusters with the kinds, labels, states and
// relations of production clusters. Equal Options generate equal fleets.
package fleetgen
