package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// TestRegistrationByIAMRoles runs the user stories of the enhancement proposal "AWS IAM based
// registration" with clusteradm, kubectl and the aws command line. The agents have only the
// configuration that these commands create.
func TestRegistrationByIAMRoles(t *testing.T) {
	t.Parallel()
	h, clusters := startEKSHub(t, "managed-0", "managed-1")
	first := newEKSMember(t, clusters[0], clusters[0].Name, localhub.AgentNamespace)
	second := newEKSMember(t, clusters[1], clusters[1].Name, localhub.AgentNamespace)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"1 and 2: the hub is initialized for both drivers", h.tellsWhetherItSigns},
		{"3 and 4: a cluster joins and is accepted", func(t *testing.T) { h.joinsAndIsAccepted(t, first) }},
		{"policies and tags match the proposal", func(t *testing.T) { h.documentsAreTheSeeds(t, first) }},
		{"8: clusters are isolated from each other", func(t *testing.T) { h.areIsolated(t, first, second) }},
		{"6: tokens are refreshed", func(t *testing.T) { h.tokensAreRefreshed(t, first) }},
		{"7: access is revoked by denial", func(t *testing.T) { h.isDeniedAndAcceptedAgain(t, first) }},
		{"7: access is revoked by deletion", func(t *testing.T) { h.isDeleted(t, second) }},
		{"5: a cluster leaves", func(t *testing.T) { h.leaves(t, first) }},
		{"the server does not manage roles", func(t *testing.T) { h.takesRolesOfOthers(t, second) }},
		{"a hub with the ConfigMap aws-auth", func(t *testing.T) { h.mapsByConfigMap(t, second) }},
		{"a cluster joins two hubs", func(t *testing.T) { h.joinsTwoHubs(t, first.Cluster, second.Cluster) }},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

// tellsWhetherItSigns initializes the hub again, once without and once with a controller manager, which
// signs certificates.
func (h *eksHub) tellsWhetherItSigns(t *testing.T) {
	if err := h.Hub.ControllerManager.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.clusteradm(t, h.Hub, "init", "--apiserver=external", "--csr-probe-timeout=1s")
	h.shows(t, "Warning: the hub does not sign client certificates", "--registration-auth=aws-irsa")
	h.clusteradm(t, h.Hub, "init", "--apiserver=external", "--registration-auth=aws-irsa", "--hub-cluster-arn="+localhub.HubARN)
	h.shows(t, "Start the server with: --registration-auth=aws-irsa --hub-cluster-arn="+localhub.HubARN,
		"--registration-auth aws-irsa", "--eks-hub-cluster-arn "+localhub.HubARN, "role/hub_managed-cluster-identity-creator")
	if err := h.Hub.ControllerManager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.clusteradm(t, h.Hub, "init", "--apiserver=external", "--registration-auth=csr,aws-irsa", "--hub-cluster-arn="+localhub.HubARN)
	h.shows(t, "the hub signs client certificates", "Start the server with: --registration-auth=csr,aws-irsa")
}

