// Package fuzzer fills the types of the group authentication.open-cluster-management.io with random valid values.
package fuzzer

import (
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
)

// Funcs returns the functions for types whose random values do not survive a round trip.
var Funcs = func(serializer.CodecFactory) []any {
	return []any{
		func(rotation *authentication.ManagedServiceAccountRotation, c randfill.Continue) {
			c.FillNoCustom(rotation)
			if rotation.Enabled == nil {
				rotation.Enabled = new(c.Bool())
			}
			if rotation.Validity == "" {
				rotation.Validity = "1h"
			}
		},
	}
}
