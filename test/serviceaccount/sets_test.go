package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// team is the namespace that the sets are bound to, and bot is the account in it. The name of the
// account is longer than the maximum length of a label value.
const team, bot = "team-blue", "a-robot-of-the-team-whose-name-is-longer-than-what-a-label-may-hold"

// setFleet is a fleet of two clusters with two sets, both bound to the namespace team.
type setFleet struct {
	*fleet
}

// An account in a namespace with bound cluster sets exists on exactly the clusters of these sets.
// The server maintains this after all changes.
func TestAccountOfClusterSets(t *testing.T) {
	t.Parallel()
	s := &setFleet{ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1, "cluster2"}})}
	ctx := t.Context()
	if _, err := s.HubClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("waits without a set", s.waitsWithoutSet)
	s.bind(t, "north", &metav1.LabelSelector{MatchLabels: map[string]string{"region": "north"}})
	s.bind(t, "mine", nil)
	s.label(t, framework.Cluster1, "region", "north")
	t.Run("every cluster", s.everyCluster)
	t.Run("clusters join and leave", s.membersComeAndGo)
	t.Run("obstacles are reported", s.namesWhatIsInTheWay)
	t.Run("replicas are kept", s.replicasAreKept)
	t.Run("spec is propagated", s.specFollows)
	t.Run("restart of the server", s.serverIsAway)
	t.Run("no garbage collector", s.nobodyCollectsGarbage)
	t.Run("no bound set", s.noSetAnyMore)
	t.Run("deleted", s.deleted)
}

func (s *setFleet) bind(t *testing.T, name string, selector *metav1.LabelSelector) {
	t.Helper()
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if selector != nil {
		set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: selector}
	}
	framework.Must(s.OCM.ClusterV1beta2().ManagedClusterSets().Create(t.Context(), set, metav1.CreateOptions{}))(t)
	s.rebind(t, name)
}

func (s *setFleet) rebind(t *testing.T, name string) {
	t.Helper()
	framework.Must(s.OCM.ClusterV1beta2().ManagedClusterSetBindings(team).Create(t.Context(), &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: name},
	}, metav1.CreateOptions{}))(t)
}

func (s *setFleet) unbind(t *testing.T, name string) {
	t.Helper()
	if err := s.OCM.ClusterV1beta2().ManagedClusterSetBindings(team).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *setFleet) label(t *testing.T, cluster, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	framework.Must(s.OCM.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

// summarized waits until the status of the account reports these numbers of clusters and these failing
// clusters.
func (s *setFleet) summarized(t *testing.T, ready, total int32, failing ...string) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	var account *authenticationv1beta1.ManagedServiceAccount
	framework.Eventually(t, fmt.Sprintf("the account reports %d of %d clusters as ready and %v as failing", ready, total, failing), func(ctx context.Context) error {
		var err error
		if account, err = s.GetAccount(ctx, team, bot); err != nil {
			return err
		}
		clusters := account.Status.Clusters
		if clusters == nil {
			return errors.New("status.clusters is nil")
		}
		var names []string
		for _, failure := range clusters.Failing {
			names = append(names, failure.Name)
		}
		if clusters.Ready != ready || clusters.Total != total || !slices.Equal(names, failing) {
			return fmt.Errorf("status.clusters = %+v", clusters)
		}
		return nil
	})
	return account
}

// onCluster waits until the ServiceAccount exists on a cluster, or does not exist if want is false.
func (s *setFleet) onCluster(t *testing.T, member int, want bool) {
	t.Helper()
	client := framework.Must(kubeClient(s.Members[member].Cluster))(t)
	framework.Eventually(t, fmt.Sprintf("existence of the ServiceAccount on %s is %t", s.Members[member].Name, want), func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(ctx, bot, metav1.GetOptions{})
		if want {
			return err
		}
		return framework.IsGone(err)
	})
}

