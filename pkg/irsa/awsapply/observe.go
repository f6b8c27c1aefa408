package awsapply

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// observe reads the resources that the plan to provision compares.
func (a *Applier) observe(ctx context.Context, desired irsa.Desired) (*irsa.Observed, error) {
	observed := &irsa.Observed{}
	var err error
	if desired.ManageRoles {
		if observed.Role, err = a.observeRole(ctx, desired); err != nil {
			return nil, err
		}
	}
	if desired.Mapping == irsa.AccessEntry {
		if observed.Entry, err = a.observeEntry(ctx, desired); err != nil {
			return nil, err
		}
	}
	return observed, nil
}

// observeRole returns nil if there is no role.
func (a *Applier) observeRole(ctx context.Context, desired irsa.Desired) (*irsa.ObservedRole, error) {
	name := aws.String(desired.HubRoleName())
	subject := "role " + desired.HubRoleName()
	var role *iam.GetRoleOutput
	err := call(ctx, serviceIAM, "GetRole", subject, func(ctx context.Context) (err error) {
		role, err = a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: name})
		return err
	})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A role with another path or in another account is not the role that EKS maps.
	if arn := aws.ToString(role.Role.Arn); arn != desired.HubRoleARN() {
		return nil, fmt.Errorf("role %s exists, want %s", arn, desired.HubRoleARN())
	}
	observed := &irsa.ObservedRole{TrustPolicy: aws.ToString(role.Role.AssumeRolePolicyDocument), Tags: map[string]string{}}
	for _, tag := range role.Role.Tags {
		observed.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	err = call(ctx, serviceIAM, "GetRolePolicy", subject, func(ctx context.Context) error {
		policy, err := a.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: name, PolicyName: name})
		if err == nil {
			observed.AccessPolicy = aws.ToString(policy.PolicyDocument)
		}
		return err
	})
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	return observed, nil
}

// observeEntry returns nil if there is no access entry.
func (a *Applier) observeEntry(ctx context.Context, desired irsa.Desired) (*irsa.ObservedEntry, error) {
	var out *eks.DescribeAccessEntryOutput
	err := call(ctx, serviceEKS, "DescribeAccessEntry", desired.HubRoleARN(), func(ctx context.Context) (err error) {
		out, err = a.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{
			ClusterName: aws.String(desired.Hub.ClusterName), PrincipalArn: aws.String(desired.HubRoleARN()),
		})
		return err
	})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entry := out.AccessEntry
	return &irsa.ObservedEntry{
		ARN: aws.ToString(entry.AccessEntryArn), Type: aws.ToString(entry.Type), Username: aws.ToString(entry.Username),
		Groups: entry.KubernetesGroups, Tags: entry.Tags,
	}, nil
}

// observePolicies reads the policies of a role, which prevent its deletion.
func (a *Applier) observePolicies(ctx context.Context, desired irsa.Desired) (*irsa.Observed, error) {
	name := aws.String(desired.HubRoleName())
	subject := "role " + desired.HubRoleName()
	role := &irsa.ObservedRole{}
	inline := iam.NewListRolePoliciesPaginator(a.iam, &iam.ListRolePoliciesInput{RoleName: name})
	for inline.HasMorePages() {
		err := call(ctx, serviceIAM, "ListRolePolicies", subject, func(ctx context.Context) error {
			page, err := inline.NextPage(ctx)
			if err == nil {
				role.OtherInline = append(role.OtherInline, page.PolicyNames...)
			}
			return err
		})
		if isNotFound(err) {
			return &irsa.Observed{}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	attached := iam.NewListAttachedRolePoliciesPaginator(a.iam, &iam.ListAttachedRolePoliciesInput{RoleName: name})
	for attached.HasMorePages() {
		err := call(ctx, serviceIAM, "ListAttachedRolePolicies", subject, func(ctx context.Context) error {
			page, err := attached.NextPage(ctx)
			if err == nil {
				for _, policy := range page.AttachedPolicies {
					role.Attached = append(role.Attached, aws.ToString(policy.PolicyArn))
				}
			}
			return err
		})
		if isNotFound(err) {
			return &irsa.Observed{}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return &irsa.Observed{Role: role}, nil
}
