// Package handover contains what the commands share that move the objects of a hub: from OCM to the server, and from a
// lost hub to its successor. It names the kinds, imports objects into the server, and keeps its controllers from running.
package handover
