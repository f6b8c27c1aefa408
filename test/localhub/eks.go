package localhub

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/aws/smithy-go"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	// HubARN is the ARN of the hub of a [Fleet] with AWS.
	HubARN = "arn:aws:eks:us-west-2:111122223333:cluster/hub"
	// managedAccount is the AWS account of the managed clusters.
	managedAccount = "444455556666"

	// roleAnnotation is the annotation of a ServiceAccount with the IAM role of its Pods.
	roleAnnotation = "eks.amazonaws.com/role-arn"
)

// ManagedARN returns the ARN of a managed cluster of a [Fleet] with AWS.
func ManagedARN(cluster string) string {
	return "arn:aws:eks:us-west-2:" + managedAccount + ":cluster/" + cluster
}

// EKS makes a [Cluster] an EKS cluster of a fakeaws server. The server has the cluster, an
// identity provider of the account issues the tokens of its ServiceAccounts, and its API server
// accepts the tokens of IAM identities with a mapping for the cluster.
type EKS struct {
	// AWS is the server that simulates AWS.
	AWS *fakeaws.Server
	// ARN is the ARN of the cluster.
	ARN string
	// Foreign is set for a cluster outside of EKS that runs aws-iam-authenticator. Its cluster
	// ID is the name in the ARN, and the authenticator reads the ConfigMap aws-auth. EKS does
	// not have the cluster.
	Foreign bool
}

// Issuer returns the token issuer of the cluster, without https://.
func (e *EKS) Issuer() string { return fakeaws.ClusterIssuer(e.ARN) }

// RunAll runs lines of a shell with the aws command line that create objects, as an administrator of the cluster's
// account. It ignores the error that an object already exists.
func (e *EKS) RunAll(ctx context.Context, lines ...string) error {
	arn, err := irsa.ParseARN(e.ARN)
	if err != nil {
		return err
	}
	administrator, err := e.AWS.AddUser(arn.AccountID, "administrator", fakeaws.AdminPolicy)
	if err != nil {
		return err
	}
	for _, line := range lines {
		err := e.AWS.RunCommand(ctx, administrator, line)
		if failure := smithy.APIError(nil); errors.As(err, &failure) && failure.ErrorCode() == "EntityAlreadyExists" {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EKS returns the EKS cluster of the cluster in AWS, or nil if it has none.
func (c *Cluster) EKS() *EKS { return c.eks }

// enterAWS adds the cluster to AWS, and returns the arguments with which its API server accepts
// IAM identities.
func (c *Cluster) enterAWS() ([]string, error) {
	arn, err := irsa.ParseARN(c.eks.ARN)
	if err != nil {
		return nil, err
	}
	if !c.eks.Foreign {
		if err := c.eks.AWS.AddCluster(c.eks.ARN, fakeaws.ModeAPIAndConfigMap); err != nil {
			return nil, err
		}
	}
	verify := func(ctx context.Context, token string) (string, error) {
		review, err := c.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{fakeaws.TokenAudience}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Authenticated {
			err = errors.New(review.Status.Error)
		}
		if err != nil {
			return "", err
		}
		return review.Status.User.Username, nil
	}
	if err := c.eks.AWS.AddOIDCProvider(arn.AccountID, c.eks.Issuer(), verify); err != nil {
		return nil, err
	}
	c.eks.AWS.SetAWSAuth(c.eks.ARN, func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		found, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "aws-auth", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return found.Data["mapRoles"], nil
	})
	file := filepath.Join(c.dir, "token-webhook.kubeconfig")
	if err := writeKubeconfig(file, "aws", "apiserver", &rest.Config{Host: c.eks.AWS.WebhookURL(c.eks.ARN)}); err != nil {
		return nil, err
	}
	return []string{
		"--authentication-token-webhook-config-file=" + file,
		"--authentication-token-webhook-version=v1",
	}, nil
}

// PodIdentity returns the environment variables that EKS sets in the Pods of a ServiceAccount
// with an IAM role, and writes the token of the ServiceAccount to tokenFile. It returns none if
// the ServiceAccount has no role, or if the cluster is not in AWS.
func (c *Cluster) PodIdentity(ctx context.Context, namespace, account, tokenFile string) ([]string, error) {
	if c.eks == nil {
		return nil, nil
	}
	found, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
	if err != nil || found.Annotations[roleAnnotation] == "" {
		return nil, err
	}
	token, err := c.newToken(ctx, namespace, account, fakeaws.TokenAudience)
	if err != nil {
		return nil, err
	}
	if err := writeFile(tokenFile, []byte(token)); err != nil {
		return nil, err
	}
	arn, err := irsa.ParseARN(c.eks.ARN)
	if err != nil {
		return nil, err
	}
	return append(c.eks.AWS.Env(fakeaws.AccessKey{AccountID: arn.AccountID}),
		"AWS_ROLE_ARN="+found.Annotations[roleAnnotation], "AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile), nil
}

// makeServerRole creates the IAM role of the server in the account of the hub, as an
// administrator does according to docs/registration-aws.md.
func (c *Cluster) makeServerRole(ctx context.Context) error {
	hub, err := irsa.ParseARN(c.eks.ARN)
	if err != nil {
		return err
	}
	role, err := irsa.CreatorRoleName(hub)
	if err != nil {
		return err
	}
	quote := func(policy irsa.Policy) string { return "'" + policy.JSON() + "'" }
	return c.eks.RunAll(ctx,
		"aws iam create-role --role-name "+role+" --assume-role-policy-document "+quote(irsa.CreatorTrustPolicy(hub, c.eks.Issuer(), HubNamespace+":"+ServerName)),
		"aws iam put-role-policy --role-name "+role+" --policy-name access --policy-document "+quote(irsa.CreatorAccessPolicy(hub)),
		"aws iam put-role-policy --role-name "+role+" --policy-name mapping --policy-document "+quote(irsa.CreatorMappingPolicy(hub)),
	)
}
