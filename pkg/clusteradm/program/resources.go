package clusteradm

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resourceSettings change the resources of a container. What they do not name is as in the manifest.
type resourceSettings struct {
	requests, limits map[string]string
}

// addFlags adds the flags. program is the program in the container.
func (r *resourceSettings) addFlags(flags *pflag.FlagSet, program string) {
	flags.StringToStringVar(&r.requests, "resource-requests", nil, "Resource requests of the "+program+", such as cpu=1,memory=2Gi. Defaults to those in the manifests.")
	flags.StringToStringVar(&r.limits, "resource-limits", nil, "Resource limits of the "+program+", such as memory=8Gi. Defaults to those in the manifests.")
}

// check returns the errors of the settings.
func (r *resourceSettings) check() []error {
	requests, errs := quantities("resource-requests", r.requests)
	limits, wrong := quantities("resource-limits", r.limits)
	errs = append(errs, wrong...)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if request, ok := requests[name]; ok && request.Cmp(limits[name]) > 0 {
			errs = append(errs, fmt.Errorf("--resource-requests: %s is more than its limit", name))
		}
	}
	return errs
}

func quantities(flag string, texts map[string]string) (map[string]resource.Quantity, []error) {
	parsed := map[string]resource.Quantity{}
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
			parsed[name] = quantity
		}
	}
	return parsed, errs
}

// operations returns the patch of the container.
func (r *resourceSettings) operations() []operation {
	var out []operation
	for _, field := range []struct {
		name   string
		values map[string]string
	}{{"requests", r.requests}, {"limits", r.limits}} {
		for _, name := range slices.Sorted(maps.Keys(field.values)) {
			out = append(out, operation{"add", containerPath + "/resources/" + field.name + "/" + name, field.values[name]})
		}
	}
	return out
}

// change sets the resources that the flags name.
func (r *resourceSettings) change(of *corev1.ResourceRequirements) error {
	requests, errs := quantities("resource-requests", r.requests)
	limits, wrong := quantities("resource-limits", r.limits)
	set := func(list *corev1.ResourceList, values map[string]resource.Quantity) {
		for name, value := range values {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[corev1.ResourceName(name)] = value
		}
	}
	set(&of.Requests, requests)
	set(&of.Limits, limits)
	return errors.Join(append(errs, wrong...)...)
}
