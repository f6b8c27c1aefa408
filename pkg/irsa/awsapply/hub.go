package awsapply

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// CheckAccessEntries returns why the hub does not support access entries, with the remedy, or an empty string. It only
// reads.
func (a *Applier) CheckAccessEntries(ctx context.Context) (string, error) {
	out, err := a.describeCluster(ctx, a.hub)
	switch {
	case isNotFound(err):
		return fmt.Sprintf("there is no EKS cluster %s: correct --hub-cluster-arn, or use --eks-auth=ConfigMap on a hub that is not EKS and runs aws-iam-authenticator", a.hub), nil
	case result(err) == resultDenied:
		return "", fmt.Errorf("%w; allow eks:DescribeCluster on %s to the role of the server", err, a.hub)
	case err != nil:
		return "", err
	}
	return entriesProblem(a.hub.ClusterName, out.Cluster), nil
}

func (a *Applier) describeCluster(ctx context.Context, cluster irsa.ARN) (*eks.DescribeClusterOutput, error) {
	return call(ctx, serviceEKS, "DescribeCluster", cluster.String(), func(ctx context.Context) (*eks.DescribeClusterOutput, error) {
		return a.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(cluster.ClusterName)}, func(o *eks.Options) { o.Region = cluster.Region })
	})
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
