// Package fuzzer fills the types of the group cluster.open-cluster-management.io with random valid values.
package fuzzer

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
)

// Funcs returns the functions for types whose random values do not survive a round trip.
var Funcs = func(serializer.CodecFactory) []any {
	return []any{
		func(spec *cluster.ManagedClusterSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			if spec.LeaseDurationSeconds == nil {
				spec.LeaseDurationSeconds = new(int32(60))
			}
		},
		func(selector *cluster.ManagedClusterSelector, c randfill.Continue) {
			c.FillNoCustom(selector)
			if selector.SelectorType == "" {
				selector.SelectorType = cluster.ExclusiveClusterSetLabel
			}
		},
	}
}
