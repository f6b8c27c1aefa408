package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// ManifestWorkFinalizer keeps a deleted ManifestWork until its agent has removed the applied objects from
	// the managed cluster.
	ManifestWorkFinalizer = "cluster.open-cluster-management.io/manifest-work-cleanup"
	// AppliedManifestWorkFinalizer keeps a deleted AppliedManifestWork until its agent has removed the objects
	// that it records.
	AppliedManifestWorkFinalizer = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"

	// ManifestWorkReplicaSetLabel is set on the ManifestWorks of a ManifestWorkReplicaSet, which recreates them
	// if they are deleted.
	ManifestWorkReplicaSetLabel = "work.open-cluster-management.io/manifestworkreplicaset"

	// TraceparentAnnotation is the W3C traceparent of the request that last wrote the spec, if its trace was
	// sampled. Only the server sets it.
	TraceparentAnnotation = "work.open-cluster-management.io/traceparent"
)

// Condition types of a ManifestWork and of each of its manifests.
const (
	// WorkApplied is True if all manifests (or the one manifest) are applied on the managed cluster.
	WorkApplied = "Applied"
	// WorkAvailable is True if all applied objects (or the one object) exist on the managed cluster.
	WorkAvailable = "Available"
	// WorkProgressing and WorkDegraded are set only by condition rules.
	WorkProgressing = "Progressing"
	WorkDegraded    = "Degraded"
	// WorkComplete is True if the objects have finished. It is set only by condition rules.
	WorkComplete = "Complete"
	// WorkDeleting is True while the agent removes the applied objects of a deleted ManifestWork.
	WorkDeleting = "Deleting"
	// ManifestStatusFeedbackSynced reports whether the feedback values of a manifest are complete.
	ManifestStatusFeedbackSynced = "StatusFeedbackSynced"
)

// Condition reasons of a ManifestWork and of each of its manifests.
const (
	ReasonAppliedManifestWorkComplete = "AppliedManifestWorkComplete"
	ReasonAppliedManifestWorkFailed   = "AppliedManifestWorkFailed"
	// ReasonWaitingForManagedCluster is set by the server while no ManagedCluster has the name of the namespace.
	ReasonWaitingForManagedCluster           = "WaitingForManagedCluster"
	ReasonResourcesAvailable                 = "ResourcesAvailable"
	ReasonResourcesNotAvailable              = "ResourcesNotAvailable"
	ReasonResourcesStatusUnknown             = "ResourcesStatusUnknown"
	ReasonWorkDeleting                       = "WorkDeleting"
	ReasonConditionRulesAggregated           = "ConditionRulesAggregated"
	ReasonAppliedManifestComplete            = "AppliedManifestComplete"
	ReasonAppliedManifestFailed              = "AppliedManifestFailed"
	ReasonAppliedManifestSSAIgnoreFieldError = "AppliedManifestSSAIgnoreFieldError"
	// ReasonAppliedManifestObjectNotOwned is set if the object exists on the managed cluster and was not
	// created for the ClusterPermission of the ManifestWork.
	ReasonAppliedManifestObjectNotOwned = "AppliedManifestObjectNotOwned"
	// ReasonAppliedManifestRoleNotApplied is set on a binding if the ManifestWork also contains its role, but
	// the role is not applied.
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

// ManifestWork is a set of Kubernetes objects to apply on one managed cluster. It is created in the namespace
// of the cluster on the hub. The agent of the cluster applies its manifests, reverts changes to them and
// reports their state. If the ManifestWork is deleted, the agent removes the applied objects unless
// deleteOption specifies otherwise.
type ManifestWork struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the ManifestWork.
	// +optional
	Spec ManifestWorkSpec `json:"spec,omitempty"`

	// status is the state of the objects on the managed cluster, reported by the agent. It is read-only.
	// +optional
	Status ManifestWorkStatus `json:"status,omitempty"`
}

