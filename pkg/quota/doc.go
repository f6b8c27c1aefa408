// Package quota bounds the objects that tenants and managed clusters store: ObjectLimits
// bound a single object, and a Counter bounds the objects of a resource in a namespace.
//
//	write ──► validation: ObjectLimits ──► admission ──► Counter: reserve ──► etcd ──► settle
//	                                                      ▲                    │
//	                                                      └────── watch ◄──────┘
//
// A Counter watches the store and tracks the writes of this process that are in progress, so
// that concurrent writes of one process never exceed a limit.
package quota
