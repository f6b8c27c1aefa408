package apply

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// specHashAnnotation contains the hash of the manifest from which an object with ignored fields was
// last applied.
const specHashAnnotation = "open-cluster-management.io/config-spec-hash"

func (a *Applier) serverSide(ctx context.Context, t *Task) (*unstructured.Unstructured, error) {
	settings, manager := ptr.Deref(t.Config.Strategy.ServerSideApply, workv1.ServerSideApplyConfig{}), t.Config.Applier()
	var last error
	for range attempts {
		live, err := a.Read(ctx, t)
		if err != nil {
			return nil, err
		}
		changed := live == nil || !t.State.Applied
		if live != nil {
			if live.GetDeletionTimestamp() != nil {
				return live, ErrTerminating
			}
			if t.Complete(live) {
				return live, nil
			}
			if authors := a.authors(t, live, manager, metav1.ManagedFieldsOperationApply); slices.Contains(authors, decide.Former) {
				upgraded, err := a.takeOver(ctx, t, live, authors, manager)
				if apierrors.IsConflict(err) {
					last = err
					continue
				}
				if err != nil {
					return live, err
				}
				live, changed = upgraded, true
			} else if t.settled(live) {
				return live, nil
			}
			// Another ManifestWork may have applied fields under the same manager.
			changed = changed || t.State.fields != appliedFields(live, manager) && !a.Held(t.ID(), live)
		}
		desired, err := a.serverSideContent(ctx, t, live, settings.IgnoreFields)
		if err != nil {
			return live, err
		}
		if !changed && decide.SameObject(live, decide.Enforce(live, desired)) {
			return live, nil
		}
		if err := a.begin(ctx, t); err != nil {
			return live, err
		}
		applied, err := a.resource(t).Apply(ctx, t.Name, desired, metav1.ApplyOptions{FieldManager: manager, Force: ptr.Deref(settings.Force, false)})
		// Only a conflict of versions is retried, not a conflict of field managers.
		if apierrors.IsConflict(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
			last = err
			continue
		}
		if err != nil {
			return live, err
		}
		// Server-side apply removes the reference only if this manager set it.
		if t.Orphan && decide.RemoveOwner(applied, a.Owner) {
			if applied, err = a.resource(t).Update(ctx, applied, metav1.UpdateOptions{FieldManager: a.Manager}); err != nil {
				return live, err
			}
		}
		a.wrote(t, applied)
		t.State.fields = appliedFields(applied, manager)
		return applied, nil
	}
	return nil, errContended(last)
}

// serverSideContent returns the object to apply over live. It is valid only for this version of live,
// because it depends on ignored fields and on other owners.
func (a *Applier) serverSideContent(ctx context.Context, t *Task, live *unstructured.Unstructured, ignore []workv1.IgnoreField) (*unstructured.Unstructured, error) {
	desired := t.Object.DeepCopy()
	annotations := map[string]string{}
	if len(ignore) > 0 {
		annotations[specHashAnnotation] = decide.Hash(t.Object.Object)
	}
	if live != nil {
		// All ManifestWorks apply under the same manager, so that an omitted owner would be removed.
		decide.SetOwners(desired, slices.DeleteFunc(decide.RecordOwners(live), func(owner metav1.OwnerReference) bool { return owner.UID == a.Owner.UID })...)
		desired.SetResourceVersion(live.GetResourceVersion())
		if _, adopted := live.GetAnnotations()[decide.AdoptedAnnotation]; adopted || a.foreign(t, live) {
			annotations[decide.AdoptedAnnotation] = "true"
		}
		unchanged := live.GetAnnotations()[specHashAnnotation] == annotations[specHashAnnotation]
		for _, field := range ignore {
			if field.Condition == workv1.IgnoreFieldsConditionOnSpokeChange && !unchanged {
				continue
			}
			if err := decide.OmitIgnored(ctx, a.Budget, desired, live, field); err != nil {
				return nil, err
			}
		}
	}
	// The annotations are set after the ignored fields are removed, because these may include
	// annotations.
	if len(annotations) > 0 {
		annotate(desired, annotations)
	}
	if !t.Orphan {
		decide.SetOwners(desired, a.Owner)
	}
	return desired, nil
}