func (h *eksHub) joinsAndIsAccepted(t *testing.T, c *eksMember) {
	h.joinsByIRSA(t, c)
	identity := h.identityOf(c)
	h.shows(t, identity.ManagedClusterRoleARN(), "clusteradm accept --clusters "+c.Name)
	h.asks(t, c.Name)
	cluster := framework.Must(h.OCM.ClusterV1().ManagedClusters().Get(t.Context(), c.Name, metav1.GetOptions{}))(t)
	if cluster.Spec.HubAcceptsClient || cluster.Annotations["eks-managed-cluster-arn"] != c.EKS().ARN {
		t.Errorf("ManagedCluster after the join = %+v, want it not accepted, with ARN %s", cluster, c.EKS().ARN)
	}
	if requests := framework.Must(h.HubClient.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + c.Name}))(t); len(requests.Items) > 0 {
		t.Errorf("CertificateSigningRequests of %s = %d, want 0", c.Name, len(requests.Items))
	}

	// The administrator of the cluster's account creates its role from the response of the hub.
	answer := framework.Must(localhub.MakeManagedRole(t.Context(), h.Hub, c.Cluster, c.namespace, nil))(t)
	if answer.Status.Hash != identity.Identity.Hash() || answer.Status.HubRole.ARN != identity.HubRoleARN() || answer.Status.Accepted {
		t.Errorf("claim has hash %s, role %s, accepted %t, want hash %s, role %s, accepted false", answer.Status.Hash, answer.Status.HubRole.ARN, answer.Status.Accepted, identity.Identity.Hash(), identity.HubRoleARN())
	}
	h.shows(t, answer.Status.Commands...)
	if err := h.inAWSIsNothingOf(c); err != nil {
		t.Errorf("identity of %s before its acceptance: %v, want none", c.Name, err)
	}

	h.clusteradm(t, h.Hub, "accept", "--clusters", c.Name, "--wait")
	h.shows(t, c.Name+": accepted by aws-irsa", "has access to the hub")
	h.isMember(t, c, c.Name)
	h.hasWorkApplied(t, c, c.Name, "work-4")
	if err := h.inAWS(identity); err != nil {
		t.Error(err)
	}
	for _, account := range []string{faultsHubAccount, faultsManagedAccount} {
		output, err := doctor(t, h.aws, account, h.Kubeconfig, "--managed-cluster-arn", c.EKS().ARN, "--cluster-name", c.Name, "--agent-namespace", c.namespace)
		if err != nil || strings.Contains(output, "missing ") {
			t.Errorf("clusteradm doctor aws for account %s prints %s, %v, want nothing missing", account, output, err)
		}
	}
	if err := h.hasAccess(t.Context(), c.Name, fullAccess); err != nil {
		t.Error(err)
	}
	secret := c.secret(t)
	if secret["cluster-name"] != c.Name || secret["agent-name"] == "" || secret["tls.crt"] != "" {
		t.Errorf("Secret of the agent has keys %v, cluster-name %q and agent-name %q, want both names and no tls.crt", slices.Sorted(maps.Keys(secret)), secret["cluster-name"], secret["agent-name"])
	}
	for _, user := range c.hubKubeconfig(t).AuthInfos {
		want := []string{"aws-token", "--region", faultsRegion, "--cluster-name", "hub", "--role", identity.HubRoleARN()}
		if user.Exec.Command != c.agent.Path || !slices.Equal(user.Exec.Args, want) {
			t.Errorf("token command = %s %v, want %s %v", user.Exec.Command, user.Exec.Args, c.agent.Path, want)
		}
	}
	if state := h.claimed(t, c.Name); !state.Status.Accepted || state.Spec.ManagedClusterARN != c.EKS().ARN {
		t.Errorf("claim = %+v, want it accepted for %s", state, c.EKS().ARN)
	}
}

