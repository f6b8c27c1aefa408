package validate

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

// Rules validate the objects of a kind. Only Name is required.
type Rules[T metav1.Object] struct {
	ClusterScoped bool
	// Name checks the name of a new object.
	Name apivalidation.ValidateNameFunc
	// Create checks what updates cannot change, Spec checks the spec, and Status the status except its conditions.
	Create, Spec, Status func(obj T) field.ErrorList
	// Change compares a changed spec with the stored one.
	Change func(obj, old T) field.ErrorList
}

// New validates a new object.
func (r Rules[T]) New(obj T) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(obj, !r.ClusterScoped, r.Name, field.NewPath("metadata"))
	for _, check := range []func(T) field.ErrorList{r.Create, r.Spec} {
		if check != nil {
			errs = append(errs, check(obj)...)
		}
	}
	return errs
}

// Update validates an update of an object. It ignores errors in parts of the spec that the update does not change. The
// generic registry validates the metadata of updates.
func (r Rules[T]) Update(obj, old T) field.ErrorList {
	if apiequality.Semantic.DeepEqual(specOf(obj), specOf(old)) {
		return nil
	}
	errs := ratcheted(obj, old, r.Spec)
	if r.Change != nil {
		errs = append(errs, r.Change(obj, old)...)
	}
	return errs
}

// UpdateStatus validates an update of the status of an object.
func (r Rules[T]) UpdateStatus(obj, old T) field.ErrorList { return ratcheted(obj, old, r.status) }

func (r Rules[T]) status(obj T) field.ErrorList {
	var errs field.ErrorList
	status := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if conditions := status.FieldByName("Conditions"); conditions.IsValid() {
		errs = metav1validation.ValidateConditions(conditions.Interface().([]metav1.Condition), field.NewPath("status", "conditions"))
	}
	if r.Status != nil {
		errs = append(errs, r.Status(obj)...)
	}
	return errs
}

func ratcheted[T any](obj, old T, check func(T) field.ErrorList) field.ErrorList {
	if check == nil {
		return nil
	}
	errs := check(obj)
	if len(errs) == 0 {
		return nil
	}
	return ratchet.Filter(errs, check(old), obj, old)
}

func specOf(obj any) any { return reflect.ValueOf(obj).Elem().FieldByName("Spec").Interface() }
