package scheme

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/literal"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// validFuncs fill types of which not every value is valid JSON.
var validFuncs = func(serializer.CodecFactory) []any {
	return []any{
		func(quantity *literal.Quantity, c randfill.Continue) {
			quantity.JSON = strconv.Itoa(1+c.Intn(999)) + "000"
		},
		func(manifest *workv1.Manifest, c randfill.Continue) {
			raw := fmt.Sprintf(`{"apiVersion":"v1","data":{"n":"%d"},"kind":"ConfigMap","metadata":{"name":"c%d"}}`, c.Int63(), c.Int31())
			manifest.RawExtension = runtime.RawExtension{Raw: []byte(raw)}
		},
	}
}

// storedFuncs fill types with defaults, and types with fields that only one version has.
var storedFuncs = func(serializer.CodecFactory) []any {
	return []any{
		func(a *addon.ManagedClusterAddOn, c randfill.Continue) {
			c.FillNoCustom(a)
			a.Mismatches = nil
		},
		func(spec *addonv1alpha1.ManagedClusterAddOnSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.InstallNamespace = addonv1alpha1.DefaultInstallNamespace
		},
		func(status *addonv1alpha1.ManagedClusterAddOnStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.AddOnConfiguration = addonv1alpha1.ConfigCoordinates{}
			status.Registrations = []addonv1alpha1.RegistrationConfig{
				{SignerName: addonv1alpha1.KubeAPIServerClientSigner, Subject: addonv1alpha1.Subject{User: c.String(0)}},
				{SignerName: "example.com/addon", Subject: addonv1alpha1.Subject{User: c.String(0), OrganizationUnits: []string{c.String(0)}}},
			}
		},
		func(reference *addonv1alpha1.ConfigReference, c randfill.Continue) {
			c.FillNoCustom(reference)
			reference.ConfigReferent = addonv1alpha1.ConfigReferent{}
			if reference.DesiredConfig != nil {
				reference.ConfigReferent = reference.DesiredConfig.ConfigReferent
			}
		},
		func(spec *addonv1alpha1.ClusterManagementAddOnSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.AddOnConfiguration = addonv1alpha1.ConfigCoordinates{}
		},
		func(strategy *addonv1alpha1.InstallStrategy, c randfill.Continue) {
			c.FillNoCustom(strategy)
			strategy.Type = addonv1alpha1.InstallStrategyPlacements
		},
		func(strategy *addonv1alpha1.RolloutStrategy, c randfill.Continue) {
			c.FillNoCustom(strategy)
			strategy.Type = addonv1alpha1.RolloutTypeProgressive
		},
		func(spec *addonv1alpha1.AddOnDeploymentConfigSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			if spec.AgentInstallNamespace == nil {
				spec.AgentInstallNamespace = new(c.String(0))
			}
		},
		func(rotation *authenticationv1beta1.ManagedServiceAccountRotation, c randfill.Continue) {
			c.FillNoCustom(rotation)
			if rotation.Enabled == nil {
				rotation.Enabled = new(c.Bool())
			}
			if rotation.Validity == "" {
				rotation.Validity = "1h"
			}
		},
		func(spec *clusterv1.ManagedClusterSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			if spec.LeaseDurationSeconds == nil {
				spec.LeaseDurationSeconds = new(int32(60))
			}
		},
		func(selector *clusterv1beta2.ManagedClusterSelector, c randfill.Continue) {
			c.FillNoCustom(selector)
			if selector.SelectorType == "" {
				selector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
			}
		},
		func(spec *rbacv1alpha1.ClusterPermissionSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			// JSON does not distinguish a nil pointer from a pointer to a nil list.
			dropEmpty(&spec.ClusterRoleBindings)
			dropEmpty(&spec.Roles)
			dropEmpty(&spec.RoleBindings)
			dropEmpty(&spec.RoleRefs)
		},
		// Decoding replaces an empty value by the default.
		func(option *workv1.DeleteOption, c randfill.Continue) {
			c.FillNoCustom(option)
			if option.PropagationPolicy == "" {
				option.PropagationPolicy = workv1.DeletePropagationPolicyTypeForeground
			}
		},
		func(ignore *workv1.IgnoreField, c randfill.Continue) {
			c.FillNoCustom(ignore)
			if ignore.Condition == "" {
				ignore.Condition = workv1.IgnoreFieldsConditionOnSpokePresent
			}
		},
	}
}

func dropEmpty[T any](list **[]T) {
	if *list != nil && len(**list) == 0 {
		*list = nil
	}
}
