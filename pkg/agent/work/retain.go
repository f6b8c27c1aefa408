package work

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

func retainedRef(work string) restored.Ref {
	return restored.Ref{Resource: restored.ManifestWorks, Name: work}
}

// retainRecord reports whether the objects of a record stay because a restored hub does not know the
// ManifestWork.
func (c *Controller) retainRecord(ctx context.Context, st *workState, record *workv1.AppliedManifestWork) (bool, error) {
	keeps, err := c.Restored.Keeps(ctx, st.seen)
	if err != nil {
		return true, err
	}
	if keeps {
		c.Restored.Retain(retainedRef(record.Spec.ManifestWorkName), counted(len(record.Status.AppliedResources)))
		return true, nil
	}
	// The ManifestWork may have been created just before the confirmation.
	gone, err := c.workGone(ctx, record.Spec.ManifestWorkName)
	if err == nil && !gone {
		err = reconcile.ErrOutdated
	}
	return false, err
}

// retain splits the entries of recorded objects that have no manifest. Those of the first pass stay while
// a restore is not confirmed, because a restored hub may have an older version of the ManifestWork. Those
// that lose their manifest afterwards are removed.
func (p *pass) retain(ctx context.Context, left []workv1.AppliedManifestResourceMeta) (kept, removable []workv1.AppliedManifestResourceMeta, err error) {
	st, ref := p.st, retainedRef(p.work.Name)
	for _, entry := range left {
		if !st.compared || st.retained.Has(decide.EntryID(entry)) {
			kept = append(kept, entry)
		} else {
			removable = append(removable, entry)
		}
	}
	if len(removable) > 0 {
		_, err = p.Restored.Keeps(ctx, true)
	}
	keeps := false
	if len(kept) > 0 && err == nil {
		if keeps, err = p.Restored.Keeps(ctx, false); err == nil && !keeps {
			err = p.current(ctx)
		}
	}
	if err != nil {
		return left, nil, err
	}
	st.compared, st.retained = true, nil
	if !keeps {
		p.Restored.Release(ref)
		return nil, left, nil
	}
	st.retained = sets.New[decide.ObjectID]()
	for _, entry := range kept {
		st.retained.Insert(decide.EntryID(entry))
	}
	p.Restored.Retain(ref, counted(len(kept))+" without a manifest")
	p.soon(restored.Pause)
	return kept, removable, nil
}

// current returns an error if the ManifestWork of the pass is not the latest version. Manifests that an
// administrator adds before the confirmation of a restore may reach the informer after it.
func (p *pass) current(ctx context.Context) error {
	live, err := p.Hub.WorkV1().ManifestWorks(p.work.Namespace).Get(ctx, p.work.Name, metav1.GetOptions{})
	if err == nil && (live.UID != p.work.UID || live.Generation != p.work.Generation) {
		err = reconcile.ErrOutdated
	}
	return err
}

func counted(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}
