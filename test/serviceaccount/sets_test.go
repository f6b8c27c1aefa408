package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// team is the namespace that the sets of the test are bound to, and the account in it.
// Its name would not fit into a label.
const team, bot = "team-blue", "a-robot-of-the-team-whose-name-is-longer-than-what-a-label-may-hold"

// setFleet is a fleet of two clusters with two sets, both bound to the namespace team.
type setFleet struct {
	*fleet
}

// An account in a namespace that is bound to cluster sets is on every cluster of
// these sets, and nowhere else, whatever changes.
func TestAccountOfClusterSets(t *testing.T) {
	t.Parallel()
	s := &setFleet{ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1, "cluster2"}})}
	ctx := t.Context()
	if _, err := s.HubClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("refused without a set", s.refusedWithoutSet)
	s.bind(t, "north", &metav1.LabelSelector{MatchLabels: map[string]string{"region": "north"}})
	s.bind(t, "mine", nil)
	s.label(t, framework.Cluster1, "region", "north")
	t.Run("every cluster", s.everyCluster)
	t.Run("members come and go", s.membersComeAndGo)
	t.Run("what is in the way is named", s.namesWhatIsInTheWay)
	t.Run("replicas are kept", s.replicasAreKept)
	t.Run("the spec follows", s.specFollows)
	t.Run("the server is away", s.serverIsAway)
	t.Run("nobody collects garbage", s.nobodyCollectsGarbage)
	t.Run("no set any more", s.noSetAnyMore)
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

// summarized waits until the account sums up so many clusters, and the failing ones by name.
func (s *setFleet) summarized(t *testing.T, ready, total int32, failing ...string) *authenticationv1beta1.ManagedServiceAccount {
	t.Helper()
	var account *authenticationv1beta1.ManagedServiceAccount
	framework.Eventually(t, fmt.Sprintf("%d of %d clusters are ready", ready, total), func(ctx context.Context) error {
		var err error
		if account, err = s.GetAccount(ctx, team, bot); err != nil {
			return err
		}
		clusters := account.Status.Clusters
		if clusters == nil {
			return errors.New("there is no summary")
		}
		var names []string
		for _, failure := range clusters.Failing {
			names = append(names, failure.Name)
		}
		if clusters.Ready != ready || clusters.Total != total || !slices.Equal(names, failing) {
			return fmt.Errorf("the summary is %+v", clusters)
		}
		return nil
	})
	return account
}

// onCluster waits until the ServiceAccount is, or is not, on a cluster.
func (s *setFleet) onCluster(t *testing.T, member int, want bool) {
	t.Helper()
	client := framework.Must(kubeClient(s.Members[member].Cluster))(t)
	framework.Eventually(t, fmt.Sprintf("presence on %s is %t", s.Members[member].Name, want), func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(framework.AccountsNamespace).Get(ctx, bot, metav1.GetOptions{})
		if want {
			return err
		}
		return framework.IsGone(err)
	})
}

func (s *setFleet) refusedWithoutSet(t *testing.T) {
	_, err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Create(t.Context(), framework.NewAccount(team, bot), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !slices.Equal(framework.InvalidFields(err), []string{"metadata.namespace"}) {
		t.Errorf("got %v, not 422", err)
	}
	s.rebind(t, "unknown")
	_, err = s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Create(t.Context(), framework.NewAccount(team, bot), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("with a binding to a set that does not exist: got %v, not 422 that names it", err)
	}
	s.unbind(t, "unknown")
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
			t.Errorf("%s is not True: %v", conditionType, whole.Status.Conditions)
		}
	}
	if whole.Status.ExpirationTimestamp == nil {
		t.Error("it does not say when the first token expires")
	}
	for i, member := range s.Members {
		replica, secret := s.AccountReported(t, member.Name, bot)
		if replica.Labels[authenticationv1beta1.ParentNamespaceLabel] != team {
			t.Errorf("the replica on %s has the labels %v", member.Name, replica.Labels)
		}
		if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != replica.UID || secret.Labels[authenticationv1beta1.ManagedServiceAccountLabel] != "true" {
			t.Errorf("the Secret of %s is owned by %v and labelled %v", member.Name, secret.OwnerReferences, secret.Labels)
		}
		if err := framework.AcceptsToken(t.Context(), s.Members[i].Cluster, secret); err != nil {
			t.Errorf("%s does not accept its token: %v", member.Name, err)
		}
	}
	out, err := s.Kubectl(t, "", "get", "msa", "-n", team)
	if err != nil || !strings.Contains(out, "2/2") {
		t.Errorf("kubectl prints %s", out)
	}
}

func (s *setFleet) membersComeAndGo(t *testing.T) {
	s.label(t, "cluster2", clusterv1beta2.ClusterSetLabel, clusterv1beta2.DefaultClusterSet)
	s.onCluster(t, 1, false)
	s.summarized(t, 1, 1)
	// A cluster of two bound sets counts once.
	s.label(t, framework.Cluster1, clusterv1beta2.ClusterSetLabel, "mine")
	s.label(t, "cluster2", "region", "north")
	s.onCluster(t, 1, true)
	s.summarized(t, 2, 2)
}