func (s *setFleet) waitsWithoutSet(t *testing.T) {
	accounts := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team)
	if _, err := accounts.Create(t.Context(), framework.NewAccount(team, bot), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.AccountSays(t, team, bot, authenticationv1beta1.ConditionNamespaceManaged, metav1.ConditionFalse, authenticationv1beta1.ReasonNotManaged)
	if err := accounts.Delete(t.Context(), bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *setFleet) everyCluster(t *testing.T) {
	asked := framework.NewAccount(team, bot)
	asked.Spec.Rotation.Validity = "24h"
	framework.Must(s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Create(t.Context(), asked, metav1.CreateOptions{}))(t)
	s.summarized(t, 1, 1)
	s.label(t, "cluster2", clusterv1beta2.ClusterSetLabel, "mine")
	whole := s.summarized(t, 2, 2)
	for _, conditionType := range []string{
		authenticationv1beta1.ConditionAllServiceAccountPresent, authenticationv1beta1.ConditionSecretCreated, authenticationv1beta1.ConditionTokenReported,
	} {
		if !meta.IsStatusConditionTrue(whole.Status.Conditions, conditionType) {
			t.Errorf("conditions = %v, want %s True", whole.Status.Conditions, conditionType)
		}
	}
	if whole.Status.ExpirationTimestamp == nil {
		t.Error("status.expirationTimestamp = nil, want the earliest expiration of the tokens")
	}
	for i, member := range s.Members {
		replica, secret := s.AccountReported(t, member.Name, bot)
		if replica.Labels[authenticationv1beta1.ParentNamespaceLabel] != team {
			t.Errorf("labels of the replica on %s = %v, want the namespace %s of the account", member.Name, replica.Labels, team)
		}
		if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != replica.UID || secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true" {
			t.Errorf("Secret of %s has owners %v and labels %v, want the replica as owner and the label of accounts", member.Name, secret.OwnerReferences, secret.Labels)
		}
		if err := framework.AcceptsToken(t.Context(), s.Members[i].Cluster, secret); err != nil {
			t.Errorf("authentication with the token on %s = %v, want nil", member.Name, err)
		}
	}
	out, err := s.Kubectl(t, "", "get", "msa", "-n", team)
	if err != nil || !strings.Contains(out, "2/2") {
		t.Errorf("kubectl get prints %s, %v, want 2/2", out, err)
	}
}

func (s *setFleet) membersComeAndGo(t *testing.T) {
	s.label(t, "cluster2", clusterv1beta2.ClusterSetLabel, clusterv1beta2.DefaultClusterSet)
	s.onCluster(t, 1, false)
	s.summarized(t, 1, 1)
	// A cluster in two bound sets counts once.
	s.label(t, framework.Cluster1, clusterv1beta2.ClusterSetLabel, "mine")
	s.label(t, "cluster2", "region", "north")
	s.onCluster(t, 1, true)
	s.summarized(t, 2, 2)
}

