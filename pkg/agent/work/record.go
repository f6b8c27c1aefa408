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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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

// removalOptions returns how the objects of a record are removed. work is the ManifestWork, or nil if it is
// not known.
func removalOptions(record *workv1.AppliedManifestWork, work *workv1.ManifestWork) (removal.Options, error) {
	options, option := removal.Options{OwnedOnly: true}, (*workv1.DeleteOption)(nil)
	if work != nil {
		option = work.Spec.DeleteOption
		_, options.OwnedOnly = ExecutorOf(work)
	} else if encoded, ok := record.Annotations[deleteOptionAnnotation]; ok {
		if err := json.Unmarshal([]byte(encoded), &option); err != nil {
			return options, fmt.Errorf("annotation %s of AppliedManifestWork %s: %w", deleteOptionAnnotation, record.Name, err)
		}
	}
	options.Orphan = func(id decide.ObjectID) bool { return decide.Orphans(option, id) }
	return options, nil
}

// keepRecord updates the delete option in the record of a ManifestWork that is not applied, and
// ends its eviction.
func (c *Controller) keepRecord(ctx context.Context, work *workv1.ManifestWork, st *workState) error {
	record := c.cachedRecord(work.Name)
	if record == nil || record.DeletionTimestamp != nil || record.Spec.HubHash != c.HubHash || !c.ours(record) {
		return nil
	}
	var err error
	if record.Status.EvictionStartTime != nil {
		if record, err = c.setApplied(ctx, record, record.Status.AppliedResources); err != nil {
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
	_, err = c.writeRecord(ctx, updated)
	return err
}

// ours reports whether a record belongs to an agent with the name of this cluster. An agent that is
// started with a wrong name must not change objects that were applied under the correct name.
// Records of upstream OCM agents contain no name.
func (c *Controller) ours(record *workv1.AppliedManifestWork) bool {
	name := record.Labels[clusterv1.ClusterNameLabel]
	return name == "" || name == c.ClusterName
}

// cachedRecord returns the newest known record of a ManifestWork, or nil. The informer may not contain a new
// record yet.
func (c *Controller) cachedRecord(name string) *workv1.AppliedManifestWork {
	cached, _, _ := c.recordCache.GetByKey(c.recordName(name)) // a store does not fail
	record, _ := cached.(*workv1.AppliedManifestWork)
	return record
}

// liveRecord reads the record of a ManifestWork. It returns nil if the record does not exist.
func (c *Controller) liveRecord(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	record, err := c.recordClient().Get(ctx, c.recordName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !removal.NotServed(err) {
		return nil, nil
	}
	return record, err
}

// ensureRecord creates or updates the record of a ManifestWork before any manifest is applied.
func (c *Controller) ensureRecord(ctx context.Context, work *workv1.ManifestWork, st *workState, items []*decide.Item) (*workv1.AppliedManifestWork, error) {
	record := c.cachedRecord(work.Name)
	if record == nil {
		created, err := c.createRecord(ctx, work, items)
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		if record, err = c.recordClient().Get(ctx, c.recordName(work.Name), metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	if record.Spec.HubHash != c.HubHash || record.Spec.ManifestWorkName != work.Name {
		return nil, fmt.Errorf("AppliedManifestWork %s belongs to another ManifestWork, %s", record.Name, record.Spec.ManifestWorkName)
	}
	if !c.ours(record) {
		return nil, fmt.Errorf("AppliedManifestWork %s belongs to another name of this cluster, %s", record.Name, record.Labels[clusterv1.ClusterNameLabel])
	}
	if record.DeletionTimestamp != nil {
		return record, nil
	}
	record, err := c.beginGuard(ctx, work, st, record)
	if err != nil {
		return nil, err
	}
	return c.updateRecord(ctx, record, work, items)
}

// beginGuard removes the UIDs from the record of a ManifestWork that was not guarded before, such as a
// record of an upstream OCM agent, because it may have adopted the objects. The owner references show which
// ones it created.
func (c *Controller) beginGuard(ctx context.Context, work *workv1.ManifestWork, st *workState, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	if decide.IsGuarded(record) || !decide.Delivers(work) {
		return record, nil
	}
	st.items = map[decide.ObjectID]*itemState{}
	entries := slices.Clone(record.Status.AppliedResources)
	for i := range entries {
		entries[i].UID = ""
	}
	return c.setApplied(ctx, record, entries)
}

func (c *Controller) createRecord(ctx context.Context, work *workv1.ManifestWork, items []*decide.Item) (*workv1.AppliedManifestWork, error) {
	record, err := c.filled(&workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: c.recordName(work.Name), Annotations: map[string]string{appliedAnnotation: appliedVersion(items)}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: c.HubHash, ManifestWorkName: work.Name},
	}, work, items)
	if err != nil {
		return nil, err
	}
	return c.recordClient().Create(ctx, record, metav1.CreateOptions{})
}

// updateRecord writes all fields of a record except the status, if they differ.
func (c *Controller) updateRecord(ctx context.Context, record *workv1.AppliedManifestWork, work *workv1.ManifestWork, items []*decide.Item) (*workv1.AppliedManifestWork, error) {
	updated, err := c.filled(record.DeepCopy(), work, items)
	if err != nil || equality.Semantic.DeepEqual(record, updated) {
		return record, err
	}
	return c.writeRecord(ctx, updated)
}

// filled returns a record with the fields that depend on the ManifestWork and on the agent.
func (c *Controller) filled(record *workv1.AppliedManifestWork, work *workv1.ManifestWork, items []*decide.Item) (_ *workv1.AppliedManifestWork, err error) {
	record.Spec.AgentID = c.AgentID
	record.Labels = labels.Merge(record.Labels, work.Labels)
	record.Labels[clusterv1.ClusterNameLabel] = c.ClusterName
	if record.Annotations[appliedAnnotation] != appliedVersion(items) {
		// Even if this version fails, objects may contain its fields. So the former version is no longer applied.
		delete(record.Annotations, appliedAnnotation)
	}
	if !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		record.Finalizers = append(record.Finalizers, workv1.AppliedManifestWorkFinalizer)
	}
	if err := decide.RecordManagers(record, items); err != nil {
		return nil, err
	}
	record.Annotations, err = recordAnnotations(work, record.Annotations)
	return record, err
}

// appliedAnnotation contains the version of the manifests if they are applied completely. Then objects contain no
// fields of other versions. A new record contains it before that, because there is no other version.
const appliedAnnotation = "work.open-cluster-management.io/applied-version"

// appliedVersion returns the version of manifests. The generations of a hub that was restored from a snapshot repeat.
func appliedVersion(items []*decide.Item) string {
	hashes := make([]string, len(items))
	for i, it := range items {
		hashes[i] = it.Hash
	}
	return decide.Hash(hashes)
}

// markApplied records that all manifests are applied.
func (c *Controller) markApplied(ctx context.Context, record *workv1.AppliedManifestWork, items []*decide.Item) error {
	version := appliedVersion(items)
	if record.Annotations[appliedAnnotation] == version {
		return nil
	}
	updated := record.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, appliedAnnotation, version)
	_, err := c.writeRecord(ctx, updated)
	return err
}

func (c *Controller) writeRecord(ctx context.Context, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	return c.written(c.recordClient().Update(ctx, record, metav1.UpdateOptions{}))
}

func (c *Controller) writeRecordStatus(ctx context.Context, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	return c.written(c.recordClient().UpdateStatus(ctx, record, metav1.UpdateOptions{}))
}

func (c *Controller) written(record *workv1.AppliedManifestWork, err error) (*workv1.AppliedManifestWork, error) {
	if err != nil {
		return nil, err
	}
	c.recordCache.Mutation(record)
	return record, nil
}

// setApplied writes the list of applied objects if it differs, and ends the eviction.
func (c *Controller) setApplied(ctx context.Context, record *workv1.AppliedManifestWork, applied []workv1.AppliedManifestResourceMeta) (*workv1.AppliedManifestWork, error) {
	if record.Status.EvictionStartTime == nil && equality.Semantic.DeepEqual(record.Status.AppliedResources, applied) {
		return record, nil
	}
	updated := record.DeepCopy()
	updated.Status.AppliedResources = applied
	updated.Status.EvictionStartTime = nil
	return c.writeRecordStatus(ctx, updated)
}

func (c *Controller) deleteRecord(ctx context.Context, record *workv1.AppliedManifestWork) error {
	if record.DeletionTimestamp == nil {
		err := c.recordClient().Delete(ctx, record.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &record.UID}})
		if err == nil {
			record, err = c.recordClient().Get(ctx, record.Name, metav1.GetOptions{})
		}
		if err != nil {
			return removal.IgnoreNotFound(err)
		}
	}
	if !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		return nil
	}
	updated := record.DeepCopy()
	updated.Finalizers = without(record.Finalizers, workv1.AppliedManifestWorkFinalizer)
	_, err := c.recordClient().Update(ctx, updated, metav1.UpdateOptions{})
	return removal.IgnoreNotFound(err)
}

func entryRef(entry workv1.AppliedManifestResourceMeta) objectRef {
	gvr := schema.GroupVersionResource{Group: entry.Group, Version: entry.Version, Resource: entry.Resource}
	return objectRef{gvr: gvr, key: types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}}
}
