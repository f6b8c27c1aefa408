package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// shortLived is the validity of a certificate that expires during a row.
const shortLived = 10 * time.Second

// expireServing lets the serving certificate of a replica expire. Connections of the hub that exist continue.
func expireServing(ctx context.Context, c *campaign) (string, error) {
	replica := c.Replicas[1]
	expires := time.Now().Add(shortLived)
	if err := replica.IssueServing(expires); err != nil {
		return "", err
	}
	if err := errors.Join(sleep(ctx, time.Until(expires)), c.hold(ctx)); err != nil {
		return "", err
	}
	return "", replica.IssueServing(time.Time{})
}

// expireEtcdClient lets the etcd client certificate of a replica expire, and restarts the members, so that the replica
// needs new connections. The leader is last, to have one change of the leader only.
func expireEtcdClient(ctx context.Context, c *campaign) (string, error) {
	certs := filepath.Join(filepath.Dir(c.Etcd.Members[0].LogFile), "..", "..", c.Replicas[1].Node, "etcd-certs")
	expires := time.Now().Add(shortLived)
	if err := c.Etcd.IssueClient(certs, expires); err != nil {
		return "", err
	}
	if err := sleep(ctx, time.Until(expires)); err != nil {
		return "", err
	}
	leads, err := c.Etcd.Leader(ctx)
	if err != nil {
		return "", err
	}
	for i := range c.Etcd.Members {
		member := c.Etcd.Members[(leads+1+i)%len(c.Etcd.Members)]
		if err := errors.Join(member.Stop(ctx), member.Start(ctx)); err != nil {
			return "", err
		}
	}
	return "", errors.Join(c.hold(ctx), c.Etcd.IssueClient(certs, time.Time{}))
}

// expireAgent lets the certificate of a stopped agent expire. The agent registers again with its bootstrap credentials.
// Its request waits until an administrator accepts the cluster again: the token alone must not be enough.
func expireAgent(ctx context.Context, c *campaign) (string, error) {
	agent := c.Members[0].Agent
	if err := agent.Stop(ctx); err != nil {
		return "", err
	}
	expires := time.Now().Add(shortLived)
	if err := agent.ExpireIdentity(ctx, c.Hub, expires); err != nil {
		return "", err
	}
	if err := errors.Join(sleep(ctx, time.Until(expires)), c.hold(ctx)); err != nil {
		return "", err
	}
	if err := agent.Launch(ctx); err != nil {
		return "", err
	}
	err := await.Poll(ctx, func(context.Context) error {
		if log := agent.LogTail(); !strings.Contains(log, "registering again") || !strings.Contains(log, "Requested a client certificate") {
			return errors.New("the agent does not report that it registers again" + log)
		}
		return nil
	})
	if err := errors.Join(err, c.Administrator.Accept(ctx, c.Hub, framework.Cluster1)); err != nil {
		return "", err
	}
	begun := time.Now()
	err = await.Poll(ctx, func(ctx context.Context) error {
		identity, err := agent.Identity(ctx)
		if err != nil {
			return err
		}
		certificates, err := cert.ParseCertsPEM(identity.Data[corev1.TLSCertKey])
		if err != nil || !certificates[0].NotAfter.After(begun) {
			return fmt.Errorf("the agent has no new certificate: %w%s", err, agent.LogTail())
		}
		return nil
	})
	return "The agent registers again, and waits for `clusteradm accept`", errors.Join(err, agent.WaitReady(ctx))
}

// expireFrontProxy lets the client certificate of the aggregation layer expire. No request of the hub is authentic then.
func expireFrontProxy(ctx context.Context, c *campaign) (string, error) {
	expires := time.Now().Add(shortLived)
	if err := errors.Join(c.Hub.IssueFrontProxy(expires), c.Hub.APIServer.Restart(ctx)); err != nil {
		return "", err
	}
	if err := errors.Join(sleep(ctx, time.Until(expires)), c.hold(ctx)); err != nil {
		return "", err
	}
	return "", errors.Join(c.Hub.IssueFrontProxy(time.Time{}), c.Hub.APIServer.Restart(ctx))
}

// replaceFrontProxy replaces everything at once, as kubeadm certs renew does. The replicas read the new authority from
// the hub.
func replaceFrontProxy(ctx context.Context, c *campaign) (string, error) {
	return "", errors.Join(c.Hub.ReplaceFrontProxyAuthority(), c.Hub.APIServer.Restart(ctx))
}

// replaceHubAuthority replaces the authority as Kubernetes documents: first all clients trust both authorities, which
// requires a restart of the replicas and clusteradm join for the agent, then kube-apiserver serves the new certificate.
func replaceHubAuthority(ctx context.Context, c *campaign) (string, error) {
	agent := c.Members[0].Agent
	if err := errors.Join(c.Hub.TrustNextServing(), c.Hub.ControllerManager.Restart(ctx)); err != nil {
		return "", err
	}
	for _, replica := range c.Replicas {
		if err := replica.Terminate(ctx); err != nil {
			return "", err
		}
		if err := replica.Start(ctx); err != nil {
			return "", err
		}
	}
	invitation, err := c.Administrator.Init(ctx, c.Hub)
	if err != nil {
		return "", err
	}
	if err := errors.Join(agent.Join(ctx, c.Administrator, invitation), agent.MountBootstrap(ctx)); err != nil {
		return "", err
	}
	begun := time.Now()
	err = await.Poll(ctx, func(ctx context.Context) error {
		identity, err := agent.Identity(ctx)
		if err != nil {
			return err
		}
		kubeconfig, err := clientcmd.Load(identity.Data["kubeconfig"])
		if err != nil {
			return err
		}
		for _, hub := range kubeconfig.Clusters {
			if !bytes.Equal(hub.CertificateAuthorityData, invitation.CA) {
				return errors.New("the agent does not trust the new authority" + agent.LogTail())
			}
		}
		return nil
	})
	took := time.Since(begun)
	if err != nil {
		return "", err
	}
	note := fmt.Sprintf("The agent trusts the new authority %.0f s after its bootstrap kubeconfig contains it", took.Seconds())
	return note, errors.Join(c.Hub.ReplaceServing(), c.Hub.APIServer.Restart(ctx), c.Hub.ControllerManager.Restart(ctx))
}
