package accept

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/manifests"
)

// bootstrapUsers request the first certificate of an agent, as the members of manifests.BootstrapGroup do.
var bootstrapUsers = []string{
	"system:serviceaccount:" + manifests.BootstrapNamespace + ":" + manifests.BootstrapAccount,
	"system:serviceaccount:" + manifests.BootstrapNamespace + ":cluster-bootstrap",
}

var arnAnnotations = []string{"agent.open-cluster-management.io/managed-cluster-arn", "eks-managed-cluster-arn"}

// decidePublic accepts or denies a cluster on a hub that runs OCM. It changes the objects that the controllers of OCM
// read: the ManagedCluster, and the CertificateSigningRequest of the agent.
func (a *accepting) decidePublic(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if a.reason != "" {
		a.Warn("%s: this hub does not store --reason", cluster.Name)
	}
	if cluster.Spec.HubAcceptsClient == a.deny {
		patch := cli.MergePatch(map[string]any{
			"metadata": map[string]any{"uid": cluster.UID, "resourceVersion": cluster.ResourceVersion},
			"spec":     map[string]any{"hubAcceptsClient": !a.deny},
		})
		if _, err := a.OCM.ClusterV1().ManagedClusters().Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cli.FieldManager}); err != nil {
			return err
		}
	}
	if a.deny {
		a.Say("%s: denied", cluster.Name)
		return nil
	}
	a.Say("%s: accepted", cluster.Name)
	a.next(cluster.Name)
	if slices.ContainsFunc(arnAnnotations, func(key string) bool { return cluster.Annotations[key] != "" }) {
		// The agent requests no certificate.
		return nil
	}
	return a.approveAll(ctx, cluster.Name)
}

// approveAll approves the pending requests of a cluster, and with --wait waits for the first one.
func (a *accepting) approveAll(ctx context.Context, cluster string) error {
	waiting := false
	return cli.Poll(ctx, func(ctx context.Context) (string, error) {
		requests, err := a.requests(ctx, cluster)
		if err != nil {
			return "", err
		}
		approved, refused := false, ""
		for i := range requests {
			request := &requests[i]
			if !pending(request) {
				approved = approved || len(request.Status.Certificate) > 0
				continue
			}
			if refusal := a.refuses(request, cluster); refusal != "" {
				refused = fmt.Sprintf("CertificateSigningRequest %q is not approved: %s", request.Name, refusal)
				continue
			}
			if err := a.approve(ctx, request.Name); err != nil {
				return "", fmt.Errorf("approve %s: %w", request.Name, err)
			}
			a.Say("%s: approved %s", cluster, cli.Printable(request.Name))
			approved = true
		}
		switch {
		case approved:
			return "", nil
		case refused != "":
			return "", errors.New(cli.Printable(refused))
		case !a.wait:
			a.Say("%s: there is no certificate request yet; run clusteradm accept again after the agent created one", cluster)
			return "", nil
		case !waiting:
			waiting = true
			a.Say("%s: waiting for the certificate request of the agent", cluster)
		}
		return "the agent has not requested a certificate", nil
	})
}

func (a *accepting) requests(ctx context.Context, cluster string) ([]certificatesv1.CertificateSigningRequest, error) {
	list, err := a.Kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + cluster})
	if err != nil {
		return nil, fmt.Errorf("listing CertificateSigningRequests: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(request certificatesv1.CertificateSigningRequest) bool {
		return request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName
	}), nil
}

func pending(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Conditions) == 0 && len(request.Status.Certificate) == 0
}

// refuses returns the reason why a request must not be approved, or an empty string if it
// can be approved. The requester chooses the label, so only the subject decides.
func (a *accepting) refuses(request *certificatesv1.CertificateSigningRequest, cluster string) string {
	identity := clusterv1.AgentGroups(cluster)[0]
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil {
		return "it contains no PEM block"
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err.Error()
	}
	agent, ok := strings.CutPrefix(parsed.Subject.CommonName, identity+":")
	if !ok || agent == "" || strings.Contains(agent, ":") {
		return fmt.Sprintf("the subject %q is not an agent of the cluster", parsed.Subject.CommonName)
	}
	for _, organization := range parsed.Subject.Organization {
		if organization != identity && organization != clusterv1.AllAgentsGroup {
			return fmt.Sprintf("it requests the group %q", organization)
		}
	}
	user := request.Spec.Username
	if a.anyRequester || slices.Contains(a.requesters, user) {
		return ""
	}
	if len(a.requesters) == 0 && (slices.Contains(bootstrapUsers, user) || slices.Contains(request.Spec.Groups, manifests.BootstrapGroup)) {
		return ""
	}
	return fmt.Sprintf("the requester %q is not allowed; add it to --requesters, or allow any requester with --skip-approve-check", user)
}

func (a *accepting) approve(ctx context.Context, name string) error {
	requests := a.Kube.CertificatesV1().CertificateSigningRequests()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		request, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ClusteradmAccept", Message: "Approved by clusteradm accept.",
		})
		_, err = requests.UpdateApproval(ctx, name, request, metav1.UpdateOptions{})
		return err
	})
}