// A cluster without an agent and a cluster with another account of the same name do not delay other
// clusters. The status reports them with the reason.
func (s *setFleet) namesWhatIsInTheWay(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{"cluster3", "cluster4"} {
		if err := localhub.JoinCluster(ctx, s.Hub, name); err != nil {
			t.Fatal(err)
		}
	}
	taken := framework.CreateAccount(t, s.OCM, framework.NewAccount("cluster4", bot))
	for _, name := range []string{"cluster3", "cluster4"} {
		s.label(t, name, "region", "north")
	}
	summary := s.summarized(t, 2, 4, "cluster3", "cluster4").Status.Clusters
	if summary.Failing[0].Reason != authenticationv1beta1.ReasonPending || summary.Failing[1].Reason != "NameTaken" {
		t.Errorf("failing clusters = %v, want cluster3 Pending and cluster4 NameTaken", summary.Failing)
	}
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts("cluster4").Delete(ctx, taken.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "cluster4 has a replica after the other account is deleted", func(ctx context.Context) error {
		replica, err := s.GetAccount(ctx, "cluster4", bot)
		if err == nil && replica.Labels[authenticationv1beta1.ParentNamespaceLabel] != team {
			err = fmt.Errorf("labels = %v, want a replica of %s", replica.Labels, team)
		}
		return err
	})
	for _, name := range []string{"cluster3", "cluster4"} {
		if err := s.OCM.ClusterV1().ManagedClusters().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.summarized(t, 2, 2)
	framework.Eventually(t, "replicas are deleted with their clusters", func(ctx context.Context) error {
		_, three := s.GetAccount(ctx, "cluster3", bot)
		_, four := s.GetAccount(ctx, "cluster4", bot)
		return framework.Gone(three, four)
	})
}

// Defect 7: the server restores a replica after any client changes or deletes it, and a client
// cannot detach a replica from its account.
func (s *setFleet) replicasAreKept(t *testing.T) {
	ctx, replicas := t.Context(), s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1)
	loose := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null}},"spec":{"audiences":["other"]}}`,
		authenticationv1beta1.ParentNamespaceLabel, authenticationv1beta1.ParentUIDAnnotation)
	cut := framework.Must(replicas.Patch(ctx, bot, types.MergePatchType, []byte(loose), metav1.PatchOptions{}))(t)
	if cut.Labels[authenticationv1beta1.ParentNamespaceLabel] != team || cut.Annotations[authenticationv1beta1.ParentUIDAnnotation] == "" {
		t.Errorf("replica after a patch has labels %v and annotations %v, want its marks kept", cut.Labels, cut.Annotations)
	}
	framework.Eventually(t, "the spec of the replica is restored", func(ctx context.Context) error {
		replica, err := replicas.Get(ctx, bot, metav1.GetOptions{})
		if err == nil && len(replica.Spec.Audiences) > 0 {
			err = fmt.Errorf("audiences = %v, want none", replica.Spec.Audiences)
		}
		return err
	})
	if err := replicas.Delete(ctx, bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the replica is created again", func(ctx context.Context) error {
		replica, err := replicas.Get(ctx, bot, metav1.GetOptions{})
		if err == nil && replica.UID == cut.UID {
			err = errors.New("the previous replica still exists")
		}
		return err
	})
	s.summarized(t, 2, 2)
}

// A cluster is not ready until its agent has reported on the current spec, even if it reported
// on an earlier one.
func (s *setFleet) specFollows(t *testing.T) {
	agent := s.Members[1].Agent
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	framework.Must(s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Patch(t.Context(), bot, types.MergePatchType,
		[]byte(`{"spec":{"rotation":{"validity":"12h"},"ttlSecondsAfterCreation":100000}}`), metav1.PatchOptions{}))(t)
	for _, member := range s.Members {
		framework.Eventually(t, "the replica on "+member.Name+" has the new spec", func(ctx context.Context) error {
			replica, err := s.GetAccount(ctx, member.Name, bot)
			if err == nil && (replica.Spec.Rotation.Validity != "12h" || replica.Spec.TTLSecondsAfterCreation != nil) {
				err = fmt.Errorf("spec = %+v", replica.Spec)
			}
			return err
		})
	}
	s.summarized(t, 1, 2, "cluster2")
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.summarized(t, 2, 2)
}

// After a restart, the server applies the changes that it missed.
func (s *setFleet) serverIsAway(t *testing.T) {
	s.label(t, "cluster2", "region", "south")
	if err := s.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.onCluster(t, 1, false)
	framework.Eventually(t, "the server serves the account again", func(ctx context.Context) error {
		_, err := s.GetAccount(ctx, team, bot)
		return err
	})
	s.summarized(t, 1, 1)
}

// A replica that is deleted and created again gets a new Secret, even if the garbage collector of
// the hub does not run.
func (s *setFleet) nobodyCollectsGarbage(t *testing.T) {
	if err := s.Hub.ControllerManager.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, before := s.AccountReported(t, framework.Cluster1, bot)
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "a new Secret replaces the previous one", func(ctx context.Context) error {
		secret, err := s.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, bot, metav1.GetOptions{})
		if err == nil && secret.UID == before.UID {
			err = errors.New("the previous Secret still exists")
		}
		return err
	})
	s.summarized(t, 1, 1)
	if err := s.Hub.ControllerManager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s *setFleet) noSetAnyMore(t *testing.T) {
	s.unbind(t, "north")
	s.unbind(t, "mine")
	s.onCluster(t, 0, false)
	for _, conditionType := range []string{authenticationv1beta1.ConditionNamespaceManaged, authenticationv1beta1.ConditionTokenReported} {
		s.AccountSays(t, team, bot, conditionType, metav1.ConditionFalse, authenticationv1beta1.ReasonNotManaged)
	}
	s.rebind(t, "unknown")
	// A binding of a set that does not exist changes nothing.
	s.AccountSays(t, team, bot, authenticationv1beta1.ConditionNamespaceManaged, metav1.ConditionFalse, authenticationv1beta1.ReasonNotManaged)
	s.onCluster(t, 0, false)
	s.rebind(t, "mine")
	s.onCluster(t, 0, true)
	back := s.summarized(t, 1, 1)
	if meta.FindStatusCondition(back.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged) != nil {
		t.Errorf("conditions = %v, want no NamespaceManaged", back.Status.Conditions)
	}
}

func (s *setFleet) deleted(t *testing.T) {
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Delete(t.Context(), bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.onCluster(t, 0, false)
	framework.Eventually(t, "the replica and its Secret are deleted", func(ctx context.Context) error {
		_, replica := s.GetAccount(ctx, framework.Cluster1, bot)
		_, secret := s.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, bot, metav1.GetOptions{})
		return framework.Gone(replica, secret)
	})
}
