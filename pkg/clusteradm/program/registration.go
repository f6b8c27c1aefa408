package clusteradm

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// driverSpellings maps the names of registration drivers in this product and in the
// upstream clusteradm to drivers.
var driverSpellings = map[string]registerv1alpha1.RegistrationDriver{
	string(registerv1alpha1.DriverCSR):     registerv1alpha1.DriverCSR,
	string(registerv1alpha1.DriverAWSIRSA): registerv1alpha1.DriverAWSIRSA,
	"awsirsa":                              registerv1alpha1.DriverAWSIRSA,
}

// parseDrivers parses registration drivers. It keeps their order and drops duplicates.
func parseDrivers(values []string) ([]registerv1alpha1.RegistrationDriver, error) {
	var drivers []registerv1alpha1.RegistrationDriver
	for _, value := range values {
		driver, ok := driverSpellings[strings.TrimSpace(value)]
		if !ok {
			return nil, fmt.Errorf("--registration-auth must be %s or %s, not %q", registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA, value)
		}
		if !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	if len(drivers) == 0 {
		return nil, errors.New("--registration-auth must not be empty")
	}
	return drivers, nil
}

// clientConfig returns the client configuration for the cluster of the current context.
func clientConfig(access *genericclioptions.ConfigFlags) (*rest.Config, error) {
	config, err := access.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// A command sends a few dozen requests, and the server limits excessive load.
	config.QPS = -1
	return config, nil
}

// kubeconfigCluster returns the name of the cluster of the current context in the
// kubeconfig, or "" if there is none. On EKS it is the ARN.
func kubeconfigCluster(access *genericclioptions.ConfigFlags) string {
	if name := ptr.Deref(access.ClusterName, ""); name != "" {
		return name
	}
	raw, err := access.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	name := raw.CurrentContext
	if other := ptr.Deref(access.Context, ""); other != "" {
		name = other
	}
	if current := raw.Contexts[name]; current != nil {
		return current.Cluster
	}
	return ""
}

// clusterARN parses the ARN of an EKS cluster from a flag, or from the kubeconfig if the
// flag is not set.
func clusterARN(access *genericclioptions.ConfigFlags, flag, value string) (irsa.ARN, error) {
	given := value != ""
	if !given {
		value = kubeconfigCluster(access)
	}
	arn, err := irsa.ParseARN(value)
	switch {
	case err != nil && given:
		return irsa.ARN{}, fmt.Errorf("--%s: %w", flag, err)
	case err != nil:
		return irsa.ARN{}, fmt.Errorf("--%s is required with --registration-auth=%s: the kubeconfig does not contain the ARN of this cluster", flag, registerv1alpha1.DriverAWSIRSA)
	}
	return arn, nil
}
