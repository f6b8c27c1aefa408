// Package inventory reports what there is on one cluster to its hub, where it can
// be searched for.
//
// Every resource that can be listed and watched has a collector (collector.go),
// started and stopped as discovery (discovery.go) finds the resource. Of an object only a record
// stays in memory: its properties as JSON, and by what it refers to other objects. Which
// properties and references a kind has is said in table.go and relations.go; objects
// of kinds that are not there, of Secrets and of ConfigMaps are read as
// metadata only, so that their content never gets into this process.
//
// The state (state.go, relate.go) holds the records, the edges between them, and what of
// both the hub has yet to learn. What is pending is derived from that, so it does not
// grow with the time that the hub is away. The reporter (reporter.go) sends it: everything at
// first, then what changes, and everything again when the totals in
// the hub's answer are not those of the agent.
//
// A hub that does not serve inventories is asked again every few minutes, and the managed
// cluster is not read for it.
package inventory
