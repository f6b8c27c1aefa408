package awsapply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const (
	serviceIAM = "iam"
	serviceEKS = "eks"
	serviceSTS = "sts"

	// callTimeout bounds one call, including its retries.
	callTimeout = 10 * time.Second
	maxAttempts = 3
	// startTimeout bounds the calls to AWS at the start of the server.
	startTimeout = 5 * time.Second
	// maxBackoff leaves time for the last attempt.
	maxBackoff = 2 * time.Second

	// maxRounds bounds the repetitions after AWS returned a resource that it did not return before.
	maxRounds = 3

	codeDeleteConflict = "DeleteConflict"
)

// Applier provisions and removes AWS resources. It is safe for concurrent use with different clusters.
type Applier struct {
	iam *iam.Client
	eks *eks.Client
}

// New returns an Applier with the credentials of the AWS SDK's default chain, or an error if they belong to another
// account than the hub's. If AWS does not respond or credentials are missing, each later call returns that error.
func New(ctx context.Context, hub irsa.ARN) (*Applier, error) {
	cfg, err := loadConfig(ctx, hub.Region)
	if err != nil {
		return nil, err
	}
	if err := checkAccount(ctx, cfg, hub); err != nil {
		return nil, err
	}
	return &Applier{iam: iam.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg)}, nil
}

func loadConfig(ctx context.Context, region string) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(region),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
		}),
		config.WithAPIOptions([]func(*middleware.Stack) error{
			awsmiddleware.AddUserAgentKeyValue("hub-apiserver", version.Short()),
		}),
	)
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the configuration of the AWS SDK: %w", err)
	}
	return cfg, nil
}

// checkAccount checks the account of the credentials. Credentials of another account would create roles there, and would
// find nothing to remove in the hub's account.
func checkAccount(ctx context.Context, cfg aws.Config, hub irsa.ARN) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	account, err := callerAccount(ctx, cfg, "account "+hub.AccountID)
	if err != nil {
		klog.FromContext(ctx).Info("The AWS account of the server's credentials is not known", "want", hub.AccountID, "err", err)
		return nil
	}
	if account != hub.AccountID {
		return fmt.Errorf("the AWS credentials are of account %s, and the hub %s is in another", account, hub)
	}
	return nil
}

// callerAccount returns the account of the credentials.
func callerAccount(ctx context.Context, cfg aws.Config, subject string) (string, error) {
	caller, err := invoke(ctx, serviceSTS, "GetCallerIdentity", subject, sts.NewFromConfig(cfg).GetCallerIdentity, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", err
	}
	return aws.ToString(caller.Account), nil
}

// Provision creates the desired resources, and repairs differences. If fresh is true, none of them is expected to exist,
// and Provision reads AWS only if one does. After an error, some resources may exist; another call continues from there.
func (a *Applier) Provision(ctx context.Context, desired irsa.Desired, fresh bool) error {
	created := false
	if desired.ManageRoles {
		var err error
		if created, err = a.keepRole(ctx, desired, fresh); err != nil {
			return err
		}
	}
	if desired.Mapping != irsa.AccessEntry {
		return nil
	}
	return a.keepEntry(ctx, desired, fresh, created)
}

// Remove removes all resources that Provision creates. Missing resources are not an error. It continues after an error,
// since each call revokes something, and returns all errors.
func (a *Applier) Remove(ctx context.Context, desired irsa.Desired) error {
	var errs []error
	if desired.Mapping == irsa.AccessEntry {
		errs = append(errs, a.removeEntry(ctx, desired))
	}
	if desired.ManageRoles {
		errs = append(errs, a.removeRole(ctx, desired.HubRoleName()))
	}
	return errors.Join(errs...)
}

// invoke calls a method of a client, counts the call, and adds the operation to its error.
func invoke[In, Out, Option any](ctx context.Context, service, operation, subject string,
	method func(context.Context, *In, ...func(*Option)) (*Out, error), in *In, options ...func(*Option)) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := method(ctx, in, options...)
	err = awserror.New(service, operation, subject, err)
	calls.WithLabelValues(service, operation, result(err)).Inc()
	return out, err
}

func isExists(err error) bool { return result(err) == resultExists }

func isNotFound(err error) bool { return result(err) == resultNotFound }

func ignoreNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}
