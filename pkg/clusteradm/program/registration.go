package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// DefaultDriver is the registration driver of a program without --registration-auth.
const DefaultDriver = registerv1alpha1.DriverCSR

// ParseDrivers parses registration drivers. It keeps their order and drops duplicates.
func ParseDrivers(values []string) ([]registerv1alpha1.RegistrationDriver, error) {
	var drivers []registerv1alpha1.RegistrationDriver
	for _, value := range values {
		driver := registerv1alpha1.RegistrationDriver(strings.TrimSpace(value))
		switch driver {
		case registerv1alpha1.DriverCSR, registerv1alpha1.DriverAWSIRSA:
		case "awsirsa": // in the upstream clusteradm
			driver = registerv1alpha1.DriverAWSIRSA
		default:
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

// kubeconfigCluster returns the name of the cluster of the current context, or "" if there is none. On EKS it is the ARN.
func kubeconfigCluster(access *genericclioptions.ConfigFlags) string {
	if name := ptr.Deref(access.ClusterName, ""); name != "" {
		return name
	}
	raw, err := access.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	if current := raw.Contexts[cmp.Or(ptr.Deref(access.Context, ""), raw.CurrentContext)]; current != nil {
		return current.Cluster
	}
	return ""
}

// ClusterARN parses the ARN of an EKS cluster from a flag, or from the kubeconfig if the flag is not set.
func ClusterARN(access *genericclioptions.ConfigFlags, flag, value string) (irsa.ARN, error) {
	if value != "" {
		arn, err := irsa.ParseARN(value)
		return arn, cli.Prefix(err, "--%s", flag)
	}
	arn, err := irsa.ParseARN(kubeconfigCluster(access))
	if err != nil {
		return irsa.ARN{}, fmt.Errorf("--%s is required with --registration-auth=%s: the kubeconfig does not contain the ARN of this cluster", flag, registerv1alpha1.DriverAWSIRSA)
	}
	return arn, nil
}

// RoleARNAnnotation is the annotation with which EKS maps a ServiceAccount to an IAM role.
const RoleARNAnnotation = "eks.amazonaws.com/role-arn"

// RoleOf returns the IAM role of a ServiceAccount, or "" if it has none.
func RoleOf(ctx context.Context, kube kubernetes.Interface, namespace, name string) (string, error) {
	account, err := cli.Optional(kube.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{}))
	if err != nil || account == nil {
		return "", cli.Prefix(err, "the ServiceAccount %s in %s", name, namespace)
	}
	return account.Annotations[RoleARNAnnotation], nil
}

// SetRole maps a ServiceAccount of the manifests to an IAM role, unless that is empty.
func SetRole(objects []*unstructured.Unstructured, account, arn string) error {
	if arn == "" {
		return nil
	}
	object, err := manifests.Find(objects, "ServiceAccount", account, nil)
	if err == nil {
		object.SetAnnotations(map[string]string{RoleARNAnnotation: arn})
	}
	return err
}
