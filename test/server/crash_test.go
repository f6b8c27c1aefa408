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
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	crashCreates = 100
	// crashRounds is the number of times that the test kills each process.
	crashRounds = 1
	// crashAccountEvery is the number of ClusterPermissions per ManagedServiceAccount.
	crashAccountEvery = 4
	// crashRequest is the timeout of one request while processes are killed.
	crashRequest = 3 * time.Second
)

// TestCrashes kills one process after the other at random times, while it creates ClusterPermissions
// and some ManagedServiceAccounts. It checks that each stored ClusterPermission is delivered
// completely by exactly one ManifestWork, and that each account has a token that the cluster accepts.
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
			err := await.Poll(t.Context(), func(ctx context.Context) error {
				_, err := client.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission(crashName(i)), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil // the previous attempt succeeded, but its response was lost
				}
				if err != nil {
					lost.Add(1)
				}
				return err
			})
			if err == nil && i%crashAccountEvery == 0 {
				err = await.Poll(t.Context(), func(ctx context.Context) error {
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
	victims := slices.Repeat([]*localhub.Process{f.Server.Process, agent, f.Hub.APIServer, f.Members[0].APIServer, f.Hub.Etcd.Process, f.Members[0].Etcd.Process}, framework.Environment(t, "CRASH_ROUNDS", crashRounds))
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for i, victim := range victims {
		// The kills are spread over the creates, at random positions.
		due := int64(i*count/len(victims) + random.IntN(count/len(victims)+1))
		framework.Eventually(t, fmt.Sprintf("at least %d ClusterPermissions are stored", due), func(context.Context) error {
			if n := stored.Load(); n < due {
				return fmt.Errorf("%d are stored", n)
			}
			return nil
		})
		t.Logf("killing %s after %d ClusterPermissions are stored", victim.Name, stored.Load())
		if err := victim.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	t.Logf("all ClusterPermissions are created; %d requests failed", lost.Load())
	f.wholeAndOnce(t, count)
	for i := 0; i < count; i += crashAccountEvery {
		_, secret := f.AccountReported(t, framework.Cluster1, crashName(i))
		if err := framework.AcceptsToken(t.Context(), f.Members[0].Cluster, secret); err != nil {
			t.Errorf("token of ManagedServiceAccount %s is not accepted: %v", crashName(i), err)
		}
	}

	// The deletion must also complete when the server and the agent are killed.
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
	framework.Eventually(t, "no ManifestWorks, delivered objects and ServiceAccounts exist", func(ctx context.Context) error {
		works, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := len(works.Items)
		for i := range count {
			for _, o := range framework.ObjectsOf(crashName(i)) {
				if _, err := framework.ReadObject(ctx, f.ManagedClient, o); err == nil {
					return fmt.Errorf("%d ManifestWorks and %s exist", left, o)
				} else if !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d ManifestWorks exist", left)
		}
		accounts, err := f.ManagedClient.CoreV1().ServiceAccounts(framework.AccountsNamespace).List(ctx, metav1.ListOptions{LabelSelector: authenticationv1beta1.ManagedServiceAccountLabel})
		if err == nil && len(accounts.Items) > 0 {
			err = fmt.Errorf("%d ServiceAccounts exist", len(accounts.Items))
		}
		return err
	})
}

func crashName(i int) string { return fmt.Sprintf("crash-%03d", i) }

// wholeAndOnce waits until every ClusterPermission is reported as applied. It checks that all objects
// of each ClusterPermission exist, and that it has exactly one ManifestWork.
func (f *fleet) wholeAndOnce(t *testing.T, count int) {
	t.Helper()
	var permissions *rbacv1alpha1.ClusterPermissionList
	framework.Eventually(t, "all ClusterPermissions are applied", func(ctx context.Context) error {
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
			return fmt.Errorf("%d are not applied, the first: %w", len(waiting), waiting[0])
		}
		return nil
	})
	if n := len(permissions.Items); n != count {
		t.Errorf("stored ClusterPermissions = %d, want %d", n, count)
	}
	for i := range count {
		for _, o := range framework.ObjectsOf(crashName(i)) {
			if _, err := framework.ReadObject(t.Context(), f.ManagedClient, o); err != nil {
				t.Errorf("object of applied ClusterPermission %s: %v", crashName(i), err)
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
			t.Errorf("ClusterPermission %s has %d ManifestWorks, want 1", cp.Name, n)
		}
	}
	if len(works.Items) != len(permissions.Items) {
		t.Errorf("%d ManifestWorks for %d ClusterPermissions, want the same number", len(works.Items), len(permissions.Items))
	}
}
