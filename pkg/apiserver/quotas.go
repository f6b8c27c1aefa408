package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Quotas are the limits that flags set. They override the limits of the rows of the table.
type Quotas struct {
	// Objects and Bytes limit the objects of a resource in a namespace, by the name of the resource. 0
	// means no limit.
	Objects, Bytes map[string]string
	// ObjectLimits limit each object. The key is <limit> for all resources, or <resource>.<limit>.
	ObjectLimits map[string]string
}

func (q *Quotas) Validate() []error {
	var names, supported []string
	for _, row := range Resources(Dependencies{}) {
		names = append(names, row.Name)
		if row.Quota != (quota.Limits{}) {
			supported = append(supported, row.Name)
		}
	}
	slices.Sort(supported)
	var errs []error
	for flag, values := range map[string]map[string]string{"--namespace-quota-objects": q.Objects, "--namespace-quota-bytes": q.Bytes} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if !slices.Contains(supported, name) {
				errs = append(errs, fmt.Errorf("%s: %q is not a resource with a quota; supported resources: %s", flag, name, strings.Join(supported, ", ")))
			}
			if _, err := quota.Parse(values[name]); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", flag, name, err))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(q.ObjectLimits)) {
		name, limit, of := strings.Cut(key, ".")
		if !of {
			limit = key
		} else if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("--object-limits: %q is not a resource", name))
		}
		if err := new(quota.ObjectLimits).Set(limit, q.ObjectLimits[key]); err != nil {
			errs = append(errs, fmt.Errorf("--object-limits: %s: %w", key, err))
		}
	}
	return errs
}

// apply sets the limits and the counter of a row. It ignores values that Validate refuses.
func (q *Quotas) apply(row *definition.Resource) {
	row.Limits = row.Limits.OrDefault()
	if q == nil {
		return
	}
	for _, prefix := range []string{"", row.Name + "."} {
		for key, value := range q.ObjectLimits {
			if limit, ours := strings.CutPrefix(key, prefix); ours {
				_ = row.Limits.Set(limit, value)
			}
		}
	}
	if row.Quota == (quota.Limits{}) {
		return
	}
	if limit, err := quota.Parse(q.Objects[row.Name]); err == nil {
		row.Quota.Objects = limit
	}
	if limit, err := quota.Parse(q.Bytes[row.Name]); err == nil {
		row.Quota.Bytes = limit
	}
	row.Counter = quota.NewCounter(row.GroupResource(), row.Quota)
}