// A cluster without an agent, one without a namespace and one where the name is
// taken hold no other, and are named with the reason.
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
		t.Errorf("the reasons are %v", summary.Failing)
	}
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts("cluster4").Delete(ctx, taken.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the name is used once it is free", func(ctx context.Context) error {
		replica, err := s.GetAccount(ctx, "cluster4", bot)
		if err == nil && replica.Labels[authenticationv1beta1.ParentNamespaceLabel] != team {
			err = errors.New("it is another account")
		}
		return err
	})
	for _, name := range []string{"cluster3", "cluster4"} {
		if err := s.OCM.ClusterV1().ManagedClusters().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.summarized(t, 2, 2)
	framework.Eventually(t, "replicas go with their clusters", func(ctx context.Context) error {
		_, three := s.GetAccount(ctx, "cluster3", bot)
		_, four := s.GetAccount(ctx, "cluster4", bot)
		return framework.Gone(three, four)
	})
}

// Weakness 7: a replica is what its account says, whoever changes or deletes it,
// and cannot be cut loose to stay behind.
func (s *setFleet) replicasAreKept(t *testing.T) {
	ctx, replicas := t.Context(), s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1)
	loose := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null}},"spec":{"audiences":["other"]}}`,
		authenticationv1beta1.ParentNamespaceLabel, authenticationv1beta1.ParentUIDAnnotation)
	cut := framework.Must(replicas.Patch(ctx, bot, types.MergePatchType, []byte(loose), metav1.PatchOptions{}))(t)
	if cut.Labels[authenticationv1beta1.ParentNamespaceLabel] != team || cut.Annotations[authenticationv1beta1.ParentUIDAnnotation] == "" {
		t.Errorf("the replica was cut loose: %v, %v", cut.Labels, cut.Annotations)
	}
	framework.Eventually(t, "its spec is that of the account", func(ctx context.Context) error {
		replica, err := replicas.Get(ctx, bot, metav1.GetOptions{})
		if err == nil && len(replica.Spec.Audiences) > 0 {
			err = fmt.Errorf("its audiences are %v", replica.Spec.Audiences)
		}
		return err
	})
	if err := replicas.Delete(ctx, bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "it is back", func(ctx context.Context) error {
		replica, err := replicas.Get(ctx, bot, metav1.GetOptions{})
		if err == nil && replica.UID == cut.UID {
			err = errors.New("it is still there")
		}
		return err
	})
	s.summarized(t, 2, 2)
}

// A cluster whose agent has not reported on the present spec is not ready, whatever
// it said of an earlier one.
func (s *setFleet) specFollows(t *testing.T) {
	agent := s.Members[1].Agent
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	framework.Must(s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Patch(t.Context(), bot, types.MergePatchType,
		[]byte(`{"spec":{"rotation":{"validity":"12h"},"ttlSecondsAfterCreation":100000}}`), metav1.PatchOptions{}))(t)
	for _, member := range s.Members {
		framework.Eventually(t, "the replica on "+member.Name+" follows", func(ctx context.Context) error {
			replica, err := s.GetAccount(ctx, member.Name, bot)
			if err == nil && (replica.Spec.Rotation.Validity != "12h" || replica.Spec.TTLSecondsAfterCreation != nil) {
				err = fmt.Errorf("its spec is %+v", replica.Spec)
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

// What changes while the server is away is made up for when it is back.
func (s *setFleet) serverIsAway(t *testing.T) {
	s.label(t, "cluster2", "region", "south")
	if err := s.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.onCluster(t, 1, false)
	framework.Eventually(t, "the server answers again", func(ctx context.Context) error {
		_, err := s.GetAccount(ctx, team, bot)
		return err
	})
	s.summarized(t, 1, 1)
}

// An account that is deleted and made again finds its name free, also where the
// hub's garbage collector takes the one for the other, or is not there.
func (s *setFleet) nobodyCollectsGarbage(t *testing.T) {
	if err := s.Hub.ControllerManager.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, before := s.AccountReported(t, framework.Cluster1, bot)
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "there is another Secret", func(ctx context.Context) error {
		secret, err := s.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, bot, metav1.GetOptions{})
		if err == nil && secret.UID == before.UID {
			err = errors.New("it is the former one")
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
	framework.Eventually(t, "the set that does not exist is named", func(ctx context.Context) error {
		account, err := s.GetAccount(ctx, team, bot)
		if err != nil {
			return err
		}
		managed := meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged)
		if managed == nil || !strings.Contains(managed.Message, "unknown") {
			return fmt.Errorf("it says %v", managed)
		}
		return nil
	})
	s.rebind(t, "mine")
	s.onCluster(t, 0, true)
	back := s.summarized(t, 1, 1)
	if meta.FindStatusCondition(back.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged) != nil {
		t.Errorf("it still says that the namespace has no clusters: %v", back.Status.Conditions)
	}
}

func (s *setFleet) deleted(t *testing.T) {
	if err := s.OCM.AuthenticationV1beta1().ManagedServiceAccounts(team).Delete(t.Context(), bot, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.onCluster(t, 0, false)
	framework.Eventually(t, "replica and Secret are gone", func(ctx context.Context) error {
		_, replica := s.GetAccount(ctx, framework.Cluster1, bot)
		_, secret := s.HubClient.CoreV1().Secrets(framework.Cluster1).Get(ctx, bot, metav1.GetOptions{})
		return framework.Gone(replica, secret)
	})
}
