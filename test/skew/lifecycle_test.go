//go:build skew

package skew

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

var getOptions = metav1.GetOptions{}

// objects are an account, the permissions that it and users get, and a ManifestWork that the account
// executes. All have the same name.
type objects struct {
	name string
	// configMap is the UID of the ConfigMap of the ManifestWork, and token the token of the account.
	configMap types.UID
	token     string
}

// TestSkew runs a cluster from joining to leaving with programs of two releases.
func TestSkew(t *testing.T) {
	for name, c := range map[string]combination{
		"agent of the previous release":                 {server: current, agent: previous, clusteradm: current},
		"clusteradm of the previous release":            {server: current, agent: current, clusteradm: previous},
		"agent and clusteradm of the previous release":  {server: current, agent: previous, clusteradm: previous},
		"server of the previous release":                {server: previous, agent: current, clusteradm: current},
		"server and agent of the previous release":      {server: previous, agent: previous, clusteradm: current},
		"server and clusteradm of the previous release": {server: previous, agent: current, clusteradm: previous},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, c)
			f.leave(t, f.deliver(t, "skew"))
		})
	}
}

// TestUpgradeInPlace upgrades the server on its data, then the agent, and then downgrades the agent.
func TestUpgradeInPlace(t *testing.T) {
	f := start(t, combination{server: previous, agent: previous, clusteradm: previous})
	first := f.deliver(t, "first")
	invitation := f.replaceServer(t, current)
	f.unchanged(t, first)
	second := f.deliver(t, "second")

	f.replaceAgent(t, current, invitation)
	f.unchanged(t, first, second)
	f.changePermission(t, first.name)
	third := f.deliver(t, "third")

	f.replaceAgent(t, previous, invitation)
	f.unchanged(t, first, second, third)
	f.changePermission(t, third.name)
	f.leave(t, first, second, third, f.deliver(t, "fourth"))
}

// deliver creates objects, and waits until the agent has applied them and search finds them.
func (f *fleet) deliver(t *testing.T, name string) *objects {
	t.Helper()
	o := &objects{name: name}
	permissions := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1)
	framework.Must(permissions.Create(t.Context(), framework.Permission(name), metav1.CreateOptions{}))(t)
	framework.Eventually(t, "the Role of ClusterPermission "+name+" is applied", func(ctx context.Context) error {
		_, err := f.ManagedClient.RbacV1().Roles("default").Get(ctx, name, getOptions)
		return err
	})
	framework.Eventually(t, "ClusterPermission "+name+" is reported as applied", func(ctx context.Context) error {
		cp, err := permissions.Get(ctx, name, getOptions)
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})

	framework.Must(f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(t.Context(), framework.NewAccount(framework.Cluster1, name), metav1.CreateOptions{}))(t)
	_, secret := f.AccountReported(t, framework.Cluster1, name)
	o.token = string(secret.Data["token"])
	if o.token == "" {
		t.Errorf("Secret %s has no token", name)
	}

	writes := framework.PermissionForAccount(framework.Cluster1, name+"-writes", name)
	(*writes.Spec.Roles)[0].Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch", "delete"}}}
	framework.Must(permissions.Create(t.Context(), writes, metav1.CreateOptions{}))(t)
	work := framework.ConfigMapWork(name)
	work.Spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: framework.AccountsNamespace, Name: name},
	}}
	framework.Must(f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	framework.Eventually(t, "the account has applied ManifestWork "+name, func(ctx context.Context) error {
		configMap, err := f.ManagedClient.CoreV1().ConfigMaps("default").Get(ctx, name, getOptions)
		if err == nil {
			o.configMap = configMap.UID
		}
		return err
	})
	framework.Eventually(t, "clusteradm search finds ConfigMap "+name, func(ctx context.Context) error {
		out, err := f.adm.Run(ctx, f.Hub, "search", "kind:ConfigMap", "name:"+name, "-o", "name")
		if err == nil && !strings.Contains(out, framework.Cluster1+"/default/configmap/"+name) {
			err = fmt.Errorf("clusteradm search = %q", out)
		}
		return err
	})
	return o
}

// unchanged checks that objects of before an upgrade are still delivered: nothing was deleted and
// created again, and accounts have the same token.
func (f *fleet) unchanged(t *testing.T, of ...*objects) {
	t.Helper()
	for _, o := range of {
		framework.Eventually(t, "the objects "+o.name+" are as before", func(ctx context.Context) error {
			configMap, err := f.ManagedClient.CoreV1().ConfigMaps("default").Get(ctx, o.name, getOptions)
			if err != nil {
				return err
			}
			secret, err := f.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, o.name, getOptions)
			if err != nil {
				return err
			}
			if configMap.UID != o.configMap || string(secret.Data["token"]) != o.token {
				return errors.New("the ConfigMap or the token was replaced")
			}
			cp, err := f.GetPermission(ctx, o.name)
			if err != nil {
				return err
			}
			return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
		})
	}
}

// changePermission changes a ClusterPermission, and waits until its Role on the cluster is changed.
func (f *fleet) changePermission(t *testing.T, name string) {
	t.Helper()
	verbs := []string{"get", "list", "watch"}
	framework.Eventually(t, "ClusterPermission "+name+" is changed", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, name)
		if err != nil {
			return err
		}
		(*cp.Spec.Roles)[0].Rules[0].Verbs = verbs
		_, err = f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Update(ctx, cp, metav1.UpdateOptions{})
		return err
	})
	framework.Eventually(t, "the Role of ClusterPermission "+name+" is changed", func(ctx context.Context) error {
		role, err := f.ManagedClient.RbacV1().Roles("default").Get(ctx, name, getOptions)
		if err == nil && len(role.Rules[0].Verbs) != len(verbs) {
			err = fmt.Errorf("rules = %v", role.Rules)
		}
		return err
	})
}
