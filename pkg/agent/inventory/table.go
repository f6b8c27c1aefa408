package inventory

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// row describes the reported fields of the objects of a resource, in addition to their metadata.
type row struct {
	properties []property
	// conditions is true if status.conditions is reported.
	conditions bool
	// pod is true for Pods. Their status depends on the complete object.
	pod bool
	// access is nil for objects other than roles and bindings.
	access func(content) []accessText
	// references and selector are nil if the objects have none.
	references func(content, *references)
	selector   func(content) map[string]string
}

// property is a property of objects. It is omitted if its value is nil or empty.
type property struct {
	name  string
	value func(content) any
}

// table contains the resources whose complete objects are read. For other resources, only metadata
// is read, unless the configuration names fields of them.
var table = map[schema.GroupResource]row{
	{Resource: "pods"}:       {pod: true, conditions: true},
	{Resource: "namespaces"}: {properties: []property{{"status", text("status.phase")}}},
	{Resource: "nodes"}: {conditions: true, properties: []property{
		{"architecture", text("status.nodeInfo.architecture")},
		{"cpu", quantity("status.capacity", corev1.ResourceCPU)},
		{"ipAddress", nodeAddress},
		{"kubeletVersion", text("status.nodeInfo.kubeletVersion")},
		{"memoryAllocatable", quantity("status.allocatable", corev1.ResourceMemory)},
		{"memoryCapacity", quantity("status.capacity", corev1.ResourceMemory)},
		{"osImage", text("status.nodeInfo.osImage")},
		{"role", nodeRoles},
		{"status", nodeStatus},
		{"_systemUUID", text("status.nodeInfo.systemUUID")},
	}},
	{Resource: "services"}: {selector: stringMap("spec.selector"), properties: []property{
		{"clusterIP", text("spec.clusterIP")},
		{"externalIP", serviceAddresses},
		{"port", servicePorts},
		{"type", text("spec.type")},
	}},
	{Resource: "persistentvolumeclaims"}: {conditions: true, references: claimReferences, properties: []property{
		{"accessMode", list("spec.accessModes")},
		{"capacity", text("status.capacity.storage")},
		{"request", text("spec.resources.requests.storage")},
		{"requestedStorage", quantity("spec.resources.requests", corev1.ResourceStorage)},
		{"status", text("status.phase")},
		{"storageClassName", text("spec.storageClassName")},
		{"volumeMode", text("spec.volumeMode")},
		{"volumeName", text("spec.volumeName")},
	}},
	{Resource: "persistentvolumes"}: {properties: []property{
		{"accessMode", list("spec.accessModes")},
		{"capacity", text("spec.capacity.storage")},
		{"claimRef", volumeClaim},
		{"reclaimPolicy", text("spec.persistentVolumeReclaimPolicy")},
		{"status", text("status.phase")},
		{"storageClassName", text("spec.storageClassName")},
		{"type", volumeType},
		{"volumeMode", text("spec.volumeMode")},
	}},
	{Resource: "resourcequotas"}: {properties: []property{
		{"hard", texts("status.hard")},
		{"used", texts("status.used")},
	}},
	{Group: "apps", Resource: "deployments"}:  {conditions: true, properties: updatedReplicas()},
	{Group: "apps", Resource: "replicasets"}:  {conditions: true, properties: replicas()},
	{Group: "apps", Resource: "statefulsets"}: {conditions: true, properties: updatedReplicas()},
	{Group: "apps", Resource: "daemonsets"}: {conditions: true, properties: []property{
		{"available", count("status.numberAvailable")},
		{"current", count("status.currentNumberScheduled")},
		{"desired", count("status.desiredNumberScheduled")},
		{"ready", count("status.numberReady")},
		{"updated", count("status.updatedNumberScheduled")},
	}},
	{Group: "batch", Resource: "jobs"}: {conditions: true, properties: []property{
		{"active", count("status.active")},
		{"completedAt", text("status.completionTime")},
		{"completions", value("spec.completions")},
		{"failed", count("status.failed")},
		{"parallelism", value("spec.parallelism")},
		{"startedAt", text("status.startTime")},
		{"status", jobStatus},
		{"successful", count("status.succeeded")},
	}},
	{Group: "batch", Resource: "cronjobs"}: {properties: []property{
		{"active", length("status.active")},
		{"lastSchedule", text("status.lastScheduleTime")},
		{"schedule", text("spec.schedule")},
		{"suspend", flag("spec.suspend")},
	}},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: {conditions: true, properties: []property{
		{"current", count("status.currentReplicas")},
		{"desired", count("status.desiredReplicas")},
		{"maxReplicas", count("spec.maxReplicas")},
		{"minReplicas", value("spec.minReplicas")},
		{"target", scaleTarget},
	}},
	{Group: "policy", Resource: "poddisruptionbudgets"}: {conditions: true, properties: []property{
		{"current", count("status.currentHealthy")},
		{"desired", count("status.desiredHealthy")},
		{"disruptionsAllowed", count("status.disruptionsAllowed")},
	}},
	{Group: "networking.k8s.io", Resource: "ingresses"}: {properties: []property{
		{"address", ingressAddresses},
		{"host", each("spec.rules", "host")},
		{"ingressClassName", text("spec.ingressClassName")},
	}},
	{Group: "storage.k8s.io", Resource: "storageclasses"}: {properties: []property{
		{"allowVolumeExpansion", flag("allowVolumeExpansion")},
		{"provisioner", text("provisioner")},
		{"reclaimPolicy", text("reclaimPolicy")},
		{"volumeBindingMode", text("volumeBindingMode")},
	}},
	roles:               {access: rules},
	clusterRoles:        {access: rules},
	roleBindings:        {access: bindingContent},
	clusterRoleBindings: {access: bindingContent},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                 {conditions: true},
	{Group: "work.open-cluster-management.io", Resource: "manifestworks"}:      {conditions: true},
	{Group: "rbac.open-cluster-management.io", Resource: "clusterpermissions"}: {conditions: true},
	{Group: "authentication.open-cluster-management.io", Resource: "managedserviceaccounts"}: {conditions: true, properties: []property{
		{"expiration", text("status.expirationTimestamp")},
	}},
	{Group: "cluster.open-cluster-management.io", Resource: "managedclusters"}: {conditions: true, properties: []property{
		{"hubAcceptsClient", flag("spec.hubAcceptsClient")},
		{"kubernetesVersion", text("status.version.kubernetes")},
	}},
}

