// Package fuzzer fills the types of the group addon.open-cluster-management.io with random valid values.
package fuzzer

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/literal"
)

// Funcs returns the functions for fields with defaults and for fields that only one of the versions has.
var Funcs = func(serializer.CodecFactory) []any {
	return []any{
		func(spec *addon.ManagedClusterAddOnSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.InstallNamespace = v1alpha1.DefaultInstallNamespace
		},
		func(status *addon.ManagedClusterAddOnStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.AddOnConfiguration = addon.ConfigCoordinates{}
			status.Registrations = []addon.RegistrationConfig{
				{SignerName: v1alpha1.KubeAPIServerClientSigner, Subject: addon.Subject{User: c.String(0)}},
				{SignerName: "example.com/addon", Subject: addon.Subject{User: c.String(0), OrganizationUnits: []string{c.String(0)}}},
			}
		},
		func(config *addon.RegistrationConfig, c randfill.Continue) {
			c.FillNoCustom(config)
			config.Mismatch = nil
		},
		func(reference *addon.ConfigReference, c randfill.Continue) {
			c.FillNoCustom(reference)
			reference.ConfigReferent = addon.ConfigReferent{}
			if reference.DesiredConfig != nil {
				reference.ConfigReferent = reference.DesiredConfig.ConfigReferent
			}
		},
		func(spec *addon.ClusterManagementAddOnSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.AddOnConfiguration = addon.ConfigCoordinates{}
		},
		func(strategy *addon.InstallStrategy, c randfill.Continue) {
			c.FillNoCustom(strategy)
			strategy.Type = v1alpha1.InstallStrategyPlacements
		},
		func(strategy *addon.RolloutStrategy, c randfill.Continue) {
			c.FillNoCustom(strategy)
			strategy.Type = addon.RolloutTypeProgressive
		},
		func(quantity *literal.Quantity, c randfill.Continue) {
			quantity.JSON = strconv.Itoa(1+c.Intn(999)) + "000"
		},
		func(spec *addon.AddOnDeploymentConfigSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			if spec.AgentInstallNamespace == nil {
				spec.AgentInstallNamespace = new(c.String(0))
			}
		},
	}
}