func (h *eksHub) documentsAreTheSeeds(t *testing.T, c *eksMember) {
	if got := proposalHash("hubaccount1", "hubcluster1", "managedaccount1", "managedcluster1"); got != "79e99112993014816615711cbd35a9bc" {
		t.Fatalf("proposalHash(example of the proposal) = %s, want 79e99112993014816615711cbd35a9bc", got)
	}
	managed := framework.Must(irsa.ParseARN(c.EKS().ARN))(t)
	hash := proposalHash(h.arn.AccountID, h.arn.ClusterName, managed.AccountID, managed.ClusterName)
	tags := map[string]string{
		"hub_cluster_account_id": h.arn.AccountID, "hub_cluster_name": h.arn.ClusterName,
		"managed_cluster_account_id": managed.AccountID, "managed_cluster_name": managed.ClusterName,
	}
	hubRole := h.role(t, h.arn.AccountID, "ocm-hub-"+hash)
	managedRole := h.role(t, managed.AccountID, "ocm-managed-cluster-"+hash)
	if !maps.Equal(hubRole.Tags, tags) || !maps.Equal(managedRole.Tags, tags) {
		t.Errorf("tags of the roles = %v and %v, want %v", hubRole.Tags, managedRole.Tags, tags)
	}
	// The proposal runs two agents with one ServiceAccount each. Here, one agent runs.
	one := firstStatement(t, strings.Replace(h.proposed(t, "managed-trust", c.Cluster), "klusterlet-registration-sa", "agent", 1))
	server := strings.Replace(h.proposed(t, "creator-trust", nil), "registration-controller-sa", localhub.ServerName, 1)
	serverRole := h.role(t, h.arn.AccountID, h.arn.ClusterName+"_managed-cluster-identity-creator")
	for what, document := range map[string]struct{ have, want string }{
		"trust policy of the hub's role":      {hubRole.TrustPolicy, h.proposed(t, "hub-trust", c.Cluster)},
		"access policy of the hub's role":     {onlyPolicy(t, hubRole.InlinePolicies), h.proposed(t, "hub-access", c.Cluster)},
		"trust policy of the cluster's role":  {managedRole.TrustPolicy, one},
		"access policy of the cluster's role": {onlyPolicy(t, managedRole.InlinePolicies), h.proposed(t, "managed-access", c.Cluster)},
		// The server created these objects with this policy and the policy for access entries only.
		"trust policy of the server's role":  {serverRole.TrustPolicy, server},
		"access policy of the server's role": {serverRole.InlinePolicies["access"], h.proposed(t, "creator-access", nil)},
	} {
		if err := sameJSON(document.have, document.want); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(hubRole.AttachedPolicies)+len(managedRole.AttachedPolicies) > 0 {
		t.Errorf("attached policies of the roles = %v and %v, want none", hubRole.AttachedPolicies, managedRole.AttachedPolicies)
	}

	// The claim accepts two ServiceAccounts, for the two agents of the proposal.
	answer := framework.Must(h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().ClaimIRSA(t.Context(), c.Name, &registerv1alpha1.ManagedClusterIRSA{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Spec: registerv1alpha1.ManagedClusterIRSASpec{
			ManagedClusterARN: c.EKS().ARN, OIDCProvider: c.EKS().Issuer(),
			ServiceAccounts: []string{"open-cluster-management-agent:klusterlet-registration-sa", "open-cluster-management-agent:klusterlet-work-sa"},
		},
	}, metav1.CreateOptions{}))(t)
	for what, document := range map[string]struct{ have, want string }{
		"trust policy of the cluster's role":  {answer.Status.ManagedClusterRole.TrustPolicy, h.proposed(t, "managed-trust", c.Cluster)},
		"access policy of the cluster's role": {answer.Status.ManagedClusterRole.AccessPolicy, h.proposed(t, "managed-access", c.Cluster)},
		"trust policy of the hub's role":      {answer.Status.HubRole.TrustPolicy, h.proposed(t, "hub-trust", c.Cluster)},
		"access policy of the hub's role":     {answer.Status.HubRole.AccessPolicy, h.proposed(t, "hub-access", c.Cluster)},
	} {
		if err := sameJSON(document.have, document.want); err != nil {
			t.Errorf("response to ClaimIRSA: %s: %v", what, err)
		}
	}
}

// firstStatement returns a policy document with its first statement only.
func firstStatement(t *testing.T, document string) string {
	t.Helper()
	var policy map[string]any
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		t.Fatal(err)
	}
	policy["Statement"] = policy["Statement"].([]any)[:1]
	return string(framework.Must(json.Marshal(policy))(t))
}

func onlyPolicy(t *testing.T, policies map[string]string) string {
	t.Helper()
	if len(policies) != 1 {
		t.Fatalf("inline policies = %v, want one", policies)
	}
	return slices.Collect(maps.Values(policies))[0]
}

// accept has a cluster join and accepts it, as in the user stories 3 and 4.
func (h *eksHub) accept(t *testing.T, c *eksMember) {
	t.Helper()
	h.joinsByIRSA(t, c)
	framework.Must(localhub.MakeManagedRole(t.Context(), h.Hub, c.Cluster, c.namespace, nil))(t)
	h.clusteradm(t, h.Hub, "accept", "--clusters", c.Name, "--wait")
	h.isMember(t, c, c.Name)
}

