package manifests

// Names in the manifests.
const (
	// HubNamespace is the namespace of the server, and ServerName the name of its Deployment, Service, ServiceAccount and so on.
	HubNamespace = "open-cluster-management-hub"
	ServerName   = "hub-apiserver"
	// ServingSecret is the Secret with the certificate of the server.
	ServingSecret = "hub-apiserver-serving"

	// AgentNamespace is the default namespace of the agent, and AgentName the name of its Deployment and its ServiceAccount.
	AgentNamespace = "open-cluster-management-agent"
	AgentName      = "agent"
	// AgentImage is the name of the agent's image in a release.
	AgentImage = "hub-apiserver-agent"
	// AgentLabel selects the Pods of the agent.
	AgentLabel = "app=open-cluster-management-agent"

	// KubeconfigKey is the key of the kubeconfig in the Secrets of the agent.
	KubeconfigKey = "kubeconfig"

	// BootstrapNamespace and BootstrapAccount are the ServiceAccount whose tokens register clusters.
	BootstrapNamespace = "open-cluster-management"
	BootstrapAccount   = "agent-registration-bootstrap"

	// BootstrapGroup is the group of other users that request the first certificate of an agent.
	BootstrapGroup = "system:bootstrappers:managedcluster"
)
