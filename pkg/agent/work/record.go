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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
)

// A record is the AppliedManifestWork of a ManifestWork. It lists the applied objects.

func (c *Controller) recordName(work string) string { return c.HubHash + "-" + work }

func (c *Controller) recordClient() workclient.AppliedManifestWorkInterface {
	return c.Managed.WorkV1().AppliedManifestWorks()
}

// recordLabels returns the labels of a record: the labels of the ManifestWork and the name of the
// cluster.
func (c *Controller) recordLabels(work *workv1.ManifestWork) map[string]string {
	return labels.Merge(work.Labels, map[string]string{clusterv1.ClusterNameLabel: c.ClusterName})
}

// deleteOptionAnnotation contains the delete option of the ManifestWork, in JSON. It takes effect
// if the ManifestWork can no longer be read.
const deleteOptionAnnotation = "work.open-cluster-management.io/delete-option"

// recordAnnotations returns the annotations of a record, updated with the annotations that depend
// on the spec of the ManifestWork.
func recordAnnotations(work *workv1.ManifestWork, annotations map[string]string) (map[string]string, error) {
	annotations = labels.Merge(annotations, nil)
	if decide.Delivers(work) {
		annotations[decide.GuardedAnnotation] = "true"
	}
	delete(annotations, deleteOptionAnnotation)
	if work.Spec.DeleteOption != nil {
		encoded, err := json.Marshal(work.Spec.DeleteOption)
		if err != nil {
			return nil, fmt.Errorf("delete option: %w", err)
		}
		annotations[deleteOptionAnnotation] = string(encoded)
	}
	return annotations, nil
}

// recordedOrphans returns a function that reports whether an object of a record stays when the
// ManifestWork is deleted.
func recordedOrphans(record *workv1.AppliedManifestWork) (func(decide.ObjectID) bool, error) {
	var option *workv1.DeleteOption
	if encoded, ok := record.Annotations[deleteOptionAnnotation]; ok {
		if err := json.Unmarshal([]byte(encoded), &option); err != nil {
			return nil, fmt.Errorf("annotation %s of AppliedManifestWork %s: %w", deleteOptionAnnotation, record.Name, err)
		}
	}
	return func(id decide.ObjectID) bool { return decide.Orphans(option, id) }, nil
}

// keepRecord updates the delete option in the record of a ManifestWork that is not applied, and
// ends its eviction.
func (c *Controller) keepRecord(ctx context.Context, work *workv1.ManifestWork, st *workState) error {
	record := c.cachedRecord(work.Name, st)
	if record == nil || record.DeletionTimestamp != nil || record.Spec.HubHash != c.HubHash || !c.ours(record) {
		return nil
	}
	var err error
	if record.Status.EvictionStartTime != nil {
		if record, err = c.setApplied(ctx, st, record, record.Status.AppliedResources); err != nil {
			return err
		}
	}
	if record, err = c.beginGuard(ctx, work, st, record); err != nil {
		return err
	}
	updated := record.DeepCopy()
	if updated.Annotations, err = recordAnnotations(work, updated.Annotations); err != nil || maps.Equal(updated.Annotations, record.Annotations) {
		return err
	}
	_, err = c.writeRecord(ctx, st, updated)
	return err
}

// ours reports whether a record belongs to an agent with the name of this cluster. An agent that is
// started with a wrong name must not change objects that were applied under the correct name.
// Records of upstream OCM agents contain no name.
func (c *Controller) ours(record *workv1.AppliedManifestWork) bool {
	name := record.Labels[clusterv1.ClusterNameLabel]
	return name == "" || name == c.ClusterName
}

// cachedRecord returns the newest known record of a ManifestWork, or nil.
func (c *Controller) cachedRecord(name string, st *workState) *workv1.AppliedManifestWork {
	cached, err := c.records.Get(c.recordName(name))
	if err != nil {
		// The informer may not contain the record yet. If the record is deleted, the next write
		// fails.
		return st.record
	}
	if record := newer(cached, st.record); record != cached {
		return record
	}
	st.record = nil
	return cached
}

// liveRecord reads the record of a ManifestWork. It returns nil if the record does not exist.
func (c *Controller) liveRecord(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	record, err := c.recordClient().Get(ctx, c.recordName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !removal.NotServed(err) {
		return nil, nil
	}
	return record, err
}

// ensureRecord creates or updates the record of a ManifestWork before any manifest is applied. It
// also returns the fields that earlier versions of the manifests set. sets are the fields that the
// current manifests set.
func (c *Controller) ensureRecord(ctx context.Context, work *workv1.ManifestWork, st *workState, sets decide.FieldSets) (*workv1.AppliedManifestWork, decide.FieldSets, error) {
	record := c.cachedRecord(work.Name, st)
	if record == nil {
		created, err := c.createRecord(ctx, work, sets)
		if err == nil {
			st.record = created
			return created, decide.FieldSets{}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, nil, err
		}
		if record, err = c.recordClient().Get(ctx, c.recordName(work.Name), metav1.GetOptions{}); err != nil {
			return nil, nil, err
		}
	}
	if record.Spec.HubHash != c.HubHash || record.Spec.ManifestWorkName != work.Name {
		return nil, nil, fmt.Errorf("AppliedManifestWork %s belongs to another ManifestWork, %s", record.Name, record.Spec.ManifestWorkName)
	}
	if !c.ours(record) {
		return nil, nil, fmt.Errorf("AppliedManifestWork %s belongs to another name of this cluster, %s", record.Name, record.Labels[clusterv1.ClusterNameLabel])
	}
	if record.DeletionTimestamp != nil {
		return record, nil, nil
	}
	former, err := decide.DecodeFieldSets(record.Annotations[decide.FieldsAnnotation])
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to decode the fields of earlier manifests; they stay in the objects")
		former = decide.FieldSets{}
	}
	if record, err = c.beginGuard(ctx, work, st, record); err != nil {
		return nil, nil, err
	}
	record, err = c.updateRecord(ctx, st, record, work, former.Union(sets))
	return record, former, err
}

