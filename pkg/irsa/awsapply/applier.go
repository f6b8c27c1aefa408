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
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/irsa/awserror"
)

const (
	serviceIAM = "iam"
	serviceEKS = "eks"
	serviceSTS = "sts"

	// callTimeout bounds one call with all its attempts.
	callTimeout = 10 * time.Second
	maxAttempts = 3
	// startTimeout is what a start waits for AWS.
	startTimeout = 5 * time.Second
	// maxBackoff leaves time for the last attempt.
	maxBackoff = 2 * time.Second

	// maxRounds bounds how often AWS is looked at again because it has something that
	// it did not have before.
	maxRounds = 3

	codeDeleteConflict = "DeleteConflict"
)

// Options say for which hub an Applier works.
type Options struct {
	// HubARN is the hub's own EKS cluster.
	HubARN irsa.ARN
}

// Applier makes AWS have what is desired. New returns one. It may be used by several
// goroutines at once, for different clusters.
type Applier struct {
	hub irsa.ARN
	iam *iam.Client
	eks *eks.Client
}

// New returns an Applier with the credentials of the AWS SDK's default chain. It fails
// if they are of another account than the hub's. That AWS cannot be asked, or that
// there are no credentials yet, is no error: it is one of each call then.
func New(ctx context.Context, options Options) (*Applier, error) {
	if err := options.HubARN.Validate(); err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	cfg, err := loadConfig(ctx, options.HubARN.Region)
	if err != nil {
		return nil, err
	}
	a := &Applier{hub: options.HubARN, iam: iam.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg)}
	if err := a.checkAccount(ctx, sts.NewFromConfig(cfg)); err != nil {
		return nil, err
	}
	return a, nil
}

// loadConfig reads the configuration of the SDK's default chain.
func loadConfig(ctx context.Context, region string) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(region),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
		}),
		config.WithAPIOptions([]func(*middleware.Stack) error{
			awsmiddleware.AddUserAgentKeyValue("hub-apiserver", version.Get().GitVersion),
		}),
	)
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the configuration of the AWS SDK: %w", err)
	}
	return cfg, nil
}

// checkAccount finds out whose credentials they are. Those of another account would
// make roles there, and would find nothing to remove in the hub's.
func (a *Applier) checkAccount(ctx context.Context, client *sts.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var account string
	err := call(ctx, serviceSTS, "GetCallerIdentity", "account "+a.hub.AccountID, func(ctx context.Context) error {
		out, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err == nil {
			account = aws.ToString(out.Account)
		}
		return err
	})
	if err != nil {
		klog.FromContext(ctx).Info("The AWS account of the server's credentials is not known", "want", a.hub.AccountID, "err", err)
		return nil
	}
	if account != a.hub.AccountID {
		return fmt.Errorf("the AWS credentials are of account %s, and the hub %s is in another", account, a.hub)
	}
	return nil
}

// Provision makes AWS have what is desired, and repairs what differs. Nothing is
// called where nothing differs, but for looking. If fresh, nothing of it is expected to
// exist, and AWS is looked at only if something does. After an error some of it may
// exist; another call goes on from there.
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
		// Something exists that was not seen: it was there before, or it was made by an
		// attempt whose answer was lost.
		if err == nil || !isExists(err) || round == maxRounds {
			return err
		}
		klog.FromContext(ctx).V(2).Info("Looking again at what AWS has", "role", desired.HubRoleName(), "err", err)
	}
}

// Remove removes everything that Provision makes. What is not there is no error. It
// tries everything, and returns every error.
func (a *Applier) Remove(ctx context.Context, desired irsa.Desired) error {
	if err := a.check(desired); err != nil {
		return err
	}
	expected := irsa.Expected(desired)
	entry := a.remove(ctx, irsa.PlanRemoval(desired, &irsa.Observed{Entry: expected.Entry}))
	role := a.remove(ctx, irsa.PlanRemoval(desired, &irsa.Observed{Role: expected.Role}))
	if slices.ContainsFunc(role, isConflict) {
		// The role has policies that somebody has added, or that were not deleted just now.
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

// apply stops at the first error: later calls build on earlier ones.
func (a *Applier) apply(ctx context.Context, plan []irsa.Call) error {
	for _, step := range plan {
		if err := a.do(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// remove goes on after an error: every call takes something away.
func (a *Applier) remove(ctx context.Context, plan []irsa.Call) (errs []error) {
	for _, step := range plan {
		if err := a.do(ctx, step); err != nil && !isNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errs
}

// call makes one call, counts it, and says in its error what it was.
func call(ctx context.Context, service, operation, subject string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := awserror.New(service, operation, subject, f(ctx))
	calls.WithLabelValues(service, operation, result(err)).Inc()
	return err
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