// replicas returns the properties that all workloads with replicas have.
func replicas() []property {
	return []property{
		{"available", count("status.availableReplicas")},
		{"current", count("status.replicas")},
		{"desired", count("spec.replicas")},
		{"ready", count("status.readyReplicas")},
	}
}

func updatedReplicas() []property {
	return append(replicas(), property{"updated", count("status.updatedReplicas")})
}

// metadataOnly contains resources of which only metadata is read, regardless of the configuration.
var metadataOnly = map[schema.GroupResource]bool{
	{Resource: "secrets"}:    true,
	{Resource: "configmaps"}: true,
}

// neverGroups and neverResources are never reported, because they contain objects that change all
// the time, views of other objects, or credentials.
var (
	neverGroups = sets.New(
		"clusterview.open-cluster-management.io", "events.k8s.io", "metrics.k8s.io", "custom.metrics.k8s.io",
		"external.metrics.k8s.io", "proxy.open-cluster-management.io", "search.open-cluster-management.io",
	)
	neverResources = sets.New(
		schema.GroupResource{Resource: "events"},
		schema.GroupResource{Group: "clusterregistry.k8s.io", Resource: "clusters"},
		schema.GroupResource{Group: "oauth.openshift.io", Resource: "oauthaccesstokens"},
		schema.GroupResource{Group: "oauth.openshift.io", Resource: "oauthauthorizetokens"},
		schema.GroupResource{Group: "oauth.openshift.io", Resource: "useroauthaccesstokens"},
		schema.GroupResource{Group: "project.openshift.io", Resource: "projects"},
	)
)

func neverReported(gr schema.GroupResource) bool {
	return neverGroups.Has(gr.Group) || neverResources.Has(gr)
}

// reservedProperties are the properties that an object of any kind can have.
var reservedProperties = sets.New("annotation", "apigroup", "apiversion", "cluster", "condition", "created",
	"kind", "kind_plural", "label", "name", "namespace")