// ManifestWorkSpec is the desired state of a ManifestWork.
type ManifestWorkSpec struct {
	// workload contains the objects to apply.
	// +optional
	Workload ManifestsTemplate `json:"workload,omitempty"`

	// deleteOption specifies how the applied objects are handled when the ManifestWork is deleted. Defaults to
	// foreground deletion of all objects.
	// +optional
	DeleteOption *DeleteOption `json:"deleteOption,omitempty"`

	// manifestConfigs specifies how particular manifests are applied and observed. If several entries match a
	// manifest, each field takes its value from the first entry that sets it.
	// +optional
	// +listType=atomic
	ManifestConfigs []ManifestConfigOption `json:"manifestConfigs,omitzero"`

	// executor is the identity that the agent impersonates on the managed cluster to apply the manifests. If it
	// is not set, the agent uses its own permissions.
	// +optional
	Executor *ManifestWorkExecutor `json:"executor,omitempty"`
}

// ManifestsTemplate contains the objects of a ManifestWork.
type ManifestsTemplate struct {
	// manifests is the list of objects to apply. Each is a complete Kubernetes object with apiVersion, kind and
	// metadata.name.
	// +optional
	// +listType=atomic
	Manifests []Manifest `json:"manifests,omitzero"`
}

// Manifest is one Kubernetes object of any kind.
type Manifest struct {
	runtime.RawExtension `json:",inline"`
}

// DeletePropagationPolicyType specifies how applied objects are handled when their ManifestWork is deleted.
// +enum
type DeletePropagationPolicyType string

