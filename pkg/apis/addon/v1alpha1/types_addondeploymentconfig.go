package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/literal"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfig customizes the deployment of the agents of add-ons: their nodes, image registries,
// proxy and resources. The configs of a ManagedClusterAddOn or of a ClusterManagementAddOn refer to it.
type AddOnDeploymentConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies how agents are deployed.
	// +optional
	Spec AddOnDeploymentConfigSpec `json:"spec"`
}

// AddOnDeploymentConfigSpec specifies how the agents of add-ons are deployed.
type AddOnDeploymentConfigSpec struct {
	// customizedVariables lists variables that the manager of the add-on may use in its manifests.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +patchStrategy=merge
	// +patchMergeKey=name
	CustomizedVariables []CustomizedVariable `json:"customizedVariables,omitzero" patchStrategy:"merge" patchMergeKey:"name"`

	// nodePlacement selects the nodes of the agents. If it is not set, the manager of the add-on selects them.
	// +optional
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`

	// registries lists the registries that replace the registries of images.
	// +optional
	// +listType=atomic
	Registries []ImageMirror `json:"registries,omitzero"`

	// proxyConfig is the proxy of the agents.
	// +optional
	ProxyConfig ProxyConfig `json:"proxyConfig,omitempty"`

	// agentInstallNamespace is the namespace of the agents on managed clusters. If it is empty, the template of
	// the add-on specifies the namespace. Defaults to open-cluster-management-agent-addon.
	// +optional
	// +default="open-cluster-management-agent-addon"
	AgentInstallNamespace *string `json:"agentInstallNamespace,omitempty"`

	// resourceRequirements lists the resources of containers. If several entries match a container, the last
	// one applies.
	// +optional
	// +listType=map
	// +listMapKey=containerID
	// +patchStrategy=merge
	// +patchMergeKey=containerID
	ResourceRequirements []ContainerResourceRequirements `json:"resourceRequirements,omitzero" patchStrategy:"merge" patchMergeKey:"containerID"`
}

// CustomizedVariable is a variable of the manifests of an add-on.
type CustomizedVariable struct {
	// name is the name of the variable. It consists of letters, digits and underscores.
	Name string `json:"name"`

	// value is the value of the variable. If it is not set, the value is empty.
	// +optional
	Value *string `json:"value,omitempty"`
}

// NodePlacement selects the nodes of agents.
type NodePlacement struct {
	// nodeSelector contains the labels that the nodes must have. An empty selector selects all nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitzero"`

	// tolerations lists the taints that agents tolerate.
	// +optional
	// +listType=atomic
	Tolerations []Toleration `json:"tolerations,omitzero"`
}

// Toleration selects taints that a Pod tolerates, as in the core API.
type Toleration struct {
	// key is the key of the taint. An empty key matches all taints.
	// +optional
	Key *string `json:"key,omitempty"`

	// operator specifies how key and value are compared: Equal, Exists, Lt or Gt. Defaults to Equal.
	// +optional
	Operator *string `json:"operator,omitempty"`

	// value is the value of the taint.
	// +optional
	Value *string `json:"value,omitempty"`

	// effect is the effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. An empty effect matches all
	// effects.
	// +optional
	Effect *string `json:"effect,omitempty"`

	// tolerationSeconds is the number of seconds for which the taint is tolerated. It may be set only if effect
	// is NoExecute.
	// +optional
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// ImageMirror replaces the registry of images.
type ImageMirror struct {
	// mirror is the registry to pull images from.
	Mirror string `json:"mirror"`

	// source is the registry to replace. If it is empty, all registries are replaced.
	// +optional
	Source *string `json:"source,omitempty"`
}

// ProxyConfig is the proxy of agents.
type ProxyConfig struct {
	// httpProxy is the URL of the proxy for HTTP requests.
	// +optional
	HTTPProxy *string `json:"httpProxy,omitempty"`

	// httpsProxy is the URL of the proxy for HTTPS requests.
	// +optional
	HTTPSProxy *string `json:"httpsProxy,omitempty"`

	// caBundle is the PEM bundle that verifies the proxy.
	// +optional
	// +listType=atomic
	CABundle []byte `json:"caBundle,omitzero"`

	// noProxy lists the hosts, IP addresses and CIDRs that are accessed without the proxy, separated by commas.
	// +optional
	NoProxy *string `json:"noProxy,omitempty"`
}

// ContainerResourceRequirements specifies the resources of containers.
type ContainerResourceRequirements struct {
	// containerID selects containers. It has the form <resource>:<name>:<container>, for example
	// deployments:*:*, where * matches all.
	ContainerID string `json:"containerID"`

	// resources are the resources of these containers.
	Resources ResourceRequirements `json:"resources"`
}

// ResourceRequirements specifies the resources of a container, as in the core API.
type ResourceRequirements struct {
	// limits are the maximum resources of a container.
	// +optional
	Limits map[string]literal.Quantity `json:"limits,omitzero"`

	// requests are the minimum resources of a container.
	// +optional
	Requests map[string]literal.Quantity `json:"requests,omitzero"`

	// claims lists the ResourceClaims of a container.
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []ResourceClaim `json:"claims,omitzero"`
}

// ResourceClaim refers to a ResourceClaim of the Pod.
type ResourceClaim struct {
	// name is the name of the claim in the Pod.
	Name string `json:"name"`

	// request is the name of a request in the claim. If it is empty, all requests are used.
	// +optional
	Request *string `json:"request,omitempty"`
}
