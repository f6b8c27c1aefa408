package csr

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
)

// TestSurplusIsRemovedSlowly checks that the Approver removes the oldest requests beyond the limit, at most 50 in any
// second for all clusters together, although each removal sends an event.
func TestSurplusIsRemovedSlowly(t *testing.T) {
	const clusters, surplus = 3, 100
	synctest.Test(t, func(t *testing.T) {
		hub, own := kubefake.NewClientset(), fake.NewSimpleClientset()
		for i := range clusters * (DefaultMaxRequests + surplus) {
			cluster := fmt.Sprint("cluster", i%clusters)
			request := requestOf(identityPrefix+cluster+":agent", nil)
			request.Name, request.Labels = fmt.Sprintf("request-%03d", i), map[string]string{clusterv1.ClusterNameLabel: cluster}
			request.CreationTimestamp = metav1.NewTime(decidedAt.Add(time.Duration(i) * time.Second))
			if err := hub.Tracker().Add(request); err != nil {
				t.Fatal(err)
			}
		}
		var removed []time.Time
		var mu sync.Mutex
		hub.PrependReactor("delete-collection", "certificatesigningrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, time.Now())
			name, _ := action.(clienttesting.DeleteCollectionAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
			if want := fmt.Sprintf("request-%03d", clusters*surplus); name >= want {
				t.Errorf("%s is removed, want only requests older than %s", name, want)
			}
			return true, nil, hub.Tracker().Delete(action.GetResource(), "", name)
		})

		informers, ownInformers := kubeinformers.NewSharedInformerFactory(hub, 0), externalversions.NewSharedInformerFactory(own, 0)
		a, err := NewApprover(Options{
			Hub: hub, CSRs: informers.Certificates().V1().CertificateSigningRequests(),
			Clusters: own.ClusterV1(), ClusterInformer: ownInformers.Cluster().V1().ManagedClusters(),
			Records: &records{tracker: own.Tracker()}, Registrations: ownInformers.Register().V1alpha1().ManagedClusterRegistrations(),
			Clock: clock.RealClock{},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		informers.Start(ctx.Done())
		ownInformers.Start(ctx.Done())
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		informers.Shutdown()
		ownInformers.Shutdown()

		if len(removed) != clusters*surplus {
			t.Fatalf("removals = %d, want %d", len(removed), clusters*surplus)
		}
		for i := 50; i < len(removed); i++ {
			if within := removed[i].Sub(removed[i-50]); within < time.Second {
				t.Fatalf("removals %d to %d are within %s, want at most 50 per second", i-50, i, within)
			}
		}
	})
}

// Only the oldest pending requests of each requester are considered.
func TestConsidered(t *testing.T) {
	a := &Approver{options: Options{MaxRequests: 2}}
	at := func(user, name string, age time.Duration) *certificatesv1.CertificateSigningRequest {
		request := requestOf(user, nil)
		request.Name, request.CreationTimestamp = name, metav1.NewTime(decidedAt.Add(-age))
		return request
	}
	decided := at("flood", "decided", time.Hour)
	decided.Status.Certificate = []byte("certificate")
	var got []string
	for _, request := range a.considered([]*certificatesv1.CertificateSigningRequest{
		at("flood", "third", time.Second), at("flood", "second", 2*time.Second), decided, at("other", "own", 0), at("flood", "first", 3*time.Second),
	}) {
		got = append(got, request.Name)
	}
	if want := "first second own"; strings.Join(got, " ") != want {
		t.Errorf("considered() = %v, want %s", got, want)
	}
}

// A request that is too large for an agent is not kept in memory, and is ignored.
func TestSmall(t *testing.T) {
	request := requestOf("system:bootstrap:abcdef", encode(t, newKey(t), named(identityPrefix+"cluster1:agent", identityPrefix+"cluster1")))
	request.Name, request.Labels = "request", map[string]string{clusterv1.ClusterNameLabel: "cluster1"}
	if got := Small(request); got != any(request) {
		t.Errorf("Small(request of an agent) = %v, want the unchanged request", got)
	}
	for name, change := range map[string]func(*certificatesv1.CertificateSigningRequest){
		"request": func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = make([]byte, maxCachedBytes) },
		"annotations": func(r *certificatesv1.CertificateSigningRequest) {
			r.Annotations = map[string]string{"a": strings.Repeat("x", maxCachedBytes)}
		},
		"labels": func(r *certificatesv1.CertificateSigningRequest) {
			r.Labels["a"] = strings.Repeat("x", maxCachedBytes)
		},
	} {
		large := request.DeepCopy()
		change(large)
		small, ok := Small(large).(*certificatesv1.CertificateSigningRequest)
		if !ok || small.Size() > 1000 || small.Name != request.Name || small.Labels[clusterv1.ClusterNameLabel] != "cluster1" {
			t.Fatalf("%s: Small() = %v, want a small request of the same name and cluster", name, small)
		}
		if d := judge(input{request: small}); d.verdict != verdictIgnore {
			t.Errorf("%s: verdict = %v, want %v", name, d.verdict, verdictIgnore)
		}
	}
}
