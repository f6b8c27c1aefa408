package localhub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/smithy-go"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
)

const (
	// HubARN is the EKS cluster that the hub of a [Fleet] with AWS is.
	HubARN = "arn:aws:eks:us-west-2:111122223333:cluster/hub"
	// managedAccount is that of the managed clusters.
	managedAccount = "444455556666"

	// roleAnnotation is how EKS knows as which IAM role the Pods of a ServiceAccount act.
	roleAnnotation = "eks.amazonaws.com/role-arn"
	// awsAudience is whom the tokens are for that Pods show AWS.
	awsAudience = "sts.amazonaws.com"
)

// ManagedARN is the EKS cluster that a managed cluster of a [Fleet] with AWS is.
func ManagedARN(cluster string) string {
	return "arn:aws:eks:us-west-2:" + managedAccount + ":cluster/" + cluster
}

// EKS makes a [Cluster] one of EKS, as far as a server for AWS is concerned: it is known
// there, its ServiceAccounts are vouched for by an identity provider of the account, and
// its API server takes the tokens of the IAM identities that are mapped there.
type EKS struct {
	// AWS speaks for AWS.
	AWS *fakeaws.Server
	// ARN is that of the cluster.
	ARN string
	// Foreign says that the cluster is not of EKS: it runs aws-iam-authenticator with the
	// name in the ARN as its cluster ID, which reads the ConfigMap aws-auth. EKS does not
	// know the cluster.
	Foreign bool
	// Mode is where the cluster looks for who a caller is; access entries first and then
	// the ConfigMap aws-auth, if empty.
	Mode fakeaws.AuthenticationMode
}

// Issuer is who vouches for the ServiceAccounts of the cluster, without https://.
func (e *EKS) Issuer() string { return fakeaws.ClusterIssuer(e.ARN) }

// Run does what the aws command line does for a line of a shell, as an administrator of
// the account of the cluster, and returns what that prints.
func (e *EKS) Run(ctx context.Context, line string) (string, error) {
	arn, err := irsa.ParseARN(e.ARN)
	if err != nil {
		return "", err
	}
	administrator, err := e.AWS.AddUser(arn.AccountID, "administrator", fakeaws.AdminPolicy)
	if err != nil {
		return "", err
	}
	return e.AWS.RunCommand(ctx, administrator, line)
}

// RunAll is Run for lines that make something. What exists already stays.
func (e *EKS) RunAll(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if _, err := e.Run(ctx, line); err != nil && !AlreadyExists(err) {
			return err
		}
	}
	return nil
}

// AlreadyExists tells whether a command of AWS has failed since what it makes is there.
func AlreadyExists(err error) bool {
	var apiErr smithy.APIError
	return errors.As(err, &apiErr) && apiErr.ErrorCode() == "EntityAlreadyExists"
}

// EKS is how the cluster is known to AWS; nil if it is not of EKS.
func (c *Cluster) EKS() *EKS { return c.eks }

// enterAWS makes the cluster known to AWS, and returns the arguments by which its API
// server is one of EKS.
func (c *Cluster) enterAWS() ([]string, error) {
	arn, err := irsa.ParseARN(c.eks.ARN)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return nil, err
	}
	mode := c.eks.Mode
	if mode == "" {
		mode = fakeaws.ModeAPIAndConfigMap
	}
	if !c.eks.Foreign {
		if err := c.eks.AWS.AddCluster(c.eks.ARN, mode); err != nil {
			return nil, err
		}
		if err := c.eks.AWS.SetClusterEndpoint(c.eks.ARN, c.host, c.AdminConfig().CAData); err != nil {
			return nil, err
		}
	}
	keys := func(ctx context.Context) ([]byte, error) {
		return client.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
	}
	if _, err := c.eks.AWS.AddOIDCProvider(arn.AccountID, c.eks.Issuer(), keys); err != nil {
		return nil, err
	}
	c.eks.AWS.SetAWSAuth(c.eks.ARN, func() (*fakeaws.ConfigMapData, error) {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		found, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "aws-auth", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return &fakeaws.ConfigMapData{MapRoles: found.Data["mapRoles"], MapUsers: found.Data["mapUsers"]}, nil
	})
	webhook, err := c.eks.AWS.WebhookKubeconfig(c.eks.ARN)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.dir, "token-webhook.kubeconfig")
	if err := os.WriteFile(file, webhook, 0o600); err != nil {
		return nil, err
	}
	return []string{
		"--authentication-token-webhook-config-file=" + file,
		"--authentication-token-webhook-version=v1",
	}, nil
}

// PodIdentity is the environment that EKS gives the Pods of a ServiceAccount which names
// an IAM role; the token of the ServiceAccount is written to a file for it. There is none
// where the ServiceAccount names no role, or the cluster is not of EKS.
func (c *Cluster) PodIdentity(ctx context.Context, namespace, account, tokenFile string) ([]string, error) {
	if c.eks == nil {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return nil, err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	found, err := accounts.Get(ctx, account, metav1.GetOptions{})
	if err != nil || found.Annotations[roleAnnotation] == "" {
		return nil, err
	}
	token, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{awsAudience}, ExpirationSeconds: ptr.To[int64](tokenLifetime),
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of ServiceAccount %s/%s for AWS: %w", namespace, account, err)
	}
	if err := writeFile(tokenFile, []byte(token.Status.Token)); err != nil {
		return nil, err
	}
	arn, err := irsa.ParseARN(c.eks.ARN)
	if err != nil {
		return nil, err
	}
	return append(c.eks.AWS.Env(fakeaws.AccessKey{AccountID: arn.AccountID}),
		"AWS_ROLE_ARN="+found.Annotations[roleAnnotation], "AWS_WEB_IDENTITY_TOKEN_FILE="+tokenFile), nil
}

// makeServerRole makes the role in the account of the hub that the server acts as, as its
// administrator does by docs/registration.md.
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
