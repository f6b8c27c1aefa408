package irsa

import (
	"maps"
	"slices"
)

// Operation is the name of a call to AWS.
type Operation string

// Operations of plans.
const (
	CreateRole             Operation = "CreateRole"
	UpdateAssumeRolePolicy Operation = "UpdateAssumeRolePolicy"
	PutRolePolicy          Operation = "PutRolePolicy"
	TagRole                Operation = "TagRole"
	DetachRolePolicy       Operation = "DetachRolePolicy"
	DeleteRolePolicy       Operation = "DeleteRolePolicy"
	DeleteRole             Operation = "DeleteRole"
	CreateAccessEntry      Operation = "CreateAccessEntry"
	UpdateAccessEntry      Operation = "UpdateAccessEntry"
	TagAccessEntry         Operation = "TagResource"
	DeleteAccessEntry      Operation = "DeleteAccessEntry"
)

// Call is one call to AWS with its parameters.
type Call struct {
	Operation Operation

	// RoleName is the role of a call to IAM.
	RoleName string
	// PolicyName is the inline policy that is put or deleted.
	PolicyName string
	// PolicyARN is the policy that is detached.
	PolicyARN string
	// Document is the trust policy or the inline policy, in JSON.
	Document string

	// EKSCluster is the name of the EKS cluster of the access entry.
	EKSCluster string
	// PrincipalARN is the role of that access entry.
	PrincipalARN string
	// EntryARN is the access entry of a call that tags it.
	EntryARN string
	// EntryType, Username and Groups are the fields of the access entry.
	EntryType, Username string
	Groups              []string

	// Tags are added. Other tags stay.
	Tags map[string]string
}

// Observed describes the existing AWS resources.
type Observed struct {
	// Role is the role in the account of the hub; nil if there is none.
	Role *ObservedRole
	// Entry is the access entry of that role; nil if there is none.
	Entry *ObservedEntry
}

// ObservedRole is a role of IAM.
type ObservedRole struct {
	// TrustPolicy is a document as AWS returns it, URL-encoded or not.
	TrustPolicy string
	// AccessPolicy is the inline policy with the name of the role, as AWS returns it;
	// empty if there is none.
	AccessPolicy string
	Tags         map[string]string
	// OtherInline contains the names of other inline policies, and Attached the ARNs of
	// managed policies. Only the removal of the role uses them.
	OtherInline, Attached []string
}

// ObservedEntry is an access entry of EKS.
type ObservedEntry struct {
	ARN, Type, Username string
	Groups              []string
	Tags                map[string]string
}

// PlanProvision returns the calls, in order, that create or repair the desired resources. A nil Observed means that no
// resource exists.
//
// Tags and policies that others have added stay.
func PlanProvision(desired Desired, observed *Observed) []Call {
	if observed == nil {
		observed = &Observed{}
	}
	var calls []Call
	if desired.ManageRoles {
		calls = planRole(desired, observed.Role)
	}
	if desired.Mapping == AccessEntry {
		// An entry refers to the unique ID of its role, and has no effect for a new role
		// with the same name.
		stale := desired.ManageRoles && observed.Role == nil
		calls = append(calls, planEntry(desired, observed.Entry, stale)...)
	}
	return calls
}

func planRole(desired Desired, role *ObservedRole) []Call {
	name := desired.HubRoleName()
	trust, access := desired.HubTrustPolicy().JSON(), desired.HubAccessPolicy().JSON()
	putAccess := Call{Operation: PutRolePolicy, RoleName: name, PolicyName: name, Document: access}
	if role == nil {
		return []Call{{Operation: CreateRole, RoleName: name, Document: trust, Tags: desired.Tags()}, putAccess}
	}
	var calls []Call
	// If the role of the managed cluster was deleted, AWS returns its unique ID instead of its
	// ARN. A new role with the same name is not trusted until the policy is written again.
	if !samePolicy(role.TrustPolicy, trust) {
		calls = append(calls, Call{Operation: UpdateAssumeRolePolicy, RoleName: name, Document: trust})
	}
	if !samePolicy(role.AccessPolicy, access) {
		calls = append(calls, putAccess)
	}
	if tags := MissingTags(desired.Tags(), role.Tags); len(tags) > 0 {
		calls = append(calls, Call{Operation: TagRole, RoleName: name, Tags: tags})
	}
	return calls
}

func planEntry(desired Desired, entry *ObservedEntry, stale bool) []Call {
	call := func(operation Operation) Call {
		return Call{Operation: operation, EKSCluster: desired.Hub.ClusterName, PrincipalARN: desired.HubRoleARN()}
	}
	create := call(CreateAccessEntry)
	create.EntryType, create.Username, create.Groups, create.Tags = accessEntryType, desired.Username(), desired.Groups(), desired.Tags()
	if entry == nil {
		return []Call{create}
	}
	// The type of an entry is immutable.
	if stale || entry.Type != accessEntryType {
		return []Call{call(DeleteAccessEntry), create}
	}
	var calls []Call
	if entry.Username != desired.Username() || !sameSet(entry.Groups, desired.Groups()) {
		update := call(UpdateAccessEntry)
		update.Username, update.Groups = desired.Username(), desired.Groups()
		calls = append(calls, update)
	}
	if tags := MissingTags(desired.Tags(), entry.Tags); len(tags) > 0 {
		tag := call(TagAccessEntry)
		tag.EntryARN, tag.Tags = entry.ARN, tags
		calls = append(calls, tag)
	}
	return calls
}

// PlanRemoval returns the calls, in order, that remove the existing resources. The first call revokes access to the hub.
// Resources of others stay, except for policies in the role.
func PlanRemoval(desired Desired, observed *Observed) []Call {
	if observed == nil {
		return nil
	}
	var calls []Call
	if desired.Mapping == AccessEntry && observed.Entry != nil {
		calls = append(calls, Call{Operation: DeleteAccessEntry, EKSCluster: desired.Hub.ClusterName, PrincipalARN: desired.HubRoleARN()})
	}
	role := observed.Role
	if !desired.ManageRoles || role == nil {
		return calls
	}
	name := desired.HubRoleName()
	for _, arn := range role.Attached {
		calls = append(calls, Call{Operation: DetachRolePolicy, RoleName: name, PolicyARN: arn})
	}
	inline := role.OtherInline
	if role.AccessPolicy != "" {
		inline = append([]string{name}, inline...)
	}
	for _, policyName := range inline {
		calls = append(calls, Call{Operation: DeleteRolePolicy, RoleName: name, PolicyName: policyName})
	}
	return append(calls, Call{Operation: DeleteRole, RoleName: name})
}

// MissingTags returns the wanted tags that are missing or have another value.
func MissingTags(wanted, have map[string]string) map[string]string {
	missing := maps.Clone(wanted)
	maps.DeleteFunc(missing, func(key, value string) bool {
		existing, found := have[key]
		return found && existing == value
	})
	return missing
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
