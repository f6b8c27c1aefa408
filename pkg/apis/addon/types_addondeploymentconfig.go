package addon

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfig customizes how the agents of add-ons are deployed: where they run, from which
// registries, by which proxy, and with which resources. The configs of a ManagedClusterAddOn or of a
// ClusterManagementAddOn refer to it.
type AddOnDeploymentConfig struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec AddOnDeploymentConfigSpec
}

// AddOnDeploymentConfigSpec says how the agents of add-ons are deployed.
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
	Value string
}

// NodePlacement says on which nodes agents run.
type NodePlacement struct {
	NodeSelector map[string]string
	Tolerations  []Toleration
}

// Toleration is the taints that a Pod tolerates, as in the core API.
type Toleration struct {
	Key               string
	Operator          string
	Value             string
	Effect            string
	TolerationSeconds *int64
}

// ImageMirror replaces the registry of images.
type ImageMirror struct {
	Mirror string
	Source string
}

// ProxyConfig is the proxy that agents use.
type ProxyConfig struct {
	HTTPProxy  string
	HTTPSProxy string
	CABundle   []byte
	NoProxy    string
}

// ContainerResourceRequirements are the resources of containers.
type ContainerResourceRequirements struct {
	ContainerID string
	Resources   ResourceRequirements
}

// ResourceRequirements are the resources of a container, as in the core API.
type ResourceRequirements struct {
	Limits   map[string]resource.Quantity
	Requests map[string]resource.Quantity
	Claims   []ResourceClaim
}

// ResourceClaim names a claim of the Pod that a container uses.
type ResourceClaim struct {
	Name    string
	Request string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// AddOnDeploymentConfigList is a list of AddOnDeploymentConfigs.
type AddOnDeploymentConfigList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []AddOnDeploymentConfig
}
