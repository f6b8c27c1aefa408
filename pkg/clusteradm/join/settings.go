package join

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/program"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

const (
	// accountsNamespace is the namespace of the ServiceAccounts of ManagedServiceAccounts. The agents of several hubs share it.
	accountsNamespace       = "open-cluster-management-agent-addon"
	bootstrapKubeconfigFile = "/etc/bootstrap/kubeconfig"
)

type agentSettings struct {
	cluster   string
	namespace string
	image     program.Images
	resources program.Resources
	driver    registerv1alpha1.RegistrationDriver
	identity  *irsa.Identity
	// roleARN is the role in the annotation of the ServiceAccount.
	roleARN string
	// secret is the bootstrap Secret, or nil if it stays as it is.
	secret *unstructured.Unstructured
	// noWorks is true if the cluster is a hub whose server serves the API group of ManifestWorks. The agent cannot keep
	// its records there, because their CRD would hide the discovery of that server.
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

// objects returns the objects on the managed cluster, without the Deployment of the agent if the agent runs elsewhere.
func (a *agentSettings) objects(deploy bool) ([]*unstructured.Unstructured, error) {
	path := Managed
	if deploy {
		path = "agent"
	}
	objects, err := Manifests(path, a.namespace)
	if err != nil {
		return nil, err
	}
	if deploy {
		if err := manifests.ChangeContainer(objects, manifests.AgentName, func(container map[string]any) {
			container["image"] = a.image.Image
			a.resources.Set(container)
			// The manifest has the name of the cluster and the bootstrap kubeconfig as first arguments.
			args, _ := container["args"].([]any)
			own := manifests.Args(a.arguments()...)
			container["args"] = slices.Concat(own[:2], args[2:], own[2:])
		}); err != nil {
			return nil, err
		}
	}
	if err := program.SetRole(objects, manifests.AgentName, a.roleARN); err != nil {
		return nil, err
	}
	if a.noWorks {
		objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
			return object.GetKind() == manifests.KindCRD && object.GetName() != manifests.ClusterClaims
		})
	}
	if a.secret != nil {
		// Before the Deployment, which mounts it.
		objects = slices.Insert(objects, 1, a.secret)
	}
	return objects, nil
}

// Managed is the directory of the objects that an agent needs, except its Deployment and its Secret.
const Managed = "agent/managed"

// Manifests returns the objects of a directory of the agent, moved to a namespace. If it is not the default one, the names
// of bindings outside of the namespace contain it. Agents share the roles, and each agent has its own bindings.
func Manifests(path, namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := manifests.Read(path)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := moveToNamespace(object, namespace); err != nil {
			return nil, fmt.Errorf("%s: %w", manifests.Display(object), err)
		}
	}
	return objects, nil
}

// moveToNamespace moves an object from the default namespace of the agent to another one.
func moveToNamespace(object *unstructured.Unstructured, namespace string) error {
	switch {
	case object.GetKind() == manifests.KindNamespace && object.GetName() == manifests.AgentNamespace:
		object.SetName(namespace)
	case object.GetNamespace() == manifests.AgentNamespace:
		object.SetNamespace(namespace)
	case manifests.IsBinding(object) && namespace != manifests.AgentNamespace:
		object.SetName(object.GetName() + ":" + namespace)
	}
	subjects, found, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil || !found {
		return err
	}
	for _, entry := range subjects {
		if subject, ok := entry.(map[string]any); ok && subject["namespace"] == manifests.AgentNamespace {
			subject["namespace"] = namespace
		}
	}
	return unstructured.SetNestedSlice(object.Object, subjects, "subjects")
}
