package program

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Resources change the resources of a container. What they do not name is as in the manifest, or as installed.
type Resources struct {
	requests, limits map[string]string
}

// AddFlags adds the flags. program is the program in the container.
func (r *Resources) AddFlags(flags *pflag.FlagSet, program string) {
	flags.StringToStringVar(&r.requests, "resource-requests", nil, "Resource requests of the "+program+", such as cpu=1,memory=2Gi. Defaults to those in the manifests.")
	flags.StringToStringVar(&r.limits, "resource-limits", nil, "Resource limits of the "+program+", such as memory=8Gi. Defaults to those in the manifests.")
}

// Check returns the errors of the settings.
func (r *Resources) Check() []error {
	requests, errs := quantities("resource-requests", r.requests)
	limits, wrong := quantities("resource-limits", r.limits)
	errs = append(errs, wrong...)
	for name, limit := range limits {
		if request := requests[name]; request.Cmp(limit) > 0 {
			errs = append(errs, fmt.Errorf("--resource-requests: %s is more than its limit", name))
		}
	}
	return errs
}

func quantities(flag string, texts map[string]string) (corev1.ResourceList, []error) {
	parsed := corev1.ResourceList{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		quantity, err := resource.ParseQuantity(texts[name])
		switch {
		case name != string(corev1.ResourceCPU) && name != string(corev1.ResourceMemory):
			errs = append(errs, fmt.Errorf("--%s must be of cpu or memory, not %q", flag, name))
		case err != nil:
			errs = append(errs, fmt.Errorf("--%s: %s %q: %w", flag, name, texts[name], err))
		case quantity.Sign() <= 0:
			errs = append(errs, fmt.Errorf("--%s: %s must be more than 0, not %q", flag, name, texts[name]))
		default:
			parsed[corev1.ResourceName(name)] = quantity
		}
	}
	return parsed, errs
}

// Set sets the resources that the flags name in a container.
func (r *Resources) Set(container map[string]any) {
	for field, values := range map[string]map[string]string{"requests": r.requests, "limits": r.limits} {
		for name, value := range values {
			_ = unstructured.SetNestedField(container, value, "resources", field, name) // they are maps
		}
	}
}
