package definition

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"open-cluster-management.io/hub-apiserver/pkg/apis/provenance"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// Object is an API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Strategy defines how objects of the internal type T are prepared and validated. Only Rules is
// required. T has the field Spec, and the field Status unless the resource has no status.
//
// All resources have this in common: A write of the object does not change its status, and a
// write of the status subresource changes nothing else. metadata.generation counts the changes
// of the spec. An update needs no resourceVersion, but a stale one is a conflict. PUT does not
// create objects.
type Strategy[T Object] struct {
	// ServerStatus is the name of the field of the status that only the server writes, if any: while it prepares an
	// object, and in subresources. Writes of the status do not change it.
	ServerStatus string

	// PrepareForCreate and PrepareForUpdate complete an object before its validation. Its status, and the labels and
	// annotations that only the server writes, are the stored ones, and they may change them.
	PrepareForCreate func(ctx context.Context, obj T)
	PrepareForUpdate func(ctx context.Context, obj, old T)

	// PrepareForImport completes an object that is imported with its status, before its validation. ctx
	// contains the caller of the import.
	PrepareForImport func(ctx context.Context, obj T)

	// Replaceable reports whether an adopted object may replace a stored one with another UID. Without it, none may.
	Replaceable func(stored T) bool

	// PrepareForStatusUpdate completes an object before the validation of its status.
	// Everything except the status is as stored.
	PrepareForStatusUpdate func(ctx context.Context, obj, old T)

	// Rules validate objects.
	Rules validate.Rules[T]

	// Words translates the path of an error into the words of a version that names the field differently.
	Words map[schema.GroupVersion]*strings.Replacer

	// Warnings returns the parts of a valid object that are likely mistakes.
	Warnings func(obj T) []string

	// SelectableFields are the fields that field selectors support in addition to metadata.name
	// and metadata.namespace.
	SelectableFields map[string]func(T) string
}

type importStrategy interface {
	prepareForImport(ctx context.Context, obj runtime.Object)
	replaceable(stored runtime.Object) bool
}

// AnyStrategy is a *Strategy of any type.
type AnyStrategy interface {
	hasStatus() bool
	selectableFields() []string
	bind(r *Resource, scheme *runtime.Scheme) strategies
}

// strategies are the strategies of the stores of one resource.
type strategies struct {
	main interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
		rest.RESTDeleteStrategy
		rest.ResetFieldsStrategy
	}
	status interface {
		rest.RESTUpdateStrategy
		rest.ResetFieldsStrategy
	}
	server     rest.RESTUpdateStrategy
	importing  importStrategy
	attributes func(runtime.Object) (labels.Set, fields.Set, error)
	parts      func(runtime.Object) quota.Parts
}

func (s *Strategy[T]) hasStatus() bool {
	_, found := reflect.TypeFor[T]().Elem().FieldByName("Status")
	return found
}

func (s *Strategy[T]) selectableFields() []string {
	return slices.Sorted(maps.Keys(s.SelectableFields))
}

func (s *Strategy[T]) bind(r *Resource, scheme *runtime.Scheme) strategies {
	main := &mainStrategy[T]{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, resource: r, s: s}
	main.serverLabels, main.serverAnnotations = provenance.ServerKeys(r.groupKind())
	return strategies{
		main: main, status: &statusStrategy[T]{mainStrategy: main}, server: &serverStrategy[T]{mainStrategy: main}, importing: main, attributes: s.attributes(r),
		parts: s.parts,
	}
}

// parts returns the parts of an object that have limits.
func (s *Strategy[T]) parts(obj runtime.Object) quota.Parts {
	typed, ok := obj.(T)
	if !ok {
		return quota.Parts{}
	}
	var status any
	if s.hasStatus() {
		status = part(typed, "Status").Addr().Interface()
	}
	return quota.PartsOf(obj, part(typed, "Spec").Addr().Interface(), status)
}

