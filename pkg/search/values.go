package search

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// NewCompletion returns the completion for all values, in any order. It contains at most limit of them, or all if limit
// is negative.
func NewCompletion(values []ValueCount, limit int) *Completion {
	if len(values) == 0 {
		return &Completion{}
	}
	completion := &Completion{Values: values, Times: true}
	numbers := make(map[string]float64, len(values))
	for _, value := range values {
		if number, is := query.ParseNumber(value.Value); is {
			numbers[value.Value] = number
		}
		completion.Times = completion.Times && query.IsTime(value.Value)
	}
	completion.Numbers = len(numbers) == len(values)
	slices.SortFunc(values, func(a, b ValueCount) int {
		x, isX := numbers[a.Value]
		y, isY := numbers[b.Value]
		if isX != isY {
			if isX {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a.Value, b.Value))
	})
	if completion.Numbers || completion.Times {
		completion.Min, completion.Max = values[0].Value, values[len(values)-1].Value
	}
	if limit >= 0 && limit < len(values) {
		completion.Values, completion.More = append([]ValueCount(nil), values[:limit]...), true
	}
	return completion
}

// OrderName returns a text that identifies an order.
func OrderName(orders []Order) string {
	var name strings.Builder
	for _, order := range orders {
		fmt.Fprintf(&name, "%q:%t ", order.Property, order.Descending)
	}
	return name.String()
}
