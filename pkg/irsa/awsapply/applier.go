package awsapply

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// Options configure an Applier.
type Options struct {
	// HubARN is the ARN of the hub's EKS cluster.
	HubARN irsa.ARN
}

// Applier provisions and removes AWS resources. It is safe for concurrent use with different clusters.
type Applier struct {
	hub irsa.ARN
	iam *iam.Client
	eks *eks.Client
}

// New returns an Applier with the credentials of the AWS SDK's default chain, or an error if they belong to another
// account than the hub's. If AWS does not respond or credentials are missing, each later call returns that error.
func New(ctx context.Context, options Options) (*Applier, error) {
	if err := options.HubARN.Validate(); err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	cfg, err := loadConfig(ctx, options.HubARN.Region)
	if err != nil {
		return nil, err
	}
	a := &Applier{hub: options.HubARN, iam: iam.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg)}
	if err := a.checkAccount(ctx, cfg); err != nil {
		return nil, err
	}
	return a, nil
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
func (a *Applier) checkAccount(ctx context.Context, cfg aws.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	account, err := callerAccount(ctx, cfg, "account "+a.hub.AccountID)
	if err != nil {
		klog.FromContext(ctx).Info("The AWS account of the server's credentials is not known", "want", a.hub.AccountID, "err", err)
		return nil
	}
	if account != a.hub.AccountID {
		return fmt.Errorf("the AWS credentials are of account %s, and the hub %s is in another", account, a.hub)
	}
	return nil
}

// callerAccount returns the account of the credentials.
func callerAccount(ctx context.Context, cfg aws.Config, subject string) (string, error) {
	caller, err := call(ctx, serviceSTS, "GetCallerIdentity", subject, func(ctx context.Context) (*sts.GetCallerIdentityOutput, error) {
		return sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(caller.Account), nil
}

// Provision creates the desired resources, and repairs differences. If fresh is true, none of them is expected to exist,
// and Provision reads AWS only if one does. After an error, some resources may exist; another call continues from there.
func (a *Applier) Provision(ctx context.Context, desired irsa.Desired, fresh bool) error {
	if err := a.check(desired); err != nil {
		return err
	}
	var observed *irsa.Observed
	for round := 1; ; round++ {
		if !fresh || round > 1 {
			var err error
			if observed, err = a.observe(ctx, desired); err != nil {
				return err
			}
		}
		err := a.apply(ctx, irsa.PlanProvision(desired, observed))
		// A resource exists that was not observed. It existed before, or an attempt created it and its response
		// was lost.
		if err == nil || !isExists(err) || round == maxRounds {
			return err
		}
		klog.FromContext(ctx).V(2).Info("Looking again at what AWS has", "role", desired.HubRoleName(), "err", err)
	}
}

// Remove removes all resources that Provision creates. Missing resources are not an error. It continues after an error,
// and returns all errors.
func (a *Applier) Remove(ctx context.Context, desired irsa.Desired) error {
	if err := a.check(desired); err != nil {
		return err
	}
	entry := a.remove(ctx, irsa.PlanRemoval(desired, &irsa.Observed{Entry: &irsa.ObservedEntry{}}))
	role := a.remove(ctx, irsa.PlanRemoval(desired, &irsa.Observed{Role: &irsa.ObservedRole{AccessPolicy: desired.HubRoleName()}}))
	if slices.ContainsFunc(role, isConflict) {
		// The role contains policies that others added, or whose deletion failed.
		if observed, err := a.observePolicies(ctx, desired); err != nil {
			role = append(role, err)
		} else {
			role = a.remove(ctx, irsa.PlanRemoval(desired, observed))
		}
	}
	return errors.Join(append(entry, role...)...)
}

func (a *Applier) check(desired irsa.Desired) error {
	if err := desired.Validate(); err != nil {
		return err
	}
	if desired.Hub != a.hub {
		return fmt.Errorf("the identity is one for the hub %s, and this is %s", desired.Hub, a.hub)
	}
	return nil
}

// apply stops at the first error, since later calls depend on earlier ones.
func (a *Applier) apply(ctx context.Context, plan []irsa.Call) error {
	for _, step := range plan {
		if err := a.do(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// remove continues after an error, since each call revokes something.
func (a *Applier) remove(ctx context.Context, plan []irsa.Call) (errs []error) {
	for _, step := range plan {
		if err := a.do(ctx, step); err != nil && !isNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errs
}

// call makes one call, counts it, and adds the operation to its error.
func call[T any](ctx context.Context, service, operation, subject string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := f(ctx)
	err = awserror.New(service, operation, subject, err)
	calls.WithLabelValues(service, operation, result(err)).Inc()
	return out, err
}

func isExists(err error) bool {
	return result(err) == resultExists
}

func isConflict(err error) bool {
	return awserror.Code(err) == codeDeleteConflict
}

func isNotFound(err error) bool {
	return result(err) == resultNotFound
}
