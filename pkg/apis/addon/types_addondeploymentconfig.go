package addon

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/literal"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfig customizes the deployment of the agents of add-ons: their nodes, image registries,
// proxy and resources.
type AddOnDeploymentConfig struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec AddOnDeploymentConfigSpec
}

// AddOnDeploymentConfigSpec specifies how the agents of add-ons are deployed.
type AddOnDeploymentConfigSpec struct {
	CustomizedVariables   []CustomizedVariable
	NodePlacement         *NodePlacement
	Registries            []ImageMirror
	ProxyConfig           ProxyConfig
	AgentInstallNamespace *string
	ResourceRequirements  []ContainerResourceRequirements
}

// CustomizedVariable is a variable of the manifests of an add-on.
type CustomizedVariable struct {
	Name  string
	Value *string
}

// NodePlacement selects the nodes of agents.
type NodePlacement struct {
	NodeSelector map[string]string
	Tolerations  []Toleration
}

// Toleration selects taints that a Pod tolerates, as in the core API.
type Toleration struct {
	Key               *string
	Operator          *string
	Value             *string
	Effect            *string
	TolerationSeconds *int64
}

// ImageMirror replaces the registry of images.
type ImageMirror struct {
	Mirror string
	Source *string
}

// ProxyConfig is the proxy of agents.
type ProxyConfig struct {
	HTTPProxy  *string
	HTTPSProxy *string
	CABundle   []byte
	NoProxy    *string
}

// ContainerResourceRequirements specifies the resources of containers.
type ContainerResourceRequirements struct {
	ContainerID string
	Resources   ResourceRequirements
}

// ResourceRequirements specifies the resources of a container, as in the core API.
type ResourceRequirements struct {
	Limits   map[string]literal.Quantity
	Requests map[string]literal.Quantity
	Claims   []ResourceClaim
}

// ResourceClaim refers to a ResourceClaim of the Pod.
type ResourceClaim struct {
	Name    string
	Request *string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfigList is a list of AddOnDeploymentConfigs.
type AddOnDeploymentConfigList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []AddOnDeploymentConfig
}
