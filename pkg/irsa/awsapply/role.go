package awsapply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
)

// role is the role of a managed cluster in the account of the hub.
type role struct {
	// trustPolicy is a document as AWS returns it, and accessPolicy the inline policy with the name of the role, or
	// empty if there is none.
	trustPolicy, accessPolicy string
	tags                      map[string]string
}

// keepRole creates or repairs the role of a cluster, and reports whether it created the role. Tags and policies that others
// have added stay.
func (a *Applier) keepRole(ctx context.Context, desired irsa.Desired, fresh bool) (created bool, err error) {
	name := desired.HubRoleName()
	for range maxRounds {
		if !fresh {
			have, err := a.observeRole(ctx, desired)
			if err != nil {
				return false, err
			}
			if have != nil {
				return false, a.repairRole(ctx, desired, have)
			}
			// An access entry refers to the unique ID of the former role. It is removed first, so that it cannot stay after a failure.
			if desired.Mapping == irsa.AccessEntry {
				if err := a.removeEntry(ctx, desired); err != nil {
					return false, err
				}
			}
		}
		var out *iam.CreateRoleOutput
		out, err = invoke(ctx, serviceIAM, "CreateRole", "role "+name, a.iam.CreateRole, &iam.CreateRoleInput{
			RoleName: &name, AssumeRolePolicyDocument: aws.String(desired.HubTrustPolicy().JSON()), Tags: roleTags(desired.Tags()),
		})
		if err == nil {
			// The credentials may have changed to those of another account.
			if arn := aws.ToString(out.Role.Arn); arn != desired.HubRoleARN() {
				return false, errors.Join(fmt.Errorf("AWS created the role %s, want %s", arn, desired.HubRoleARN()), a.deleteRole(ctx, name))
			}
			return true, a.putAccessPolicy(ctx, desired)
		}
		// The role existed before, or an attempt created it and its response was lost.
		if !isExists(err) {
			return false, err
		}
		fresh = false
	}
	return false, err
}

func (a *Applier) repairRole(ctx context.Context, desired irsa.Desired, have *role) error {
	name := desired.HubRoleName()
	// If the role of the managed cluster was deleted, AWS returns its unique ID instead of its ARN. A new role with the
	// same name is not trusted until the policy is written again.
	if trust := desired.HubTrustPolicy().JSON(); !irsa.SamePolicy(have.trustPolicy, trust) {
		if _, err := invoke(ctx, serviceIAM, "UpdateAssumeRolePolicy", "role "+name, a.iam.UpdateAssumeRolePolicy,
			&iam.UpdateAssumeRolePolicyInput{RoleName: &name, PolicyDocument: &trust}); err != nil {
			return err
		}
	}
	if !irsa.SamePolicy(have.accessPolicy, desired.HubAccessPolicy().JSON()) {
		if err := a.putAccessPolicy(ctx, desired); err != nil {
			return err
		}
	}
	missing := irsa.MissingTags(desired.Tags(), have.tags)
	if len(missing) == 0 {
		return nil
	}
	_, err := invoke(ctx, serviceIAM, "TagRole", "role "+name, a.iam.TagRole, &iam.TagRoleInput{RoleName: &name, Tags: roleTags(missing)})
	return err
}

func (a *Applier) putAccessPolicy(ctx context.Context, desired irsa.Desired) error {
	name := desired.HubRoleName()
	_, err := invoke(ctx, serviceIAM, "PutRolePolicy", "role "+name, a.iam.PutRolePolicy, &iam.PutRolePolicyInput{
		RoleName: &name, PolicyName: &name, PolicyDocument: aws.String(desired.HubAccessPolicy().JSON()),
	})
	return err
}

// removeRole deletes the role of a cluster, with all its policies.
func (a *Applier) removeRole(ctx context.Context, name string) error {
	policyErr := a.deletePolicy(ctx, name, name)
	if err := a.deleteRole(ctx, name); awserror.Code(err) != codeDeleteConflict {
		return errors.Join(policyErr, err)
	}
	// Others have added policies. If there are more than one page of them, the next attempt continues.
	inline, err := invoke(ctx, serviceIAM, "ListRolePolicies", "role "+name, a.iam.ListRolePolicies, &iam.ListRolePoliciesInput{RoleName: &name})
	if err != nil {
		return ignoreNotFound(err)
	}
	attached, err := invoke(ctx, serviceIAM, "ListAttachedRolePolicies", "role "+name, a.iam.ListAttachedRolePolicies, &iam.ListAttachedRolePoliciesInput{RoleName: &name})
	if err != nil {
		return ignoreNotFound(err)
	}
	var errs []error
	for _, policy := range attached.AttachedPolicies {
		_, err := invoke(ctx, serviceIAM, "DetachRolePolicy", "role "+name, a.iam.DetachRolePolicy, &iam.DetachRolePolicyInput{RoleName: &name, PolicyArn: policy.PolicyArn})
		errs = append(errs, ignoreNotFound(err))
	}
	for _, policy := range inline.PolicyNames {
		errs = append(errs, a.deletePolicy(ctx, name, policy))
	}
	return errors.Join(append(errs, a.deleteRole(ctx, name))...)
}

func (a *Applier) deletePolicy(ctx context.Context, role, policy string) error {
	_, err := invoke(ctx, serviceIAM, "DeleteRolePolicy", "role "+role, a.iam.DeleteRolePolicy, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &policy})
	return ignoreNotFound(err)
}

func (a *Applier) deleteRole(ctx context.Context, name string) error {
	_, err := invoke(ctx, serviceIAM, "DeleteRole", "role "+name, a.iam.DeleteRole, &iam.DeleteRoleInput{RoleName: &name})
	return ignoreNotFound(err)
}

// observeRole returns nil if there is no role.
func (a *Applier) observeRole(ctx context.Context, desired irsa.Desired) (*role, error) {
	name := desired.HubRoleName()
	found, err := a.getRole(ctx, name)
	if found == nil {
		return nil, ignoreNotFound(err)
	}
	// A role with another path or in another account is not the role that EKS maps.
	if arn := aws.ToString(found.Arn); arn != desired.HubRoleARN() {
		return nil, fmt.Errorf("role %s exists, want %s", arn, desired.HubRoleARN())
	}
	have := &role{trustPolicy: aws.ToString(found.AssumeRolePolicyDocument), tags: tagsOf(found)}
	policy, err := invoke(ctx, serviceIAM, "GetRolePolicy", "role "+name, a.iam.GetRolePolicy, &iam.GetRolePolicyInput{RoleName: &name, PolicyName: &name})
	if err == nil {
		have.accessPolicy = aws.ToString(policy.PolicyDocument)
	}
	return have, ignoreNotFound(err)
}

// getRole returns a role, or nil and an error.
func (a *Applier) getRole(ctx context.Context, name string) (*iamtypes.Role, error) {
	out, err := invoke(ctx, serviceIAM, "GetRole", "role "+name, a.iam.GetRole, &iam.GetRoleInput{RoleName: &name})
	if err != nil {
		return nil, err
	}
	return out.Role, nil
}

func tagsOf(role *iamtypes.Role) map[string]string {
	tags := map[string]string{}
	for _, tag := range role.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return tags
}

func roleTags(tags map[string]string) []iamtypes.Tag {
	list := make([]iamtypes.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, iamtypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return list
}
