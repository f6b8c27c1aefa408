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
	role, err := a.getRole(ctx, desired.HubRoleName())
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
	policy, err := call(ctx, serviceIAM, "GetRolePolicy", subject, func(ctx context.Context) (*iam.GetRolePolicyOutput, error) {
		return a.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: name, PolicyName: name})
	})
	if isNotFound(err) {
		return observed, nil
	}
	if err != nil {
		return nil, err
	}
	observed.AccessPolicy = aws.ToString(policy.PolicyDocument)
	return observed, nil
}

func (a *Applier) getRole(ctx context.Context, name string) (*iam.GetRoleOutput, error) {
	return call(ctx, serviceIAM, "GetRole", "role "+name, func(ctx context.Context) (*iam.GetRoleOutput, error) {
		return a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String(name)})
	})
}

// observeEntry returns nil if there is no access entry.
func (a *Applier) observeEntry(ctx context.Context, desired irsa.Desired) (*irsa.ObservedEntry, error) {
	out, err := call(ctx, serviceEKS, "DescribeAccessEntry", desired.HubRoleARN(), func(ctx context.Context) (*eks.DescribeAccessEntryOutput, error) {
		return a.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{
			ClusterName: aws.String(desired.Hub.ClusterName), PrincipalArn: aws.String(desired.HubRoleARN()),
		})
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
		page, err := call(ctx, serviceIAM, "ListRolePolicies", subject, func(ctx context.Context) (*iam.ListRolePoliciesOutput, error) { return inline.NextPage(ctx) })
		if isNotFound(err) {
			return &irsa.Observed{}, nil
		}
		if err != nil {
			return nil, err
		}
		role.OtherInline = append(role.OtherInline, page.PolicyNames...)
	}
	attached := iam.NewListAttachedRolePoliciesPaginator(a.iam, &iam.ListAttachedRolePoliciesInput{RoleName: name})
	for attached.HasMorePages() {
		page, err := call(ctx, serviceIAM, "ListAttachedRolePolicies", subject, func(ctx context.Context) (*iam.ListAttachedRolePoliciesOutput, error) {
			return attached.NextPage(ctx)
		})
		if isNotFound(err) {
			return &irsa.Observed{}, nil
		}
		if err != nil {
			return nil, err
		}
		for _, policy := range page.AttachedPolicies {
			role.Attached = append(role.Attached, aws.ToString(policy.PolicyArn))
		}
	}
	return &irsa.Observed{Role: role}, nil
}
