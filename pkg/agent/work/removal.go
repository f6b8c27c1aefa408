package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// removalsAtOnce is how many objects of a work are removed at the same time.
const removalsAtOnce = 4

// letGo says how the objects of a record are let go of.
type letGo struct {
	// orphan reports whether an object stays.
	orphan func(objectID) bool
	// ownedOnly limits deletion to objects that refer to the record. It is set
	// where the work itself is not known, and for works that name an executor: the
	// reference is put on an object only once the executor may delete it.
	ownedOnly bool
	// until is when to leave the other objects to the next turn; never if zero.
	until time.Time
}

// slice returns when a removal that begins now leaves the rest to its next turn.
func (c *Controller) slice() time.Time { return c.now().Add(c.sliceTime) }

// over reports whether a removal has used its slice of time.
func (c *Controller) over(how letGo) bool { return !how.until.IsZero() && !c.now().Before(how.until) }

// resume returns when a removal goes on that is not done.
func (c *Controller) resume(how letGo) time.Duration {
	if c.over(how) {
		return time.Millisecond
	}
	return pollPeriod
}

// removal is what became of an entry.
type removal struct {
	// gone is whether nothing is left to do.
	gone bool
	// deleted is the UID of the object that was deleted by client, of which it is not known whether
	// it is gone.
	deleted types.UID
	client  metadata.ResourceInterface
	err     error
}

// removeAll lets go of the entries and returns those whose objects are still there, to be tried
// again. It goes through them from the back, since the record has them in the order in which they
// were applied, and through objects of the same resource at the same time. Whether the objects are
// gone is looked at last: a revocation is effective once they are deleted.
func (c *Controller) removeAll(ctx context.Context, record *workv1.AppliedManifestWork, entries []workv1.AppliedManifestResourceMeta, how letGo) ([]workv1.AppliedManifestResourceMeta, error) {
	removals, owner := make([]removal, len(entries)), ownerRef(record)
	for end := len(entries); end > 0; {
		start := end - 1
		for start > 0 && sameResource(entries[start-1], entries[start]) {
			start--
		}
		workqueue.ParallelizeUntil(ctx, removalsAtOnce, end-start, func(piece int) {
			i := end - 1 - piece
			if i < len(entries)-1 && c.over(how) {
				return
			}
			removals[i] = c.remove(ctx, owner, entries[i], how)
		})
		end = start
	}
	workqueue.ParallelizeUntil(ctx, removalsAtOnce, len(entries), func(i int) {
		if removals[i].deleted != "" {
			removals[i] = stillThere(ctx, entries[i], removals[i])
		}
	})
	var remaining []workv1.AppliedManifestResourceMeta
	var errs []error
	for i, entry := range entries {
		if err := removals[i].err; err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", entryID(entry), err))
		}
		if !removals[i].gone {
			remaining = append(remaining, entry)
		}
	}
	return remaining, errors.Join(errs...)
}

func sameResource(a, b workv1.AppliedManifestResourceMeta) bool {
	return a.Group == b.Group && a.Resource == b.Resource
}

// stillThere looks whether an object that was deleted is gone.
func stillThere(ctx context.Context, entry workv1.AppliedManifestResourceMeta, was removal) removal {
	after, err := was.client.Get(ctx, entry.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return removal{gone: true}
	}
	if err != nil {
		return removal{err: err}
	}
	return removal{gone: after.UID != was.deleted}
}

// remove lets go of one object: deletes it, or drops our reference if others
// own it, it is to stay, or it was there before us.
func (c *Controller) remove(ctx context.Context, owner metav1.OwnerReference, entry workv1.AppliedManifestResourceMeta, how letGo) removal {
	client, live, err := c.liveMetadata(ctx, entry)
	if err != nil {
		return removal{err: err}
	}
	if live == nil {
		return removal{gone: true}
	}
	owned := hasOwner(live, owner)
	if !owned && (how.ownedOnly || entry.UID == "" || entry.UID != string(live.UID)) {
		// Not the object that was applied, but another of its name.
		return removal{gone: true}
	}
	others, err := c.otherRecords(ctx, live, owner)
	if err != nil {
		return removal{err: err}
	}
	_, adopted := live.Annotations[AdoptedAnnotation]
	if how.orphan(entryID(entry)) || adopted || others {
		if owned {
			err = release(ctx, client, live, owner, others)
		}
		return removal{gone: err == nil || apierrors.IsNotFound(err), err: ignoreNotFound(err)}
	}
	if live.DeletionTimestamp == nil {
		background := metav1.DeletePropagationBackground
		err := client.Delete(ctx, live.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &live.UID}, PropagationPolicy: &background,
		})
		if err != nil {
			return removal{gone: apierrors.IsNotFound(err), err: ignoreNotFound(err)}
		}
	}
	return removal{deleted: live.UID, client: client}
}

