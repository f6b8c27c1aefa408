package clusteradm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

const (
	// replicasAnnotation keeps the number of replicas of a Deployment that a migration has stopped.
	replicasAnnotation = "migration.open-cluster-management.io/replicas"
	// savedWebhooks is the ConfigMap that keeps the webhooks of OCM, which a migration removes.
	savedWebhooks = "hub-apiserver-migration"
	// upstreamBinding grants upstream agents to read their certificate requests.
	upstreamBinding = "open-cluster-management:migration:upstream-agents"
	upstreamRole    = "open-cluster-management:registration:upstream-agent"
)

// replacedDeployments are the controllers of OCM that the server replaces. Others, such as those of placements
// and of add-ons, continue.
var replacedDeployments = []string{
	"open-cluster-management/cluster-manager",
	"open-cluster-management/cluster-permission",
	hubNamespace + "/cluster-manager-registration-controller",
	hubNamespace + "/cluster-manager-registration-webhook",
	hubNamespace + "/cluster-manager-work-webhook",
}

// replacedServices are the Services of the webhooks of these controllers.
var replacedServices = []string{"cluster-manager-registration-webhook", "cluster-manager-work-webhook"}

// stopControllers scales the controllers of OCM to zero, and removes their webhooks.
func (m *migration) stopControllers(ctx context.Context) error {
	if err := m.scale(ctx, "stopped", func(deployment *appsv1.Deployment) (bool, error) {
		replicas := ptr.Deref(deployment.Spec.Replicas, 1)
		if replicas == 0 {
			return false, nil
		}
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, replicasAnnotation, strconv.Itoa(int(replicas)))
		deployment.Spec.Replicas = ptr.To[int32](0)
		return true, nil
	}); err != nil {
		return err
	}
	return m.removeWebhooks(ctx)
}

// startControllers reverts stopControllers.
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
	return errors.Join(err, m.restoreWebhooks(ctx))
}

// scale updates the Deployments of the controllers of OCM that exist and that change changes.
func (m *migration) scale(ctx context.Context, done string, change func(*appsv1.Deployment) (bool, error)) error {
	var errs []error
	for _, name := range m.stop {
		namespace, name, _ := strings.Cut(name, "/")
		deployments := m.kube.AppsV1().Deployments(namespace)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			deployment, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if changed, err := change(deployment); err != nil || !changed {
				return err
			}
			if _, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{}); err == nil {
				m.say("deployment/%s in %s %s", name, namespace, done)
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deployment/%s in %s: %w", name, namespace, err))
		}
	}
	return errors.Join(errs...)
}

// webhookConfigurations are the kinds of webhooks that a migration removes.
var webhookConfigurations = []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}

func (m *migration) webhooks(resource string) dynamic.ResourceInterface {
	return m.client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
}

// calls reports whether a configuration contains a webhook of a stopped controller.
func calls(config *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(config.Object, "webhooks")
	return slices.ContainsFunc(list, func(item any) bool {
		webhook, ok := item.(map[string]any)
		if !ok {
			return false
		}
		service, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "name")
		return slices.Contains(replacedServices, service)
	})
}

// removeWebhooks saves the webhooks of the stopped controllers in a ConfigMap, and then removes them: without their
// controllers, they would refuse each write.
func (m *migration) removeWebhooks(ctx context.Context) error {
	for _, resource := range webhookConfigurations {
		list, err := m.webhooks(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			config := &list.Items[i]
			if !calls(config) {
				continue
			}
			if err := m.saveWebhooks(ctx, resource+"."+config.GetName(), config); err != nil {
				return err
			}
			if err := m.webhooks(resource).Delete(ctx, config.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			m.say("%s removed", display(config))
		}
	}
	return nil
}

func (m *migration) saveWebhooks(ctx context.Context, key string, config *unstructured.Unstructured) error {
	saved := config.DeepCopy()
	saved.SetResourceVersion("")
	saved.SetUID("")
	saved.SetManagedFields(nil)
	content, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	maps := m.kube.CoreV1().ConfigMaps(hubNamespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := maps.Get(ctx, savedWebhooks, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: savedWebhooks}, Data: map[string]string{key: string(content)}}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if current.Data == nil {
			current.Data = map[string]string{}
		}
		current.Data[key] = string(content)
		_, err = maps.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
}

func (m *migration) restoreWebhooks(ctx context.Context) error {
	maps := m.kube.CoreV1().ConfigMaps(hubNamespace)
	saved, err := maps.Get(ctx, savedWebhooks, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for key, content := range saved.Data {
		resource, _, _ := strings.Cut(key, ".")
		config := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(content), &config.Object); err != nil || !slices.Contains(webhookConfigurations, resource) {
			errs = append(errs, fmt.Errorf("configmap/%s in %s: %s is not a saved webhook", savedWebhooks, hubNamespace, key))
			continue
		}
		if _, err := m.webhooks(resource).Create(ctx, config, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("configmap/%s in %s: %s: %w", savedWebhooks, hubNamespace, key, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := maps.Delete(ctx, savedWebhooks, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// grantUpstreamAgents grants the agents of OCM what they need of this server in addition to the roles of each cluster.
func (m *migration) grantUpstreamAgents(ctx context.Context) error {
	_, err := m.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: upstreamBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: upstreamRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: clusterv1.AllAgentsGroup}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (m *migration) revokeUpstreamAgents(ctx context.Context) error {
	err := m.kube.RbacV1().ClusterRoleBindings().Delete(ctx, upstreamBinding, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
