// Package apply writes the manifests of a ManifestWork to the managed cluster.
package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// attempts is the number of attempts of Apply to write an object that is changed concurrently.
const attempts = 4

// ErrTerminating is the error of an object that is being deleted. Its watch reports when it
// can be applied again.
var ErrTerminating = errors.New("the object is being deleted; it is applied again after that")

// ErrAbsent is the error of a ReadOnly manifest whose object does not exist.
var ErrAbsent = errors.New("the object does not exist, and update strategy ReadOnly does not create it")

// errGuarded is the error of a manifest with server-side apply in a guarded ManifestWork. The
// response to such a request does not show who created the object.
var errGuarded = errors.New("the ManifestWork of a ClusterPermission cannot use update strategy ServerSideApply")

// Applier applies the manifests of one ManifestWork. It has no state.
type Applier struct {
	Client dynamic.Interface
	// Owner refers to the AppliedManifestWork.
	Owner metav1.OwnerReference
	// Manager is the field manager of all writes except server-side apply.
	Manager string
	// Guard is nil unless the ManifestWork delivers a ClusterPermission.
	Guard *decide.Guard
	Now   func() time.Time
	// Named is true if the ManifestWork names an executor. With CreateOnly, the executor requires
	// no permission to update.
	Named bool
	// MayWrite is called before each write. If it returns an error, nothing is written.
	MayWrite func(context.Context) error
	// Held reports whether another ManifestWork applies an object.
	Held func(decide.ObjectID, *unstructured.Unstructured) bool
	// Managers are the field managers under which the ManifestWork has applied objects server-side.
	Managers decide.Managers
	// Stale is true if objects may contain fields of an earlier version of their manifest.
	Stale bool
	// Budget bounds the expressions of the ManifestWork.
	Budget *bounded.Budget
}

// Task is one manifest to apply, with the known state of its object.
type Task struct {
	*decide.Item
	// RecordedUID is the UID of the object in the AppliedManifestWork, or empty.
	RecordedUID types.UID
	State       *State
	// Complete reports whether a live object is complete and must not be updated.
	Complete func(*unstructured.Unstructured) bool
}

func (a *Applier) resource(t *Task) dynamic.ResourceInterface {
	return a.Client.Resource(t.GVR).Namespace(t.Namespace)
}

// Read returns the live object, or nil if it does not exist.
func (a *Applier) Read(ctx context.Context, t *Task) (*unstructured.Unstructured, error) {
	return reconcile.OrNil(a.resource(t).Get(ctx, t.Name, metav1.GetOptions{}))
}

// Apply applies a manifest with its update strategy. It returns the live object if it is known,
// even with an error.
func (a *Applier) Apply(ctx context.Context, t *Task) (*unstructured.Unstructured, error) {
	switch t.Config.Strategy.Type {
	case workv1.UpdateStrategyTypeReadOnly:
		live, err := a.Read(ctx, t)
		if live == nil && err == nil {
			err = ErrAbsent
		}
		return live, err
	case workv1.UpdateStrategyTypeCreateOnly:
		return a.converge(ctx, t, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) { return live.DeepCopy(), nil })
	case workv1.UpdateStrategyTypeServerSideApply:
		if a.Guard != nil {
			return nil, errGuarded
		}
		return a.serverSide(ctx, t)
	case workv1.UpdateStrategyTypeUpdate:
		return a.converge(ctx, t, func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) { return a.updated(t, live) })
	default:
		return nil, fmt.Errorf("unknown update strategy %q", t.Config.Strategy.Type)
	}
}

