package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// ManifestWorkFinalizer keeps a ManifestWork until its agent has removed from
	// the managed cluster what the work applied there.
	ManifestWorkFinalizer = "cluster.open-cluster-management.io/manifest-work-cleanup"
	// AppliedManifestWorkFinalizer keeps an AppliedManifestWork until its agent
	// has removed the objects it records.
	AppliedManifestWorkFinalizer = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"

	// ManifestWorkReplicaSetLabel is on the ManifestWorks of a ManifestWorkReplicaSet, which
	// makes them again when they are deleted.
	ManifestWorkReplicaSetLabel = "work.open-cluster-management.io/manifestworkreplicaset"
)

// Condition types of a ManifestWork and of each of its manifests.
const (
	// WorkApplied is True when every manifest (or the one manifest) is applied on the managed cluster.
	WorkApplied = "Applied"
	// WorkAvailable is True when every applied object (or the one object) exists on the managed cluster.
	WorkAvailable = "Available"
	// WorkProgressing and WorkDegraded appear only by way of condition rules.
	WorkProgressing = "Progressing"
	// WorkDegraded appears only by way of condition rules.
	WorkDegraded = "Degraded"
	// WorkComplete is True when the work has run to its end; it appears only by way of condition rules.
	WorkComplete = "Complete"
	// WorkDeleting is True while the agent removes the applied objects of a deleted work.
	WorkDeleting = "Deleting"
	// ManifestStatusFeedbackSynced tells whether the feedback values of a manifest are complete.
	ManifestStatusFeedbackSynced = "StatusFeedbackSynced"
)

// Condition reasons of a ManifestWork and of each of its manifests.
const (
	ReasonAppliedManifestWorkComplete        = "AppliedManifestWorkComplete"
	ReasonAppliedManifestWorkFailed          = "AppliedManifestWorkFailed"
	ReasonResourcesAvailable                 = "ResourcesAvailable"
	ReasonResourcesNotAvailable              = "ResourcesNotAvailable"
	ReasonResourcesStatusUnknown             = "ResourcesStatusUnknown"
	ReasonWorkDeleting                       = "WorkDeleting"
	ReasonConditionRulesAggregated           = "ConditionRulesAggregated"
	ReasonAppliedManifestComplete            = "AppliedManifestComplete"
	ReasonAppliedManifestFailed              = "AppliedManifestFailed"
	ReasonAppliedManifestSSAIgnoreFieldError = "AppliedManifestSSAIgnoreFieldError"
	// ReasonAppliedManifestObjectNotOwned is of an object that is on the cluster and
	// was not made by the ClusterPermission that the work delivers.
	ReasonAppliedManifestObjectNotOwned = "AppliedManifestObjectNotOwned"
	// ReasonAppliedManifestRoleNotApplied is of a binding whose role that
	// ClusterPermission delivers as well, but which is not applied.
	ReasonAppliedManifestRoleNotApplied = "AppliedManifestRoleNotApplied"
	ReasonResourceAvailable             = "ResourceAvailable"
	ReasonResourceNotAvailable          = "ResourceNotAvailable"
	ReasonFetchingResourceFailed        = "FetchingResourceFailed"
	ReasonIncompleteResourceMeta        = "IncompleteResourceMeta"
	ReasonStatusFeedbackSynced          = "StatusFeedbackSynced"
	ReasonNoStatusFeedbackSynced        = "NoStatusFeedbackSynced"
	ReasonStatusFeedbackSyncFailed      = "StatusFeedbackSyncFailed"
	ReasonConditionRuleEvaluated        = "ConditionRuleEvaluated"
	ReasonConditionRuleInvalid          = "ConditionRuleInvalid"
	ReasonConditionRuleExpressionError  = "ConditionRuleExpressionError"
	ReasonConditionRuleInternalError    = "ConditionRuleInternalError"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWork is a set of Kubernetes objects to apply on one managed cluster.
// It lives in the hub namespace that is named after the managed cluster; the
// agent of that cluster applies its manifests, keeps them as they are given, and
// reports their state. Deleting the ManifestWork removes the applied objects,
// unless its deleteOption says otherwise.
type ManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The objects to apply, and how.
	// +optional
	Spec ManifestWorkSpec `json:"spec,omitempty"`

	// The state of the objects on the managed cluster. Written by the agent.
	// +optional
	Status ManifestWorkStatus `json:"status,omitempty"`
}

