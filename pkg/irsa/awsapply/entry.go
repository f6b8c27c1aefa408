package awsapply

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// entryType is the type of access entries for users and programs. The other types are for nodes.
const entryType = "STANDARD"

// CheckAccessEntries returns why an EKS cluster does not support access entries, with the remedy, or an empty string.
func (a *Applier) CheckAccessEntries(ctx context.Context, hub irsa.ARN) (string, error) {
	out, err := a.describeCluster(ctx, hub)
	switch {
	case isNotFound(err):
		return fmt.Sprintf("there is no EKS cluster %s: correct --hub-cluster-arn, or use --eks-auth=ConfigMap on a hub that is not EKS and runs aws-iam-authenticator", hub), nil
	case result(err) == resultDenied:
		return "", fmt.Errorf("%w; allow eks:DescribeCluster on %s to the role of the server", err, hub)
	case err != nil:
		return "", err
	}
	return entriesProblem(hub.ClusterName, out.Cluster), nil
}

func (a *Applier) describeCluster(ctx context.Context, cluster irsa.ARN) (*eks.DescribeClusterOutput, error) {
	return invoke(ctx, serviceEKS, "DescribeCluster", cluster.String(), a.eks.DescribeCluster,
		&eks.DescribeClusterInput{Name: &cluster.ClusterName}, func(o *eks.Options) { o.Region = cluster.Region })
}

// entriesProblem returns why an EKS cluster does not support access entries.
func entriesProblem(name string, cluster *ekstypes.Cluster) string {
	if cluster.AccessConfig == nil || cluster.AccessConfig.AuthenticationMode != ekstypes.AuthenticationModeConfigMap {
		return ""
	}
	return fmt.Sprintf("the authentication mode of EKS cluster %s is %s, which takes no access entries: "+
		"run aws eks update-cluster-config --name %s --access-config authenticationMode=API_AND_CONFIG_MAP, or use --eks-auth=ConfigMap",
		name, ekstypes.AuthenticationModeConfigMap, name)
}

// keepEntry creates or repairs the access entry of a cluster. Tags of others stay. An entry refers to the unique ID of its
// role, and is stale after the role was created again.
func (a *Applier) keepEntry(ctx context.Context, desired irsa.Desired, fresh, stale bool) error {
	var err error
	for range maxRounds {
		if !fresh {
			have, err := a.observeEntry(ctx, desired)
			switch {
			case err != nil:
				return err
			case have == nil:
			case !stale && aws.ToString(have.Type) == entryType:
				return a.repairEntry(ctx, desired, have)
			default: // the type of an entry is immutable
				if err := a.removeEntry(ctx, desired); err != nil {
					return err
				}
			}
		}
		_, err = invoke(ctx, serviceEKS, "CreateAccessEntry", desired.HubRoleARN(), a.eks.CreateAccessEntry, &eks.CreateAccessEntryInput{
			ClusterName: &desired.Hub.ClusterName, PrincipalArn: aws.String(desired.HubRoleARN()), Type: aws.String(entryType),
			Username: aws.String(desired.Username()), KubernetesGroups: desired.Groups(), Tags: desired.Tags(),
		})
		if !isExists(err) {
			return err
		}
		fresh = false
	}
	return err
}

func (a *Applier) repairEntry(ctx context.Context, desired irsa.Desired, have *ekstypes.AccessEntry) error {
	if !sameSubject(desired, have) {
		if _, err := invoke(ctx, serviceEKS, "UpdateAccessEntry", desired.HubRoleARN(), a.eks.UpdateAccessEntry, &eks.UpdateAccessEntryInput{
			ClusterName: &desired.Hub.ClusterName, PrincipalArn: aws.String(desired.HubRoleARN()),
			Username: aws.String(desired.Username()), KubernetesGroups: desired.Groups(),
		}); err != nil {
			return err
		}
	}
	missing := irsa.MissingTags(desired.Tags(), have.Tags)
	if len(missing) == 0 {
		return nil
	}
	_, err := invoke(ctx, serviceEKS, "TagResource", desired.HubRoleARN(), a.eks.TagResource, &eks.TagResourceInput{ResourceArn: have.AccessEntryArn, Tags: missing})
	return err
}

// sameSubject reports whether an access entry has the desired user name and group.
func sameSubject(desired irsa.Desired, have *ekstypes.AccessEntry) bool {
	return aws.ToString(have.Username) == desired.Username() && slices.Equal(have.KubernetesGroups, desired.Groups())
}

func (a *Applier) removeEntry(ctx context.Context, desired irsa.Desired) error {
	_, err := invoke(ctx, serviceEKS, "DeleteAccessEntry", desired.HubRoleARN(), a.eks.DeleteAccessEntry, &eks.DeleteAccessEntryInput{
		ClusterName: &desired.Hub.ClusterName, PrincipalArn: aws.String(desired.HubRoleARN()),
	})
	return ignoreNotFound(err)
}

// observeEntry returns nil if there is no access entry.
func (a *Applier) observeEntry(ctx context.Context, desired irsa.Desired) (*ekstypes.AccessEntry, error) {
	out, err := invoke(ctx, serviceEKS, "DescribeAccessEntry", desired.HubRoleARN(), a.eks.DescribeAccessEntry, &eks.DescribeAccessEntryInput{
		ClusterName: &desired.Hub.ClusterName, PrincipalArn: aws.String(desired.HubRoleARN()),
	})
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	return out.AccessEntry, nil
}
