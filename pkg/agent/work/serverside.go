package work

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// specHashAnnotation identifies, on an object with ignored fields, the manifest
// it was last applied from.
const specHashAnnotation = "open-cluster-management.io/config-spec-hash"

// ignoreFieldError is the error of ignoreFields that cannot be evaluated.
type ignoreFieldError struct{ err error }

func (e *ignoreFieldError) Error() string { return "ignoreFields: " + e.err.Error() }
func (e *ignoreFieldError) Unwrap() error { return e.err }

// serverSide applies the manifest by server-side apply.
func (a *applier) serverSide(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	settings := t.config.Strategy.ServerSideApply
	if settings == nil {
		settings = &workv1.ServerSideApplyConfig{}
	}
	var last error
	for range applyAttempts {
		live, err := a.resource(t).Get(ctx, t.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			live = nil
		case err != nil:
			return nil, err
		case live.GetDeletionTimestamp() != nil:
			return live, errTerminating
		case t.complete(live):
			return live, nil
		}
		if live != nil && t.state.settled == settledKey(t.hash, contentHash(live)) {
			return live, nil
		}
		desired, pinned, err := a.serverSideContent(ctx, t, live, settings.IgnoreFields)
		if err != nil {
			return live, err
		}
		if live != nil && t.state.applied && sameObject(live, enforce(live, desired)) {
			return live, nil
		}
		if err := t.state.holdBack(a.now()); err != nil {
			return live, err
		}
		manager := settings.FieldManager
		if manager == "" {
			manager = workv1.DefaultFieldManager
		}
		applied, err := a.resource(t).Apply(ctx, t.name, desired, metav1.ApplyOptions{FieldManager: manager, Force: ptr.Deref(settings.Force, false)})
		// A conflict of versions is worth another look at the object, a
		// conflict of managers is not.
		if pinned && apierrors.IsConflict(err) && !managersConflict(err) {
			last = err
			continue
		}
		if err != nil {
			return live, err
		}
		if t.orphan && removeOwner(applied, a.owner) {
			// Leaving the reference out of the apply removes it only if this
			// manager set it.
			if applied, err = a.resource(t).Update(ctx, applied, metav1.UpdateOptions{FieldManager: a.manager}); err != nil {
				return live, err
			}
		}
		t.state.settled = settledKey(t.hash, contentHash(applied))
		return applied, nil
	}
	return nil, fmt.Errorf("the object changes all the time: %w", last)
}

// serverSideContent returns what is applied over live, and whether it is
// pinned to the version of live.
func (a *applier) serverSideContent(ctx context.Context, t *task, live *unstructured.Unstructured, ignore []workv1.IgnoreField) (*unstructured.Unstructured, bool, error) {
	desired := t.object.DeepCopy()
	annotations := map[string]string{}
	if len(ignore) > 0 {
		hash, err := hashOf(t.object.Object)
		if err != nil {
			return nil, false, err
		}
		annotations[specHashAnnotation] = hash
	}
	pinned := false
	if live != nil {
		if _, adopted := live.GetAnnotations()[AdoptedAnnotation]; adopted || a.foreign(t, live) {
			annotations[AdoptedAnnotation] = "true"
		}
		unchanged := live.GetAnnotations()[specHashAnnotation] == annotations[specHashAnnotation]
		for _, field := range ignore {
			if field.Condition == workv1.IgnoreFieldsConditionOnSpokeChange && !unchanged {
				continue
			}
			if err := leaveToOthers(ctx, a.budget, desired, live, field); err != nil {
				return nil, false, &ignoreFieldError{err}
			}
			// What is left to others was judged by this version of the object.
			pinned = true
		}
	}
	if len(annotations) > 0 {
		desired.SetAnnotations(mergeStrings(desired.GetAnnotations(), annotations))
	}
	if !t.orphan {
		setOwner(desired, a.owner)
	}
	if pinned {
		desired.SetResourceVersion(live.GetResourceVersion())
	}
	return desired, pinned, nil
}

// leaveToOthers removes from desired the ignored fields that have another
// value in live. Fields with the same value stay: leaving out a field that
// only we own would delete it.
func leaveToOthers(ctx context.Context, budget *bounded.Budget, desired, live *unstructured.Unstructured, field workv1.IgnoreField) error {
	extent := bounded.ExtentOf(desired.Object)
	var paths [][]any
	for _, pointer := range field.JSONPointers {
		if err := budget.Spend(float64(fieldpath.ParseSteps * len(pointer))); err != nil {
			return notEvaluated(err)
		}
		path, err := fieldpath.ResolvePointer(desired.Object, pointer)
		if err != nil {
			return err
		}
		if path != nil {
			paths = append(paths, path)
		}
	}
	find := func(language, text string, parse func(string) (*fieldpath.JQ, error)) error {
		fail := func(err error) error { return fmt.Errorf("%s %q: %w", language, text, notEvaluated(err)) }
		if err := budget.Spend(float64(fieldpath.ParseSteps * len(text))); err != nil {
			return fail(err)
		}
		query, err := parse(text)
		if err != nil {
			return fail(err)
		}
		found, err := query.Paths(ctx, budget, desired.Object, extent)
		if err != nil {
			return fail(err)
		}
		paths = append(paths, found...)
		return nil
	}
	for _, path := range field.JSONPaths {
		if err := find("JSON path", path, fieldpath.ParseFields); err != nil {
			return err
		}
	}
	for _, expression := range field.JQPathExpressions {
		if err := find("jq path expression", expression, fieldpath.ParseJQ); err != nil {
			return err
		}
	}
	// From the back, so that removing an item of a list moves no other path.
	slices.SortFunc(paths, comparePaths)
	slices.Reverse(paths)
	for _, path := range paths {
		if len(path) == 0 {
			return errors.New("the whole object cannot be ignored")
		}
		value, ok := valueAt(desired.Object, path)
		if !ok {
			continue
		}
		if other, ok := counterpartAt(live.Object, desired.Object, path); ok && holds(other, value) {
			continue
		}
		removeAt(desired.Object, path)
	}
	return nil
}

// managersConflict reports whether server-side apply failed because another
// manager owns a field.
func managersConflict(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}
