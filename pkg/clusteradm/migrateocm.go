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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for _, name := range m.stop {
		namespace, name, _ := strings.Cut(name, "/")
		deployments := m.kube.AppsV1().Deployments(namespace)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			deployment, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			replicas := ptr.Deref(deployment.Spec.Replicas, 1)
			if replicas == 0 {
				return nil
			}
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, replicasAnnotation, strconv.Itoa(int(replicas)))
			deployment.Spec.Replicas = ptr.To[int32](0)
			_, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{})
			if err == nil {
				m.say("deployment/%s in %s stopped", name, namespace)
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("stopping deployment/%s in %s: %w", name, namespace, err)
		}
	}
	return m.removeWebhooks(ctx)
}

// startControllers reverts stopControllers.
func (m *migration) startControllers(ctx context.Context) error {
	for _, name := range m.stop {
		namespace, name, _ := strings.Cut(name, "/")
		deployments := m.kube.AppsV1().Deployments(namespace)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			deployment, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			saved, found := deployment.Annotations[replicasAnnotation]
			if !found {
				return nil
			}
			replicas, err := strconv.ParseInt(saved, 10, 32)
			if err != nil {
				return fmt.Errorf("annotation %s: %w", replicasAnnotation, err)
			}
			delete(deployment.Annotations, replicasAnnotation)
			deployment.Spec.Replicas = ptr.To(int32(replicas))
			_, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{})
			if err == nil {
				m.say("deployment/%s in %s started", name, namespace)
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("starting deployment/%s in %s: %w", name, namespace, err)
		}
	}
	return m.restoreWebhooks(ctx)
}

func replaced(config *admissionregistrationv1.WebhookClientConfig) bool {
	return config.Service != nil && slices.Contains(replacedServices, config.Service.Name)
}

// removeWebhooks saves the webhooks of the stopped controllers in a ConfigMap, and then removes them: without their
// controllers, they would refuse each write.
func (m *migration) removeWebhooks(ctx context.Context) error {
	client := m.kube.AdmissionregistrationV1()
	validating, err := client.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	mutating, err := client.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range validating.Items {
		config := &validating.Items[i]
		if !slices.ContainsFunc(config.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return replaced(&w.ClientConfig) }) {
			continue
		}
		if err := m.saveWebhook(ctx, "validating."+config.Name, config); err != nil {
			return err
		}
		if err := client.ValidatingWebhookConfigurations().Delete(ctx, config.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		m.say("validatingwebhookconfiguration/%s removed", config.Name)
	}
	for i := range mutating.Items {
		config := &mutating.Items[i]
		if !slices.ContainsFunc(config.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return replaced(&w.ClientConfig) }) {
			continue
		}
		if err := m.saveWebhook(ctx, "mutating."+config.Name, config); err != nil {
			return err
		}
		if err := client.MutatingWebhookConfigurations().Delete(ctx, config.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		m.say("mutatingwebhookconfiguration/%s removed", config.Name)
	}
	return nil
}

func (m *migration) saveWebhook(ctx context.Context, key string, config metav1.Object) error {
	config.SetResourceVersion("")
	config.SetUID("")
	config.SetManagedFields(nil)
	content, err := json.Marshal(config)
	if err != nil {
		return err
	}
	maps := m.kube.CoreV1().ConfigMaps(hubNamespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		saved, err := maps.Get(ctx, savedWebhooks, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: savedWebhooks}, Data: map[string]string{key: string(content)}}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if saved.Data == nil {
			saved.Data = map[string]string{}
		}
		saved.Data[key] = string(content)
		_, err = maps.Update(ctx, saved, metav1.UpdateOptions{})
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
	client := m.kube.AdmissionregistrationV1()
	for key, content := range saved.Data {
		switch kind, _, _ := strings.Cut(key, "."); kind {
		case "validating":
			config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			if err := json.Unmarshal([]byte(content), config); err != nil {
				return fmt.Errorf("configmap/%s: %s: %w", savedWebhooks, key, err)
			}
			_, err = client.ValidatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{})
		case "mutating":
			config := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := json.Unmarshal([]byte(content), config); err != nil {
				return fmt.Errorf("configmap/%s: %s: %w", savedWebhooks, key, err)
			}
			_, err = client.MutatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{})
		default:
			err = errors.New("unknown key")
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("configmap/%s: %s: %w", savedWebhooks, key, err)
		}
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
