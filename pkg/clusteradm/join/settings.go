package clusteradm

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/kustomize/api/types"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	defaultAgentNamespace = "open-cluster-management-agent"
	// accountsNamespace is the namespace of the ServiceAccounts of ManagedServiceAccounts.
	// The agents of several hubs share it.
	accountsNamespace = "open-cluster-management-agent-addon"
	// agentName is the name of the Deployment and of the ServiceAccount of the agent.
	agentName = "agent"
	// agentImage is the name of the image in a release.
	agentImage = "hub-apiserver-agent"

	bootstrapSecret         = "bootstrap-hub-kubeconfig"
	bootstrapKubeconfigFile = "/etc/bootstrap/kubeconfig"
	hubSecret               = "hub-kubeconfig-secret"
	kubeconfigKey           = "kubeconfig"
	clusterNameKey          = "cluster-name"
)

// agentSettings are the settings with which a managed cluster joins a hub.
type agentSettings struct {
	cluster   string
	namespace string
	image     imageSettings
	resources resourceSettings
	driver    registerv1alpha1.RegistrationDriver
	identity  *irsa.Identity
	// roleARN is the role in the annotation of the ServiceAccount.
	roleARN string
	ca      []byte
	// bootstrapKubeconfig is nil if the Secret stays as it is.
	bootstrapKubeconfig []byte
	// noWorks is true if the cluster is a hub whose server serves the API group of
	// ManifestWorks. The agent cannot keep its records there, because their CRD would hide
	// the discovery of that server.
	noWorks bool
}

// arguments returns the arguments of the agent that configure its registration.
func (a *agentSettings) arguments() []string {
	args := []string{
		"--cluster-name=" + a.cluster,
		"--bootstrap-kubeconfig=" + bootstrapKubeconfigFile,
		"--registration-auth=" + string(a.driver),
		"--registration-namespace=" + a.namespace,
	}
	if a.identity != nil {
		args = append(args, "--hub-cluster-arn="+a.identity.Hub.String(), "--managed-cluster-arn="+a.identity.Managed.String())
	}
	if a.noWorks {
		args = append(args, "--works=false")
	}
	return args
}

// objects returns the objects on the managed cluster, without the Deployment of the agent if the
// agent runs elsewhere.
func (a *agentSettings) objects(deploy bool) ([]*unstructured.Unstructured, error) {
	k := &types.Kustomization{Resources: []string{"agent/managed"}}
	if deploy {
		k.Resources = []string{"agent"}
		settings := []operation{
			// The manifest has the name of the cluster and the bootstrap kubeconfig as first arguments.
			{"test", containerPath + "/args/0", "--cluster-name=cluster1"},
			{"test", containerPath + "/args/1", "--bootstrap-kubeconfig=" + bootstrapKubeconfigFile},
			{"replace", containerPath + "/args/0", "--cluster-name=" + a.cluster},
		}
		for _, arg := range a.arguments()[2:] {
			settings = append(settings, operation{"add", containerPath + "/args/-", arg})
		}
		settings = append(settings, operation{"replace", containerPath + "/image", a.image.image})
		settings = append(settings, a.resources.operations()...)
		k.Patches = append(k.Patches, jsonPatch(kindDeployment, agentName, settings...))
	}
	if a.roleARN != "" {
		k.Patches = append(k.Patches, jsonPatch(kindServiceAccount, agentName,
			operation{"add", "/metadata/annotations", map[string]string{roleARNAnnotation: a.roleARN}}))
	}
	objects, err := buildAgent(k, a.namespace)
	if err != nil {
		return nil, err
	}
	if a.noWorks {
		objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
			return object.GetKind() == kindCRD && object.GetName() != clusterClaims
		})
	}
	if a.bootstrapKubeconfig == nil {
		return objects, nil
	}
	secret, err := toUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: bootstrapSecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{kubeconfigKey: a.bootstrapKubeconfig},
	})
	if err != nil {
		return nil, err
	}
	// Before the Deployment, which mounts it.
	return slices.Insert(objects, 1, secret), nil
}

// agentManifests returns the objects that an agent in this namespace needs, except its
// Deployment and its Secret.
func agentManifests(namespace string) ([]*unstructured.Unstructured, error) {
	return buildAgent(&types.Kustomization{Resources: []string{"agent/managed"}}, namespace)
}

// buildAgent returns the objects of a kustomization of the agent, moved to a namespace. If it is not
// the default one, the names of bindings outside of the namespace contain it. Agents share the
// roles, and each agent has its own bindings.
func buildAgent(k *types.Kustomization, namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := build(k)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := moveToNamespace(object, namespace); err != nil {
			return nil, fmt.Errorf("%s: %w", display(object), err)
		}
	}
	return objects, nil
}

// moveToNamespace moves an object from the default namespace of the agent to another one.
func moveToNamespace(object *unstructured.Unstructured, namespace string) error {
	switch {
	case object.GetKind() == kindNamespace && object.GetName() == defaultAgentNamespace:
		object.SetName(namespace)
	case object.GetNamespace() == defaultAgentNamespace:
		object.SetNamespace(namespace)
	case isBinding(object) && namespace != defaultAgentNamespace:
		object.SetName(object.GetName() + ":" + namespace)
	}
	subjects, found, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil || !found {
		return err
	}
	for _, entry := range subjects {
		if subject, ok := entry.(map[string]any); ok && subject["namespace"] == defaultAgentNamespace {
			subject["namespace"] = namespace
		}
	}
	return unstructured.SetNestedSlice(object.Object, subjects, "subjects")
}

func isBinding(object *unstructured.Unstructured) bool {
	return object.GetKind() == "ClusterRoleBinding" || object.GetKind() == "RoleBinding"
}

// bootstrapKubeconfig returns the kubeconfig with which the agent registers its cluster.
func bootstrapKubeconfig(server, token string, ca []byte) ([]byte, error) {
	const cluster, user = "hub", "bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[user] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = user
	return clientcmd.Write(*config)
}