// ManifestWorkSpec is the desired state of a ManifestWork.
type ManifestWorkSpec struct {
	// The objects to apply.
	// +optional
	Workload ManifestsTemplate `json:"workload,omitempty"`

	// What happens to the applied objects when the work is deleted. They are
	// removed in the foreground when this is not given.
	// +optional
	DeleteOption *DeleteOption `json:"deleteOption,omitempty"`

	// How to apply and observe particular manifests. Where several entries
	// match a manifest, the first that sets a field decides that field.
	// +optional
	// +listType=atomic
	ManifestConfigs []ManifestConfigOption `json:"manifestConfigs,omitzero"`

	// The identity whose permissions on the managed cluster the work acts with.
	// The agent's own permissions are used when this is not given.
	// +optional
	Executor *ManifestWorkExecutor `json:"executor,omitempty"`
}

// ManifestsTemplate holds the objects of a ManifestWork.
type ManifestsTemplate struct {
	// The objects to apply, each a complete Kubernetes object with apiVersion,
	// kind and metadata.name.
	// +optional
	// +listType=atomic
	Manifests []Manifest `json:"manifests,omitzero"`
}

// Manifest is one Kubernetes object of any kind.
type Manifest struct {
	runtime.RawExtension `json:",inline"`
}

// DeletePropagationPolicyType says what happens to applied objects when their work is deleted.
// +enum
type DeletePropagationPolicyType string

