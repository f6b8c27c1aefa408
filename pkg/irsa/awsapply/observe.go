package awsapply

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// observe asks AWS for as much as the plan to provision looks at.
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
	// With another path or in another account it is not the one that EKS is told of.
	if arn := aws.ToString(role.Role.Arn); arn != desired.HubRoleARN() {
		return nil, fmt.Errorf("there is a role %s in the place of %s", arn, desired.HubRoleARN())
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

// observePolicies asks AWS for everything in a role that keeps it from being deleted.
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
