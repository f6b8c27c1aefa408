package awsapply

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

func (a *Applier) do(ctx context.Context, step irsa.Call) error {
	operation := string(step.Operation)
	if step.RoleName != "" {
		return a.doIAM(ctx, operation, step)
	}
	_, err := call(ctx, serviceEKS, operation, step.PrincipalARN, func(ctx context.Context) (_ any, err error) {
		switch cluster, principal := aws.String(step.EKSCluster), aws.String(step.PrincipalARN); step.Operation {
		case irsa.CreateAccessEntry:
			_, err = a.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
				ClusterName: cluster, PrincipalArn: principal, Type: aws.String(step.EntryType),
				Username: aws.String(step.Username), KubernetesGroups: step.Groups, Tags: step.Tags,
			})
		case irsa.UpdateAccessEntry:
			_, err = a.eks.UpdateAccessEntry(ctx, &eks.UpdateAccessEntryInput{
				ClusterName: cluster, PrincipalArn: principal, Username: aws.String(step.Username), KubernetesGroups: step.Groups,
			})
		case irsa.TagAccessEntry:
			_, err = a.eks.TagResource(ctx, &eks.TagResourceInput{ResourceArn: aws.String(step.EntryARN), Tags: step.Tags})
		case irsa.DeleteAccessEntry:
			_, err = a.eks.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: cluster, PrincipalArn: principal})
		default:
			err = fmt.Errorf("no such operation in a plan")
		}
		return nil, err
	})
	return err
}

func (a *Applier) doIAM(ctx context.Context, operation string, step irsa.Call) error {
	made, err := call(ctx, serviceIAM, operation, "role "+step.RoleName, func(ctx context.Context) (made string, err error) {
		switch role, document := aws.String(step.RoleName), aws.String(step.Document); step.Operation {
		case irsa.CreateRole:
			var out *iam.CreateRoleOutput
			out, err = a.iam.CreateRole(ctx, &iam.CreateRoleInput{RoleName: role, AssumeRolePolicyDocument: document, Tags: tags(step.Tags)})
			if err == nil && out.Role != nil {
				made = aws.ToString(out.Role.Arn)
			}
		case irsa.UpdateAssumeRolePolicy:
			_, err = a.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: document})
		case irsa.PutRolePolicy:
			_, err = a.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: aws.String(step.PolicyName), PolicyDocument: document})
		case irsa.TagRole:
			_, err = a.iam.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: tags(step.Tags)})
		case irsa.DetachRolePolicy:
			_, err = a.iam.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: aws.String(step.PolicyARN)})
		case irsa.DeleteRolePolicy:
			_, err = a.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: aws.String(step.PolicyName)})
		case irsa.DeleteRole:
			_, err = a.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: role})
		default:
			err = fmt.Errorf("no such operation in a plan")
		}
		return made, err
	})
	if want := a.hub.RoleARN(step.RoleName); err == nil && step.Operation == irsa.CreateRole && made != want {
		// The credentials have changed and belong to another account now. The role has no effect
		// there.
		if _, undo := call(ctx, serviceIAM, string(irsa.DeleteRole), "role "+step.RoleName, func(ctx context.Context) (*iam.DeleteRoleOutput, error) {
			return a.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String(step.RoleName)})
		}); undo != nil {
			return fmt.Errorf("AWS created the role as %s instead of %s, and the role cannot be deleted: %w", made, want, undo)
		}
		return fmt.Errorf("AWS created the role as %s instead of %s, and the server deleted it: the AWS credentials belong to another account than the hub", made, want)
	}
	return err
}

func tags(m map[string]string) []iamtypes.Tag {
	list := make([]iamtypes.Tag, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, iamtypes.Tag{Key: aws.String(key), Value: aws.String(m[key])})
	}
	return list
}
