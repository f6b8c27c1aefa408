package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	crashCreates = 200
	// crashRounds is how often each of the victims is killed.
	crashRounds = 2
	// crashAccountEvery is how many ClusterPermissions go with one ManagedServiceAccount.
	crashAccountEvery = 4
	// crashRequest bounds one request while servers die.
	crashRequest = 3 * time.Second
)

// TestCrashes kills one process after the other at random moments while
// ClusterPermissions, and some ManagedServiceAccounts, are created. In the end
// every one that was stored is delivered, whole and once, and every account has
// a token that the cluster accepts.
func TestCrashes(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}})
	count, seed := framework.Environment(t, "CRASH_CREATES", crashCreates), framework.Environment(t, "CRASH_SEED", int(time.Now().UnixNano()%1_000_000))
	t.Logf("%d creates; CRASH_SEED=%d repeats these kills", count, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))

	config := f.Hub.AdminConfig()
	config.Timeout = crashRequest
	client := framework.OCMClient(t, config, nil)
	var stored, lost atomic.Int64
	created := make(chan error, 1)
	go func() {
		for i := range count {
			err := framework.Poll(t.Context(), func(ctx context.Context) error {
				_, err := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission(crashName(i)), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil // the one before was stored, and its answer lost
				}
				if err != nil {
					lost.Add(1)
				}
				return err
			})
			if err == nil && i%crashAccountEvery == 0 {
				err = framework.Poll(t.Context(), func(ctx context.Context) error {
					_, err := client.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Create(ctx, framework.NewAccount(framework.Cluster1, crashName(i)), metav1.CreateOptions{})
					if apierrors.IsAlreadyExists(err) {
						return nil
					}
					return err
				})
			}
			if err != nil {
				created <- fmt.Errorf("%s: %w", crashName(i), err)
				return
			}
			stored.Add(1)
		}
		created <- nil
	}()

	agent := f.Members[0].Agent.Process
	victims := slices.Repeat([]*localhub.Process{f.Server.Process, agent, f.Hub.APIServer, f.Members[0].APIServer, f.Hub.Etcd.Process, f.Members[0].Etcd.Process}, crashRounds)
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for i, victim := range victims {
		// Spread over the creates, and not always between two of them.
		due := int64(i*count/len(victims) + random.IntN(count/len(victims)+1))
		framework.Eventually(t, fmt.Sprintf("%d are stored", due), func(context.Context) error {
			if n := stored.Load(); n < due {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		t.Logf("%s is killed with %d stored", victim.Name, stored.Load())
		if err := victim.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	t.Logf("all created; %d requests failed meanwhile", lost.Load())
	f.wholeAndOnce(t, count)
	for i := 0; i < count; i += crashAccountEvery {
		_, secret := f.AccountReported(t, framework.Cluster1, crashName(i))
		if err := framework.AcceptsToken(t.Context(), f.Members[0].Cluster, secret); err != nil {
			t.Errorf("the token of %s: %v", crashName(i), err)
		}
	}

	// The same for deletion, with both of our own processes killed.
	if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, victim := range []*localhub.Process{f.Server.Process, agent} {
		if err := victim.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	framework.Eventually(t, "everything is gone", func(ctx context.Context) error {
		works, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := len(works.Items)
		for i := range count {
			for _, o := range framework.ObjectsOf(crashName(i)) {
				if _, err := framework.ReadObject(ctx, f.ManagedClient, o); err == nil {
					return fmt.Errorf("%d works and %s are left", left, o)
				} else if !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d works are left", left)
		}
		accounts, err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).List(ctx, metav1.ListOptions{LabelSelector: authenticationv1beta1.ManagedServiceAccountLabel})
		if err == nil && len(accounts.Items) > 0 {
			err = fmt.Errorf("%d ServiceAccounts are left", len(accounts.Items))
		}
		return err
	})
}

func crashName(i int) string { return fmt.Sprintf("crash-%03d", i) }

// wholeAndOnce waits until every ClusterPermission reports that it is applied,
// and checks that it is: all its objects, by exactly one work.
func (f *fleet) wholeAndOnce(t *testing.T, count int) {
	t.Helper()
	var permissions *rbacv1alpha1.ClusterPermissionList
	framework.Eventually(t, "all are applied", func(ctx context.Context) error {
		var err error
		if permissions, err = f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		var waiting []error
		for i := range permissions.Items {
			if err := framework.HasCondition(&permissions.Items[i], rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue); err != nil {
				waiting = append(waiting, err)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%d are not, the first: %w", len(waiting), waiting[0])
		}
		return nil
	})
	if n := len(permissions.Items); n != count {
		t.Errorf("%d ClusterPermissions are stored, not %d", n, count)
	}
	for i := range count {
		for _, o := range framework.ObjectsOf(crashName(i)) {
			if _, err := framework.ReadObject(t.Context(), f.ManagedClient, o); err != nil {
				t.Errorf("it is said to be applied, but: %v", err)
			}
		}
	}
	works := framework.Must(f.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(t.Context(), metav1.ListOptions{}))(t)
	owners := map[string]int{}
	for _, work := range works.Items {
		if owner := metav1.GetControllerOf(&work); owner != nil {
			owners[string(owner.UID)]++
		}
	}
	for _, cp := range permissions.Items {
		if n := owners[string(cp.UID)]; n != 1 {
			t.Errorf("%s has %d works", cp.Name, n)
		}
	}
	if len(works.Items) != len(permissions.Items) {
		t.Errorf("there are %d works of %d ClusterPermissions", len(works.Items), len(permissions.Items))
	}
}
