package provenance

import "k8s.io/apimachinery/pkg/runtime/schema"

var (
	managedCluster      = schema.GroupKind{Group: "cluster.open-cluster-management.io", Kind: "ManagedCluster"}
	manifestWork        = schema.GroupKind{Group: "work.open-cluster-management.io", Kind: "ManifestWork"}
	clusterPermission   = schema.GroupKind{Group: "rbac.open-cluster-management.io", Kind: "ClusterPermission"}
	roleAssignment      = schema.GroupKind{Group: "rbac.open-cluster-management.io", Kind: "MulticlusterRoleAssignment"}
	account             = schema.GroupKind{Group: "authentication.open-cluster-management.io", Kind: "ManagedServiceAccount"}
	addon               = schema.GroupKind{Group: "addon.open-cluster-management.io", Kind: "ManagedClusterAddOn"}
	registration        = schema.GroupKind{Group: "register.open-cluster-management.io", Kind: "ManagedClusterRegistration"}
	placementDecision   = schema.GroupKind{Group: "cluster.open-cluster-management.io", Kind: "PlacementDecision"}
	appliedManifestWork = schema.GroupKind{Group: "work.open-cluster-management.io", Kind: "AppliedManifestWork"}
	applied             = schema.GroupKind{Kind: "*"} // objects that the agent applies
	clusterClaim        = schema.GroupKind{Group: "cluster.open-cluster-management.io", Kind: "ClusterClaim"}
	request             = schema.GroupKind{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}
	namespace           = schema.GroupKind{Kind: "Namespace"}
	secret              = schema.GroupKind{Kind: "Secret"}
	serviceAccount      = schema.GroupKind{Kind: "ServiceAccount"}
	service             = schema.GroupKind{Kind: "Service"}
	deployment          = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	crd                 = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	binding             = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}
)

const (
	// noServer is the reason for values that exist only where the server serves the kind.
	noServer = "not read there: only the server registers clusters that it serves"
	// ownCluster is the reason for what the agent of a cluster says.
	ownCluster = "believed about the cluster of the agent only"
)

