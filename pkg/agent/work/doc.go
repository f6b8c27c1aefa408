// Package work applies the ManifestWorks of one managed cluster, corrects drift of the applied
// objects, and reports their state to the hub.
//
// # Packages
//
//	decide    what to do with each manifest; pure
//	apply     create and update objects
//	removal   delete or release objects
//	status    conditions from the results; pure
//	work      the controller that combines them: reads, watches, records, reports
//
// # One pass
//
// A pass over a ManifestWork has fixed steps (pass.go):
//
//	resolve   decode every manifest and find its resource        decide/plan.go
//	admit     check the permissions of the executor, if due      admit.go
//	protect   set the finalizer of the ManifestWork              hub.go
//	record    list the objects in the AppliedManifestWork        record.go
//	apply     apply the manifests in the order of Helm           decide/order.go, item.go, apply
//	remove    remove recorded objects that have no manifest      retain.go, removal
//	record    list the UIDs of the applied objects               record.go
//	report    write conditions and feedback                      hub.go, status
//
// The AppliedManifestWork lists an object before the object is written, and every created object
// has an owner reference to it from the moment of creation. So after a crash, the list contains all
// objects that the agent may have created. The reference distinguishes them from objects of other
// creators with the same name.
//
// A deleted ManifestWork, or a record without one, is removed instead (finalize.go).
//
// What the agent knows between passes is one workState for a ManifestWork and one itemState for a
// manifest (state.go). trace.go wraps passes, access checks and attempts in spans.
//
// # Triggers
//
// A change of the ManifestWork, of its AppliedManifestWork or of an applied object triggers a pass.
// Applied objects are watched by their metadata (watch.go). A pass makes no request for an object
// whose resourceVersion has not changed since the last pass. schedule.go decides the order of passes.
package work
