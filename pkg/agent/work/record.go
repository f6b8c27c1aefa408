package work

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const recordKind = "AppliedManifestWork"

var recordAPIVersion = workv1.SchemeGroupVersion.String()

// recordName returns the name of the AppliedManifestWork of a work.
func (c *Controller) recordName(work string) string { return c.hubHash + "-" + work }

// ownerRef returns the reference that applied objects carry.
func ownerRef(record *workv1.AppliedManifestWork) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: recordAPIVersion, Kind: recordKind, Name: record.Name, UID: record.UID}
}

// recordLabels are the labels of a work's record: those of the work, and the
// name of the cluster.
func (c *Controller) recordLabels(work *workv1.ManifestWork) map[string]string {
	return mergeStrings(maps.Clone(work.Labels), map[string]string{clusterv1.ClusterNameLabel: c.clusterName})
}

// deleteOptionAnnotation is on the record of a work that has a delete option, in JSON, so
// that the objects are let go of as it says even when the hub cannot be asked any more.
const deleteOptionAnnotation = "work.open-cluster-management.io/delete-option"

// recordAnnotations adds to the annotations of a record that its work is guarded, and what
// becomes of the objects of the work when it goes.
func recordAnnotations(work *workv1.ManifestWork, annotations map[string]string) (map[string]string, error) {
	if delivers(work) {
		annotations = mergeStrings(annotations, map[string]string{guardedAnnotation: "true"})
	}
	if work.Spec.DeleteOption == nil {
		delete(annotations, deleteOptionAnnotation)
		return annotations, nil
	}
	encoded, err := json.Marshal(work.Spec.DeleteOption)
	if err != nil {
		return nil, fmt.Errorf("delete option: %w", err)
	}
	if annotations[deleteOptionAnnotation] == string(encoded) {
		return annotations, nil
	}
	return mergeStrings(annotations, map[string]string{deleteOptionAnnotation: string(encoded)}), nil
}

// recordedOrphans returns which objects of a record stay when its work goes.
func recordedOrphans(record *workv1.AppliedManifestWork) (func(objectID) bool, error) {
	var option *workv1.DeleteOption
	if encoded, ok := record.Annotations[deleteOptionAnnotation]; ok {
		if err := json.Unmarshal([]byte(encoded), &option); err != nil {
			return nil, fmt.Errorf("annotation %s of AppliedManifestWork %s: %w", deleteOptionAnnotation, record.Name, err)
		}
	}
	return func(id objectID) bool { return orphans(option, id) }, nil
}

// keepRecord brings the delete option on record up to date for a work that is not
// applied, and ends its eviction. Without a record, nothing of it was.
func (c *Controller) keepRecord(ctx context.Context, work *workv1.ManifestWork, st *workState) error {
	record := c.cachedRecord(work.Name, st)
	if record == nil || record.DeletionTimestamp != nil || record.Spec.HubHash != c.hubHash || !c.ours(record) {
		return nil
	}
	var err error
	if record.Status.EvictionStartTime != nil {
		if record, err = c.setApplied(ctx, st, record, record.Status.AppliedResources); err != nil {
			return err
		}
	}
	updated := record.DeepCopy()
	if updated.Annotations, err = recordAnnotations(work, updated.Annotations); err != nil || maps.Equal(updated.Annotations, record.Annotations) {
		return err
	}
	if updated, err = c.managed.WorkV1().AppliedManifestWorks().Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return c.forgetRecord(st, err)
	}
	st.record = updated
	return nil
}

// ours tells whether a record is that of an agent with this cluster's name. An
// agent that was started under another name must not touch what was applied
// under the right one. Records that other agents made carry no name.
func (c *Controller) ours(record *workv1.AppliedManifestWork) bool {
	name := record.Labels[clusterv1.ClusterNameLabel]
	return name == "" || name == c.clusterName
}

// cachedRecord returns the newest known AppliedManifestWork of a work, nil if
// none is known.
func (c *Controller) cachedRecord(name string, st *workState) *workv1.AppliedManifestWork {
	cached, err := c.records.Get(c.recordName(name))
	if err != nil {
		// A record that the informer does not have yet, or no more. If it is
		// gone the next write to it says so.
		return st.record
	}
	if record := newer(cached, st.record); record != cached {
		return record
	}
	st.record = nil
	return cached
}

