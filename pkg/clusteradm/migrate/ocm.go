package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

const (
	// replicasAnnotation keeps the number of replicas of a Deployment that a migration has stopped.
	replicasAnnotation = "migration.open-cluster-management.io/replicas"
	// suspension is the match condition with which API servers do not call a webhook.
	suspension = "hub-apiserver-migration"
	// upstreamBinding grants upstream agents to read their certificate requests.
	upstreamBinding = "open-cluster-management:migration:upstream-agents"
	upstreamRole    = "open-cluster-management:registration:upstream-agent"
)

// replacedDeployments are the controllers of OCM that the server replaces. Others, such as those of placements
// and of add-ons, continue.
var replacedDeployments = []string{
	"open-cluster-management/cluster-manager",
	"open-cluster-management/cluster-permission",
	manifests.HubNamespace + "/cluster-manager-registration-controller",
	manifests.HubNamespace + "/cluster-manager-registration-webhook",
	manifests.HubNamespace + "/cluster-manager-work-webhook",
}

// replacedServices are the Services of the webhooks of these controllers.
var replacedServices = []string{"cluster-manager-registration-webhook", "cluster-manager-work-webhook"}

// stopControllers scales the controllers of OCM to zero. Their webhooks refuse each write from then on.
func (m *migration) stopControllers(ctx context.Context) error {
	return m.scale(ctx, "stopped", func(deployment *appsv1.Deployment) (bool, error) {
		replicas := ptr.Deref(deployment.Spec.Replicas, 1)
		if replicas == 0 {
			return false, nil
		}
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, replicasAnnotation, strconv.Itoa(int(replicas)))
		deployment.Spec.Replicas = ptr.To[int32](0)
		return true, nil
	})
}

// startControllers undoes stopControllers and suspendWebhooks, as far as it can.
func (m *migration) startControllers(ctx context.Context) error {
	err := m.scale(ctx, "started", func(deployment *appsv1.Deployment) (bool, error) {
		saved, found := deployment.Annotations[replicasAnnotation]
		if !found {
			return false, nil
		}
		replicas, err := strconv.ParseInt(saved, 10, 32)
		if err != nil {
			return false, fmt.Errorf("annotation %s: %w", replicasAnnotation, err)
		}
		delete(deployment.Annotations, replicasAnnotation)
		deployment.Spec.Replicas = ptr.To(int32(replicas))
		return true, nil
	})
	return errors.Join(err, m.suspendWebhooks(ctx, false))
}

// scale updates the Deployments of the controllers of OCM that exist and that change changes. It returns after the Pods of a
// Deployment without replicas have ended: until then, the operator of OCM undoes what a migration changes.
func (m *migration) scale(ctx context.Context, done string, change func(*appsv1.Deployment) (bool, error)) error {
	var errs []error
	for _, name := range m.stop {
		namespace, name, _ := strings.Cut(name, "/")
		deployments := m.Kube.AppsV1().Deployments(namespace)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			deployment, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if changed, err := change(deployment); err != nil {
				return err
			} else if changed {
				if _, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{}); err != nil {
					return err
				}
				m.Say("deployment/%s in %s %s", name, namespace, done)
			}
			if ptr.Deref(deployment.Spec.Replicas, 1) > 0 {
				return nil
			}
			return cli.WaitForNoPods(ctx, m.Kube, namespace, metav1.FormatLabelSelector(deployment.Spec.Selector))
		})
		errs = append(errs, cli.Prefix(cli.IgnoreNotFound(err), "deployment/%s in %s", name, namespace))
	}
	return errors.Join(errs...)
}

// suspendWebhooks suspends the webhooks of the stopped controllers, or ends the suspension. It stays in their configurations,
// so nothing is lost if a step is interrupted.
func (m *migration) suspendWebhooks(ctx context.Context, suspended bool) error {
	var errs []error
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		client := m.Dynamic.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			name := list.Items[i].GetName()
			err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				config, err := client.Get(ctx, name, metav1.GetOptions{})
				if err != nil || !suspend(config, suspended) {
					return err
				}
				_, err = client.Update(ctx, config, metav1.UpdateOptions{FieldManager: cli.FieldManager})
				return err
			})
			errs = append(errs, cli.Prefix(err, "%s/%s", resource, name))
		}
	}
	return errors.Join(errs...)
}

// suspend suspends the webhooks of a configuration that call a stopped controller, or ends the suspension of all of them. It
// reports whether that changes the configuration.
func suspend(config *unstructured.Unstructured, suspended bool) (changed bool) {
	list, _, _ := unstructured.NestedSlice(config.Object, "webhooks")
	for _, item := range list {
		webhook, _ := item.(map[string]any)
		service, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "name")
		conditions, _, _ := unstructured.NestedSlice(webhook, "matchConditions")
		i := named(conditions, suspension)
		switch {
		case suspended && i < 0 && slices.Contains(replacedServices, service):
			webhook["matchConditions"] = append(conditions, map[string]any{"name": suspension, "expression": "false"})
		case !suspended && i >= 0:
			webhook["matchConditions"] = slices.Delete(conditions, i, i+1)
		default:
			continue
		}
		changed = true
	}
	config.Object["webhooks"] = list
	return changed
}

// grantUpstreamAgents grants the agents of OCM what they need of this server in addition to the roles of each cluster.
func (m *migration) grantUpstreamAgents(ctx context.Context) error {
	_, err := m.Kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: upstreamBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: upstreamRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: clusterv1.AllAgentsGroup}},
	}, metav1.CreateOptions{})
	return cli.IgnoreAlreadyExists(err)
}

func (m *migration) revokeUpstreamAgents(ctx context.Context) error {
	return cli.IgnoreNotFound(m.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, upstreamBinding, metav1.DeleteOptions{}))
}