const (
	// DeletePropagationPolicyTypeForeground removes every applied object; the
	// work stays until they are gone. The default.
	DeletePropagationPolicyTypeForeground DeletePropagationPolicyType = "Foreground"
	// DeletePropagationPolicyTypeOrphan leaves every applied object on the managed cluster.
	DeletePropagationPolicyTypeOrphan DeletePropagationPolicyType = "Orphan"
	// DeletePropagationPolicyTypeSelectivelyOrphan leaves the objects that selectivelyOrphans names and removes the others.
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// DeleteOption says what happens to applied objects when their work is deleted or finished.
type DeleteOption struct {
	// Foreground removes the applied objects and is the default; Orphan leaves
	// them; SelectivelyOrphan leaves those that selectivelyOrphans names.
	// +optional
	// +default="Foreground"
	PropagationPolicy DeletePropagationPolicyType `json:"propagationPolicy,omitempty"`

	// The objects to leave on the managed cluster; only for the policy SelectivelyOrphan.
	// +optional
	SelectivelyOrphan *SelectivelyOrphan `json:"selectivelyOrphans,omitempty"`

	// Seconds after which a work whose condition Complete is True is deleted
	// from the hub. It is kept when this is not given; 0 deletes it at once.
	// +optional
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SelectivelyOrphan names the objects to leave on the managed cluster.
type SelectivelyOrphan struct {
	// The objects to leave.
	// +optional
	// +listType=atomic
	OrphaningRules []OrphaningRule `json:"orphaningRules,omitzero"`
}

// OrphaningRule names one object exactly.
type OrphaningRule struct {
	// API group of the object; empty for the core group.
	// +optional
	Group *string `json:"group,omitempty"`

	// Resource of the object in plural, for example configmaps.
	Resource string `json:"resource"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace *string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`
}

// ResourceIdentifier names objects of one resource. In a manifestConfigs entry,
// name and namespace may contain the wildcard *.
type ResourceIdentifier struct {
	// API group of the object; empty for the core group.
	// +optional
	Group *string `json:"group,omitempty"`

	// Resource of the object in plural, for example deployments.
	Resource string `json:"resource"`

	// Name of the object.
	Name string `json:"name"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace *string `json:"namespace,omitempty"`
}

// ManifestConfigOption says how the manifests it names are applied and observed.
type ManifestConfigOption struct {
	// The manifests that this entry is about.
	ResourceIdentifier ResourceIdentifier `json:"resourceIdentifier"`

	// Values of the applied object to report in the status of the work.
	// +optional
	// +listType=atomic
	FeedbackRules []FeedbackRule `json:"feedbackRules,omitzero"`

	// How feedback values are kept up to date: Poll, the default, or Watch.
	// +optional
	FeedbackScrapeType FeedbackScrapeType `json:"feedbackScrapeType,omitempty"`

	// How the manifest is applied.
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// Rules that derive conditions of the manifest from the applied object.
	// +optional
	// +listType=map
	// +listMapKey=condition
	ConditionRules []ConditionRule `json:"conditionRules,omitzero"`
}

// FeedbackScrapeType says how feedback values are kept up to date.
// +enum
type FeedbackScrapeType string

const (
	// FeedbackPollType reads the object again and again. The default.
	FeedbackPollType FeedbackScrapeType = "Poll"
	// FeedbackWatchType watches the object.
	FeedbackWatchType FeedbackScrapeType = "Watch"
)

// FeedbackRuleType says where feedback values come from.
// +enum
type FeedbackRuleType string

const (
	// WellKnownStatusType reports the usual values of Deployments, DaemonSets, Jobs and Pods.
	WellKnownStatusType FeedbackRuleType = "WellKnownStatus"
	// JSONPathsType reports the values at the given paths.
	JSONPathsType FeedbackRuleType = "JSONPaths"
)

// FeedbackRule says which values of an applied object are reported.
type FeedbackRule struct {
	// WellKnownStatus or JSONPaths.
	Type FeedbackRuleType `json:"type"`

	// The values to report; only for the type JSONPaths.
	// +optional
	// +listType=map
	// +listMapKey=name
	JsonPaths []JsonPath `json:"jsonPaths,omitzero"`
}

// JsonPath names a value of an object.
type JsonPath struct {
	// The name under which the value is reported.
	Name string `json:"name"`

	// Version of the resource that the path is about, for example v1. The
	// version of the manifest when this is not given.
	// +optional
	Version *string `json:"version,omitempty"`

	// The path, for example .status.readyReplicas, in the syntax of kubectl's JSONPath.
	Path string `json:"path"`
}

// UpdateStrategyType says how a manifest is applied.
// +enum
type UpdateStrategyType string

const (
	// UpdateStrategyTypeUpdate creates the object and updates what the manifest gives. The default.
	UpdateStrategyTypeUpdate UpdateStrategyType = "Update"
	// UpdateStrategyTypeCreateOnly creates the object and then leaves it alone.
	UpdateStrategyTypeCreateOnly UpdateStrategyType = "CreateOnly"
	// UpdateStrategyTypeServerSideApply applies the manifest server-side.
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	// UpdateStrategyTypeReadOnly never writes the object; it is only observed.
	UpdateStrategyTypeReadOnly UpdateStrategyType = "ReadOnly"
)

// UpdateStrategy says how a manifest is applied.
type UpdateStrategy struct {
	// Update, the default, CreateOnly, ServerSideApply or ReadOnly.
	// +optional
	// +default="Update"
	Type UpdateStrategyType `json:"type,omitempty"`

	// Settings of server-side apply; only for the type ServerSideApply.
	// +optional
	ServerSideApply *ServerSideApplyConfig `json:"serverSideApply,omitempty"`
}

// DefaultFieldManager is the field manager of server-side apply when none is given.
const DefaultFieldManager = "work-agent"

// ServerSideApplyConfig holds the settings of server-side apply.
type ServerSideApplyConfig struct {
	// Whether to take over fields that another manager owns. Without it such a
	// conflict is reported and nothing is applied.
	// +optional
	Force *bool `json:"force,omitempty"`

	// The field manager, which must begin with work-agent; work-agent is the default.
	// +optional
	// +default="work-agent"
	FieldManager string `json:"fieldManager,omitempty"`

	// Fields of the manifest that are left out of the apply.
	// +optional
	// +listType=map
	// +listMapKey=condition
	IgnoreFields []IgnoreField `json:"ignoreFields,omitzero"`
}

// IgnoreFieldsCondition says when fields are ignored.
// +enum
type IgnoreFieldsCondition string

const (
	// IgnoreFieldsConditionOnSpokePresent ignores the fields once the object exists on the managed cluster. The default.
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	// IgnoreFieldsConditionOnSpokeChange ignores the fields when only they
	// changed on the managed cluster; a change of the manifest applies them again.
	IgnoreFieldsConditionOnSpokeChange IgnoreFieldsCondition = "OnSpokeChange"
)

// IgnoreField names fields that are left out of a server-side apply.
type IgnoreField struct {
	// OnSpokePresent, the default, or OnSpokeChange.
	// +optional
	// +default="OnSpokePresent"
	Condition IgnoreFieldsCondition `json:"condition,omitempty"`

	// JSON paths of the fields, for example .spec.replicas.
	// +optional
	// +listType=atomic
	JSONPaths []string `json:"jsonPaths,omitzero"`

	// JSON pointers (RFC 6901) of the fields, for example /spec/replicas.
	// +optional
	// +listType=atomic
	JSONPointers []string `json:"jsonPointers,omitzero"`

	// jq path expressions of the fields, for example .spec.containers[] | select(.name == "proxy") | .image.
	// +optional
	// +listType=atomic
	JQPathExpressions []string `json:"jqPathExpressions,omitzero"`
}

// ConditionRuleType says how a condition rule is evaluated.
// +enum
type ConditionRuleType string

const (
	// WellKnownConditionsType derives the usual conditions of Jobs and Pods.
	WellKnownConditionsType ConditionRuleType = "WellKnownConditions"
	// CelConditionExpressionsType evaluates CEL expressions.
	CelConditionExpressionsType ConditionRuleType = "CEL"
)

// ConditionRule derives a condition of a manifest from the applied object.
type ConditionRule struct {
	// The condition type to set, for example Complete. Required for the type CEL.
	Condition string `json:"condition"`

	// WellKnownConditions or CEL.
	Type ConditionRuleType `json:"type"`

	// CEL expressions over the variable object; the condition is True when all of them are true.
	// +optional
	// +listType=atomic
	CelExpressions []string `json:"celExpressions,omitzero"`

	// The message of the condition.
	// +optional
	Message *string `json:"message,omitempty"`

	// A CEL expression over the variables object and result that gives the
	// message of the condition; it takes precedence over message.
	// +optional
	MessageExpression *string `json:"messageExpression,omitempty"`
}

// ManifestWorkExecutor names the identity that a work acts as.
type ManifestWorkExecutor struct {
	// The identity that the work acts as.
	Subject ManifestWorkExecutorSubject `json:"subject"`
}

// ManifestWorkExecutorSubjectType is the kind of an executor.
// +enum
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount makes a work act as a ServiceAccount of the managed cluster.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// ManifestWorkExecutorSubject names the identity that a work acts as.
type ManifestWorkExecutorSubject struct {
	// ServiceAccount is the only type.
	Type ManifestWorkExecutorSubjectType `json:"type"`

	// The ServiceAccount of the managed cluster; required for the type ServiceAccount.
	// +optional
	ServiceAccount *ManifestWorkSubjectServiceAccount `json:"serviceAccount,omitempty"`
}

// ManifestWorkSubjectServiceAccount names a ServiceAccount of the managed cluster.
type ManifestWorkSubjectServiceAccount struct {
	// Namespace of the ServiceAccount.
	Namespace string `json:"namespace"`

	// Name of the ServiceAccount.
	Name string `json:"name"`
}

// ManifestWorkStatus is the state of the objects of a ManifestWork on the managed cluster.
type ManifestWorkStatus struct {
	// The state of the work as a whole. Known types are Applied, Available,
	// Deleting, Complete, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// The state of each manifest.
	// +optional
	ResourceStatus ManifestResourceStatus `json:"resourceStatus,omitempty"`

	// Who chose the executor, and who answers for what the work does as it. The
	// server sets this for works with an executor, and for those whose executor
	// was taken away; nobody else can.
	// +optional
	ExecutorChoice *ExecutorChoice `json:"executorChoice,omitempty"`
}

// ExecutorChoice says who chose the executor of a work, and who last wrote its spec.
// Each of them was allowed to have works act as the executor when they did.
type ExecutorChoice struct {
	// Who created the work with its executor, or last changed the executor.
	ChosenBy ExecutorChooser `json:"chosenBy"`

	// When they did.
	ChosenAt metav1.Time `json:"chosenAt"`

	// Who last changed the spec.
	SpecChangedBy ExecutorChooser `json:"specChangedBy"`

	// When they did.
	SpecChangedAt metav1.Time `json:"specChangedAt"`
}

// ExecutorChooser is a user of the hub as the hub has authenticated it.
type ExecutorChooser struct {
	// Name of the user.
	Username string `json:"username"`

	// UID of the user, if it has one.
	// +optional
	UID string `json:"uid,omitempty"`
}

// ManifestResourceStatus holds the state of each manifest.
type ManifestResourceStatus struct {
	// The state of each manifest, in the order of the spec.
	// +optional
	// +listType=atomic
	Manifests []ManifestCondition `json:"manifests,omitempty"`
}

// ManifestCondition is the state of one manifest.
type ManifestCondition struct {
	// Which object this is about.
	ResourceMeta ManifestResourceMeta `json:"resourceMeta"`

	// The values that feedback rules ask for.
	// +optional
	StatusFeedbacks StatusFeedbackResult `json:"statusFeedback,omitempty"`

	// The state of the object. Known types are Applied, Available and
	// StatusFeedbackSynced; condition rules add more.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ManifestResourceMeta says which object an entry of the status is about.
type ManifestResourceMeta struct {
	// Index of the manifest in spec.workload.manifests.
	Ordinal int32 `json:"ordinal"`

	// API group of the object.
	// +optional
	Group string `json:"group"`

	// API version of the object.
	// +optional
	Version string `json:"version"`

	// Kind of the object.
	// +optional
	Kind string `json:"kind"`

	// Resource of the object in plural.
	// +optional
	Resource string `json:"resource"`

	// Name of the object.
	// +optional
	Name string `json:"name"`

	// Namespace of the object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace"`
}

// StatusFeedbackResult holds the values that feedback rules ask for.
type StatusFeedbackResult struct {
	// The values, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Values []FeedbackValue `json:"values,omitempty"`
}

// FeedbackValue is one reported value.
type FeedbackValue struct {
	// The name that the feedback rule gives the value.
	Name string `json:"name"`

	// The value.
	Value FieldValue `json:"fieldValue"`
}

// ValueType is the type of a reported value.
// +enum
type ValueType string

const (
	// Integer marks a whole number.
	Integer ValueType = "Integer"
	// String marks a text.
	String ValueType = "String"
	// Boolean marks true or false.
	Boolean ValueType = "Boolean"
	// JsonRaw marks a list or an object, as JSON text of at most 1024 bytes.
	JsonRaw ValueType = "JsonRaw"
)

// FieldValue is a value of one of several types.
type FieldValue struct {
	// Integer, String, Boolean or JsonRaw; the field of that name holds the value.
	Type ValueType `json:"type"`

	// The value of the type Integer.
	// +optional
	Integer *int64 `json:"integer,omitempty"`

	// The value of the type String.
	// +optional
	String *string `json:"string,omitempty"`

	// The value of the type Boolean.
	// +optional
	Boolean *bool `json:"boolean,omitempty"`

	// The value of the type JsonRaw, at most 1024 bytes.
	// +optional
	JsonRaw *string `json:"jsonRaw,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkList is a list of ManifestWorks.
type ManifestWorkList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManifestWorks.
	Items []ManifestWork `json:"items"`
}
