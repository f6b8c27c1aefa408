package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/irsa"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/test/fakeaws"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	faultsHubAccount     = "111122223333"
	faultsManagedAccount = "444455556666"
	faultsRegion         = "us-west-2"
)

// awsHub is a hub without running managed clusters. Its server registers clusters with certificates and
// with a fake AWS.
type awsHub struct {
	*fleet
	aws *fakeaws.Server
	arn irsa.ARN
	// byConfigMap reports whether the hub maps IAM roles with the ConfigMap aws-auth.
	byConfigMap bool
}

// startAWSHub starts the hub. args are additional arguments of its server.
func startAWSHub(t *testing.T, args ...string) *awsHub {
	t.Helper()
	h := &awsHub{
		aws: framework.Must(fakeaws.New(fakeaws.Options{Region: faultsRegion}))(t),
		arn: irsa.ARN{Partition: "aws", Region: faultsRegion, AccountID: faultsHubAccount, ClusterName: "hub"},
	}
	framework.StopLater(t, func(context.Context) error { return h.aws.Close() })
	if err := h.aws.AddCluster(h.arn.String(), fakeaws.ModeAPI); err != nil {
		t.Fatal(err)
	}
	key := framework.Must(h.aws.AddUser(faultsHubAccount, "server", irsa.CreatorAccessPolicy(h.arn).JSON(), irsa.CreatorMappingPolicy(h.arn).JSON()))(t)
	framework.Slots(t, 1)
	options := localhub.FleetOptions{Dir: framework.OwnDir(t), NoFsync: true, APIServerArgs: append([]string{
		"--registration-auth=csr,aws-irsa", "--hub-cluster-arn=" + h.arn.String(),
	}, args...)}
	inner := framework.Must(localhub.NewFleet(options))(t)
	inner.Server.Env = h.aws.Env(key)
	if err := inner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.KillLater(t, inner.Kill)
	h.fleet = &fleet{&framework.Fleet{Fleet: inner, Kubeconfig: filepath.Join(options.Dir, "hub-admin.kubeconfig")}}
	if err := h.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	roles := framework.Must(localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "agent", "hub")))(t)
	if err := h.Hub.Apply(t.Context(), roles...); err != nil {
		t.Fatal(err)
	}
	return h
}

// desired returns the identity in AWS of an accepted cluster with this name, which is this EKS cluster.
func (h *awsHub) desired(name, eksCluster string) irsa.Desired {
	return irsa.Desired{
		Identity: irsa.Identity{Hub: h.arn, Managed: irsa.ARN{
			Partition: "aws", Region: faultsRegion, AccountID: faultsManagedAccount, ClusterName: eksCluster,
		}},
		ManageRoles: true, Mapping: irsa.AccessEntry, ClusterName: name,
	}
}

// claiming returns a ManagedCluster that claims to be an EKS cluster.
func claiming(desired irsa.Desired) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{
		Name: desired.ClusterName, Annotations: map[string]string{registration.EKSARNAnnotation: desired.Managed.String()},
	}}
}

func (h *awsHub) decide(ctx context.Context, name string, accepted bool) error {
	_, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Accept(ctx, name, &registerv1alpha1.ManagedClusterAcceptance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       registerv1alpha1.ManagedClusterAcceptanceSpec{Accepted: accepted},
	}, metav1.UpdateOptions{})
	return err
}

// hubAccepts returns an error unless the condition HubAcceptedManagedCluster of a cluster is True.
func (h *awsHub) hubAccepts(ctx context.Context, name string) error {
	cluster, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	condition := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != clusterv1.ReasonHubClusterAdminAccepted {
		return fmt.Errorf("condition %s of %s = %+v, want True", clusterv1.ManagedClusterConditionHubAccepted, name, condition)
	}
	return nil
}

