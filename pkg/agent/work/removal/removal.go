// Package removal removes applied objects from the managed cluster.
package removal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// concurrency is the number of objects of a ManifestWork that are removed in parallel.
const concurrency = 4

// finalizerPatience is the time for controllers of a ManifestWork to remove the finalizers of its
// custom resources. A controller that does not run must not keep permissions in place.
const finalizerPatience = time.Minute

// Remover removes objects as the agent.
type Remover struct {
	Objects metadata.Interface
	Records workclient.AppliedManifestWorkInterface
	// Served returns a resource in a version that the managed cluster serves. If the cluster serves
	// none, it returns an error that meta.IsNoMatchError matches.
	Served func(context.Context, schema.GroupVersionResource) (schema.GroupVersionResource, error)
	Now    func() time.Time
}

// Options specifies how objects are removed.
type Options struct {
	// Orphan reports whether an object stays. If it is nil, no object stays.
	Orphan func(decide.ObjectID) bool
	// OwnedOnly limits deletion to objects with an owner reference to the AppliedManifestWork. It
	// is set if the ManifestWork is unknown or names an executor, because the reference is set only
	// if the executor is allowed to delete the object.
	OwnedOnly bool
	// Until is the time from which Remove starts no further removal. Zero means no limit.
	Until time.Time
}

// expired reports whether Until has passed.
func (r *Remover) expired(options Options) bool {
	return !options.Until.IsZero() && !r.Now().Before(options.Until)
}

type outcome struct {
	// done is true if the object is deleted or released.
	done bool
	// deleted is the UID of an object that was deleted with client and may still exist.
	deleted types.UID
	client  metadata.ResourceInterface
	// wait is the time until which Remove waits for the deletion.
	wait time.Time
	err  error
}

// Remove removes the objects of entries and returns the entries whose objects still exist. It
// reverses the order of application, and removes objects of one resource concurrently. Then it checks
// whether the objects are deleted. A revocation takes effect with the deletion.
//
// The controller that removes the finalizers of custom resources may be in the same ManifestWork. If the
// ManifestWork runs Pods, Remove waits for such finalizers, at most finalizerPatience, before it removes
// what controllers need.
func (r *Remover) Remove(ctx context.Context, record *workv1.AppliedManifestWork, entries []workv1.AppliedManifestResourceMeta, options Options) ([]workv1.AppliedManifestResourceMeta, error) {
	entries = decide.OrderEntries(entries)
	outcomes := make([]outcome, len(entries))
	custom, _ := slices.BinarySearchFunc(entries, 0, func(entry workv1.AppliedManifestResourceMeta, rank int) int { return decide.EntryRank(entry) - rank })
	r.removeStage(ctx, record, entries[custom:], outcomes[custom:], options)
	waits := slices.ContainsFunc(entries, runs) && slices.ContainsFunc(outcomes, func(result outcome) bool { return r.Now().Before(result.wait) })
	if !waits && (custom == len(entries) || !r.expired(options)) {
		r.removeStage(ctx, record, entries[:custom], outcomes[:custom], options)
	}
	var remaining []workv1.AppliedManifestResourceMeta
	var errs []error
	for i, entry := range entries {
		if err := outcomes[i].err; err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", decide.EntryID(entry), err))
		}
		if !outcomes[i].done {
			remaining = append(remaining, entry)
		}
	}
	return remaining, errors.Join(errs...)
}

// removeStage removes the objects of entries, from the last to the first.
func (r *Remover) removeStage(ctx context.Context, record *workv1.AppliedManifestWork, entries []workv1.AppliedManifestResourceMeta, outcomes []outcome, options Options) {
	for end := len(entries); end > 0; {
		start := end - 1
		for start > 0 && sameResource(entries[start-1], entries[start]) {
			start--
		}
		workqueue.ParallelizeUntil(ctx, concurrency, end-start, func(piece int) {
			i := end - 1 - piece
			if i < len(entries)-1 && r.expired(options) {
				return
			}
			outcomes[i] = r.remove(ctx, record, entries[i], options)
		})
		end = start
	}
	workqueue.ParallelizeUntil(ctx, concurrency, len(entries), func(i int) {
		if outcomes[i].deleted != "" {
			outcomes[i] = confirm(ctx, entries[i], outcomes[i])
		}
	})
}

// runs reports whether an object runs Pods.
func runs(entry workv1.AppliedManifestResourceMeta) bool {
	return entry.Group == "apps" || entry.Group == "" && (entry.Resource == "pods" || entry.Resource == "replicationcontrollers")
}

func sameResource(a, b workv1.AppliedManifestResourceMeta) bool {
	return a.Group == b.Group && a.Resource == b.Resource
}

// confirm reads a deleted object to check whether it still exists.
func confirm(ctx context.Context, entry workv1.AppliedManifestResourceMeta, before outcome) outcome {
	after, err := before.client.Get(ctx, entry.Name, metav1.GetOptions{})
	if err != nil {
		return finished(err)
	}
	result := outcome{done: after.UID != before.deleted}
	if !result.done && after.DeletionTimestamp != nil {
		result.wait = after.DeletionTimestamp.Add(finalizerPatience)
	}
	return result
}

// finished returns the outcome of the last request for an object. If the object does not exist, the
// removal is complete.
func finished(err error) outcome {
	return outcome{done: err == nil || apierrors.IsNotFound(err), err: IgnoreNotFound(err)}
}

