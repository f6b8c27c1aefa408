package inventory

// Properties of RBAC objects and of the AccessReport. The hub keeps them apart from other properties: no search returns
// or finds them. They are strings. Agents send them if Response.Access is true.
const (
	// Rules is the JSON of the rules of a Role or ClusterRole.
	Rules = "_rules"
	// RoleRef and Subjects are the JSON of the fields of a RoleBinding or ClusterRoleBinding.
	RoleRef  = "_roleRef"
	Subjects = "_subjects"
	// Access is the JSON of an AccessReport.
	Access = "_access"
)

// MaxAccessBytes bounds these properties of one object.
const MaxAccessBytes = 128 << 10

// The resource that contains the AccessReport. Its UID is "<cluster>/" and AccessReportID.
const (
	AccessGroup        = "access.open-cluster-management.io"
	AccessVersion      = "v1alpha1"
	AccessReportKind   = "AccessReport"
	AccessReportPlural = "accessreports"
	AccessReportID     = "access-report"
)

// AccessReport states whether the reports of a cluster contain its complete RBAC. It is part of the reports, so it is
// stored together with the objects that it describes.
type AccessReport struct {
	// Complete is true if every Role, ClusterRole, RoleBinding and ClusterRoleBinding of the cluster is reported with
	// its content. Otherwise, Reason is a sentence with the cause.
	Complete bool   `json:"complete"`
	Reason   string `json:"reason,omitempty"`
	// OtherAuthorizers is true if the API server also asks another authorizer than RBAC.
	OtherAuthorizers bool `json:"otherAuthorizers,omitempty"`
	// Objects is the number of roles and bindings that are reported with their content.
	Objects int `json:"objects"`
}
