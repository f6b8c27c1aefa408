package work

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManifestWork is a set of Kubernetes objects to apply on one managed cluster.
// It lives in the hub namespace that is named after the managed cluster; the
// agent of that cluster applies its manifests, keeps them as they are given, and
// reports their state. Deleting the ManifestWork removes the applied objects,
// unless its deleteOption says otherwise.
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

// ManifestsTemplate holds the objects of a ManifestWork.
type ManifestsTemplate struct {
	Manifests []Manifest
}

// Manifest is one Kubernetes object of any kind.
type Manifest struct {
	runtime.RawExtension
}

// DeletePropagationPolicyType says what happens to applied objects when their work is deleted.
type DeletePropagationPolicyType string

const (
	DeletePropagationPolicyTypeForeground        DeletePropagationPolicyType = "Foreground"
	DeletePropagationPolicyTypeOrphan            DeletePropagationPolicyType = "Orphan"
	DeletePropagationPolicyTypeSelectivelyOrphan DeletePropagationPolicyType = "SelectivelyOrphan"
)

// DeleteOption says what happens to applied objects when their work is deleted or finished.
type DeleteOption struct {
	PropagationPolicy       DeletePropagationPolicyType
	SelectivelyOrphan       *SelectivelyOrphan
	TTLSecondsAfterFinished *int64
}

// SelectivelyOrphan names the objects to leave on the managed cluster.
type SelectivelyOrphan struct {
	OrphaningRules []OrphaningRule
}

// OrphaningRule names one object exactly.
type OrphaningRule struct {
	Group     *string
	Resource  string
	Namespace *string
	Name      string
}

// ResourceIdentifier names objects of one resource. In a manifestConfigs entry,
// name and namespace may contain the wildcard *.
type ResourceIdentifier struct {
	Group     *string
	Resource  string
	Name      string
	Namespace *string
}

// ManifestConfigOption says how the manifests it names are applied and observed.
type ManifestConfigOption struct {
	ResourceIdentifier ResourceIdentifier
	FeedbackRules      []FeedbackRule
	FeedbackScrapeType FeedbackScrapeType
	UpdateStrategy     *UpdateStrategy
	ConditionRules     []ConditionRule
}

// FeedbackScrapeType says how feedback values are kept up to date.
type FeedbackScrapeType string

const (
	FeedbackPollType  FeedbackScrapeType = "Poll"
	FeedbackWatchType FeedbackScrapeType = "Watch"
)

// FeedbackRuleType says where feedback values come from.
type FeedbackRuleType string

const (
	WellKnownStatusType FeedbackRuleType = "WellKnownStatus"
	JSONPathsType       FeedbackRuleType = "JSONPaths"
)

// FeedbackRule says which values of an applied object are reported.
type FeedbackRule struct {
	Type      FeedbackRuleType
	JsonPaths []JsonPath
}

// JsonPath names a value of an object.
type JsonPath struct {
	Name    string
	Version *string
	Path    string
}

// UpdateStrategyType says how a manifest is applied.
type UpdateStrategyType string

const (
	UpdateStrategyTypeUpdate          UpdateStrategyType = "Update"
	UpdateStrategyTypeCreateOnly      UpdateStrategyType = "CreateOnly"
	UpdateStrategyTypeServerSideApply UpdateStrategyType = "ServerSideApply"
	UpdateStrategyTypeReadOnly        UpdateStrategyType = "ReadOnly"
)

// UpdateStrategy says how a manifest is applied.
type UpdateStrategy struct {
	Type            UpdateStrategyType
	ServerSideApply *ServerSideApplyConfig
}

// ServerSideApplyConfig holds the settings of server-side apply.
type ServerSideApplyConfig struct {
	Force        *bool
	FieldManager string
	IgnoreFields []IgnoreField
}

// IgnoreFieldsCondition says when fields are ignored.
type IgnoreFieldsCondition string

const (
	IgnoreFieldsConditionOnSpokePresent IgnoreFieldsCondition = "OnSpokePresent"
	IgnoreFieldsConditionOnSpokeChange  IgnoreFieldsCondition = "OnSpokeChange"
)

// IgnoreField names fields that are left out of a server-side apply.
type IgnoreField struct {
	Condition         IgnoreFieldsCondition
	JSONPaths         []string
	JSONPointers      []string
	JQPathExpressions []string
}

// ConditionRuleType says how a condition rule is evaluated.
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

// ManifestWorkExecutor names the identity that a work acts as.
type ManifestWorkExecutor struct {
	Subject ManifestWorkExecutorSubject
}

// ManifestWorkExecutorSubjectType is the kind of an executor.
type ManifestWorkExecutorSubjectType string

// ExecutorSubjectTypeServiceAccount makes a work act as a ServiceAccount of the managed cluster.
const ExecutorSubjectTypeServiceAccount ManifestWorkExecutorSubjectType = "ServiceAccount"

// ManifestWorkExecutorSubject names the identity that a work acts as.
type ManifestWorkExecutorSubject struct {
	Type           ManifestWorkExecutorSubjectType
	ServiceAccount *ManifestWorkSubjectServiceAccount
}

// ManifestWorkSubjectServiceAccount names a ServiceAccount of the managed cluster.
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

// ExecutorChoice says who chose the executor of a work, and who last wrote its spec.
type ExecutorChoice struct {
	ChosenBy      ExecutorChooser
	ChosenAt      metav1.Time
	SpecChangedBy ExecutorChooser
	SpecChangedAt metav1.Time
}

// ExecutorChooser is a user of the hub as the hub has authenticated it.
type ExecutorChooser struct {
	Username string
	UID      string
}

// ManifestResourceStatus holds the state of each manifest.
type ManifestResourceStatus struct {
	Manifests []ManifestCondition
}

// ManifestCondition is the state of one manifest.
type ManifestCondition struct {
	ResourceMeta    ManifestResourceMeta
	StatusFeedbacks StatusFeedbackResult
	Conditions      []metav1.Condition
}

// ManifestResourceMeta says which object an entry of the status is about.
type ManifestResourceMeta struct {
	Ordinal   int32
	Group     string
	Version   string
	Kind      string
	Resource  string
	Name      string
	Namespace string
}

// StatusFeedbackResult holds the values that feedback rules ask for.
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