// liveMetadata reads the object of an entry. It is nil if the object does not
// exist, which includes that its resource is not served any more.
func (c *Controller) liveMetadata(ctx context.Context, entry workv1.AppliedManifestResourceMeta) (metadata.ResourceInterface, *metav1.PartialObjectMetadata, error) {
	gvr := schema.GroupVersionResource{Group: entry.Group, Version: entry.Version, Resource: entry.Resource}
	client := c.metadataClient(gvr, entry.Namespace)
	live, err := client.Get(ctx, entry.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return client, live, err
	}
	if !resourceNotServed(err) {
		return nil, nil, nil
	}
	// The version may have been retired while the object lives on in another.
	served, err := c.mapper.served(ctx, gvr)
	if meta.IsNoMatchError(err) {
		return nil, nil, nil
	}
	if err != nil || served == gvr {
		return nil, nil, err
	}
	client = c.metadataClient(served, entry.Namespace)
	live, err = client.Get(ctx, entry.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	return client, live, err
}

func (c *Controller) metadataClient(gvr schema.GroupVersionResource, namespace string) metadata.ResourceInterface {
	if namespace == "" {
		return c.metadata.Resource(gvr)
	}
	return c.metadata.Resource(gvr).Namespace(namespace)
}

// resourceNotServed reports whether a NotFound is about the path rather than
// about the object.
func resourceNotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// otherRecords reports whether an AppliedManifestWork other than owner owns the
// object. A reference to one that does not exist counts for nothing.
func (c *Controller) otherRecords(ctx context.Context, object metav1.Object, owner metav1.OwnerReference) (bool, error) {
	for _, other := range recordOwners(object) {
		if other.UID == owner.UID {
			continue
		}
		record, err := c.managed.WorkV1().AppliedManifestWorks().Get(ctx, other.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if record.UID == other.UID {
			return true, nil
		}
	}
	return false, nil
}

// release drops our reference from an object that stays. The mark of adoption
// goes with the last work.
func release(ctx context.Context, client metadata.ResourceInterface, live *metav1.PartialObjectMetadata, owner metav1.OwnerReference, others bool) error {
	updated := live.DeepCopy()
	removeOwner(updated, owner)
	owners := updated.OwnerReferences
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	change := map[string]any{
		// Without these two, a change in between would be lost.
		"uid": live.UID, "resourceVersion": live.ResourceVersion,
		"ownerReferences": owners,
	}
	if _, adopted := live.Annotations[AdoptedAnnotation]; adopted && !others {
		change["annotations"] = map[string]any{AdoptedAnnotation: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager})
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// dropRecord removes a record whose objects are all let go of.
func (c *Controller) dropRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) error {
	client := c.managed.WorkV1().AppliedManifestWorks()
	if record.DeletionTimestamp == nil {
		err := client.Delete(ctx, record.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &record.UID}})
		if err != nil {
			return ignoreNotFound(c.forgetRecord(st, err))
		}
		if record, err = client.Get(ctx, record.Name, metav1.GetOptions{}); err != nil {
			return ignoreNotFound(c.forgetRecord(st, err))
		}
	}
	kept := slices.DeleteFunc(slices.Clone(record.Finalizers), func(f string) bool { return f == workv1.AppliedManifestWorkFinalizer })
	if len(kept) == len(record.Finalizers) {
		return nil
	}
	updated := record.DeepCopy()
	updated.Finalizers = kept
	_, err := client.Update(ctx, updated, metav1.UpdateOptions{})
	st.record = nil
	return ignoreNotFound(err)
}