func (s *Strategy[T]) attributes(r *Resource) func(runtime.Object) (labels.Set, fields.Set, error) {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		typed := obj.(T)
		set := fields.Set{"metadata.name": typed.GetName()}
		if !r.ClusterScoped {
			set["metadata.namespace"] = typed.GetNamespace()
		}
		for name, value := range s.SelectableFields {
			set[name] = value(typed)
		}
		return labels.Set(typed.GetLabels()), set, nil
	}
}

// part returns a field of an object, at a path of names.
func part(obj any, path ...string) reflect.Value {
	value := reflect.ValueOf(obj).Elem()
	for _, name := range path {
		value = value.FieldByName(name)
	}
	return value
}

func sameSpec(a, b any) bool {
	return equality.Semantic.DeepEqual(part(a, "Spec").Addr().Interface(), part(b, "Spec").Addr().Interface())
}

type mainStrategy[T Object] struct {
	runtime.ObjectTyper
	names.NameGenerator
	resource *Resource
	s        *Strategy[T]
	// serverLabels and serverAnnotations are the keys that only the server may write.
	serverLabels, serverAnnotations []string
}

func (m *mainStrategy[T]) NamespaceScoped() bool                         { return !m.resource.ClusterScoped }
func (m *mainStrategy[T]) AllowCreateOnUpdate(context.Context) bool      { return false }
func (m *mainStrategy[T]) AllowUnconditionalUpdate(context.Context) bool { return true }
func (m *mainStrategy[T]) Canonicalize(runtime.Object)                   {}
func (m *mainStrategy[T]) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.DeleteDependents
}

func (m *mainStrategy[T]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	typed := obj.(T)
	if m.resource.HasStatus() {
		part(typed, "Status").SetZero()
	}
	typed.SetGeneration(1)
	m.keepServerMetadata(ctx, typed, &metav1.ObjectMeta{})
	if m.s.PrepareForCreate != nil {
		m.s.PrepareForCreate(ctx, typed)
	}
}

func (m *mainStrategy[T]) prepareForImport(ctx context.Context, obj runtime.Object) {
	typed := obj.(T)
	typed.SetGeneration(max(typed.GetGeneration(), 1))
	if m.s.PrepareForImport != nil {
		m.s.PrepareForImport(ctx, typed)
	}
}

func (m *mainStrategy[T]) replaceable(stored runtime.Object) bool {
	return m.s.Replaceable != nil && m.s.Replaceable(stored.(T))
}

func (m *mainStrategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	typed, typedOld := obj.(T), old.(T)
	if m.s.hasStatus() {
		part(typed, "Status").Set(part(typedOld, "Status"))
	}
	m.keepServerMetadata(ctx, typed, typedOld)
	if m.s.PrepareForUpdate != nil {
		m.s.PrepareForUpdate(ctx, typed, typedOld)
	}
	m.countSpec(typed, typedOld)
}

