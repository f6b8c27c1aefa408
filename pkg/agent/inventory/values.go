package inventory

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	boundedquantity "open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

type content map[string]any

// at returns the value at a path, or nil if it does not exist.
func (c content) at(path []string) any {
	found, _, err := unstructured.NestedFieldNoCopy(c, path...)
	if err != nil {
		return nil
	}
	return found
}

func (c content) text(path ...string) string {
	text, _ := c.at(path).(string)
	return text
}

func (c content) each(path []string, visit func(content)) {
	elements, _ := c.at(path).([]any)
	for _, element := range elements {
		if m, ok := element.(map[string]any); ok {
			visit(m)
		}
	}
}

// at returns a function that converts the value at a path, or nil if there is none.
func at(path string, convert func(any) any) func(content) any {
	fields := strings.Split(path, ".")
	return func(c content) any { return convert(c.at(fields)) }
}

// value returns a function that returns a number, a boolean or a string unchanged.
func value(path string) func(content) any {
	return at(path, func(found any) any {
		switch found.(type) {
		case string, bool, int64, float64:
			return found
		}
		return nil
	})
}

// typed returns a function that returns a value of a type, or the zero value if the field is missing.
func typed[T any](path string) func(content) any {
	return at(path, func(found any) any { value, _ := found.(T); return value })
}

var text, count, flag = typed[string], typed[int64], typed[bool]

func length(path string) func(content) any {
	return at(path, func(found any) any { elements, _ := found.([]any); return int64(len(elements)) })
}

func list(path string) func(content) any {
	return at(path, func(found any) any {
		elements, _ := found.([]any)
		var texts []string
		for _, element := range elements {
			if text, ok := element.(string); ok {
				texts = append(texts, text)
			}
		}
		return texts
	})
}

func each(path, field string) func(content) any {
	fields := strings.Split(path, ".")
	return func(c content) any {
		var found []string
		c.each(fields, func(element content) {
			if text := element.text(field); text != "" && !slices.Contains(found, text) {
				found = append(found, text)
			}
		})
		return found
	}
}

func stringMap(path string) func(content) map[string]string {
	fields := strings.Split(path, ".")
	return func(c content) map[string]string {
		found, _, err := unstructured.NestedStringMap(c, fields...)
		if err != nil {
			return nil
		}
		return found
	}
}

func texts(path string) func(content) any {
	read := stringMap(path)
	return func(c content) any { return read(c) }
}

// quantity returns a function that returns a quantity in cores or bytes.
func quantity(path string, name corev1.ResourceName) func(content) any {
	fields := append(strings.Split(path, "."), string(name))
	return func(c content) any {
		text := c.text(fields...)
		if text == "" || boundedquantity.Check(text) != nil {
			return nil
		}
		parsed, err := apiresource.ParseQuantity(text)
		if err != nil {
			return nil
		}
		return parsed.Value()
	}
}

// conditions returns the status of each condition in status.conditions, by type.
func conditions(c content) map[string]string {
	found := map[string]string{}
	c.each([]string{"status", "conditions"}, func(condition content) {
		if kind := condition.text("type"); kind != "" {
			found[kind] = condition.text("status")
		}
	})
	return found
}