func (h *eksHub) areIsolated(t *testing.T, first, second *eksMember) {
	h.accept(t, second)
	h.hasWorkApplied(t, second, second.Name, "work-8")
	for _, pair := range []struct{ own, other *eksMember }{{first, second}, {second, first}} {
		own, other := pair.own.Name, pair.other.Name
		config := pair.own.onHub(t)
		ocm, hub := framework.OCMClient(t, config, nil), framework.Must(kubernetes.NewForConfig(config))(t)
		if _, err := ocm.ClusterV1().ManagedClusters().Get(t.Context(), own, metav1.GetOptions{}); err != nil {
			t.Errorf("Get(%s) with its own credentials = %v, want nil", own, err)
		}
		if works := framework.Must(ocm.WorkV1().ManifestWorks(own).List(t.Context(), metav1.ListOptions{}))(t); len(works.Items) != 1 {
			t.Errorf("ManifestWorks of %s = %d, want 1", own, len(works.Items))
		}
		clusters, works, records := ocm.ClusterV1().ManagedClusters(), ocm.WorkV1().ManifestWorks(other), ocm.RegisterV1alpha1().ManagedClusterRegistrations()
		patch := []byte(`{"metadata":{"labels":{"mine":"now"}}}`)
		for what, try := range map[string]func(context.Context) error{
			"get its ManagedCluster": func(ctx context.Context) error { _, err := clusters.Get(ctx, other, metav1.GetOptions{}); return err },
			"list ManagedClusters":   func(ctx context.Context) error { _, err := clusters.List(ctx, metav1.ListOptions{}); return err },
			"patch its ManagedCluster": func(ctx context.Context) error {
				_, err := clusters.Patch(ctx, other, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			},
			"patch its status": func(ctx context.Context) error {
				_, err := clusters.Patch(ctx, other, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
				return err
			},
			"delete its ManagedCluster": func(ctx context.Context) error { return clusters.Delete(ctx, other, metav1.DeleteOptions{}) },
			"list its ManifestWorks":    func(ctx context.Context) error { _, err := works.List(ctx, metav1.ListOptions{}); return err },
			"patch its ManifestWork": func(ctx context.Context) error {
				_, err := works.Patch(ctx, "work-8", types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			},
			"get its registration": func(ctx context.Context) error { _, err := records.Get(ctx, other, metav1.GetOptions{}); return err },
			"get its claim": func(ctx context.Context) error {
				_, err := records.GetIRSA(ctx, other, metav1.GetOptions{})
				return err
			},
			"deny it": func(ctx context.Context) error {
				_, err := records.Accept(ctx, other, &registerv1alpha1.ManagedClusterAcceptance{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.UpdateOptions{})
				return err
			},
			"list its Secrets": func(ctx context.Context) error {
				_, err := hub.CoreV1().Secrets(other).List(ctx, metav1.ListOptions{})
				return err
			},
			"list its Leases": func(ctx context.Context) error {
				_, err := hub.CoordinationV1().Leases(other).List(ctx, metav1.ListOptions{})
				return err
			},
			"list namespaces": func(ctx context.Context) error {
				_, err := hub.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
				return err
			},
		} {
			if err := try(t.Context()); !apierrors.IsForbidden(err) {
				t.Errorf("%s by %s for %s = %v, want Forbidden", what, own, other, err)
			}
		}

		// In AWS, a cluster may know the role names of the other cluster, but cannot assume the roles.
		theirs := h.identityOf(pair.other)
		if _, err := pair.own.awsToken(t.Context(), h.identityOf(pair.own).HubRoleARN()); err != nil {
			t.Errorf("aws-token of %s for its own role = %v, want nil", own, err)
		}
		if _, err := pair.own.awsToken(t.Context(), theirs.HubRoleARN()); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("aws-token of %s for the hub role of %s = %v, want AccessDenied", own, other, err)
		}
		if _, err := pair.own.awsToken(t.Context(), theirs.HubRoleARN(), "AWS_ROLE_ARN="+theirs.ManagedClusterRoleARN()); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("aws-token of %s as %s = %v, want AccessDenied", own, other, err)
		}
	}
}

// tokensAreRefreshed limits the lifetime of AWS sessions, so the agent must renew its session
// repeatedly. It does so without any action of a user.
func (h *eksHub) tokensAreRefreshed(t *testing.T, c *eksMember) {
	access := func() *versioned.Clientset {
		token := framework.Must(c.awsToken(t.Context(), h.identityOf(c).HubRoleARN()))(t)
		return framework.OCMClient(t, &rest.Config{Host: h.Hub.AdminConfig().Host, TLSClientConfig: rest.TLSClientConfig{CAData: h.Hub.AdminConfig().CAData}, BearerToken: token}, nil)
	}
	// A busy machine may need longer for a request than the short sessions last.
	if _, err := access().ClusterV1().ManagedClusters().Get(t.Context(), c.Name, metav1.GetOptions{}); err != nil {
		t.Fatalf("Get(%s) with a new token = %v, want nil", c.Name, err)
	}
	h.aws.LimitSessions(await.Scaled(4 * time.Second))
	defer h.aws.LimitSessions(0)
	before := c.secret(t)
	if err := c.agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.aws.ResetCalls()
	if err := c.agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := access()
	framework.Eventually(t, "the token has expired", func(ctx context.Context) error {
		_, err := client.ClusterV1().ManagedClusters().Get(ctx, c.Name, metav1.GetOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("error = %v, want Unauthorized", err)
		}
		return nil
	})
	h.hasWorkApplied(t, c, c.Name, "work-6")
	h.renews(t, c.Name)
	framework.Eventually(t, "the agent has assumed its role three times", func(context.Context) error {
		assumed := 0
		for _, call := range h.aws.Calls() {
			if call.Operation == "AssumeRole" && call.ErrorCode == "" && callIsAbout(call, h.identityOf(c)) {
				assumed++
			}
		}
		// One of the calls is by the test.
		if assumed < 1+3 {
			return fmt.Errorf("AssumeRole calls of the agent = %d, want at least 3", assumed-1)
		}
		return nil
	})
	if after := c.secret(t); !maps.Equal(before, after) {
		t.Errorf("Secret of the agent = %v, want it unchanged: %v", after, before)
	}
	h.isMember(t, c, c.Name)
}

// isDeniedAndAcceptedAgain sets hubAcceptsClient to false, as the proposal describes, and to true
// again.
func (h *eksHub) isDeniedAndAcceptedAgain(t *testing.T, c *eksMember) {
	config := c.onHub(t)
	set := func(accepts bool) {
		t.Helper()
		output, err := h.Kubectl(t, "", "patch", "managedclusters.cluster.open-cluster-management.io", c.Name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"hubAcceptsClient":%t}}`, accepts))
		if err != nil {
			t.Fatalf("kubectl patch = %v, want nil: %s", err, output)
		}
	}
	set(false)
	refused(t, config, c.Name)
	framework.Eventually(t, "the identity and the access of "+c.Name+" are removed", func(ctx context.Context) error {
		return errors.Join(h.inAWSIsNothingOf(c), h.isDenied(ctx, c.Name))
	})
	if _, err := c.awsToken(t.Context(), h.identityOf(c).HubRoleARN()); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("aws-token of the denied cluster %s = %v, want AccessDenied", c.Name, err)
	}
	for _, work := range []string{"work-4", "work-6"} {
		if has := framework.Must(c.has(t.Context(), work))(t); !has {
			t.Errorf("ConfigMap of ManifestWork %s is deleted, want it kept", work)
		}
	}

	set(true)
	framework.Eventually(t, "ManagedCluster "+c.Name+" has its identity and access again", func(ctx context.Context) error {
		return errors.Join(h.hubAccepts(ctx, c.Name), h.inAWS(h.identityOf(c)), h.hasAccess(ctx, c.Name, fullAccess))
	})
	h.isMember(t, c, c.Name)
	h.hasWorkApplied(t, c, c.Name, "work-7")
}

func (h *eksHub) isDeleted(t *testing.T, c *eksMember) {
	config := c.onHub(t)
	if output, err := h.Kubectl(t, "", "delete", "managedclusters.cluster.open-cluster-management.io", c.Name, "--wait=false"); err != nil {
		t.Fatalf("kubectl delete = %v, want nil: %s", err, output)
	}
	refused(t, config, c.Name)
	framework.Eventually(t, "all objects of "+c.Name+" are deleted", func(ctx context.Context) error {
		return errors.Join(h.inAWSIsNothingOf(c), h.nothingIsLeft(ctx, c.Name))
	})
	framework.Eventually(t, "the agent has removed the applied objects", func(ctx context.Context) error { return c.hasNothing(ctx, "work-8") })
}

func (h *eksHub) leaves(t *testing.T, c *eksMember) {
	// The agent runs outside the cluster, so clusteradm cannot get a token from its Pod.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c.hubKubeconfig(t), kubeconfig); err != nil {
		t.Fatal(err)
	}
	h.clusteradm(t, c.Cluster, "unjoin", "--cluster-name", c.Name, "--hub-kubeconfig", kubeconfig, "--purge")
	h.shows(t, "The cluster "+c.Name+" has left the hub.")
	for _, work := range []string{"work-4", "work-6", "work-7"} {
		if has := framework.Must(c.has(t.Context(), work))(t); has {
			t.Errorf("ConfigMap of ManifestWork %s exists, want it deleted", work)
		}
	}
	framework.Eventually(t, "all objects of "+c.Name+" on the hub are deleted", func(ctx context.Context) error {
		return errors.Join(h.inAWSIsNothingOf(c), h.nothingIsLeft(ctx, c.Name))
	})
	if err := c.agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	framework.Eventually(t, "the namespace of the agent is deleted", func(ctx context.Context) error {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("error = %v, want NotFound", err)
		}
		return nil
	})
}

// joinsTwoHubs has a cluster join this hub and another hub, with an agent for each hub.
func (h *eksHub) joinsTwoHubs(t *testing.T, otherHub, managed *localhub.Cluster) {
	const name = "of-two-hubs"
	other := h.makeHub(t, otherHub)
	var agents []*eksMember
	for _, hub := range []struct {
		*fleet
		namespace string
		init      []string
	}{
		{h.fleet, "agent-of-hub-1", []string{"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + localhub.HubARN}},
		{other, "agent-of-hub-2", nil},
	} {
		c := newEKSMember(t, managed, name, hub.namespace)
		agents = append(agents, c)
		c.joins(t, h.adm, framework.Must(h.adm.Init(t.Context(), hub.Hub, hub.init...))(t))
		h.clusteradm(t, hub.Hub, "accept", "--clusters", name, "--wait")
		hub.isMember(t, c, name)
	}
	h.hasWorkApplied(t, agents[0], name, "from-hub-1")
	other.hasWorkApplied(t, agents[1], name, "from-hub-2")
	// The hubs deliver ManifestWorks of the same name while both agents run.
	h.hasWorkApplied(t, agents[0], name, "of-both")
	other.hasWorkApplied(t, agents[1], name, "of-both")
	var ids []string
	for _, hub := range []*fleet{h.fleet, other} {
		cluster := framework.Must(hub.OCM.ClusterV1().ManagedClusters().Get(t.Context(), name, metav1.GetOptions{}))(t)
		for _, claim := range cluster.Status.ClusterClaims {
			if claim.Name == "id.k8s.io" {
				ids = append(ids, claim.Value)
			}
		}
	}
	uid := string(framework.Must(agents[0].kube.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}))(t).UID)
	if !slices.Equal(ids, []string{uid, uid}) {
		t.Errorf("claims id.k8s.io on the two hubs = %v, want %s on both", ids, uid)
	}

	h.clusteradm(t, managed, "unjoin", "--cluster-name", name, "--agent-namespace", agents[1].namespace)
	framework.Eventually(t, "all objects of "+name+" on the second hub are deleted", func(ctx context.Context) error { return other.nothingIsLeft(ctx, name) })
	if has := framework.Must(agents[1].has(t.Context(), "from-hub-2"))(t); has {
		t.Error("ConfigMap from-hub-2 exists after the cluster left its hub, want it deleted")
	}
	if has := framework.Must(agents[0].has(t.Context(), "from-hub-1"))(t); !has {
		t.Error("ConfigMap from-hub-1 is deleted, want it kept while the cluster is joined to its hub")
	}
	if has := framework.Must(agents[0].has(t.Context(), "of-both"))(t); !has {
		t.Error("ConfigMap of-both is deleted, want it kept while one of its hubs delivers it")
	}
	h.hasWorkApplied(t, agents[0], name, "afterwards")
	h.clusteradm(t, managed, "unjoin", "--cluster-name", name, "--agent-namespace", agents[0].namespace)
	if err := agents[0].hasNothing(t.Context(), "from-hub-1", "of-both", "afterwards"); err != nil {
		t.Error(err)
	}
	framework.Eventually(t, "all objects of "+name+" on the first hub are deleted", func(ctx context.Context) error { return h.nothingIsLeft(ctx, name) })
}

// registersAgain has a deleted cluster join again: the agent registers again if its Secret is deleted.
func (c *eksMember) registersAgain(t *testing.T) {
	t.Helper()
	if err := c.kube.CoreV1().Secrets(c.namespace).Delete(t.Context(), hubSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// takesRolesOfOthers checks a server without permissions for IAM. An administrator creates the roles.
func (h *eksHub) takesRolesOfOthers(t *testing.T, c *eksMember) {
	h.restartServer(t, "--irsa-manage-roles=false")
	entries := irsa.CreatorMappingPolicy(h.arn)
	entries.Statement = slices.DeleteFunc(entries.Statement, func(s irsa.Statement) bool { return slices.Contains(s.Action, "iam:TagRole") })
	serverRole := h.arn.ClusterName + "_managed-cluster-identity-creator"
	for _, policy := range []string{"access", "mapping"} {
		if err := h.Hub.EKS().RunAll(t.Context(), fmt.Sprintf("aws iam put-role-policy --role-name %s --policy-name %s --policy-document '%s'", serverRole, policy, entries.JSON())); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for policy, document := range map[string]irsa.Policy{"access": irsa.CreatorAccessPolicy(h.arn), "mapping": irsa.CreatorMappingPolicy(h.arn)} {
			if err := h.Hub.EKS().RunAll(t.Context(), fmt.Sprintf("aws iam put-role-policy --role-name %s --policy-name %s --policy-document '%s'", serverRole, policy, document.JSON())); err != nil {
				t.Error(err)
			}
		}
	}()
	c.registersAgain(t)
	h.asks(t, c.Name)
	framework.Must(localhub.MakeManagedRole(t.Context(), h.Hub, c.Cluster, c.namespace, nil))(t)

	role := h.claimed(t, c.Name).Status.HubRole
	tags := ""
	for key, value := range role.Tags {
		tags += " Key=" + key + ",Value=" + value
	}
	if err := h.Hub.EKS().RunAll(t.Context(),
		fmt.Sprintf("aws iam create-role --role-name %s --assume-role-policy-document '%s'", role.Name, role.TrustPolicy),
		fmt.Sprintf("aws iam put-role-policy --role-name %[1]s --policy-name %[1]s --policy-document '%[2]s'", role.Name, role.AccessPolicy),
		fmt.Sprintf("aws iam tag-role --role-name %s --tags%s", role.Name, tags),
	); err != nil {
		t.Fatal(err)
	}
	made := h.role(t, faultsHubAccount, role.Name)
	h.aws.ResetCalls()
	h.clusteradm(t, h.Hub, "accept", "--clusters", c.Name, "--wait")
	h.isMember(t, c, c.Name)
	h.hasWorkApplied(t, c, c.Name, "roles-of-others")
	if err := h.inAWS(h.identityOf(c)); err != nil {
		t.Error(err)
	}

	if output, err := h.Kubectl(t, "", "delete", "managedclusters.cluster.open-cluster-management.io", c.Name); err != nil {
		t.Fatalf("kubectl delete = %v, want nil: %s", err, output)
	}
	framework.Eventually(t, "all objects of "+c.Name+" except its role are deleted", func(ctx context.Context) error {
		return errors.Join(h.noAccessEntry(c), h.nothingIsLeft(ctx, c.Name), c.hasNothing(ctx, "roles-of-others"))
	})
	if left := h.role(t, faultsHubAccount, role.Name); left.ID != made.ID || left.TrustPolicy != made.TrustPolicy || !maps.Equal(left.Tags, made.Tags) {
		t.Errorf("role after the deletion = %+v, want it unchanged: %+v", left, made)
	}
	for _, call := range h.aws.Calls() {
		if call.Service == "iam" {
			t.Errorf("%s calls IAM %s (error %q), want no calls to IAM", call.Caller, call.Operation, call.ErrorCode)
		}
	}
}

// mapsByConfigMap checks a hub whose ConfigMap aws-auth contains entries of other users.
func (h *eksHub) mapsByConfigMap(t *testing.T, c *eksMember) {
	const (
		othersRoles = "# Nodes of the hub.\n- rolearn: arn:aws:iam::111122223333:role/nodes\n  username: system:node:{{EC2PrivateDNSName}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
		othersUsers = "- userarn: arn:aws:iam::111122223333:user/operator\n  username: operator\n  groups: [system:masters]\n"
	)
	configMaps := h.HubClient.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "aws-auth", Labels: map[string]string{"of": "others"}},
		Data:       map[string]string{"mapRoles": othersRoles, "mapUsers": othersUsers, "mapAccounts": "- \"999900001111\"\n"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.restartServer(t, "--eks-auth=ConfigMap")
	h.byConfigMap = true
	// The role of the previous test still exists.
	c.registersAgain(t)
	h.asks(t, c.Name)
	h.clusteradm(t, h.Hub, "accept", "--clusters", c.Name, "--wait")
	h.isMember(t, c, c.Name)
	h.hasWorkApplied(t, c, c.Name, "by-config-map")
	if err := h.noAccessEntry(c); err != nil {
		t.Error(err)
	}

	identity := h.identityOf(c)
	others := func(t *testing.T) (mapRoles string) {
		t.Helper()
		data := framework.Must(configMaps.Get(t.Context(), "aws-auth", metav1.GetOptions{}))(t)
		if data.Labels["of"] != "others" || data.Data["mapUsers"] != othersUsers || data.Data["mapAccounts"] != "- \"999900001111\"\n" {
			t.Errorf("aws-auth has labels %v and data %v, want labels, mapUsers and mapAccounts unchanged", data.Labels, data.Data)
		}
		if !strings.HasPrefix(data.Data["mapRoles"], othersRoles) {
			t.Errorf("mapRoles = %s\nwant the foreign entries unchanged as its prefix", data.Data["mapRoles"])
		}
		return data.Data["mapRoles"]
	}
	own := strings.TrimPrefix(others(t), othersRoles)
	for _, text := range []string{"rolearn: " + identity.HubRoleARN(), "username: open-cluster-management:" + c.Name, "system:open-cluster-management:" + c.Name} {
		if !strings.Contains(own, text) {
			t.Errorf("entry of %s does not contain %q:\n%s", c.Name, text, own)
		}
	}

	config := c.onHub(t)
	h.clusteradm(t, h.Hub, "accept", "--deny", "--reason=compromised", "--clusters", c.Name, "--wait")
	refused(t, config, c.Name)
	framework.Eventually(t, "the identity and the access of "+c.Name+" are removed", func(ctx context.Context) error {
		return errors.Join(h.inAWSIsNothingOf(c), h.isDenied(ctx, c.Name))
	})
	if left := others(t); left != othersRoles {
		t.Errorf("mapRoles after the denial = %s\nwant the foreign entries only", left)
	}
	if output, err := h.Kubectl(t, "", "delete", "managedclusters.cluster.open-cluster-management.io", c.Name); err != nil {
		t.Fatalf("kubectl delete = %v, want nil: %s", err, output)
	}
	framework.Eventually(t, "all objects of "+c.Name+" are deleted", func(ctx context.Context) error { return h.nothingIsLeft(ctx, c.Name) })
}
