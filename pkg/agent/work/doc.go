// Package work applies the ManifestWorks of one managed cluster there, keeps
// the applied objects as the works give them, and reports their state to the hub.
//
// # One pass
//
// The unit of work is one ManifestWork, by name. A pass over it reads what it
// needs and then goes through fixed steps (reconcile.go):
//
//	resolve   decode every manifest and find its resource        plan.go
//	admit     decide whose permissions the work acts with        executor.go, admit.go
//	protect   finalizer on the ManifestWork                      hub.go
//	record    AppliedManifestWork with every intended object     record.go
//	apply     each manifest by its strategy, in order of kind    apply.go, serverside.go, guard.go
//	record    the UIDs of what was applied                       record.go
//	remove    what is recorded and no longer in the work         removal.go
//	report    conditions and feedback                            status.go
//
// Intents are recorded before the first write and every created object refers
// to its AppliedManifestWork from its creation on. So whenever the agent dies,
// what it has created can be found: the record names it, and the reference
// tells it from an object that somebody else made under the same name.
//
// # What triggers a pass
//
// A change of the ManifestWork, of its AppliedManifestWork, of an applied object,
// or of what its executor may do. Applied objects are watched by their metadata (watch.go), so drift
// is repaired at once, and a pass makes no request for an object whose
// resourceVersion is the one it has judged before.
package work