// Facts is the table.
var Facts = []Fact{
	// ManagedCluster
	{managedCluster, Annotation, "open-cluster-management.io/hub-epoch", Import,
		"which hub an agent obeys", "agents take no higher epoch from a ManagedCluster without status.acceptance, which CustomResourceDefinitions do not store; a migration copies only the epoch that the hub has recorded"},
	{managedCluster, Annotation, "cluster.open-cluster-management.io/restored", Server,
		"whether agents keep objects that a restored hub does not know", "the server writes it when it starts; without it agents remove accounts that the hub does not know, as if there had been no restore"},
	{managedCluster, Annotation, "register.open-cluster-management.io/requested-by", Server,
		"the user who registered the cluster, who may send its first certificate request", noServer + "; a migration does not copy it"},
	{managedCluster, Annotation, "open-cluster-management.io/automatically-accepted-on", Server,
		"that the cluster was accepted automatically, so it is not accepted again", noServer},
	{managedCluster, Status, "acceptance", Server, "the user who accepted the cluster, the time, and the requesters", noServer},
	{managedCluster, Status, "managedNamespaces", Server, "which namespaces the agent keeps; agents write the conditions of listed namespaces", "written by OCM's controllers"},
	{managedCluster, Condition, "HubAcceptedManagedCluster", Server, "that the hub accepts the cluster", noServer},
	{managedCluster, Condition, "Deleting", Server, "how far the cleanup of the cluster is", noServer},
	{managedCluster, Condition, "ManagedNamespacesListed", Server, "whether status.managedNamespaces is complete", noServer},
	{managedCluster, Condition, "ManagedClusterConditionClockSynced", Server, "whether the clocks of hub and cluster agree", noServer},
	{managedCluster, Annotation, "cluster.open-cluster-management.io/restore-confirmed", User, "that an administrator has confirmed a restore; an agent may confirm it for its own cluster", ""},
	{managedCluster, Annotation, "agent.open-cluster-management.io/managed-cluster-arn", User, "which EKS cluster the cluster claims to be; read once, before a decision, into the registration", ""},
	{managedCluster, Annotation, "agent.open-cluster-management.io/managed-cluster-iam-role-suffix", User, "only compared with what the server computes", ""},
	{managedCluster, Annotation, "eks-managed-cluster-arn", User, "as managed-cluster-arn", ""},
	{managedCluster, Annotation, "registration.open-cluster-management.io/skip-clock-sync-check", User, "whether the clock of the cluster is compared", ""},
	{managedCluster, Label, "cluster.open-cluster-management.io/clusterset", User, "the set of the cluster; a change requires permission for both sets", ""},
	{managedCluster, Label, "feature.open-cluster-management.io/addon-", User, "the property addon of the cluster in searches", ""},
	{managedCluster, Finalizer, "cluster.open-cluster-management.io/api-resource-cleanup", User, "that the server cleans up before the cluster is gone; the server adds it again to a live cluster", ""},
	{managedCluster, Finalizer, "cluster.open-cluster-management.io/resource-cleanup", User, "removed from imported clusters, because no controller of this hub acts on it", ""},
	{managedCluster, Taint, "cluster.open-cluster-management.io/unreachable", User, "set again by the server while the cluster is unreachable", ""},
	{managedCluster, Taint, "cluster.open-cluster-management.io/unavailable", User, "set again by the server while the cluster is unavailable", ""},
	{managedCluster, Condition, "ManagedClusterJoined", Agent, ownCluster, ""},
	{managedCluster, Condition, "ManagedClusterConditionAvailable", Agent, ownCluster + "; the server sets it to Unknown without a lease", ""},
	{managedCluster, Condition, "ObjectsRetained", Agent, ownCluster, ""},
	{managedCluster, Condition, "AgentWorkersResponding", Agent, ownCluster, ""},
	{managedCluster, Claim, "rehoming.open-cluster-management.io/key", Agent, ownCluster + ": the key by which its agent proves itself to a hub that adopts the cluster", ""},

	// ManagedClusterRegistration: clients cannot write it at all.
	{registration, Annotation, "register.open-cluster-management.io/claim-read", HubComponents, "that the claim in annotations of the cluster is read", ""},
	{registration, Annotation, "register.open-cluster-management.io/renewed-at", HubComponents, "until when an identity is reserved", ""},
	{registration, Annotation, "rehoming.open-cluster-management.io/key", HubComponents, "the key of the agent of an adopted cluster", ""},
	{registration, Annotation, "rehoming.open-cluster-management.io/adopted-at", HubComponents, "that the cluster was adopted", ""},
	{registration, Annotation, "rehoming.open-cluster-management.io/adopted-decision", HubComponents, "which decision is the one of the other hub", ""},
	{registration, Label, "open-cluster-management.io/cluster-name", HubComponents, "the cluster of a reservation", ""},
	{registration, Condition, "AccessGranted", HubComponents, "that the cluster has access", ""},
	{registration, Condition, "IdentityReady", HubComponents, "that the identity exists", ""},

	// ManifestWork
	{manifestWork, Annotation, "rbac.open-cluster-management.io/clusterpermission", Server,
		"that the ManifestWork delivers a ClusterPermission, so the agent changes only objects that it created", "agents also read the controller reference and their own record; without both, a user with permission to update the ManifestWork already decides what the agent applies"},
	{manifestWork, Annotation, "work.open-cluster-management.io/traceparent", Server, "the trace of the request that wrote the spec", "only joins a trace"},
	{manifestWork, Status, "executorChoice", Server, "the user who chose the executor", "not read there"},
	{manifestWork, Annotation, "open-cluster-management.io/cleanup-priority", User, "the order in which ManifestWorks of a deleted cluster are deleted; they wait for at most the configured time", ""},
	{manifestWork, Label, "work.open-cluster-management.io/manifestworkreplicaset", User, "that a TTL does not delete the ManifestWork", ""},
	{manifestWork, Finalizer, "cluster.open-cluster-management.io/manifest-work-cleanup", Agent, ownCluster + ": that applied objects are not removed yet", ""},
	{manifestWork, Condition, "Applied", Agent, ownCluster, ""},
	{manifestWork, Condition, "Available", Agent, ownCluster, ""},
	{manifestWork, Condition, "Complete", Agent, ownCluster + ": a ManifestWork with a TTL is deleted", ""},
	{manifestWork, Condition, "StatusFeedbackSynced", Agent, ownCluster, ""},

	// ClusterPermission and MulticlusterRoleAssignment
	{clusterPermission, Label, "rbac.open-cluster-management.io/role-assignment-namespace", Server, "the MulticlusterRoleAssignment that owns it, which deletes it", "always served by the server"},
	{clusterPermission, Annotation, "rbac.open-cluster-management.io/role-assignment-name", Server, "as role-assignment-namespace", "always served by the server"},
	{clusterPermission, Annotation, "rbac.open-cluster-management.io/role-assignment-uid", Server, "as role-assignment-namespace", "always served by the server"},
	{clusterPermission, Status, "approval", Server, "which generation is approved and delivered", "always served by the server"},
	{clusterPermission, Label, "rbac.open-cluster-management.io/managed-by", User, "only written again; the label and annotations role-assignment-* decide", ""},
	{clusterPermission, Condition, "NamespacesSelected", User, "only an early second rendering; the server writes it again", ""},
	{clusterPermission, Condition, "AppliedRBACManifestWork", User, "shown only; the server writes it again", ""},
	{clusterPermission, Status, "resourceStatus", User, "which ClusterPermission reviews name for a binding; requires permission for the subresource status, which no role of the product grants to tenants", ""},
	{roleAssignment, Status, "authors", Server, "the users who must hold the granted permissions", "always served by the server"},

	// ManagedServiceAccount
	{account, Label, "authentication.open-cluster-management.io/parent-namespace", Server, "the account of a set that owns a replica, which deletes it", "always served by the server"},
	{account, Annotation, "authentication.open-cluster-management.io/parent-uid", Server, "as parent-namespace", "always served by the server"},
	{account, Status, "serviceAccountRef", Agent, ownCluster + ": the ServiceAccount that ClusterPermissions of that cluster bind", ""},
	{account, Status, "tokenSecretRef", Agent, ownCluster, ""},
	{account, Condition, "SecretCreated", Agent, ownCluster, ""},
	{account, Condition, "TokenReported", Agent, ownCluster, ""},
	{account, Condition, "AllServiceAccountPresent", Agent, ownCluster, ""},
	{account, Condition, "NamespaceManaged", User, "shown only; the server writes it again", ""},

	// Add-ons
	{addon, Annotation, "addon.open-cluster-management.io/v1alpha1-install-namespace", User, "spec.installNamespace of version v1alpha1", ""},

	// Objects of the hub
	{namespace, Label, "open-cluster-management.io/cluster-name", HubComponents, "the cluster of a namespace", ""},
	{namespace, Annotation, "register.open-cluster-management.io/made-for", HubComponents, "that the server created the namespace, so it deletes it", ""},
	{binding, Label, "open-cluster-management.io/cluster-name", HubComponents, "the cluster of roles and bindings", ""},
	{binding, Finalizer, "cluster.open-cluster-management.io/manifest-work-cleanup", HubComponents, "that the access of an agent stays until its ManifestWorks are removed", ""},
	{request, Label, "open-cluster-management.io/cluster-name", User, "the cluster of a request; must equal the cluster in the subject", ""},
	{request, Annotation, "rehoming.open-cluster-management.io/proof", User, "a signature, which is verified", ""},
	{secret, Label, "authentication.open-cluster-management.io/is-managed-serviceaccount", Agent, ownCluster + ": that a Secret contains a token; its owner reference is checked too", ""},
	{secret, Annotation, "open-cluster-management.io/managed-serving-certificate", HubComponents, "that the server made the Secret", ""},
	{secret, Annotation, "open-cluster-management.io/serving-ca-trusted-since", HubComponents, "since when all APIServices contain an authority", ""},
	{service, Annotation, "open-cluster-management.io/inject-ca-from-secret", HubComponents, "which Secret has the authority of a Service", ""},
	{deployment, Annotation, "migration.open-cluster-management.io/replicas", HubComponents, "how many replicas a Deployment of OCM had before a migration", ""},
	{crd, Annotation, "migration.open-cluster-management.io/conversion", HubComponents, "the conversion that a CustomResourceDefinition had before a migration", ""},
	{placementDecision, Label, "cluster.open-cluster-management.io/placement", User, "the Placement of a decision; the permissions of the author of the MulticlusterRoleAssignment bound what it can cause", ""},

	// Objects of managed clusters
	{clusterClaim, Label, "open-cluster-management.io/spoke-only", Cluster, "that the agent does not report the claim", ""},
	{secret, Annotation, "agent.open-cluster-management.io/deleted-on-hub", Cluster, "that the cluster was deleted on the hub", ""},
	{serviceAccount, Label, "authentication.open-cluster-management.io/is-managed-serviceaccount", Cluster, "which agent keeps a ServiceAccount", ""},
	{serviceAccount, Annotation, "authentication.open-cluster-management.io/managed-serviceaccount-uid", Cluster, "for which ManagedServiceAccount the ServiceAccount was created", ""},
	{serviceAccount, Annotation, "authentication.open-cluster-management.io/source", Cluster, "shown only", ""},
	{secret, Annotation, "authentication.open-cluster-management.io/token-request", Agent, "which request a token answers; a wrong value causes a rotation", ""},
	{namespace, Label, "clusterset.open-cluster-management.io/", Cluster, "which namespaces the agent created for sets", ""},
	{applied, Annotation, "open-cluster-management.io/config-spec-hash", Cluster, "that the manifest was applied as it is; a wrong value causes an application", ""},
	{applied, Annotation, "work.open-cluster-management.io/adopted", Cluster, "that an object existed before it was applied, so it stays; of guarded ManifestWorks, the UID in the record decides", ""},
	{appliedManifestWork, Label, "open-cluster-management.io/cluster-name", Cluster, "the cluster of a record", ""},
	{appliedManifestWork, Annotation, "work.open-cluster-management.io/delete-option", Cluster, "the objects that stay after the ManifestWork is deleted", ""},
	{appliedManifestWork, Annotation, "work.open-cluster-management.io/applied-version", Cluster, "that objects contain no fields of former manifests", ""},
	{appliedManifestWork, Annotation, "work.open-cluster-management.io/field-managers", Cluster, "which server-side applied fields belong to the ManifestWork", ""},
	{appliedManifestWork, Annotation, "work.open-cluster-management.io/guarded", Cluster, "that the ManifestWork delivers a ClusterPermission", ""},
	{appliedManifestWork, Finalizer, "cluster.open-cluster-management.io/applied-manifest-work-cleanup", Cluster, "that applied objects are not removed yet", ""},
	{crd, Annotation, "work.open-cluster-management.io/crd-hash", Cluster, "which version of the agent made a CustomResourceDefinition", ""},
}