// inAWS returns an error that names the differences between AWS and the desired identity.
func (h *awsHub) inAWS(desired irsa.Desired) error {
	roles := h.aws.Roles(faultsHubAccount)
	i := slices.IndexFunc(roles, func(r fakeaws.Role) bool { return r.Name == desired.HubRoleName() })
	if i < 0 {
		return fmt.Errorf("AWS has no role for %s", desired.ClusterName)
	}
	role := roles[i]
	var errs []error
	if err := sameJSON(role.TrustPolicy, desired.HubTrustPolicy().JSON()); err != nil {
		errs = append(errs, fmt.Errorf("trust policy of %s: %w", desired.ClusterName, err))
	}
	if err := sameJSON(role.InlinePolicies[role.Name], desired.HubAccessPolicy().JSON()); err != nil {
		errs = append(errs, fmt.Errorf("access policy of %s: %w", desired.ClusterName, err))
	}
	entries := h.aws.AccessEntries(h.arn.String())
	i = slices.IndexFunc(entries, func(e fakeaws.AccessEntry) bool { return e.PrincipalARN == desired.HubRoleARN() })
	if i < 0 {
		return errors.Join(append(errs, fmt.Errorf("AWS has no access entry for %s", desired.ClusterName))...)
	}
	entry := entries[i]
	if entry.Username != desired.Username() || !slices.Equal(entry.Groups, desired.Groups()) || entry.Type != "STANDARD" {
		errs = append(errs, fmt.Errorf("access entry of %s = %+v, want user %s in %q and type STANDARD", desired.ClusterName, entry, desired.Username(), desired.Groups()))
	}
	for key, value := range desired.Tags() {
		if role.Tags[key] != value || entry.Tags[key] != value {
			errs = append(errs, fmt.Errorf("tag %s of the role and the access entry of %s = %q and %q, want %q", key, desired.ClusterName, role.Tags[key], entry.Tags[key], value))
		}
	}
	return errors.Join(errs...)
}

func sameJSON(have, want string) error {
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(have), &a), json.Unmarshal([]byte(want), &b)); err != nil {
		return fmt.Errorf("JSON %q: %w", have, err)
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("got %s, want %s", have, want)
	}
	return nil
}

// inAWSAreOnly returns an error that names the roles and access entries in AWS of other clusters.
func (h *awsHub) inAWSAreOnly(owners []irsa.Desired) error {
	owned := map[string]bool{}
	for _, owner := range owners {
		owned[owner.HubRoleARN()] = true
	}
	var errs []error
	for _, role := range h.aws.Roles(faultsHubAccount) {
		if !owned[role.ARN] {
			errs = append(errs, fmt.Errorf("role %s with tags %v belongs to no cluster", role.Name, role.Tags))
		}
	}
	for _, entry := range h.aws.AccessEntries(h.arn.String()) {
		if !owned[entry.PrincipalARN] {
			errs = append(errs, fmt.Errorf("access entry of %s for user %s belongs to no cluster", entry.PrincipalARN, entry.Username))
		}
	}
	return errors.Join(errs...)
}

// callsToAWS returns the AWS operations since the last reset, without those of STS. If onlyWrites
// is true, it omits reads.
func (h *awsHub) callsToAWS(onlyWrites bool) []string {
	var operations []string
	for _, call := range h.aws.Calls() {
		read := strings.HasPrefix(call.Operation, "Get") || strings.HasPrefix(call.Operation, "List") || strings.HasPrefix(call.Operation, "Describe")
		if call.Service == "sts" || onlyWrites && read {
			continue
		}
		operations = append(operations, call.Operation)
	}
	return operations
}

// access is the extent of the permissions that the server grants to a cluster.
type access int

const (
	noAccess access = iota
	deniedAccess
	fullAccess
)

