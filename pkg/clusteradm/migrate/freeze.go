package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

const (
	// keepPolicy refuses writes of objects that CustomResourceDefinitions keep after a migration.
	keepPolicy = "hub-apiserver-migration-kept"
	// accountPolicy refuses writes of the Secrets of ManagedServiceAccounts, whose owners change.
	accountPolicy = "hub-apiserver-migration-secrets"
	accountLabel  = "authentication.open-cluster-management.io/is-managed-serviceaccount"

	freezeMessage = "objects of Open Cluster Management are being migrated; try again later"
	keepMessage   = "these objects are kept for a migration back, and the server serves the current ones"
)

// applyPolicy creates a policy that refuses all writes except those of a migration, and its binding.
func (m *migration) applyPolicy(ctx context.Context, name, message string, rule admissionregistrationv1.Rule, selector *metav1.LabelSelector) error {
	client := m.Kube.AdmissionregistrationV1()
	_, err := client.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy:    ptr.To(admissionregistrationv1.Exact),
				ObjectSelector: selector,
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
					Rule:       rule,
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "others", Expression: fmt.Sprintf("request.userInfo.username != '%s'", migrationv1alpha1.User)}},
			Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: message}},
		},
	}, metav1.CreateOptions{})
	if cli.IgnoreAlreadyExists(err) != nil {
		return err
	}
	_, err = client.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	return cli.IgnoreAlreadyExists(err)
}

func (m *migration) removePolicies(ctx context.Context, names ...string) error {
	client := m.Kube.AdmissionregistrationV1()
	var errs []error
	for _, name := range names {
		err := cli.IgnoreNotFound(client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}))
		if err == nil {
			err = cli.IgnoreNotFound(client.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writes returns the rule of all writes of the migrated kinds in a version.
func (m *migration) writes(version string) admissionregistrationv1.Rule {
	rule := admissionregistrationv1.Rule{APIVersions: []string{version}}
	for _, kind := range m.kinds {
		rule.APIGroups = append(rule.APIGroups, kind.Resource.Group)
		rule.Resources = append(rule.Resources, kind.Resource.Resource, kind.Resource.Resource+"/*")
	}
	return rule
}

// freeze refuses writes of the migrated kinds, on the hub and in the server.
func (m *migration) freeze(ctx context.Context) error {
	if err := m.applyPolicy(ctx, handover.FreezePolicy, freezeMessage, m.writes("*"), nil); err != nil {
		return err
	}
	for _, kind := range m.kinds {
		if err := m.awaitFrozen(ctx, kind.Served(), ""); err != nil {
			return err
		}
	}
	return nil
}

func (m *migration) freezeSecrets(ctx context.Context) error {
	rule := admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{secrets.Resource}}
	if err := m.applyPolicy(ctx, accountPolicy, freezeMessage, rule, &metav1.LabelSelector{MatchLabels: map[string]string{accountLabel: "true"}}); err != nil {
		return err
	}
	return m.awaitFrozen(ctx, secrets, accountLabel+"=true")
}

// awaitFrozen waits until the policy for a resource is in force: it tries to delete an object as another user, until that is
// refused. A change could be refused for another reason, such as its size.
func (m *migration) awaitFrozen(ctx context.Context, resource schema.GroupVersionResource, selector string) error {
	return cli.Prefix(cli.Poll(ctx, func(ctx context.Context) (string, error) {
		objects, err := m.metadata.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
		if err != nil || len(objects.Items) == 0 {
			return "", err
		}
		object := &objects.Items[0]
		err = m.caller.Resource(resource).Namespace(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return "writes are not refused yet", nil
		case strings.Contains(err.Error(), freezeMessage):
			return "", nil
		}
		return err.Error(), nil
	}), "waiting until writes of %s are refused", resource.GroupResource())
}
