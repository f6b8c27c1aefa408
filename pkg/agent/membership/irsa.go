package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
)

// Annotations by which a ManagedCluster claims to be an EKS cluster. The first is defined by the
// enhancement proposal, the others by upstream OCM agents.
const (
	annotationEKSARN     = "eks-managed-cluster-arn"
	annotationARN        = "agent.open-cluster-management.io/managed-cluster-arn"
	annotationRoleSuffix = "agent.open-cluster-management.io/managed-cluster-iam-role-suffix"
)

type irsaDriver struct {
	clusterName string
	identity    irsa.Identity
	program     string
}

func newIRSADriver(config *Config) (*irsaDriver, error) {
	d := &irsaDriver{
		clusterName: config.ClusterName,
		identity:    irsa.Identity{Hub: config.HubCluster, Managed: config.ManagedCluster},
	}
	if d.identity.Hub == (irsa.ARN{}) || d.identity.Managed == (irsa.ARN{}) {
		return nil, errors.New("the driver aws-irsa requires the ARNs of both clusters: set --hub-cluster-arn and --managed-cluster-arn")
	}
	if err := d.identity.Validate(); err != nil {
		return nil, err
	}
	var err error
	if d.program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	return d, nil
}

func (d *irsaDriver) annotations() map[string]string {
	return map[string]string{
		annotationEKSARN: d.identity.Managed.String(), annotationARN: d.identity.Managed.String(), annotationRoleSuffix: d.identity.Hash(),
	}
}

func (d *irsaDriver) usable(known *identity) error {
	if known.get(keyKubeconfig) == "" {
		return errors.New("there is no kubeconfig yet")
	}
	config, err := clientcmd.Load(known.data[keyKubeconfig])
	if err != nil {
		return fmt.Errorf("%s: %w", keyKubeconfig, err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil || config.AuthInfos[current.AuthInfo].Exec == nil ||
		!slices.Contains(config.AuthInfos[current.AuthInfo].Exec.Args, d.identity.HubRoleARN()) {
		return fmt.Errorf("the kubeconfig does not use the role %s", d.identity.HubRoleARN())
	}
	return nil
}

func (d *irsaDriver) user() *clientcmdapi.AuthInfo {
	hub := d.identity.Hub
	return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: d.program,
		Args:    []string{"aws-token", "--region", hub.Region, "--cluster-name", hub.ClusterName, "--role", d.identity.HubRoleARN()},
	}}
}

// obtain claims the EKS cluster if the hub supports claims, and waits until the hub has accepted
// the cluster.
func (d *irsaDriver) obtain(ctx context.Context, hub *hubClients, cluster *clusterv1.ManagedCluster, _ *identity, note func(string)) (func(*identity), error) {
	if err := d.claim(ctx, hub, cluster); err != nil {
		return nil, err
	}
	if err := d.await(ctx, hub, note); err != nil {
		return nil, err
	}
	return func(i *identity) {
		// The keys may remain from another driver.
		for _, key := range []string{keyCertificate, keyPrivateKey, keyPendingKey} {
			delete(i.data, key)
		}
	}, nil
}

func (d *irsaDriver) claim(ctx context.Context, hub *hubClients, cluster *clusterv1.ManagedCluster) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := hub.ocm.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(ctx, d.clusterName, &registerv1alpha1.ManagedClusterIRSA{
		ObjectMeta: metav1.ObjectMeta{Name: d.clusterName},
		Spec:       registerv1alpha1.ManagedClusterIRSASpec{ManagedClusterARN: d.identity.Managed.String()},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
		// An upstream OCM hub uses the annotations. Other hubs may allow this identity only to
		// create the ManagedCluster.
		klog.FromContext(ctx).V(2).Info("The hub accepts no claims; using the annotations of the ManagedCluster", "err", err)
		if cluster.Annotations[annotationARN] == "" && cluster.Annotations[annotationEKSARN] == "" && !accepted(cluster) {
			return fmt.Errorf("ManagedCluster %s lacks the annotation %s, and the hub does not allow this agent to claim %s: %w",
				d.clusterName, annotationARN, d.identity.Managed, err)
		}
		return nil
	default:
		return fmt.Errorf("claim %s: %w", d.identity.Managed, err)
	}
}

// await waits for the condition HubAccepted, which shows that the IAM role and its mapping exist.
func (d *irsaDriver) await(ctx context.Context, hub *hubClients, note func(string)) error {
	return poll(ctx, func(ctx context.Context) (bool, error) {
		cluster, err := hub.ocm.ClusterV1().ManagedClusters().Get(ctx, d.clusterName, metav1.GetOptions{})
		switch {
		case temporary(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("ManagedCluster %s: %w", d.clusterName, err)
		case cluster.DeletionTimestamp != nil:
			return false, fmt.Errorf("ManagedCluster %s is being deleted", d.clusterName)
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
		switch {
		case !cluster.Spec.HubAcceptsClient || condition == nil:
			note("waiting for the hub to accept " + d.clusterName)
		case condition.Status != metav1.ConditionTrue:
			note(fmt.Sprintf("the hub has accepted %s, but its identity is not ready: %s", d.clusterName, condition.Message))
		default:
			return true, nil
		}
		return false, nil
	})
}

// renew does nothing: the program gets new tokens.
func (d *irsaDriver) renew(ctx context.Context, _ *hubClients, _ func(context.Context, *identity) error) {
	<-ctx.Done()
}
