// Package quota bounds what tenants and managed clusters may store: an Object check
// bounds a single object, and a Counter what a namespace holds of a resource.
//
//	write ──► validation: ObjectLimits ──► admission ──► Counter: reserve ──► etcd ──► settle
//	                                                      ▲                    │
//	                                                      └────── watch ◄──────┘
//
// A Counter knows what is stored from a watch of the store, and what is being written from
// the writes of this process, so that racing writes of one process never exceed a limit.
package quota
