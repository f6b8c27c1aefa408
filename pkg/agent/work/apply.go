package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// AdoptedAnnotation marks an object that was there before any work applied it.
// Such an object is left in place when the last work lets go of it.
const AdoptedAnnotation = "work.open-cluster-management.io/adopted"

// applyAttempts is how often one pass tries again when somebody else changes
// the object at the same time.
const applyAttempts = 4

// errTerminating is the error of an object that is being deleted: it can be
// applied again once it is gone, which its watch reports.
var errTerminating = errors.New("the object is being deleted; it is applied again once it is gone")

// errAbsent is the error of a ReadOnly manifest whose object does not exist.
var errAbsent = errors.New("the object does not exist, and the update strategy ReadOnly does not create it")

// heldBackError is the error of a repair that is put off because the object
// has been repaired too often: some other writer keeps changing it.
type heldBackError struct{ until time.Time }

func (e *heldBackError) Error() string {
	return "another writer keeps changing the object; its repair is held back until " + e.until.UTC().Format(time.RFC3339)
}

// applier applies the manifests of one work. It has no state of its own.
type applier struct {
	client  dynamic.Interface
	owner   metav1.OwnerReference
	manager string
	// guarded is whether the work may change only what it made: see guard.go.
	guarded bool
	// unguarded tells which other works may change anything.
	unguarded func(metav1.OwnerReference) bool
	now       func() time.Time
	// named is whether the work names an executor, which under CreateOnly needs
	// no permission to update.
	named bool
	// mayReplace returns why an object must not be deleted to be made again.
	mayReplace func(context.Context, *item) error
	// budget is what the expressions of the work may still cost.
	budget *bounded.Budget
}

// task is one manifest to apply, with what is remembered about its object.
type task struct {
	*item
	// recordedUID is the UID of the object as the work last applied it; empty
	// if it never did.
	recordedUID types.UID
	// former holds the fields that earlier versions of the manifest gave.
	former fields
	state  *itemState
	// complete reports whether a live object is complete and must not be updated.
	complete func(*unstructured.Unstructured) bool
}

func (a *applier) resource(t *task) dynamic.ResourceInterface {
	if t.namespace == "" {
		return a.client.Resource(t.gvr)
	}
	return a.client.Resource(t.gvr).Namespace(t.namespace)
}

// apply brings one object to what its manifest gives, by the update strategy.
// It returns the live object, if there is one, also along with an error.
func (a *applier) apply(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	switch t.config.Strategy.Type {
	case workv1.UpdateStrategyTypeReadOnly:
		live, err := a.resource(t).Get(ctx, t.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, errAbsent
		}
		return live, err
	case workv1.UpdateStrategyTypeCreateOnly:
		return a.converge(ctx, t, a.leaveContent)
	case workv1.UpdateStrategyTypeServerSideApply:
		if a.guarded {
			return nil, errGuardedApply
		}
		return a.serverSide(ctx, t)
	case workv1.UpdateStrategyTypeUpdate:
		return a.converge(ctx, t, a.updateContent)
	default:
		return nil, fmt.Errorf("unknown update strategy %q", t.config.Strategy.Type)
	}
}

