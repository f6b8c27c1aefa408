package definition

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

var (
	nameColumn = metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
	ageColumn = metav1.TableColumnDefinition{
		Name: "Age", Type: "string",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}
)

func (c Columns[T]) definitions() (narrow, wide []metav1.TableColumnDefinition) {
	for _, column := range c {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string", Description: column.Description}
		if column.Wide {
			definition.Priority = 1
			wide = append(wide, definition)
		} else {
			narrow = append(narrow, definition)
		}
	}
	return narrow, wide
}

func (c Columns[T]) cells(obj runtime.Object) (narrow, wide []any) {
	typed := obj.(T)
	for i := range c {
		if c[i].Wide {
			wide = append(wide, c[i].Cell(typed))
		} else {
			narrow = append(narrow, c[i].Cell(typed))
		}
	}
	return narrow, wide
}

// NewTableConvertor returns a convertor for resources that are not rows of the table of stored resources.
func NewTableConvertor(columns ColumnSet) rest.TableConvertor {
	return tableConvertor{columns: columns}
}

// NewBareTableConvertor returns a convertor for objects that are computed for each request: without NAME and AGE.
func NewBareTableConvertor(columns ColumnSet) rest.TableConvertor {
	return tableConvertor{columns, true}
}

// tableConvertor implements rest.TableConvertor. The columns have the same order as for
// Pods: NAME, the narrow columns, AGE, the wide columns. A bare one omits NAME and AGE.
type tableConvertor struct {
	columns ColumnSet
	bare    bool
}

// ConvertToTable implements rest.TableConvertor.
func (t tableConvertor) ConvertToTable(_ context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	rows, err := metatable.MetaToTableRow(object, func(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
		narrow, wide := t.columns.cells(obj)
		return frame[any](t, name, narrow, age, wide), nil
	})
	if err != nil {
		return nil, fmt.Errorf("converting to a table: %w", err)
	}
	table.Rows = rows

	if list, err := meta.ListAccessor(object); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(object); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if options, ok := tableOptions.(*metav1.TableOptions); !ok || !options.NoHeaders {
		table.ColumnDefinitions = t.definitions()
	}
	return table, nil
}

func (t tableConvertor) definitions() []metav1.TableColumnDefinition {
	narrow, wide := t.columns.definitions()
	return frame(t, nameColumn, narrow, ageColumn, wide)
}

// frame orders what belongs to the columns.
func frame[T any](t tableConvertor, name T, narrow []T, age T, wide []T) []T {
	if t.bare {
		return slices.Concat(narrow, wide)
	}
	return slices.Concat([]T{name}, narrow, []T{age}, wide)
}

// Cell returns the cell of an object.
func (c *Column[T]) Cell(obj T) any {
	if c.Condition == "" {
		return c.Value(obj)
	}
	conditions := part(obj, "Status", "Conditions").Interface().([]metav1.Condition)
	if condition := meta.FindStatusCondition(conditions, c.Condition); condition != nil {
		return string(condition.Status)
	}
	return string(metav1.ConditionUnknown)
}