// countSpec counts a change of the spec in the generation.
func (m *mainStrategy[T]) countSpec(obj, old T) {
	if !sameSpec(obj, old) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// keepServerMetadata restores the labels and annotations that only the server may write.
func (m *mainStrategy[T]) keepServerMetadata(ctx context.Context, to, from metav1.Object) {
	if !ByServer(ctx) {
		to.SetLabels(kept(to.GetLabels(), from.GetLabels(), m.serverLabels))
		to.SetAnnotations(kept(to.GetAnnotations(), from.GetAnnotations(), m.serverAnnotations))
	}
}

// kept returns values with the entries that old has for the keys.
func kept(values, old map[string]string, keys []string) map[string]string {
	for _, key := range keys {
		value, had := old[key]
		if !had {
			delete(values, key)
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value
	}
	return values
}

func (m *mainStrategy[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	// The errors of an object that is too large would be too large as well.
	if errs := m.resource.Limits.Check(m.resource.Name, m.s.parts(obj), nil); len(errs) > 0 {
		return errs
	}
	return m.s.inWords(ctx, m.s.Rules.New(obj.(T)))
}

// ValidateUpdate does not check the limits of objects, because countUpdate does.
func (m *mainStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return m.s.inWords(ctx, m.s.Rules.Update(obj.(T), old.(T)))
}

// maxErrors limits the errors of one response: the time to write them is quadratic in their
// number.
const maxErrors = 100

// RequestVersion returns the version of the API in which a request writes an object.
func RequestVersion(ctx context.Context) schema.GroupVersion {
	info, _ := request.RequestInfoFrom(ctx)
	if info == nil {
		return schema.GroupVersion{}
	}
	return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
}

// inWords returns the first errors, in the words of the version of the request.
func (s *Strategy[T]) inWords(ctx context.Context, errs field.ErrorList) field.ErrorList {
	if words := s.Words[RequestVersion(ctx)]; words != nil {
		for _, err := range errs {
			err.Field = words.Replace(err.Field)
		}
	}
	return first(errs)
}

// first returns the first maxErrors errors and, if there are more, an error with their number.
func first(errs field.ErrorList) field.ErrorList {
	if len(errs) <= maxErrors {
		return errs
	}
	more := field.TooMany(field.NewPath("errors"), len(errs), maxErrors)
	return append(errs[:maxErrors:maxErrors], more)
}

func (m *mainStrategy[T]) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if m.s.Warnings == nil {
		return nil
	}
	return m.s.Warnings(obj.(T))
}

func (m *mainStrategy[T]) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if sameSpec(obj, old) {
		return nil
	}
	return m.WarningsOnCreate(ctx, obj)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (m *mainStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := fieldpath.NewSet()
	if m.s.hasStatus() {
		reset.Insert(fieldpath.MakePathOrDie("status"))
	}
	for _, key := range m.serverLabels {
		reset.Insert(fieldpath.MakePathOrDie("metadata", "labels", key))
	}
	for _, key := range m.serverAnnotations {
		reset.Insert(fieldpath.MakePathOrDie("metadata", "annotations", key))
	}
	if reset.Empty() {
		return nil
	}
	return m.resource.perVersion(reset)
}

type statusStrategy[T Object] struct {
	*mainStrategy[T]
}

func (s *statusStrategy[T]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	typed, typedOld := obj.(T), old.(T)
	part(typed, "Spec").Set(part(typedOld, "Spec"))
	if name := s.s.ServerStatus; name != "" {
		field := strings.ToUpper(name[:1]) + name[1:]
		part(typed, "Status", field).Set(part(typedOld, "Status", field))
	}
	metav1.ResetObjectMetaForStatus(typed, typedOld)
	if s.s.PrepareForStatusUpdate != nil {
		s.s.PrepareForStatusUpdate(ctx, typed, typedOld)
	}
}

func (s *statusStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.s.inWords(ctx, s.s.Rules.UpdateStatus(obj.(T), old.(T)))
}

func (s *statusStrategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *statusStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := fieldpath.NewSet(
		fieldpath.MakePathOrDie("spec"),
		fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
		fieldpath.MakePathOrDie("metadata", "deletionGracePeriodSeconds"),
		fieldpath.MakePathOrDie("metadata", "selfLink"),
		fieldpath.MakePathOrDie("metadata", "labels"),
		fieldpath.MakePathOrDie("metadata", "annotations"),
		fieldpath.MakePathOrDie("metadata", "finalizers"),
		fieldpath.MakePathOrDie("metadata", "ownerReferences"),
	)
	if s.s.ServerStatus != "" {
		reset.Insert(fieldpath.MakePathOrDie("status", s.s.ServerStatus))
	}
	return s.resource.perVersion(reset)
}

// serverStrategy stores an object as the server has changed it, without validation.
type serverStrategy[T Object] struct {
	*mainStrategy[T]
}

func (s *serverStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.countSpec(obj.(T), old.(T))
}

func (s *serverStrategy[T]) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func (s *serverStrategy[T]) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (r *Resource) perVersion(set *fieldpath.Set) map[fieldpath.APIVersion]*fieldpath.Set {
	out := make(map[fieldpath.APIVersion]*fieldpath.Set, len(r.Versions))
	for _, version := range r.Versions {
		out[fieldpath.APIVersion(version.String())] = set
	}
	return out
}
