// Package history records what clients of the server see while processes fail, and checks it
// afterwards. A [Run] has clients, which read and write a few ManifestWorks at the same time, and
// watchers. [Run.Check] returns every observation that no correct server can cause.
//
// # Operations
//
// A client creates, gets, lists, updates, patches and deletes. Each write has a unique value. An
// operation of the history is one HTTP request: if client-go retries a request, each attempt is an
// operation. The hub's aggregation layer does not retry requests. An operation is OK, refused
// (AlreadyExists, Conflict, NotFound: the server states something about the object), failed (it
// certainly had no effect) or unknown (it may take effect at any later time, or never).
//
// # Checks
//
// Linearizability, for each object: creates, quorum reads, updates with a resource version, patches
// and deletes with a UID take effect one after the other, each between its request and its response,
// and the resource versions increase.
//
// Watches: events have increasing resource versions, each change arrives once, nothing arrives that no
// operation wrote, and a watch that resumes continues after the resource version that it names.
//
// Lists: all objects of a list are the state at the resource version of the list. A read with a
// resource version is not older than that. A read with resource version 0 may have any age.
//
// Revisions: no resource version belongs to two changes.
//
// The watches determine the fate of unknown operations: if the watches together have no gap, a write
// that no watcher and no reader saw had no effect. Otherwise the checker tries both.
//
// # Restored snapshots
//
// After [Run.Restored], the changes after the snapshot are lost by the decision of an administrator. Each object then
// has the state of the snapshot, exactly, and everything that follows is checked as before: nothing after the restore
// may be lost, lists and reads must not show lost changes, and no watch may continue across the restore. Without the
// call, the checks assume one etcd cluster whose data are never replaced by an older copy.
package history
