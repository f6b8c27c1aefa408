package rehome

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// arnAnnotation is the annotation with which a cluster claims an ARN.
const arnAnnotation = "agent.open-cluster-management.io/managed-cluster-arn"

// iamCluster is an adopted cluster that authenticates with IAM roles.
type iamCluster struct {
	name, arn string
	// former are the roles that belong to the other hub, and wanted those of this hub. wanted is nil if the server refuses
	// the claim, with the reason in refusal.
	former  registerv1alpha1.IRSAStatus
	wanted  *registerv1alpha1.ManagedClusterIRSAState
	refusal string
}

// enablesRoles reports whether the server enables the driver aws-irsa. It asks only if a cluster uses the driver.
func (a *adoption) enablesRoles(ctx context.Context) (bool, error) {
	for _, object := range a.archive.Objects {
		arn, found, _ := unstructured.NestedString(object.Object, "spec", "irsa", "managedClusterARN")
		if object.GetKind() != handover.KindRegistration || !found {
			continue
		}
		probe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.SchemeGroupVersion.String(), "kind": handover.KindManagedCluster,
			"metadata": map[string]any{"name": "adoption-" + rand.String(8), "annotations": map[string]any{arnAnnotation: arn}},
		}}
		_, err := a.Dynamic.Resource(clusterv1.SchemeGroupVersion.WithResource("managedclusters")).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsInvalid(err) {
			return !strings.Contains(err.Error(), "driver "+string(registerv1alpha1.DriverAWSIRSA)+" is not enabled"), nil
		}
		return err == nil, err
	}
	return false, nil
}

// addRoles prepares the registration of a cluster that authenticates with IAM roles. It keeps the claimed ARN, so that no
// other cluster can claim it. Without the driver, the cluster has to request a certificate.
func (a *adoption) addRoles(object *unstructured.Unstructured) {
	cluster := &iamCluster{name: object.GetName()}
	var registration registerv1alpha1.ManagedClusterRegistration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &registration); err == nil {
		if registration.Spec.IRSA != nil {
			cluster.arn = registration.Spec.IRSA.ManagedClusterARN
		}
		if registration.Status.IRSA != nil {
			cluster.former = *registration.Status.IRSA
		}
	}
	a.roles = append(a.roles, cluster)
	if !a.offersRoles {
		unstructured.RemoveNestedField(object.Object, "spec", "irsa")
		_ = unstructured.SetNestedField(object.Object, string(registerv1alpha1.DriverCSR), "spec", "driver") // spec is an object
	}
}

// claimRoles claims the ARN of each cluster for it on this hub, and reads the roles that it needs.
func (a *adoption) claimRoles(ctx context.Context) error {
	if !a.offersRoles {
		return nil
	}
	for _, cluster := range a.roles {
		claim := &registerv1alpha1.ManagedClusterIRSA{ObjectMeta: metav1.ObjectMeta{Name: cluster.name}, Spec: registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: cluster.arn}}
		err := cli.Persist(ctx, func(ctx context.Context) error {
			claimed, err := a.OCM.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(ctx, cluster.name, claim, metav1.CreateOptions{})
			if err == nil {
				cluster.wanted = &claimed.Status
			}
			return err
		})
		if apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			cluster.refusal = err.Error()
			continue
		}
		if err != nil {
			return fmt.Errorf("claim %s for ManagedCluster %s: %w", cluster.arn, cluster.name, err)
		}
	}
	return nil
}

// summarizeRoles prints what has to be done for each cluster that authenticates with IAM roles. AWS binds a role to one
// hub, so an agent cannot move by itself.
func (a *adoption) summarizeRoles() {
	if len(a.roles) == 0 {
		return
	}
	slices.SortFunc(a.roles, func(x, y *iamCluster) int { return strings.Compare(x.name, y.name) })
	if !a.offersRoles {
		a.Say("\nThese clusters authenticated with IAM roles, and the driver %s is not enabled on this hub. On each, run clusteradm join --registration-auth=csr.\nIf its agent did not report a key, then run clusteradm accept.", registerv1alpha1.DriverAWSIRSA)
	} else {
		a.Say("\nThese clusters authenticate with IAM roles, which belong to one hub. They stay accepted, and no other cluster can claim their ARNs. On each, run the\nclusteradm join that clusteradm get join-command of this hub prints, with these flags. If a role does not exist, the command prints how to create it.")
	}
	for _, cluster := range a.roles {
		a.Say("\n%s, %s", cli.Printable(cluster.name), cli.Printable(cluster.arn))
		roles := cluster.wanted
		switch {
		case cluster.refusal != "":
			a.Say("    the hub refuses its ARN: %s", cli.Printable(cluster.refusal))
		case roles != nil && roles.ManagedClusterRole != nil && roles.HubRole != nil:
			a.Say("%s", cli.ShellCommand(
				"clusteradm join", "--cluster-name "+cluster.name, "--registration-auth "+string(registerv1alpha1.DriverAWSIRSA),
				"--eks-hub-cluster-arn "+roles.HubClusterARN, "--managed-cluster-arn "+cluster.arn,
			))
			if roles.ManagedClusterRole.ARN == cluster.former.ManagedClusterRoleARN {
				a.Say("    Its role %s stays the same.", cli.Printable(roles.ManagedClusterRole.ARN))
				continue
			}
			a.Say("    Its agent assumes %s, and through it %s.", cli.Printable(roles.ManagedClusterRole.ARN), cli.Printable(roles.HubRole.ARN))
		}
		if cluster.former.ManagedClusterRoleARN != "" {
			a.Say("    Afterwards, delete the roles of the other hub: %s, %s.", cli.Printable(cluster.former.ManagedClusterRoleARN), cli.Printable(cluster.former.HubRoleARN))
		}
	}
}