// hasAccess returns an error if the objects on the hub do not grant a cluster exactly this access.
func (h *awsHub) hasAccess(ctx context.Context, cluster string, want access) error {
	name := "open-cluster-management:managedcluster:" + cluster
	labelled := metav1.ListOptions{LabelSelector: clusterv1.ClusterNameLabel + "=" + cluster}
	roles, err := h.HubClient.RbacV1().ClusterRoles().List(ctx, labelled)
	if err != nil {
		return err
	}
	clusterBindings, err := h.HubClient.RbacV1().ClusterRoleBindings().List(ctx, labelled)
	if err != nil {
		return err
	}
	bindings, err := h.HubClient.RbacV1().RoleBindings(cluster).List(ctx, labelled)
	if err != nil {
		return err
	}
	leases, err := h.HubClient.CoordinationV1().Leases(cluster).List(ctx, labelled)
	if err != nil {
		return err
	}
	have := map[string][]string{}
	for _, role := range roles.Items {
		have["ClusterRole "+role.Name] = verbs(role.Rules)
	}
	for _, binding := range clusterBindings.Items {
		have["ClusterRoleBinding "+binding.Name] = groups(binding.RoleRef, binding.Subjects)
	}
	for _, binding := range bindings.Items {
		have["RoleBinding "+binding.Name] = groups(binding.RoleRef, binding.Subjects)
	}
	for _, lease := range leases.Items {
		have["Lease "+lease.Name] = nil
	}

	wanted := map[string][]string{}
	own, requests, err := h.agents(ctx, cluster)
	if err != nil {
		return err
	}
	look := []string{"managedclusters:get", "managedclusters:list", "managedclusters:watch"}
	if want != noAccess {
		wanted["ClusterRole "+name] = look
		wanted["ClusterRoleBinding "+name] = append([]string{name}, own...)
	}
	if want == fullAccess {
		wanted["ClusterRole "+name] = slices.Sorted(slices.Values(append(append(look, requests...),
			"managedclusters/clientcertificates:renew", "managedclusters/status:patch", "managedclusters/status:update",
			"managedclusters:patch", "managedclusters:update")))
		for _, role := range []string{"registration", "work", "serviceaccounts", "namespaces", "inventory"} {
			wanted["RoleBinding "+name+":"+role] = append([]string{"open-cluster-management:managedcluster:" + role}, own...)
		}
		wanted["Lease "+registration.LeaseName] = nil
	}
	if !reflect.DeepEqual(have, wanted) {
		return fmt.Errorf("access of %s = %v, want %v", cluster, have, wanted)
	}
	return nil
}

// agents returns the groups of the agents of a cluster, which its driver defines, and their
// permissions for CertificateSigningRequests. It omits the permission to read requests by name.
func (h *awsHub) agents(ctx context.Context, cluster string) (groups, requests []string, err error) {
	record, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	certificates, accessEntries := clusterv1.AgentGroups(cluster)[:1], clusterv1.AgentGroups(cluster)[1:]
	if record.Spec.Driver != registerv1alpha1.DriverAWSIRSA {
		return certificates, []string{"certificatesigningrequests:create"}, nil
	}
	if h.byConfigMap {
		return certificates, nil, nil
	}
	return accessEntries, nil, nil
}

func verbs(rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, rule := range rules {
		if slices.Contains(rule.Resources, "certificatesigningrequests") && len(rule.ResourceNames) > 0 {
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, resource+":"+verb)
			}
		}
	}
	slices.Sort(out)
	return out
}

func groups(role rbacv1.RoleRef, subjects []rbacv1.Subject) []string {
	out := []string{role.Name}
	for _, subject := range subjects {
		out = append(out, subject.Name)
	}
	return out
}

