// Package fleetgen makes up fleets for tests and measurements: clusters with the
// kinds, labels, states and relations that real ones have, the same each time for
// the same Options.
package fleetgen
