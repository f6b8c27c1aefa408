package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWork is a set of Kubernetes objects to apply on one managed cluster.
type ManifestWork struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ManifestWorkSpec
	Status ManifestWorkStatus
}

// ManifestWorkSpec is the desired state of a ManifestWork.
type ManifestWorkSpec struct {
	Workload        ManifestsTemplate
	DeleteOption    *DeleteOption
	ManifestConfigs []ManifestConfigOption
	Executor        *ManifestWorkExecutor
}

// ManifestsTemplate contains the objects of a ManifestWork.
type ManifestsTemplate struct {
	Manifests []Manifest
}

// Manifest is one Kubernetes object of any kind.
type Manifest struct {
	runtime.RawExtension
}

// DeletePropagationPolicyType specifies how applied objects are handled when their ManifestWork is deleted.
type DeletePropagationPolicyType string

const (
	DeletePropagationPolicyTypeForeground        DeletePropagationPolicyType = "Foreground"
	DeletePropagationPolicyTypeOrphan            DeletePropagationPolicyType = "Orphan"
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// DeleteOption specifies how applied objects are handled when their ManifestWork is deleted or has finished.
type DeleteOption struct {
	PropagationPolicy       DeletePropagationPolicyType
	SelectivelyOrphan       *SelectivelyOrphan
	TTLSecondsAfterFinished *int64
}

// SelectivelyOrphan lists the objects to keep on the managed cluster.
type SelectivelyOrphan struct {
	OrphaningRules []OrphaningRule
}

// OrphaningRule identifies one object.
type OrphaningRule struct {
	Group     *string
	Resource  string
	Namespace *string
	Name      string
}

// ResourceIdentifier identifies objects of one resource.
type ResourceIdentifier struct {
	Group     *string
	Resource  string
	Name      string
	Namespace *string
}

// ManifestConfigOption specifies how manifests are applied and observed.
type ManifestConfigOption struct {
	ResourceIdentifier ResourceIdentifier
	FeedbackRules      []FeedbackRule
	FeedbackScrapeType FeedbackScrapeType
	UpdateStrategy     *UpdateStrategy
	ConditionRules     []ConditionRule
}

// FeedbackScrapeType specifies how feedback values are updated.
type FeedbackScrapeType string

const (
	FeedbackPollType  FeedbackScrapeType = "Poll"
	FeedbackWatchType FeedbackScrapeType = "Watch"
)

// FeedbackRuleType specifies the source of feedback values.
type FeedbackRuleType string

const (
	WellKnownStatusType FeedbackRuleType = "WellKnownStatus"
	JSONPathsType       FeedbackRuleType = "JSONPaths"
)

// FeedbackRule selects values of an applied object to report.
type FeedbackRule struct {
	Type      FeedbackRuleType
	JsonPaths []JsonPath
}

// JsonPath selects a value of an object.
type JsonPath struct {
	Name    string
	Version *string
	Path    string
}

// UpdateStrategyType specifies how a manifest is applied.
type UpdateStrategyType string

const (
	UpdateStrategyTypeUpdate          UpdateStrategyType = "Update"
	UpdateStrategyTypeCreateOnly      UpdateStrategyType = "CreateOnly"
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	UpdateStrategyTypeReadOnly        UpdateStrategyType = "ReadOnly"
)

// UpdateStrategy specifies how a manifest is applied.
type UpdateStrategy struct {
	Type            UpdateStrategyType
	ServerSideApply *ServerSideApplyConfig
}

// ServerSideApplyConfig contains the settings of server-side apply.
type ServerSideApplyConfig struct {
	Force        *bool
	FieldManager string
	IgnoreFields []IgnoreField
}

// IgnoreFieldsCondition specifies when fields are ignored.
type IgnoreFieldsCondition string

const (
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	IgnoreFieldsConditionOnSpokeChange  IgnoreFieldsCondition = "OnSpokeChange"
)

// IgnoreField selects fields that server-side apply ignores.
type IgnoreField struct {
	Condition         IgnoreFieldsCondition
	JSONPaths         []string
	JSONPointers      []string
	JQPathExpressions []string
}

// ConditionRuleType specifies how a condition rule is evaluated.
type ConditionRuleType string

const (
	WellKnownConditionsType     ConditionRuleType = "WellKnownConditions"
	CelConditionExpressionsType ConditionRuleType = "CEL"
)

// ConditionRule derives a condition of a manifest from the applied object.
type ConditionRule struct {
	Condition         string
	Type              ConditionRuleType
	CelExpressions    []string
	Message           *string
	MessageExpression *string
}

// ManifestWorkExecutor is the identity that the agent impersonates to apply a ManifestWork.
type ManifestWorkExecutor struct {
	Subject ManifestWorkExecutorSubject
}

// ManifestWorkExecutorSubjectType is the kind of an executor.
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount is the type of an executor that is a ServiceAccount of the managed cluster.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// ManifestWorkExecutorSubject identifies an executor.
type ManifestWorkExecutorSubject struct {
	Type           ManifestWorkExecutorSubjectType
	ServiceAccount *ManifestWorkSubjectServiceAccount
}

// ManifestWorkSubjectServiceAccount identifies a ServiceAccount of the managed cluster.
type ManifestWorkSubjectServiceAccount struct {
	Namespace string
	Name      string
}

// ManifestWorkStatus is the state of the objects of a ManifestWork on the managed cluster.
type ManifestWorkStatus struct {
	Conditions     []metav1.Condition
	ResourceStatus ManifestResourceStatus
	ExecutorChoice *ExecutorChoice
}

// ExecutorChoice records the user who chose the executor of a ManifestWork and the user who last changed its
// spec.
type ExecutorChoice struct {
	ChosenBy      ExecutorChooser
	ChosenAt      metav1.Time
	SpecChangedBy ExecutorChooser
	SpecChangedAt metav1.Time
}

// ExecutorChooser is an authenticated user of the hub.
type ExecutorChooser struct {
	Username string
	UID      string
}

// ManifestResourceStatus reports the state of each manifest.
type ManifestResourceStatus struct {
	Manifests []ManifestCondition
}

// ManifestCondition reports the state of one manifest.
type ManifestCondition struct {
	ResourceMeta    ManifestResourceMeta
	StatusFeedbacks StatusFeedbackResult
	Conditions      []metav1.Condition
}

// ManifestResourceMeta identifies the object of a manifest.
type ManifestResourceMeta struct {
	Ordinal   int32
	Group     string
	Version   string
	Kind      string
	Resource  string
	Name      string
	Namespace string
}

// StatusFeedbackResult contains the values that feedbackRules select.
type StatusFeedbackResult struct {
	Values []FeedbackValue
}

// FeedbackValue is one reported value.
type FeedbackValue struct {
	Name  string
	Value FieldValue
}

// ValueType is the type of a reported value.
type ValueType string

const (
	Integer ValueType = "Integer"
	String  ValueType = "String"
	Boolean ValueType = "Boolean"
	JsonRaw ValueType = "JsonRaw"
)

// FieldValue is a value of one of several types.
type FieldValue struct {
	Type    ValueType
	Integer *int64
	String  *string
	Boolean *bool
	JsonRaw *string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWorkList is a list of ManifestWorks.
type ManifestWorkList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManifestWork
}
