package clusteradm

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
)

const (
	// migrationUser is the user as which clusteradm writes during a migration. Nobody else may write then.
	migrationUser = migrationv1alpha1.User
	// freezePolicy refuses writes during a migration, and keepPolicy writes of objects that CustomResourceDefinitions
	// keep after it.
	freezePolicy = "hub-apiserver-migration"
	keepPolicy   = "hub-apiserver-migration-kept"
	// accountPolicy refuses writes of the Secrets of ManagedServiceAccounts.
	accountPolicy = "hub-apiserver-migration-secrets"
	accountLabel  = "authentication.open-cluster-management.io/is-managed-serviceaccount"

	freezeMessage = "objects of Open Cluster Management are being migrated; try again later"
	keepMessage   = "these objects are kept for a migration back, and the server serves the current ones"

	// leaseName is the Lease of the replica that runs the controllers of the server.
	leaseName = "hub-apiserver-controllers"
	// heldSeconds is the duration of the Lease of a migration, which ends when the migration releases it.
	heldSeconds = 10 * 365 * 24 * 3600
	// noticePeriod is the time in which every replica notices that, with the default settings of its Lease.
	noticePeriod = 15 * time.Second
)

// policy returns a policy that refuses all writes except those of a migration, and its binding.
func policy(name, message string, versions, groups, resources []string, selector *metav1.LabelSelector) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: ptr.To(admissionregistrationv1.Fail),
				MatchConstraints: &admissionregistrationv1.MatchResources{
					MatchPolicy:    ptr.To(admissionregistrationv1.Exact),
					ObjectSelector: selector,
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
						Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: versions, Resources: resources},
					}}},
				},
				MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "others", Expression: fmt.Sprintf("request.userInfo.username != '%s'", migrationUser)}},
				Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: message}},
			},
		}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
}

