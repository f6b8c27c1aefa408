// Package fuzzer fills the types of the group work.open-cluster-management.io with random valid values.
package fuzzer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Funcs returns the functions for types whose random values do not survive a round trip.
var Funcs = func(serializer.CodecFactory) []any {
	return []any{
		func(manifest *work.Manifest, c randfill.Continue) {
			manifest.RawExtension = randomObject(c)
		},
		func(manifest *workv1.Manifest, c randfill.Continue) {
			manifest.RawExtension = randomObject(c)
		},
		// Decoding replaces an empty value by the default.
		func(option *work.DeleteOption, c randfill.Continue) {
			c.FillNoCustom(option)
			if option.PropagationPolicy == "" {
				option.PropagationPolicy = work.DeletePropagationPolicyTypeForeground
			}
		},
		func(ignore *work.IgnoreField, c randfill.Continue) {
			c.FillNoCustom(ignore)
			if ignore.Condition == "" {
				ignore.Condition = work.IgnoreFieldsConditionOnSpokePresent
			}
		},
	}
}

func randomObject(c randfill.Continue) runtime.RawExtension {
	raw := fmt.Sprintf(`{"apiVersion":"v1","data":{"n":"%d"},"kind":"ConfigMap","metadata":{"name":"c%d"}}`, c.Int63(), c.Int31())
	return runtime.RawExtension{Raw: []byte(raw)}
}
