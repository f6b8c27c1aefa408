// Package awstoken creates the token with which a managed cluster authenticates to an EKS hub as its IAM role, like
// "aws eks get-token --role".
package awstoken

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
)

const (
	prefix = "k8s-aws-v1."

	// clusterHeader is signed with the request, so that no other cluster accepts the token.
	clusterHeader = "x-k8s-aws-id"
	// expiresHeader is the validity of the request in seconds. EKS uses the request once.
	expiresHeader  = "X-Amz-Expires"
	expiresSeconds = "60"

	// lifetime is one minute less than the lifetime of EKS tokens.
	lifetime = 14 * time.Minute
	// sessionSeconds is the shortest session of STS, and exceeds the lifetime of the token.
	sessionSeconds = 15 * 60
	// maxSessionName is the limit of STS.
	maxSessionName = 64

	callTimeout = 10 * time.Second
)

// Options describe the EKS cluster and the role of a token.
type Options struct {
	// Region is the region of the EKS cluster.
	Region string
	// ClusterName is the name of the EKS cluster.
	ClusterName string
	// RoleARN is the role to assume. If it is empty, the token identifies the owner of the credentials.
	RoleARN string
}

// Token returns a token and its expiration. It uses the credentials of the AWS SDK's default chain and the STS of the
// region.
func Token(ctx context.Context, options Options) (token string, expires time.Time, err error) {
	if err := options.validate(); err != nil {
		return "", time.Time{}, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(options.Region))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("reading the configuration of the AWS SDK: %w", err)
	}
	expires = time.Now().Add(lifetime)
	creds, err := options.credentials(ctx, cfg)
	if err != nil {
		return "", time.Time{}, err
	}
	if creds.CanExpire && creds.Expires.Before(expires) {
		expires = creds.Expires
	}
	cfg.Credentials = credentials.StaticCredentialsProvider{Value: creds}
	request, err := sts.NewPresignClient(sts.NewFromConfig(cfg)).PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, sts.WithAPIOptions(
			smithyhttp.SetHeaderValue(clusterHeader, options.ClusterName),
			smithyhttp.SetHeaderValue(expiresHeader, expiresSeconds),
		))
	})
	if err != nil {
		return "", time.Time{}, awserror.New("sts", "GetCallerIdentity", "cluster "+options.ClusterName, err)
	}
	return prefix + base64.RawURLEncoding.EncodeToString([]byte(request.URL)), expires, nil
}

func (o Options) validate() error {
	if o.Region == "" {
		return errors.New("no region of the EKS cluster is given")
	}
	if o.ClusterName == "" {
		return errors.New("no name of the EKS cluster is given")
	}
	if o.RoleARN == "" {
		return nil
	}
	if _, err := irsa.ParseRoleARN(o.RoleARN); err != nil {
		return fmt.Errorf("the role to assume: %w", err)
	}
	return nil
}

func (o Options) credentials(ctx context.Context, cfg aws.Config) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if o.RoleARN == "" {
		creds, err := cfg.Credentials.Retrieve(ctx)
		return creds, awserror.New("sts", "GetCallerIdentity", "cluster "+o.ClusterName, err)
	}
	out, err := sts.NewFromConfig(cfg).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn:         aws.String(o.RoleARN),
		RoleSessionName: aws.String(sessionName(o.ClusterName)),
		DurationSeconds: aws.Int32(sessionSeconds),
	})
	if err != nil {
		return aws.Credentials{}, awserror.New("sts", "AssumeRole", o.RoleARN, err)
	}
	return aws.Credentials{
		AccessKeyID:     aws.ToString(out.Credentials.AccessKeyId),
		SecretAccessKey: aws.ToString(out.Credentials.SecretAccessKey),
		SessionToken:    aws.ToString(out.Credentials.SessionToken),
		CanExpire:       true,
		Expires:         aws.ToTime(out.Credentials.Expiration),
	}, nil
}

// sessionName returns the session name that the AWS audit log shows with the role.
func sessionName(cluster string) string {
	name := "ocm-" + strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, cluster)
	return name[:min(len(name), maxSessionName)]
}