// beginGuard removes the UIDs from the record of a ManifestWork that was not guarded before, because it
// may have adopted the objects. The owner references show which ones it created.
func (c *Controller) beginGuard(ctx context.Context, work *workv1.ManifestWork, st *workState, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	if decide.IsGuarded(record) || !decide.Delivers(work) {
		return record, nil
	}
	st.items = map[decide.ObjectID]*itemState{}
	entries := slices.Clone(record.Status.AppliedResources)
	for i := range entries {
		entries[i].UID = ""
	}
	return c.setApplied(ctx, st, record, entries)
}

func (c *Controller) createRecord(ctx context.Context, work *workv1.ManifestWork, sets decide.FieldSets) (*workv1.AppliedManifestWork, error) {
	encoded, err := sets.Encode()
	if err != nil {
		return nil, err
	}
	annotations, err := recordAnnotations(work, map[string]string{decide.FieldsAnnotation: encoded})
	if err != nil {
		return nil, err
	}
	return c.recordClient().Create(ctx, &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{
			Name:        c.recordName(work.Name),
			Labels:      c.recordLabels(work),
			Annotations: annotations,
			Finalizers:  []string{workv1.AppliedManifestWorkFinalizer},
		},
		Spec: workv1.AppliedManifestWorkSpec{HubHash: c.HubHash, AgentID: c.AgentID, ManifestWorkName: work.Name},
	}, metav1.CreateOptions{})
}

// updateRecord writes all fields of a record except the status, if they differ.
func (c *Controller) updateRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, sets decide.FieldSets) (*workv1.AppliedManifestWork, error) {
	encoded, err := sets.Encode()
	if err != nil {
		return nil, err
	}
	updated := record.DeepCopy()
	updated.Spec.AgentID = c.AgentID
	updated.Labels = labels.Merge(updated.Labels, c.recordLabels(work))
	if updated.Annotations[decide.FieldsAnnotation] != encoded {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, decide.FieldsAnnotation, encoded)
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
	return c.writeRecord(ctx, st, updated)
}

func (c *Controller) writeRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	updated, err := c.recordClient().Update(ctx, record, metav1.UpdateOptions{})
	if err != nil {
		return nil, c.forgetRecord(st, err)
	}
	st.record = updated
	return updated, nil
}

// setApplied writes the list of applied objects if it differs, and ends the eviction.
func (c *Controller) setApplied(ctx context.Context, st *workState, record *workv1.AppliedManifestWork, applied []workv1.AppliedManifestResourceMeta) (*workv1.AppliedManifestWork, error) {
	if record.Status.EvictionStartTime == nil && equality.Semantic.DeepEqual(record.Status.AppliedResources, applied) {
		return record, nil
	}
	updated := record.DeepCopy()
	updated.Status.AppliedResources = applied
	updated.Status.EvictionStartTime = nil
	return c.writeRecordStatus(ctx, st, updated)
}

func (c *Controller) writeRecordStatus(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	updated, err := c.recordClient().UpdateStatus(ctx, record, metav1.UpdateOptions{})
	if err != nil {
		return nil, c.forgetRecord(st, err)
	}
	st.record = updated
	return updated, nil
}

func (c *Controller) dropRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) error {
	if record.DeletionTimestamp == nil {
		err := c.recordClient().Delete(ctx, record.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &record.UID}})
		if err == nil {
			record, err = c.recordClient().Get(ctx, record.Name, metav1.GetOptions{})
		}
		if err != nil {
			return removal.IgnoreNotFound(c.forgetRecord(st, err))
		}
	}
	kept := slices.DeleteFunc(slices.Clone(record.Finalizers), func(f string) bool { return f == workv1.AppliedManifestWorkFinalizer })
	if len(kept) == len(record.Finalizers) {
		return nil
	}
	updated := record.DeepCopy()
	updated.Finalizers = kept
	_, err := c.recordClient().Update(ctx, updated, metav1.UpdateOptions{})
	st.record = nil
	return removal.IgnoreNotFound(err)
}

// forgetRecord makes the next pass read the record again if the known version is outdated.
func (c *Controller) forgetRecord(st *workState, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		st.record = nil
	}
	return err
}

func entryRef(entry workv1.AppliedManifestResourceMeta) objectRef {
	ref := objectRef{key: types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}}
	ref.gvr.Group, ref.gvr.Version, ref.gvr.Resource = entry.Group, entry.Version, entry.Resource
	return ref
}