const (
	// DeletePropagationPolicyTypeForeground removes all applied objects before the ManifestWork is removed.
	DeletePropagationPolicyTypeForeground DeletePropagationPolicyType = "Foreground"
	// DeletePropagationPolicyTypeOrphan keeps all applied objects on the managed cluster.
	DeletePropagationPolicyTypeOrphan DeletePropagationPolicyType = "Orphan"
	// DeletePropagationPolicyTypeSelectivelyOrphan keeps the objects that selectivelyOrphans lists and removes
	// the others.
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// DeleteOption specifies how applied objects are handled when their ManifestWork is deleted or has finished.
type DeleteOption struct {
	// propagationPolicy is Foreground, Orphan or SelectivelyOrphan. Foreground removes all applied objects
	// before the ManifestWork is removed, Orphan keeps them, and SelectivelyOrphan keeps the objects
	// that selectivelyOrphans lists. Defaults to Foreground.
	// +optional
	// +default="Foreground"
	PropagationPolicy DeletePropagationPolicyType `json:"propagationPolicy,omitempty"`

	// selectivelyOrphans lists the objects to keep on the managed cluster. It may be set only if
	// propagationPolicy is SelectivelyOrphan.
	// +optional
	SelectivelyOrphan *SelectivelyOrphan `json:"selectivelyOrphans,omitempty"`

	// ttlSecondsAfterFinished is the number of seconds after which the hub deletes a ManifestWork after
	// its condition Complete is True. 0 deletes it immediately. If it is not set, the ManifestWork is kept.
	// +optional
	TTLSecondsAfterFinished *int64 `json:"ttlSecondsAfterFinished,omitempty"`
}

// SelectivelyOrphan lists the objects to keep on the managed cluster.
type SelectivelyOrphan struct {
	// orphaningRules is the list of objects to keep.
	// +optional
	// +listType=atomic
	OrphaningRules []OrphaningRule `json:"orphaningRules,omitzero"`
}

// OrphaningRule identifies one object.
type OrphaningRule struct {
	// group is the API group of the object. It is empty for the core group.
	// +optional
	Group *string `json:"group,omitempty"`

	// resource is the plural name of the resource, for example configmaps.
	Resource string `json:"resource"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped object.
	// +optional
	Namespace *string `json:"namespace,omitempty"`

	// name is the name of the object.
	Name string `json:"name"`
}

// ResourceIdentifier identifies objects of one resource. In manifestConfigs, name and namespace may contain the
// wildcard *.
type ResourceIdentifier struct {
	// group is the API group of the object. It is empty for the core group.
	// +optional
	Group *string `json:"group,omitempty"`

	// resource is the plural name of the resource, for example deployments.
	Resource string `json:"resource"`

	// name is the name of the object.
	Name string `json:"name"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped object.
	// +optional
	Namespace *string `json:"namespace,omitempty"`
}

// ManifestConfigOption specifies how manifests are applied and observed.
type ManifestConfigOption struct {
	// resourceIdentifier selects the manifests of this entry.
	ResourceIdentifier ResourceIdentifier `json:"resourceIdentifier"`

	// feedbackRules select values of the applied object to report in the status of the ManifestWork.
	// +optional
	// +listType=atomic
	FeedbackRules []FeedbackRule `json:"feedbackRules,omitzero"`

	// feedbackScrapeType is Poll or Watch. Poll reads the object periodically to update feedback values; Watch
	// watches it. Defaults to Poll.
	// +optional
	FeedbackScrapeType FeedbackScrapeType `json:"feedbackScrapeType,omitempty"`

	// updateStrategy specifies how the manifest is applied.
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`

	// conditionRules derive conditions of the manifest from the applied object. Each sets another condition.
	// +optional
	// +listType=atomic
	ConditionRules []ConditionRule `json:"conditionRules,omitzero"`
}

// FeedbackScrapeType specifies how feedback values are updated.
// +enum
type FeedbackScrapeType string

const (
	// FeedbackPollType reads the object periodically. It is the default.
	FeedbackPollType FeedbackScrapeType = "Poll"
	// FeedbackWatchType watches the object.
	FeedbackWatchType FeedbackScrapeType = "Watch"
)

// FeedbackRuleType specifies the source of feedback values.
// +enum
type FeedbackRuleType string

const (
	// WellKnownStatusType reports common values of Deployments, DaemonSets, Jobs and Pods.
	WellKnownStatusType FeedbackRuleType = "WellKnownStatus"
	// JSONPathsType reports the values at JSON paths.
	JSONPathsType FeedbackRuleType = "JSONPaths"
)

// FeedbackRule selects values of an applied object to report.
type FeedbackRule struct {
	// type is WellKnownStatus or JSONPaths.
	Type FeedbackRuleType `json:"type"`

	// jsonPaths lists the values to report. It is required if type is JSONPaths.
	// +optional
	// +listType=map
	// +listMapKey=name
	JsonPaths []JsonPath `json:"jsonPaths,omitzero"`
}

// JsonPath selects a value of an object.
type JsonPath struct {
	// name is the name of the reported value.
	Name string `json:"name"`

	// version is the API version of the resource in which path is read, for example v1. Defaults to the version
	// of the manifest.
	// +optional
	Version *string `json:"version,omitempty"`

	// path is the path of the value in the JSONPath syntax of kubectl, for example .status.readyReplicas.
	Path string `json:"path"`
}

// UpdateStrategyType specifies how a manifest is applied.
// +enum
type UpdateStrategyType string

const (
	// UpdateStrategyTypeUpdate creates the object and updates the fields that the manifest sets. It is the
	// default.
	UpdateStrategyTypeUpdate UpdateStrategyType = "Update"
	// UpdateStrategyTypeCreateOnly creates the object and never updates it.
	UpdateStrategyTypeCreateOnly UpdateStrategyType = "CreateOnly"
	// UpdateStrategyTypeServerSideApply applies the manifest with server-side apply.
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	// UpdateStrategyTypeReadOnly only observes the object and never writes it.
	UpdateStrategyTypeReadOnly UpdateStrategyType = "ReadOnly"
)

// UpdateStrategy specifies how a manifest is applied.
type UpdateStrategy struct {
	// type is Update, CreateOnly, ServerSideApply or ReadOnly. Without an updateStrategy, it is Update.
	Type UpdateStrategyType `json:"type"`

	// serverSideApply contains the settings of server-side apply. It may be set only if type is
	// ServerSideApply.
	// +optional
	ServerSideApply *ServerSideApplyConfig `json:"serverSideApply,omitempty"`
}

// DefaultFieldManager is the default field manager of server-side apply.
const DefaultFieldManager = "work-agent"

// ServerSideApplyConfig contains the settings of server-side apply.
type ServerSideApplyConfig struct {
	// force specifies whether to take ownership of fields that another field manager owns. If it is false, the
	// agent reports such conflicts and does not apply the manifest. Defaults to false.
	// +optional
	Force *bool `json:"force,omitempty"`

	// fieldManager is the name of the field manager. It must start with work-agent. Defaults to work-agent.
	// +optional
	FieldManager string `json:"fieldManager,omitempty"`

	// ignoreFields lists fields of the manifest that are not applied.
	// +optional
	// +listType=map
	// +listMapKey=condition
	IgnoreFields []IgnoreField `json:"ignoreFields,omitzero"`
}

// IgnoreFieldsCondition specifies when fields are ignored.
// +enum
type IgnoreFieldsCondition string

const (
	// IgnoreFieldsConditionOnSpokePresent ignores the fields if the object exists on the managed cluster. It is
	// the default.
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	// IgnoreFieldsConditionOnSpokeChange ignores changes of the fields on the managed cluster. A change of the
	// fields in the manifest is applied.
	IgnoreFieldsConditionOnSpokeChange IgnoreFieldsCondition = "OnSpokeChange"
)

// IgnoreField selects fields that server-side apply ignores.
type IgnoreField struct {
	// condition is OnSpokePresent or OnSpokeChange. Defaults to OnSpokePresent.
	// +optional
	// +default="OnSpokePresent"
	Condition IgnoreFieldsCondition `json:"condition,omitempty"`

	// jsonPaths is a list of JSON paths of fields, for example .spec.replicas.
	// +optional
	// +listType=atomic
	JSONPaths []string `json:"jsonPaths,omitzero"`

	// jsonPointers is a list of JSON pointers (RFC 6901) of fields, for example /spec/replicas.
	// +optional
	// +listType=atomic
	JSONPointers []string `json:"jsonPointers,omitzero"`

	// jqPathExpressions is a list of jq path expressions of fields, for example .spec.containers[] |
	// select(.name == "proxy") | .image.
	// +optional
	// +listType=atomic
	JQPathExpressions []string `json:"jqPathExpressions,omitzero"`
}

// ConditionRuleType specifies how a condition rule is evaluated.
// +enum
type ConditionRuleType string

const (
	// WellKnownConditionsType derives common conditions of Jobs and Pods.
	WellKnownConditionsType ConditionRuleType = "WellKnownConditions"
	// CelConditionExpressionsType evaluates CEL expressions.
	CelConditionExpressionsType ConditionRuleType = "CEL"
)

// ConditionRule derives a condition of a manifest from the applied object.
type ConditionRule struct {
	// condition is the type of the condition to set, for example Complete. It is required if type is CEL.
	// Otherwise it defaults to Complete.
	// +optional
	Condition string `json:"condition,omitempty"`

	// type is WellKnownConditions or CEL.
	Type ConditionRuleType `json:"type"`

	// celExpressions is a list of CEL expressions over the variable object. The condition is True if all of
	// them are true.
	// +optional
	// +listType=atomic
	CelExpressions []string `json:"celExpressions,omitzero"`

	// message is the message of the condition.
	// +optional
	Message *string `json:"message,omitempty"`

	// messageExpression is a CEL expression over the variables object and result that returns the message of
	// the condition. It takes precedence over message.
	// +optional
	MessageExpression *string `json:"messageExpression,omitempty"`
}

// ManifestWorkExecutor is the identity that the agent impersonates to apply a ManifestWork.
type ManifestWorkExecutor struct {
	// subject identifies the executor.
	Subject ManifestWorkExecutorSubject `json:"subject"`
}

// ManifestWorkExecutorSubjectType is the kind of an executor.
// +enum
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount is the type of an executor that is a ServiceAccount of the managed cluster.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// ManifestWorkExecutorSubject identifies an executor.
type ManifestWorkExecutorSubject struct {
	// type is the type of the executor. The only supported type is ServiceAccount.
	Type ManifestWorkExecutorSubjectType `json:"type"`

	// serviceAccount identifies the ServiceAccount of the managed cluster. It is required if type is
	// ServiceAccount.
	// +optional
	ServiceAccount *ManifestWorkSubjectServiceAccount `json:"serviceAccount,omitempty"`
}

// ManifestWorkSubjectServiceAccount identifies a ServiceAccount of the managed cluster.
type ManifestWorkSubjectServiceAccount struct {
	// namespace is the namespace of the ServiceAccount.
	Namespace string `json:"namespace"`

	// name is the name of the ServiceAccount.
	Name string `json:"name"`
}

// ManifestWorkStatus is the state of the objects of a ManifestWork on the managed cluster.
type ManifestWorkStatus struct {
	// conditions report the state of the ManifestWork as a whole. Known types are Applied, Available, Deleting,
	// Complete, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// resourceStatus reports the state of each manifest.
	// +optional
	ResourceStatus ManifestResourceStatus `json:"resourceStatus,omitempty"`

	// executorChoice records the users who chose the executor and who last changed the spec. The server sets it
	// on ManifestWorks that have or had an executor. Clients cannot change it.
	// +optional
	ExecutorChoice *ExecutorChoice `json:"executorChoice,omitempty"`
}

// ExecutorChoice records the user who chose the executor of a ManifestWork and the user who last changed its
// spec. Each of them was authorized to use the executor at that time.
type ExecutorChoice struct {
	// chosenBy is the user who created the ManifestWork with its executor or last changed the executor.
	ChosenBy ExecutorChooser `json:"chosenBy"`

	// chosenAt is the time of that change.
	ChosenAt metav1.Time `json:"chosenAt"`

	// specChangedBy is the user who last changed the spec.
	SpecChangedBy ExecutorChooser `json:"specChangedBy"`

	// specChangedAt is the time of that change.
	SpecChangedAt metav1.Time `json:"specChangedAt"`
}

// ExecutorChooser is an authenticated user of the hub.
type ExecutorChooser struct {
	// username is the name of the user.
	Username string `json:"username"`

	// uid is the UID of the user, if it has one.
	// +optional
	UID string `json:"uid,omitempty"`
}

// ManifestResourceStatus reports the state of each manifest.
type ManifestResourceStatus struct {
	// manifests reports the state of each manifest in the order of the spec.
	// +optional
	// +listType=atomic
	Manifests []ManifestCondition `json:"manifests,omitempty"`
}

// ManifestCondition reports the state of one manifest.
type ManifestCondition struct {
	// resourceMeta identifies the object.
	ResourceMeta ManifestResourceMeta `json:"resourceMeta"`

	// statusFeedback contains the values that feedbackRules select.
	// +optional
	StatusFeedbacks StatusFeedbackResult `json:"statusFeedback,omitempty"`

	// conditions report the state of the object. Known types are Applied, Available and StatusFeedbackSynced.
	// Condition rules add others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ManifestResourceMeta identifies the object of a manifest.
type ManifestResourceMeta struct {
	// ordinal is the index of the manifest in spec.workload.manifests.
	Ordinal int32 `json:"ordinal"`

	// group is the API group of the object. It is empty for the core group.
	// +optional
	Group string `json:"group"`

	// version is the API version of the object.
	// +optional
	Version string `json:"version"`

	// kind is the kind of the object.
	// +optional
	Kind string `json:"kind"`

	// resource is the plural name of the resource of the object.
	// +optional
	Resource string `json:"resource"`

	// name is the name of the object.
	// +optional
	Name string `json:"name"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped object.
	// +optional
	Namespace string `json:"namespace"`
}

// StatusFeedbackResult contains the values that feedbackRules select.
type StatusFeedbackResult struct {
	// values lists the values by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Values []FeedbackValue `json:"values,omitempty"`
}

// FeedbackValue is one reported value.
type FeedbackValue struct {
	// name is the name of the value in its feedback rule.
	Name string `json:"name"`

	// fieldValue is the value.
	Value FieldValue `json:"fieldValue"`
}

// ValueType is the type of a reported value.
// +enum
type ValueType string

const (
	// Integer is a 64-bit integer.
	Integer ValueType = "Integer"
	// String is a string.
	String ValueType = "String"
	// Boolean is true or false.
	Boolean ValueType = "Boolean"
	// JsonRaw is a list or an object as JSON of at most 1024 bytes.
	JsonRaw ValueType = "JsonRaw"
)

// FieldValue is a value of one of several types.
type FieldValue struct {
	// type is Integer, String, Boolean or JsonRaw. The field of the same name contains the value.
	Type ValueType `json:"type"`

	// integer is the value if type is Integer.
	// +optional
	Integer *int64 `json:"integer,omitempty"`

	// string is the value if type is String.
	// +optional
	String *string `json:"string,omitempty"`

	// boolean is the value if type is Boolean.
	// +optional
	Boolean *bool `json:"boolean,omitempty"`

	// jsonRaw is the value if type is JsonRaw. It has at most 1024 bytes.
	// +optional
	JsonRaw *string `json:"jsonRaw,omitempty"`
}