// converge creates the object or changes it to what desired makes of it.
func (a *applier) converge(ctx context.Context, t *task, desired func(*task, *unstructured.Unstructured) *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	// An object that the work never applied most likely does not exist.
	createFirst := t.recordedUID == "" && !t.state.applied
	var last error
	for range applyAttempts {
		var live *unstructured.Unstructured
		err := errNotRead
		if !createFirst {
			live, err = a.resource(t).Get(ctx, t.name, metav1.GetOptions{})
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
		if err := a.judge(t, live); err != nil {
			return live, err
		}
		if live.GetDeletionTimestamp() != nil {
			return live, errTerminating
		}
		if t.complete(live) || a.untouched(t, live) {
			return live, nil
		}
		if a.named && t.config.Strategy.Type == workv1.UpdateStrategyTypeCreateOnly {
			if !a.guarded {
				t.state.borrowed = !a.applied(t, live)
			}
			return live, nil
		}
		result := desired(t, live)
		a.claim(t, live, result)
		if sameObject(live, result) || t.state.settled == settledKey(t.hash, contentHash(live)) {
			return live, nil
		}
		if err := t.state.holdBack(a.now()); err != nil {
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
		t.state.settled = settledKey(t.hash, contentHash(written))
		return written, nil
	}
	return nil, fmt.Errorf("the object changes all the time: %w", last)
}

// errNotRead stands for the result of a read that was left out.
var errNotRead = errors.New("not read")

func settledKey(hash, content string) string { return hash + "/" + content }

// leaveContent is the desired state under CreateOnly: what is there already.
func (a *applier) leaveContent(_ *task, live *unstructured.Unstructured) *unstructured.Unstructured {
	return live.DeepCopy()
}

// updateContent is the desired state under Update: what is there already, with
// all that the manifest gives and without what it gave formerly.
func (a *applier) updateContent(t *task, live *unstructured.Unstructured) *unstructured.Unstructured {
	result := enforce(live, t.object)
	dropFormer(result.Object, t.object.Object, t.former)
	return result
}

// claim makes result refer to the AppliedManifestWork, or not, and marks what
// was there before any work applied it.
func (a *applier) claim(t *task, live, result *unstructured.Unstructured) {
	if a.foreign(t, live) {
		annotations := result.GetAnnotations()
		result.SetAnnotations(mergeStrings(annotations, map[string]string{AdoptedAnnotation: "true"}))
	}
	if t.orphan {
		removeOwner(result, a.owner)
	} else {
		setOwner(result, a.owner)
	}
}

// foreign reports whether a live object came from somebody else: no work owns
// it, and it is not the object that this work has recorded as applied.
func (a *applier) foreign(t *task, live *unstructured.Unstructured) bool {
	return len(recordOwners(live)) == 0 && (t.recordedUID == "" || t.recordedUID != live.GetUID())
}

// applied reports whether a live object is one that the work has applied.
func (a *applier) applied(t *task, live *unstructured.Unstructured) bool {
	return hasOwner(live, a.owner) || t.recordedUID != "" && t.recordedUID == live.GetUID()
}

// recordOwners returns the references of an object to AppliedManifestWorks.
func recordOwners(object metav1.Object) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		if owner.APIVersion == recordAPIVersion && owner.Kind == recordKind {
			owners = append(owners, owner)
		}
	}
	return owners
}

// create creates the object. It fails if the object exists.
func (a *applier) create(ctx context.Context, t *task, adopted bool) (*unstructured.Unstructured, error) {
	if err := t.state.holdBack(a.now()); err != nil {
		return nil, err
	}
	object := t.object.DeepCopy()
	if !t.orphan {
		setOwner(object, a.owner)
	}
	if adopted {
		object.SetAnnotations(mergeStrings(object.GetAnnotations(), map[string]string{AdoptedAnnotation: "true"}))
	}
	created, err := a.resource(t).Create(ctx, object, metav1.CreateOptions{FieldManager: a.manager, FieldValidation: metav1.FieldValidationIgnore})
	if err != nil {
		return nil, err
	}
	t.recordedUID, t.state.borrowed = created.GetUID(), false
	t.state.settled = settledKey(t.hash, contentHash(created))
	return created, nil
}

// write stores result over live. A binding whose role changes is replaced,
// since its roleRef cannot be changed.
func (a *applier) write(ctx context.Context, t *task, live, result *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if t.gvk.Group == rbacGroup && !equality.Semantic.DeepEqual(live.Object["roleRef"], result.Object["roleRef"]) {
		if t.orphan {
			if err := a.mayReplace(ctx, t.item); err != nil {
				return nil, err
			}
		}
		uid := live.GetUID()
		version := live.GetResourceVersion()
		err := a.resource(t).Delete(ctx, t.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		_, adopted := result.GetAnnotations()[AdoptedAnnotation]
		return a.create(ctx, t, adopted)
	}
	return a.resource(t).Update(ctx, result, metav1.UpdateOptions{FieldManager: a.manager, FieldValidation: metav1.FieldValidationIgnore})
}

// fieldManager returns the field manager under which a work writes. Each work
// has its own, so that managed fields tell which work set what.
func fieldManager(record string) string {
	hash, _ := hashOf(record)
	return workv1.DefaultFieldManager + "-" + hash[:10]
}

// maxWorkName is the longest name of a work whose AppliedManifestWork can be named.
const maxWorkName = validation.DNS1123SubdomainMaxLength - 65