// remove deletes an object. If the object stays, existed before, or has other owners, it removes
// only the owner reference. An object that a guarded ManifestWork created is deleted whatever its
// annotations and owner references are: the subjects of a ClusterPermission may be allowed to change
// them, but not the record.
func (r *Remover) remove(ctx context.Context, record *workv1.AppliedManifestWork, entry workv1.AppliedManifestResourceMeta, options Options) (result outcome) {
	ctx, span := tracing.Start(ctx, "Remove object",
		tracing.Text("object.resource", schema.GroupResource{Group: entry.Group, Resource: entry.Resource}.String()), tracing.Text("object.version", entry.Version),
		tracing.Text("object.namespace", entry.Namespace), tracing.Text("object.name", entry.Name))
	defer func() { tracing.End(span, tracing.Reason(result.err)) }()
	client, live, err := r.live(ctx, entry)
	if err != nil {
		return outcome{err: err}
	}
	if live == nil {
		return outcome{done: true}
	}
	owner := decide.OwnerRef(record)
	owned := decide.HasOwner(live, owner)
	created := decide.IsGuarded(record) && entry.UID == string(live.UID)
	if !owned && !created && (options.OwnedOnly || entry.UID == "" || entry.UID != string(live.UID)) {
		// Another object has the name of the applied object.
		return outcome{done: true}
	}
	others, err := r.otherOwners(ctx, live, owner, func(other *workv1.AppliedManifestWork) bool {
		return !created || decide.EntryOf(other, decide.EntryID(entry)) != nil
	})
	if err != nil {
		return outcome{err: err}
	}
	_, adopted := live.Annotations[decide.AdoptedAnnotation]
	if adopted && !created || others || options.Orphan != nil && options.Orphan(decide.EntryID(entry)) {
		if owned {
			err = release(ctx, client, live, owner, others)
		}
		return finished(err)
	}
	if live.DeletionTimestamp == nil {
		background := metav1.DeletePropagationBackground
		err := client.Delete(ctx, live.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &live.UID}, PropagationPolicy: &background,
		})
		if err != nil {
			return finished(err)
		}
	}
	if created {
		if err := void(ctx, client, live, entry); err != nil {
			return finished(err)
		}
	}
	return outcome{deleted: live.UID, client: client}
}

// void removes the subjects of a binding that has finalizers. It has effect until it is deleted, and its subjects may have
// added them.
func void(ctx context.Context, client metadata.ResourceInterface, live *metav1.PartialObjectMetadata, entry workv1.AppliedManifestResourceMeta) error {
	binds := entry.Group == rbacv1.GroupName && (entry.Resource == "rolebindings" || entry.Resource == "clusterrolebindings")
	if !binds || len(live.Finalizers) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.UID}, "subjects": []rbacv1.Subject{}})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager})
	return err
}

// live returns the object of an entry, or nil if the object does not exist or its resource is no
// longer served.
func (r *Remover) live(ctx context.Context, entry workv1.AppliedManifestResourceMeta) (metadata.ResourceInterface, *metav1.PartialObjectMetadata, error) {
	gvr := schema.GroupVersionResource{Group: entry.Group, Version: entry.Version, Resource: entry.Resource}
	client := r.Objects.Resource(gvr).Namespace(entry.Namespace)
	live, err := client.Get(ctx, entry.Name, metav1.GetOptions{})
	if NotServed(err) {
		// The cluster may serve the object in another version.
		served, mapErr := r.Served(ctx, gvr)
		if mapErr != nil && !meta.IsNoMatchError(mapErr) {
			return nil, nil, mapErr
		}
		if mapErr != nil || served == gvr {
			return nil, nil, nil
		}
		client = r.Objects.Resource(served).Namespace(entry.Namespace)
		live, err = client.Get(ctx, entry.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	return client, live, err
}

// NotServed reports whether an error is a NotFound of the resource, not of the object.
func NotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNotFound returns nil for a NotFound error, and any other error unchanged.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// otherOwners reports whether an existing AppliedManifestWork other than owner, for which counts returns
// true, owns an object.
func (r *Remover) otherOwners(ctx context.Context, object metav1.Object, owner metav1.OwnerReference, counts func(*workv1.AppliedManifestWork) bool) (bool, error) {
	for _, other := range decide.RecordOwners(object) {
		if other.UID == owner.UID {
			continue
		}
		record, err := r.Records.Get(ctx, other.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if record.UID == other.UID && counts(record) {
			return true, nil
		}
	}
	return false, nil
}

// release removes the owner reference from an object that stays. If the object has no other owners,
// it also removes the annotation of adoption.
func release(ctx context.Context, client metadata.ResourceInterface, live *metav1.PartialObjectMetadata, owner metav1.OwnerReference, others bool) error {
	updated := live.DeepCopy()
	decide.RemoveOwner(updated, owner)
	owners := updated.OwnerReferences
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	change := map[string]any{
		// Without uid and resourceVersion, concurrent changes would be overwritten.
		"uid": live.UID, "resourceVersion": live.ResourceVersion,
		"ownerReferences": owners,
	}
	if _, adopted := live.Annotations[decide.AdoptedAnnotation]; adopted && !others {
		change["annotations"] = map[string]any{decide.AdoptedAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager})
	return err
}