// isGone returns an error that names a remaining object of a cluster on the hub.
func (h *awsHub) isGone(ctx context.Context, name string) error {
	_, cluster := h.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	_, record := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
	_, namespace := h.HubClient.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	for what, err := range map[string]error{"ManagedCluster": cluster, "registration": record, "Namespace": namespace} {
		if err == nil {
			return fmt.Errorf("%s of %s exists", what, name)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return h.hasAccess(ctx, name, noAccess)
}

// isDenied returns an error unless a cluster is denied and cleaned up. The cluster was accepted before.
func (h *awsHub) isDenied(ctx context.Context, name string) error {
	cluster, err := h.OCM.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := hasConditions(cluster.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted, metav1.ConditionFalse); err != nil {
		return fmt.Errorf("ManagedCluster %s: %w", name, err)
	}
	record, err := h.OCM.RegisterV1alpha1().ManagedClusterRegistrations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for kind, status := range map[string]metav1.ConditionStatus{
		registerv1alpha1.RegistrationAccessGranted: metav1.ConditionFalse,
		registerv1alpha1.RegistrationCleanedUp:     metav1.ConditionTrue,
	} {
		if err := hasConditions(record.Status.Conditions, kind, status); err != nil {
			return fmt.Errorf("registration of %s: %w", name, err)
		}
	}
	return h.hasAccess(ctx, name, deniedAccess)
}

func hasConditions(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) error {
	condition := meta.FindStatusCondition(conditions, kind)
	if condition == nil || condition.Status != status {
		return fmt.Errorf("condition %s = %+v, want %s", kind, condition, status)
	}
	return nil
}

// callsAbout returns the AWS operations about a cluster since the last reset.
func (h *awsHub) callsAbout(desired irsa.Desired) []string {
	var operations []string
	for _, call := range h.aws.Calls() {
		if callIsAbout(call, desired) {
			operations = append(operations, call.Operation)
		}
	}
	return operations
}

func callIsAbout(call fakeaws.Call, desired irsa.Desired) bool {
	for _, value := range call.Parameters {
		if strings.Contains(value, desired.HubRoleName()) {
			return true
		}
	}
	return false
}

// intruder is another user with permissions in the AWS account of the hub.
type intruder struct {
	arn string
	hub irsa.ARN
	iam *iam.Client
	eks *eks.Client
}

func (h *awsHub) newIntruder(t *testing.T) *intruder {
	t.Helper()
	const name = "intruder"
	key := framework.Must(h.aws.AddUser(faultsHubAccount, name, fakeaws.AdminPolicy))(t)
	config := aws.Config{
		Region: faultsRegion, BaseEndpoint: aws.String(h.aws.URL()),
		Credentials:      credentials.NewStaticCredentialsProvider(key.ID, key.Secret, key.SessionToken),
		RetryMaxAttempts: 1,
	}
	return &intruder{
		arn: "arn:aws:iam::" + faultsHubAccount + ":user/" + name, hub: h.arn,
		iam: iam.NewFromConfig(config), eks: eks.NewFromConfig(config),
	}
}

const (
	foreignTrust  = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::999900001111:root"},"Action":"sts:AssumeRole"}]}`
	foreignPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`
	foreignGroup  = "foreign-group"
)

// makeRole creates a role with a name that the server is about to use.
func (i *intruder) makeRole(ctx context.Context, name string) error {
	_, err := i.iam.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: &name, AssumeRolePolicyDocument: aws.String(foreignTrust),
		Tags: []iamtypes.Tag{{Key: aws.String("foreign"), Value: aws.String("yes")}},
	})
	if err != nil {
		return err
	}
	for _, policy := range []string{name, "foreign"} {
		if _, err := i.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &name, PolicyName: &policy, PolicyDocument: aws.String(foreignPolicy)}); err != nil {
			return err
		}
	}
	return nil
}

// makeEntry creates an access entry of a role for a foreign user and group.
func (i *intruder) makeEntry(ctx context.Context, roleARN string) error {
	_, err := i.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
		ClusterName: &i.hub.ClusterName, PrincipalArn: &roleARN, Username: aws.String("foreign"), KubernetesGroups: []string{foreignGroup},
	})
	return err
}

// spoil changes all objects of a cluster in AWS.
func (i *intruder) spoil(ctx context.Context, desired irsa.Desired) error {
	role, roleARN := desired.HubRoleName(), desired.HubRoleARN()
	_, trust := i.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &role, PolicyDocument: aws.String(foreignTrust)})
	_, policy := i.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: &role, PolicyDocument: aws.String(foreignPolicy)})
	_, tags := i.iam.UntagRole(ctx, &iam.UntagRoleInput{RoleName: &role, TagKeys: slices.Collect(maps.Keys(desired.Tags()))})
	_, entry := i.eks.UpdateAccessEntry(ctx, &eks.UpdateAccessEntryInput{
		ClusterName: &i.hub.ClusterName, PrincipalArn: &roleARN, Username: aws.String("foreign"), KubernetesGroups: []string{foreignGroup},
	})
	return errors.Join(trust, policy, tags, entry)
}
