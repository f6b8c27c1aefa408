package localhub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// acceptAgain is the delay after which a cluster is accepted again if its agent is not ready.
// An agent that has lost its identity requests a certificate after the first acceptance.
const acceptAgain = 20 * time.Second

// eks returns the EKS cluster in AWS of a cluster of the fleet, or nil without AWS.
func (o *FleetOptions) eks(arn string) *EKS {
	if o.AWS == nil {
		return nil
	}
	return &EKS{AWS: o.AWS, ARN: arn}
}

// hubEKS returns the EKS cluster of the hub.
func (o *FleetOptions) hubEKS() *EKS {
	hub := o.eks(o.HubARN)
	if hub != nil {
		hub.Foreign = o.ForeignHub
	}
	return hub
}

// startServer starts the apiserver, after clusteradm init if clusters register.
func (f *Fleet) startServer(ctx context.Context) error {
	if f.options.Join != JoinByRegistration {
		return f.Server.Start(ctx)
	}
	var err error
	if f.invitation, err = f.Invite(ctx); err != nil {
		return err
	}
	f.Server.Args = slices.Concat(f.serverArgs, f.invitation.ServerArgs, f.options.APIServerArgs)
	return f.Server.Start(ctx)
}

// Invite runs clusteradm init on the hub, and returns what clusters need to join.
func (f *Fleet) Invite(ctx context.Context) (*Invitation, error) {
	var args []string
	if f.options.AWS != nil {
		if err := f.Hub.makeServerRole(ctx); err != nil {
			return nil, fmt.Errorf("create the role of the server: %w", err)
		}
		args = []string{"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + f.options.HubARN}
		if f.options.ForeignHub {
			args = append(args, "--eks-auth=ConfigMap")
		}
	}
	return f.adm.Init(ctx, f.Hub, append(args, f.options.InitArgs...)...)
}

// join runs clusteradm join for an agent, and launches it.
func (f *Fleet) join(ctx context.Context, agent *Agent) error {
	var args []string
	if slices.Contains(f.options.IRSA, agent.clusterName) {
		args = []string{"--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + f.options.HubARN, "--managed-cluster-arn=" + agent.managed.EKS().ARN}
	}
	if err := agent.Join(ctx, f.adm, f.invitation, args...); err != nil {
		return err
	}
	if err := agent.Launch(ctx); err != nil {
		return err
	}
	return f.forget(ctx, agent)
}

// forget deletes the identity of an agent whose cluster has been deleted on the hub, as a user does who
// joins the cluster again. If the deletion is not complete, the agent must run.
func (f *Fleet) forget(ctx context.Context, agent *Agent) error {
	hub, err := versioned.NewForConfig(f.Hub.AdminConfig())
	if err != nil {
		return err
	}
	secrets := agent.managed.client.CoreV1().Secrets(agent.namespace)
	identity, err := secrets.Get(ctx, identitySecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && len(identity.Data["kubeconfig"]) == 0 {
		return nil // the cluster has not joined before
	}
	if err != nil {
		return err
	}
	deleted := false
	err = await.Poll(ctx, func(ctx context.Context) error {
		cluster, err := hub.ClusterV1().ManagedClusters().Get(ctx, agent.clusterName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			deleted = true
		case err != nil:
			return err
		case cluster.DeletionTimestamp != nil:
			return fmt.Errorf("ManagedCluster %s is being deleted", cluster.Name)
		}
		return nil
	})
	if err != nil || !deleted {
		return err
	}
	return secrets.Delete(ctx, identitySecret, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(identity.UID))})
}

// register joins every cluster to the hub, accepts it, and returns when the agents are ready.
func (f *Fleet) register(ctx context.Context) error {
	agents := f.agents()
	names := make([]string, len(agents))
	var joining errgroup.Group
	for i, agent := range agents {
		names[i] = agent.clusterName
		joining.Go(func() error { return f.join(ctx, agent) })
	}
	if err := joining.Wait(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for _, agent := range agents {
		exited := agent.Exited()
		go func() {
			// An agent that has exited never requests to join.
			select {
			case <-exited:
				stop(agent.Failure())
			case <-ctx.Done():
			}
		}()
	}
	for _, m := range f.Members {
		if !slices.Contains(f.options.IRSA, m.Name) {
			continue
		}
		if _, err := MakeManagedRole(ctx, f.Hub, m.Cluster, AgentNamespace, f.options.Ran); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	for len(names) > 0 {
		if err := f.adm.Accept(ctx, f.Hub, names...); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		names = nil
		within, cancel := context.WithTimeout(ctx, acceptAgain)
		for _, agent := range agents {
			if err := agent.WaitReady(within); err != nil && ctx.Err() != nil {
				cancel()
				return errors.Join(context.Cause(ctx), err)
			} else if err != nil {
				names = append(names, agent.clusterName)
			}
		}
		cancel()
	}
	return nil
}

// MakeManagedRole creates the IAM role of a managed cluster with the commands that the hub returns,
// as an administrator of the cluster's account does, and returns the hub's response. It waits until
// the cluster requests to join.
func MakeManagedRole(ctx context.Context, hub, managed *Cluster, agentNamespace string, ran Ran) (*registerv1alpha1.ManagedClusterIRSA, error) {
	client, err := versioned.NewForConfig(hub.AdminConfig())
	if err != nil {
		return nil, err
	}
	claim := &registerv1alpha1.ManagedClusterIRSA{
		ObjectMeta: metav1.ObjectMeta{Name: managed.Name},
		Spec: registerv1alpha1.ManagedClusterIRSASpec{
			ManagedClusterARN: managed.EKS().ARN, OIDCProvider: managed.EKS().Issuer(), ServiceAccounts: []string{agentNamespace + ":" + agentAccount},
		},
	}
	var answer *registerv1alpha1.ManagedClusterIRSA
	err = await.Poll(ctx, func(ctx context.Context) (err error) {
		answer, err = client.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(ctx, managed.Name, claim, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim the ARN of %s: %w", managed.Name, err)
	}
	if ran != nil {
		body, err := json.Marshal(claim.Spec)
		if err != nil {
			return nil, err
		}
		content, err := json.MarshalIndent(answer.Status, "", "  ")
		if err != nil {
			return nil, err
		}
		path := "/apis/" + registerv1alpha1.SchemeGroupVersion.String() + "/managedclusters/" + managed.Name + "/irsa"
		ran(hub, []string{"POST", path, fmt.Sprintf(`{"spec":%s}`, body)}, fmt.Sprintf("{\"status\": %s}\n", content))
	}
	for _, line := range answer.Status.Commands {
		if err := managed.EKS().RunAll(ctx, line); err != nil {
			return nil, err
		}
		if ran != nil {
			ran(managed, strings.Fields(line), "")
		}
	}
	return answer, nil
}
