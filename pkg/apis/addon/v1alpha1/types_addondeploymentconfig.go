package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfig customizes how the agents of add-ons are deployed: where they run, from which
// registries, by which proxy, and with which resources. The configs of a ManagedClusterAddOn or of a
// ClusterManagementAddOn refer to it.
type AddOnDeploymentConfig struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How agents are deployed.
	// +optional
	Spec AddOnDeploymentConfigSpec `json:"spec"`
}

// AddOnDeploymentConfigSpec says how the agents of add-ons are deployed.
type AddOnDeploymentConfigSpec struct {
	// Variables that the manager of the add-on may use in its manifests.
	// +optional
	// +listType=map
	// +listMapKey=name
	CustomizedVariables []CustomizedVariable `json:"customizedVariables,omitempty"`

	// The nodes on which agents run. If it is not set, the manager of the add-on decides.
	// +optional
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`

	// The registries from which images are pulled instead of others.
	// +optional
	// +listType=atomic
	Registries []ImageMirror `json:"registries,omitempty"`

	// The proxy that agents use.
	// +optional
	ProxyConfig ProxyConfig `json:"proxyConfig,omitempty"`

	// The namespace on managed clusters where agents run. An empty one leaves it to the template of
	// the add-on.
	// +optional
	// +default="open-cluster-management-agent-addon"
	AgentInstallNamespace *string `json:"agentInstallNamespace,omitempty"`

	// The resources of containers. Of several that match a container, the last one holds.
	// +optional
	// +listType=map
	// +listMapKey=containerID
	ResourceRequirements []ContainerResourceRequirements `json:"resourceRequirements,omitempty"`
}

// CustomizedVariable is a variable of the manifests of an add-on.
type CustomizedVariable struct {
	// The name of the variable: letters, digits and underscores.
	Name string `json:"name"`

	// The value of the variable.
	Value string `json:"value"`
}

// NodePlacement says on which nodes agents run.
type NodePlacement struct {
	// The labels of the nodes; empty for all nodes.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// The taints that agents tolerate.
	// +optional
	// +listType=atomic
	Tolerations []Toleration `json:"tolerations,omitempty"`
}

// Toleration is the taints that a Pod tolerates, as in the core API.
type Toleration struct {
	// The key of the taint; empty for all.
	// +optional
	Key string `json:"key,omitempty"`

	// How key and value are compared: Equal, Exists, Lt or Gt. Defaults to Equal.
	// +optional
	Operator string `json:"operator,omitempty"`

	// The value of the taint.
	// +optional
	Value string `json:"value,omitempty"`

	// The effect of the taint: NoSchedule, PreferNoSchedule or NoExecute; empty for all.
	// +optional
	Effect string `json:"effect,omitempty"`

	// How long the taint is tolerated, in seconds. Only with the effect NoExecute.
	// +optional
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// ImageMirror replaces the registry of images.
type ImageMirror struct {
	// The registry from which images are pulled.
	Mirror string `json:"mirror"`

	// The registry that is replaced; empty for all.
	// +optional
	Source string `json:"source"`
}

// ProxyConfig is the proxy that agents use.
type ProxyConfig struct {
	// The URL of the proxy for HTTP requests.
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`

	// The URL of the proxy for HTTPS requests.
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// The PEM bundle that verifies the proxy.
	// +optional
	// +listType=atomic
	CABundle []byte `json:"caBundle,omitempty"`

	// The hosts, IP addresses and CIDRs for which no proxy is used, separated by commas.
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// ContainerResourceRequirements are the resources of containers.
type ContainerResourceRequirements struct {
	// The containers, as <resource>:<name>:<container>, such as deployments:*:*. An asterisk matches all.
	ContainerID string `json:"containerID"`

	// The resources of these containers.
	Resources ResourceRequirements `json:"resources"`
}

// ResourceRequirements are the resources of a container, as in the core API.
type ResourceRequirements struct {
	// The most that a container may use.
	// +optional
	Limits map[string]resource.Quantity `json:"limits,omitempty"`

	// What a container needs.
	// +optional
	Requests map[string]resource.Quantity `json:"requests,omitempty"`

	// The ResourceClaims that a container uses.
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []ResourceClaim `json:"claims,omitempty"`
}

// ResourceClaim names a claim of the Pod that a container uses.
type ResourceClaim struct {
	// The name of the claim in the Pod.
	Name string `json:"name"`

	// The name of the request within the claim; empty for all.
	// +optional
	Request string `json:"request,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfigList is a list of AddOnDeploymentConfigs.
type AddOnDeploymentConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The AddOnDeploymentConfigs.
	Items []AddOnDeploymentConfig `json:"items"`
}
