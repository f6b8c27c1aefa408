package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SelfFleetAccessReview returns the clusters on which the caller is allowed a request, and the reason. It is not
// stored: the response to its creation contains the result in status. The result covers the clusters that the
// caller may view.
type SelfFleetAccessReview struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the request and the clusters.
	// +optional
	Spec SelfFleetAccessReviewSpec `json:"spec,omitempty"`

	// status is the result. It is read-only.
	// +optional
	Status FleetAccessReviewStatus `json:"status,omitempty"`
}

// SelfFleetAccessReviewSpec specifies a request of the caller.
type SelfFleetAccessReviewSpec struct {
	AccessRequest `json:",inline"`
	Page          `json:",inline"`

	// clusters selects clusters. If it is empty, all clusters that the caller may view are selected.
	// +optional
	Clusters ClusterSelection `json:"clusters,omitempty"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FleetAccessReview returns the clusters on which a user or a ServiceAccount is allowed a request, and the reason.
// It is not stored: the response to its creation contains the result in status. The result covers the clusters that
// the caller may view.
type FleetAccessReview struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the subject, the request and the clusters.
	// +optional
	Spec FleetAccessReviewSpec `json:"spec,omitempty"`

	// status is the result. It is read-only.
	// +optional
	Status FleetAccessReviewStatus `json:"status,omitempty"`
}

// FleetAccessReviewSpec specifies a request of a subject.
type FleetAccessReviewSpec struct {
	// user is the name of a user. The groups that an API server adds to authenticated users apply.
	// +optional
	User string `json:"user,omitempty"`

	// groups are the groups of the user. If user is empty, the review is about a user that is in these groups only.
	// +listType=atomic
	// +optional
	Groups []string `json:"groups,omitempty"`

	// extra is accepted as in a SubjectAccessReview. RBAC ignores it.
	// +optional
	Extra map[string]ExtraValue `json:"extra,omitempty"`

	// serviceAccount is a ServiceAccount of one managed cluster, instead of user and groups.
	// +optional
	ServiceAccount *ClusterServiceAccount `json:"serviceAccount,omitempty"`

	AccessRequest `json:",inline"`
	Page          `json:",inline"`

	// clusters selects clusters. If it is empty, all clusters that the caller may view are selected.
	// +optional
	Clusters ClusterSelection `json:"clusters,omitempty"`
}

// ExtraValue is a list of values.
// +listType=atomic
type ExtraValue []string

// ClusterServiceAccount is a ServiceAccount of a managed cluster. It has no permissions on other clusters.
type ClusterServiceAccount struct {
	// cluster is the name of the ManagedCluster.
	Cluster string `json:"cluster"`
	// namespace is its namespace on that cluster.
	Namespace string `json:"namespace"`
	// name is its name.
	Name string `json:"name"`
}

// AccessRequest specifies a request. Without attributes, a FleetAccessReview returns everything that the subject
// holds.
type AccessRequest struct {
	// resourceAttributes describe a request for a resource.
	// +optional
	ResourceAttributes *ResourceAttributes `json:"resourceAttributes,omitempty"`

	// nonResourceAttributes describe a request for a path.
	// +optional
	NonResourceAttributes *NonResourceAttributes `json:"nonResourceAttributes,omitempty"`
}

// ResourceAttributes describe a request for a resource, as in a SubjectAccessReview.
type ResourceAttributes struct {
	// namespace is the namespace of the request. Empty and "*" stand for all namespaces, and for resources that
	// are cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// verb is the verb, such as get, list, create, delete or bind.
	Verb string `json:"verb"`
	// group is the API group. The core group is empty.
	// +optional
	Group string `json:"group,omitempty"`
	// version is accepted as in a SubjectAccessReview. RBAC ignores it.
	// +optional
	Version string `json:"version,omitempty"`
	// resource is the plural name of the resource.
	Resource string `json:"resource"`
	// subresource is the name of the subresource.
	// +optional
	Subresource string `json:"subresource,omitempty"`
	// name is the name of the object. Empty and "*" stand for all names.
	// +optional
	Name string `json:"name,omitempty"`
}

// NonResourceAttributes describe a request for a path, as in a SubjectAccessReview.
type NonResourceAttributes struct {
	// path is the path of the request.
	Path string `json:"path"`
	// verb is the verb, in lower case.
	Verb string `json:"verb"`
}

// ClusterSelection selects the clusters that match all fields that are set.
type ClusterSelection struct {
	// names is a list of at most 1000 names of clusters.
	// +listType=atomic
	// +optional
	Names []string `json:"names,omitempty"`

	// labelSelector selects ManagedClusters by their labels.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// clusterSets is a list of at most 100 ManagedClusterSets, one of which must contain the cluster.
	// +listType=atomic
	// +optional
	ClusterSets []string `json:"clusterSets,omitempty"`
}

// Page bounds the entries of a response.
type Page struct {
	// limit is the maximum number of entries in the response, at most 1000. The default is 100.
	// +optional
	Limit *int32 `json:"limit,omitempty"`

	// continue is the value of status.continue in the previous response.
	// +optional
	Continue string `json:"continue,omitempty"`
}

// AccessDecision is Allowed, Denied or Unknown.
type AccessDecision string

const (
	// AccessAllowed means that RBAC allows the request.
	AccessAllowed AccessDecision = "Allowed"
	// AccessDenied means that RBAC does not allow the request, and nothing else decides.
	AccessDenied AccessDecision = "Denied"
	// AccessUnknown means that the hub cannot tell.
	AccessUnknown AccessDecision = "Unknown"
)

// FleetAccessReviewStatus is the result of a review.
type FleetAccessReviewStatus struct {
	// allowed is the number of selected clusters on which the request is allowed, on all pages.
	Allowed int32 `json:"allowed"`
	// denied is the number of selected clusters on which the request is denied, on all pages.
	Denied int32 `json:"denied"`
	// unknown is the number of selected clusters for which the hub cannot tell, on all pages.
	Unknown int32 `json:"unknown"`

	// clusters are the answers, in the order of the names of the clusters.
	// +listType=atomic
	// +optional
	Clusters []ClusterAccess `json:"clusters,omitempty"`

	// continue is set if there are more clusters.
	// +optional
	Continue string `json:"continue,omitempty"`
	// remainingItemCount is the number of clusters on the following pages.
	// +optional
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// ClusterAccess is the answer for one cluster.
type ClusterAccess struct {
	// cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// decision is Allowed, Denied or Unknown. If the review has no attributes, it is empty unless the hub cannot tell
	// (Unknown).
	// +optional
	Decision AccessDecision `json:"decision,omitempty"`
	// reason is a sentence that explains the decision if chains is empty.
	// +optional
	Reason string `json:"reason,omitempty"`
	// chains are at most 10 chains that allow the request. A chain is a binding, its role and one of its rules.
	// +listType=atomic
	// +optional
	Chains []AccessChain `json:"chains,omitempty"`
	// holdings are the bindings of the subject. They are set in a review without attributes, at most 200.
	// +listType=atomic
	// +optional
	Holdings []AccessHolding `json:"holdings,omitempty"`
}

// RBACReference is a role or a binding on a cluster.
type RBACReference struct {
	// kind is Role, ClusterRole, RoleBinding or ClusterRoleBinding.
	Kind string `json:"kind"`
	// namespace is the namespace of a Role or a RoleBinding.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name.
	Name string `json:"name"`
}

// AccessSubject is a subject of bindings.
type AccessSubject struct {
	// kind is User, Group or ServiceAccount.
	Kind string `json:"kind"`
	// namespace is the namespace of a ServiceAccount.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name is the name.
	Name string `json:"name"`
}

// AccessChain is the binding, the role and the rule by which a subject has a permission.
type AccessChain struct {
	// binding contains the subject.
	Binding RBACReference `json:"binding"`
	// subject is the subject in the binding.
	Subject AccessSubject `json:"subject"`
	// role is the role of the binding.
	Role RBACReference `json:"role"`
	// rule is the rule of the role that allows the request.
	Rule rbacv1.PolicyRule `json:"rule"`
	// clusterPermission is the name of the ClusterPermission that delivered the binding to the cluster, or to each of the
	// clusters.
	// +optional
	ClusterPermission string `json:"clusterPermission,omitempty"`
}

// AccessHolding is a binding that contains a subject, with all rules of its role.
type AccessHolding struct {
	// binding contains the subject.
	Binding RBACReference `json:"binding"`
	// subject is the subject in the binding.
	Subject AccessSubject `json:"subject"`
	// role is the role of the binding.
	Role RBACReference `json:"role"`
	// clusterPermission is the name of the ClusterPermission that delivered the binding to the cluster.
	// +optional
	ClusterPermission string `json:"clusterPermission,omitempty"`
	// missing is true if the cluster has no such role, so that the binding grants nothing.
	// +optional
	Missing bool `json:"missing,omitempty"`
	// rules are the rules of the role.
	// +listType=atomic
	// +optional
	Rules []rbacv1.PolicyRule `json:"rules,omitempty"`
	// escalations are the ways to gain other permissions that the rules contain.
	// +listType=atomic
	// +optional
	Escalations []string `json:"escalations,omitempty"`
}

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=create
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FleetSubjectReview returns the subjects that are allowed a request on the clusters of the fleet, and the reason.
// It is not stored: the response to its creation contains the result in status. The result covers the clusters that
// the caller may view.
type FleetSubjectReview struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec specifies the request and the clusters.
	// +optional
	Spec FleetSubjectReviewSpec `json:"spec,omitempty"`

	// status is the result. It is read-only.
	// +optional
	Status FleetSubjectReviewStatus `json:"status,omitempty"`
}

// FleetSubjectReviewSpec specifies a request.
type FleetSubjectReviewSpec struct {
	AccessRequest `json:",inline"`
	Page          `json:",inline"`

	// clusters selects clusters. If it is empty, all clusters that the caller may view are selected.
	// +optional
	Clusters ClusterSelection `json:"clusters,omitempty"`

	// escalations includes the subjects that are not allowed the request, but hold a permission by which they can
	// gain it.
	// +optional
	Escalations bool `json:"escalations,omitempty"`
}

// FleetSubjectReviewStatus is the result of a review.
type FleetSubjectReviewStatus struct {
	// total is the number of subjects on all pages.
	Total int32 `json:"total"`
	// unknown is the number of selected clusters that the result does not cover.
	Unknown int32 `json:"unknown"`

	// subjects are the subjects: users and ServiceAccounts first, then groups.
	// +listType=atomic
	// +optional
	Subjects []SubjectAccess `json:"subjects,omitempty"`

	// unknownClusters are at most 100 clusters that the result does not cover, with the reason.
	// +listType=atomic
	// +optional
	UnknownClusters []ClusterAccess `json:"unknownClusters,omitempty"`
	// otherAuthorizers are at most 100 clusters on which another authorizer may allow other subjects.
	// +listType=atomic
	// +optional
	OtherAuthorizers []string `json:"otherAuthorizers,omitempty"`

	// notes are sentences about the limits of the result, for example that groups are not expanded.
	// +listType=atomic
	// +optional
	Notes []string `json:"notes,omitempty"`

	// continue is set if there are more subjects.
	// +optional
	Continue string `json:"continue,omitempty"`
	// remainingItemCount is the number of subjects on the following pages.
	// +optional
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// SubjectAccess is a subject that is allowed a request, or can gain the permission.
type SubjectAccess struct {
	AccessSubject `json:",inline"`

	// reason is the reason for which a subject is allowed the request without a binding.
	// +optional
	Reason string `json:"reason,omitempty"`
	// grants are at most 10 chains that allow the request.
	// +listType=atomic
	// +optional
	Grants []AccessGrant `json:"grants,omitempty"`
	// escalations are at most 10 ways to gain the permission.
	// +listType=atomic
	// +optional
	Escalations []AccessEscalation `json:"escalations,omitempty"`
	// truncated is true if there are more grants or escalations.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// AccessGrant is a chain on the clusters where it exists.
type AccessGrant struct {
	AccessChain `json:",inline"`
	// clusterCount is the number of clusters.
	ClusterCount int32 `json:"clusterCount"`
	// clusters are at most 100 of the clusters.
	// +listType=atomic
	Clusters []string `json:"clusters"`
}

// AccessEscalation is a way to gain a permission.
type AccessEscalation struct {
	// type is Bind, Escalate, ImpersonateUsers, ImpersonateGroups, ImpersonateServiceAccounts, CreatePods, ExecPods,
	// CreateTokens, ReadSecrets, ProxyNodes or ApproveCertificates.
	Type        string `json:"type"`
	AccessGrant `json:",inline"`
}