// ensureRecord returns the AppliedManifestWork of a work, which is created or
// brought up to date before anything is applied. given is what the manifests
// give from now on.
func (c *Controller) ensureRecord(ctx context.Context, work *workv1.ManifestWork, st *workState, given givenFields) (*workv1.AppliedManifestWork, givenFields, error) {
	record := c.cachedRecord(work.Name, st)
	if record == nil {
		encoded, err := given.encode()
		if err != nil {
			return nil, nil, err
		}
		annotations, err := recordAnnotations(work, map[string]string{givenAnnotation: encoded})
		if err != nil {
			return nil, nil, err
		}
		record = &workv1.AppliedManifestWork{
			ObjectMeta: metav1.ObjectMeta{
				Name:        c.recordName(work.Name),
				Labels:      c.recordLabels(work),
				Annotations: annotations,
				Finalizers:  []string{workv1.AppliedManifestWorkFinalizer},
			},
			Spec: workv1.AppliedManifestWorkSpec{HubHash: c.hubHash, AgentID: c.agentID, ManifestWorkName: work.Name},
		}
		created, err := c.managed.WorkV1().AppliedManifestWorks().Create(ctx, record, metav1.CreateOptions{})
		if err == nil {
			st.record = created
			return created, givenFields{}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, nil, err
		}
		if record, err = c.managed.WorkV1().AppliedManifestWorks().Get(ctx, record.Name, metav1.GetOptions{}); err != nil {
			return nil, nil, err
		}
	}
	if record.Spec.HubHash != c.hubHash || record.Spec.ManifestWorkName != work.Name {
		return nil, nil, fmt.Errorf("AppliedManifestWork %s is the record of another work, %s", record.Name, record.Spec.ManifestWorkName)
	}
	if !c.ours(record) {
		return nil, nil, fmt.Errorf("AppliedManifestWork %s is the record of an agent of another name for this cluster, %s", record.Name, record.Labels[clusterv1.ClusterNameLabel])
	}
	if record.DeletionTimestamp != nil {
		return record, nil, nil
	}
	former, err := decodeGiven(record.Annotations[givenAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "Formerly given fields are not known")
		former = givenFields{}
	}
	record, err = c.updateRecord(ctx, st, record, work, former.plus(given))
	return record, former, err
}

// updateRecord writes labels, finalizer, identity and given fields if they differ.
func (c *Controller) updateRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, given givenFields) (*workv1.AppliedManifestWork, error) {
	encoded, err := given.encode()
	if err != nil {
		return nil, err
	}
	updated := record.DeepCopy()
	updated.Spec.AgentID = c.agentID
	updated.Labels = mergeStrings(updated.Labels, c.recordLabels(work))
	if updated.Annotations[givenAnnotation] != encoded {
		updated.Annotations = mergeStrings(updated.Annotations, map[string]string{givenAnnotation: encoded})
	}
	if updated.Annotations, err = recordAnnotations(work, updated.Annotations); err != nil {
		return nil, err
	}
	if !slices.Contains(updated.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		updated.Finalizers = append(updated.Finalizers, workv1.AppliedManifestWorkFinalizer)
	}
	if equality.Semantic.DeepEqual(record, updated) {
		return record, nil
	}
	updated, err = c.managed.WorkV1().AppliedManifestWorks().Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, c.forgetRecord(st, err)
	}
	st.record = updated
	return updated, nil
}

// setApplied writes the list of applied objects if it differs.
func (c *Controller) setApplied(ctx context.Context, st *workState, record *workv1.AppliedManifestWork, applied []workv1.AppliedManifestResourceMeta) (*workv1.AppliedManifestWork, error) {
	if record.Status.EvictionStartTime == nil && equality.Semantic.DeepEqual(record.Status.AppliedResources, applied) {
		return record, nil
	}
	updated := record.DeepCopy()
	updated.Status.AppliedResources = applied
	updated.Status.EvictionStartTime = nil
	updated, err := c.managed.WorkV1().AppliedManifestWorks().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, c.forgetRecord(st, err)
	}
	st.record = updated
	return updated, nil
}

// forgetRecord makes the next pass read the record anew if it is not as known.
func (c *Controller) forgetRecord(st *workState, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		st.record = nil
	}
	return err
}

func entryID(entry workv1.AppliedManifestResourceMeta) objectID {
	return objectID{group: entry.Group, resource: entry.Resource, namespace: entry.Namespace, name: entry.Name}
}

func entryRef(entry workv1.AppliedManifestResourceMeta) objectRef {
	ref := objectRef{key: types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}}
	ref.gvr.Group, ref.gvr.Version, ref.gvr.Resource = entry.Group, entry.Version, entry.Resource
	return ref
}

// intents returns the entries of a record before its items are applied: those
// it has, and one without a UID for each object that is new to it.
func intents(recorded []workv1.AppliedManifestResourceMeta, ordered []*item) []workv1.AppliedManifestResourceMeta {
	entries := slices.Clone(recorded)
	known := map[objectID]bool{}
	for _, entry := range recorded {
		known[entryID(entry)] = true
	}
	for _, it := range ordered {
		if it.tracked() && !known[it.id()] {
			entries = append(entries, it.id().entry(it.gvr.Version))
		}
	}
	return entries
}

// outcomes returns the entries after the items were applied: UIDs are those of
// the objects as they are now, entries that are not about an item come last.
func outcomes(recorded []workv1.AppliedManifestResourceMeta, ordered []*item, uids map[objectID]types.UID) (current, left []workv1.AppliedManifestResourceMeta) {
	before := map[objectID]workv1.AppliedManifestResourceMeta{}
	for _, entry := range recorded {
		before[entryID(entry)] = entry
	}
	for _, it := range ordered {
		if !it.tracked() {
			continue
		}
		entry := it.id().entry(it.gvr.Version)
		entry.UID = before[it.id()].UID
		delete(before, it.id())
		if uid, ok := uids[it.id()]; ok {
			entry.UID = string(uid)
		}
		current = append(current, entry)
	}
	for _, entry := range recorded {
		if _, ok := before[entryID(entry)]; ok {
			left = append(left, entry)
		}
	}
	return current, left
}
