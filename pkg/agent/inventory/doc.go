// Package inventory reports the resources of one cluster to its hub, which makes them searchable.
//
// Discovery (discovery.go) starts and stops one collector (collector.go) for each resource that can
// be listed and watched. Only a record of each object stays in memory: its properties as JSON and
// its references to other objects. The tables in table.go and relations.go define the properties
// and references of each kind. For kinds that are not in the tables, for Secrets and for
// ConfigMaps, the agent reads only metadata, so their content never enters this process.
//
// The state (state.go, relations.go) holds the records, the edges that were reported, and the records that
// have changed or whose edges may have changed. A report compares both, and is repeated until the hub has
// applied it, so changes do not accumulate while the hub is unavailable. The reporter (reporter.go) sends a full
// report first and then the changes. If the totals in the response of the hub differ from the
// totals of the agent, it sends a full report again.
//
// If a hub does not serve inventories, the agent retries every few minutes and does not
// read the managed cluster in the meantime.
package inventory