func (a *Applier) converge(ctx context.Context, t *Task, desired func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	// An object that was never applied usually does not exist.
	createFirst := t.RecordedUID == "" && !t.State.Applied
	var last error
	for range attempts {
		var live *unstructured.Unstructured
		var err error
		if !createFirst {
			live, err = a.resource(t).Get(ctx, t.Name, metav1.GetOptions{})
		}
		if createFirst || apierrors.IsNotFound(err) {
			createFirst = false
			created, err := a.create(ctx, t, false)
			if apierrors.IsAlreadyExists(err) {
				last = err
				continue
			}
			return created, err
		}
		if err != nil {
			return nil, err
		}
		if a.Guard != nil {
			if t.State.Borrowed, err = a.Guard.Judge(t.Item, t.RecordedUID, live); err != nil {
				return live, err
			}
		}
		if live.GetDeletionTimestamp() != nil {
			return live, ErrTerminating
		}
		// An object that no ManifestWork created gets no owner reference either.
		untouched := t.State.Borrowed && len(decide.RecordOwners(live)) == 0
		if t.Complete(live) || untouched {
			return live, nil
		}
		if a.Named && t.Config.Strategy.Type == workv1.UpdateStrategyTypeCreateOnly {
			if a.Guard == nil {
				t.State.Borrowed = !decide.HasOwner(live, a.Owner) && !t.recorded(live)
			}
			return live, nil
		}
		result, err := desired(live)
		if err != nil {
			return live, err
		}
		a.claim(t, live, result)
		if decide.SameObject(live, result) || t.settled(live) {
			return live, nil
		}
		if err := a.begin(ctx, t); err != nil {
			return live, err
		}
		written, err := a.write(ctx, t, live, result)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
			last = err
			continue
		}
		if err != nil {
			return live, err
		}
		return written, nil
	}
	return nil, errContended(last)
}

// begin returns an error if an object must not be written now.
func (a *Applier) begin(ctx context.Context, t *Task) error {
	if err := a.MayWrite(ctx); err != nil {
		return err
	}
	return t.State.holdBack(a.Now())
}

func errContended(last error) error {
	return fmt.Errorf("the object changed during each of %d attempts to write it: %w", attempts, last)
}

// wrote stores the content that the server returned for the manifest, so that the same content is not
// written again. It counts the write if it was a repair.
func (a *Applier) wrote(t *Task, live *unstructured.Unstructured) {
	t.State.settled = settledKey(t, live)
	t.State.repaired(a.Now())
}

func (t *Task) settled(live *unstructured.Unstructured) bool {
	return t.State.settled == settledKey(t, live)
}

func settledKey(t *Task, live *unstructured.Unstructured) string {
	return t.Hash + "/" + decide.ContentHash(live)
}

// claim sets or removes the owner reference in result, and marks an object that existed before
// any ManifestWork applied it.
func (a *Applier) claim(t *Task, live, result *unstructured.Unstructured) {
	if a.foreign(t, live) {
		annotate(result, map[string]string{decide.AdoptedAnnotation: "true"})
	}
	if t.Orphan {
		decide.RemoveOwner(result, a.Owner)
	} else {
		decide.SetOwners(result, a.Owner)
	}
}

func annotate(object *unstructured.Unstructured, annotations map[string]string) {
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), annotations))
}

// foreign reports whether no ManifestWork owns a live object, and the current ManifestWork did not
// apply it.
func (a *Applier) foreign(t *Task, live *unstructured.Unstructured) bool {
	return len(decide.RecordOwners(live)) == 0 && !t.recorded(live)
}

func (t *Task) recorded(live *unstructured.Unstructured) bool {
	return t.RecordedUID != "" && t.RecordedUID == live.GetUID()
}

// create creates the object. It fails if the object exists. adopted is true for an object that replaces an adopted one.
func (a *Applier) create(ctx context.Context, t *Task, adopted bool) (*unstructured.Unstructured, error) {
	if err := a.begin(ctx, t); err != nil {
		return nil, err
	}
	object := t.Object.DeepCopy()
	if !t.Orphan {
		decide.SetOwners(object, a.Owner)
	}
	if adopted {
		annotate(object, map[string]string{decide.AdoptedAnnotation: "true"})
	}
	created, err := a.resource(t).Create(ctx, object, metav1.CreateOptions{FieldManager: a.Manager, FieldValidation: metav1.FieldValidationIgnore})
	if err != nil {
		return nil, err
	}
	t.RecordedUID, t.State.Borrowed = created.GetUID(), false
	a.wrote(t, created)
	return created, nil
}

// write replaces live with result. A binding whose role changes is deleted and created again,
// because its roleRef is immutable.
func (a *Applier) write(ctx context.Context, t *Task, live, result *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if t.GVK.Group != rbacv1.GroupName || equality.Semantic.DeepEqual(live.Object["roleRef"], result.Object["roleRef"]) {
		written, err := a.resource(t).Update(ctx, result, metav1.UpdateOptions{FieldManager: a.Manager, FieldValidation: metav1.FieldValidationIgnore})
		if err == nil {
			a.wrote(t, written)
		}
		return written, err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err := a.resource(t).Delete(ctx, t.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	_, adopted := result.GetAnnotations()[decide.AdoptedAnnotation]
	return a.create(ctx, t, adopted)
}