func (m *migration) applyPolicy(ctx context.Context, name, message string, versions, groups, resources []string, selector *metav1.LabelSelector) error {
	policy, binding := policy(name, message, versions, groups, resources, selector)
	client := m.kube.AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err := client.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (m *migration) removePolicy(ctx context.Context, name string) error {
	client := m.kube.AdmissionregistrationV1()
	if err := client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := client.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (m *migration) groups() []string {
	var groups []string
	for _, kind := range m.kinds {
		groups = append(groups, kind.resource.Group)
	}
	return groups
}

func (m *migration) resources() []string {
	var resources []string
	for _, kind := range m.kinds {
		resources = append(resources, kind.resource.Resource, kind.resource.Resource+"/*")
	}
	return resources
}

// freeze refuses writes of the migrated kinds, on the hub and in the server, and waits until that is in force.
func (m *migration) freeze(ctx context.Context) error {
	if err := m.applyPolicy(ctx, freezePolicy, freezeMessage, []string{"*"}, m.groups(), m.resources(), nil); err != nil {
		return err
	}
	return m.waitFrozen(ctx)
}

// waitFrozen tries to delete an object of each kind as another user, until it is refused. A change could be refused for
// another reason, such as its size.
func (m *migration) waitFrozen(ctx context.Context) error {
	for _, kind := range m.kinds {
		objects, err := m.client.Resource(kind.served()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if len(objects.Items) == 0 {
			continue
		}
		object := &objects.Items[0]
		if err := poll(ctx, func(ctx context.Context) (string, error) {
			err := m.other.Resource(kind.served()).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case err == nil:
				return "writes are not refused yet", nil
			case strings.Contains(err.Error(), freezeMessage):
				return "", nil
			}
			return err.Error(), nil
		}); err != nil {
			return fmt.Errorf("waiting until writes of %s are refused: %w", kind.resource, err)
		}
	}
	return nil
}

// freezeSecrets refuses writes of the Secrets of ManagedServiceAccounts, whose owners change.
func (m *migration) freezeSecrets(ctx context.Context) error {
	return m.applyPolicy(ctx, accountPolicy, freezeMessage, []string{"v1"}, []string{""}, []string{"secrets"},
		&metav1.LabelSelector{MatchLabels: map[string]string{accountLabel: "true"}})
}

// keepUnchanged refuses writes of the objects that the CustomResourceDefinitions keep.
func (m *migration) keepUnchanged(ctx context.Context) error {
	return m.applyPolicy(ctx, keepPolicy, keepMessage, []string{keptVersion}, m.groups(), m.resources(), nil)
}

// writesFrozen reports whether a migration refuses writes.
func writesFrozen(ctx context.Context, kube kubernetes.Interface) (bool, error) {
	_, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, freezePolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// migration is the check of a migration that has not ended. It is healthy without a finding.
func (d *hubDoctor) migration(ctx context.Context) []finding {
	const subject, remedy = "migration", "run clusteradm migrate again, with --to server or --to crds"
	frozen, err := writesFrozen(ctx, d.kube)
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	if frozen {
		return []finding{bad(subject, "it has not ended, and writes of ManifestWorks, clusters, ClusterPermissions and accounts are refused", remedy)}
	}
	lease, err := d.kube.CoordinationV1().Leases(hubNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return []finding{unknown(subject, err)}
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") == migrationUser {
		return []finding{warning(subject, "the server waits for it: its controllers do not run", remedy+", clusteradm hub adopt if that was interrupted, or clusteradm init --standby=false if the hub needs neither")}
	}
	return nil
}

// waitNoticed waits until each replica of the server has noticed that a migration holds the Lease: the replica that had
// it tries to renew it for that long. Then all watches have ended, and clients list the objects again.
func waitNoticed(ctx context.Context, kube kubernetes.Interface) error {
	lease, err := kube.CoordinationV1().Leases(hubNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease.Spec.AcquireTime == nil {
		return nil
	}
	timer := time.NewTimer(time.Until(lease.Spec.AcquireTime.Add(noticePeriod)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holdControllers prevents that a replica of the server runs the controllers, by its Lease.
func holdControllers(ctx context.Context, kube kubernetes.Interface) error {
	client := kube.CoordinationV1().Leases(hubNamespace)
	now := metav1.NowMicro()
	held := coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(migrationUser), LeaseDurationSeconds: ptr.To[int32](heldSeconds), AcquireTime: &now, RenewTime: &now,
	}
	return changeLease(ctx, client, true, func(spec *coordinationv1.LeaseSpec) bool {
		if ptr.Deref(spec.HolderIdentity, "") == migrationUser {
			return false
		}
		transitions := ptr.Deref(spec.LeaseTransitions, 0) + 1
		*spec = held
		spec.LeaseTransitions = &transitions
		return true
	})
}

// releaseControllers lets the server run its controllers.
func releaseControllers(ctx context.Context, kube kubernetes.Interface) error {
	return changeLease(ctx, kube.CoordinationV1().Leases(hubNamespace), false, func(spec *coordinationv1.LeaseSpec) bool {
		if ptr.Deref(spec.HolderIdentity, "") != migrationUser {
			return false
		}
		spec.HolderIdentity, spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		return true
	})
}

// changeLease changes the Lease, again while others change it. A replica of the server renews it every two seconds.
func changeLease(ctx context.Context, client coordinationclient.LeaseInterface, create bool, change func(*coordinationv1.LeaseSpec) bool) error {
	return poll(ctx, func(ctx context.Context) (string, error) {
		lease, err := client.Get(ctx, leaseName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if !create {
				return "", nil
			}
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}
			change(&lease.Spec)
			if _, err = client.Create(ctx, lease, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
				return "the Lease exists", nil
			}
			return "", err
		}
		if err != nil || !change(&lease.Spec) {
			return "", err
		}
		_, err = client.Update(ctx, lease, metav1.UpdateOptions{})
		return "", err // poll repeats a conflict
	})
}
