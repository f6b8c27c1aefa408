package bench_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/clusterclient"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
)

// idleTime is the time for which the writes and requests of an idle fleet are counted.
const idleTime = time.Minute

// expiryMargin is the time after the expiration of a token from which every API server
// rejects it. API servers cache accepted tokens for ten seconds.
const expiryMargin = 15 * time.Second

func createAccount(b *testing.B, f *fleet, name string) {
	account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name}}
	if _, err := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1).Create(context.Background(), account, metav1.CreateOptions{}); err != nil {
		b.Error(err)
	}
}

// watched counts writes, and records arrivals.
type watched struct {
	*arrivals
	writes atomic.Int64
}

// count returns a handler that counts every change as a write.
func (w *watched) count() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.writes.Add(1) },
		UpdateFunc: func(any, any) { w.writes.Add(1) },
		DeleteFunc: func(any) { w.writes.Add(1) },
	}
}

// watchAccounts counts the writes for accounts, and records the times at which their Secrets
// are on the hub.
func watchAccounts(b *testing.B, f *fleet) *watched {
	b.Helper()
	w := &watched{arrivals: newArrivals()}
	hub, err := kubernetes.NewForConfig(f.Hub.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	count := w.count()
	onHub := informers.NewSharedInformerFactoryWithOptions(hub, 0, informers.WithNamespace(cluster1))
	onCluster := informers.NewSharedInformerFactory(f.managed, 0)
	ocm := externalversions.NewSharedInformerFactory(f.ocm, 0)
	secrets := onHub.Core().V1().Secrets().Informer()
	for _, informer := range []cache.SharedIndexInformer{
		secrets, onHub.Rbac().V1().Roles().Informer(), onCluster.Core().V1().ServiceAccounts().Informer(),
		ocm.Authentication().V1beta1().ManagedServiceAccounts().Informer(),
	} {
		if _, err := informer.AddEventHandler(count); err != nil {
			b.Fatal(err)
		}
	}
	// An arrival is complete after two bindings. One Secret counts as both.
	if _, err := secrets.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { w.note(obj, bindings) },
		DeleteFunc: func(obj any) { w.note(obj, -bindings) },
	}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() {
		cancel()
		onHub.Shutdown()
		onCluster.Shutdown()
		ocm.Shutdown()
	})
	for _, factory := range []interface{ Start(<-chan struct{}) }{onHub, onCluster, ocm} {
		factory.Start(ctx.Done())
	}
	onHub.WaitForCacheSync(ctx.Done())
	onCluster.WaitForCacheSync(ctx.Done())
	ocm.WaitForCacheSync(ctx.Done())
	return w
}

// removeAccounts deletes every account and waits until their Secrets are deleted.
func removeAccounts(b *testing.B, f *fleet, w *watched) {
	b.Helper()
	if err := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	w.wait(b, "all Secrets of accounts are deleted", func() bool { return len(w.seen) == 0 })
}

// BenchmarkAccountsOneAfterAnother creates ManagedServiceAccounts through the hub, each
// after the previous one has a token. It measures from before the request until a watch
// of the hub has received the Secret.
func BenchmarkAccountsOneAfterAnother(b *testing.B) {
	f, count := running(b), number(b, "BENCH_COUNT", 200)
	w := watchAccounts(b, f)
	for range b.N {
		var reported []time.Duration
		for i := range count {
			name := fmt.Sprintf("bench-account-%d", i)
			started := time.Now()
			createAccount(b, f, name)
			w.wait(b, "Secret "+name+" is on the hub", func() bool { _, ok := w.complete[name]; return ok })
			reported = append(reported, w.complete[name].Sub(started))
		}
		report(b, "create of a ManagedServiceAccount to its Secret on the hub, one after another", "secret", reported)
		removeAccounts(b, f, w)
	}
}

// BenchmarkAccountsAllAtOnce creates all accounts concurrently and measures until
// the last Secret is on the hub.
func BenchmarkAccountsAllAtOnce(b *testing.B) {
	f, count := running(b), number(b, "BENCH_COUNT", 200)
	w := watchAccounts(b, f)
	for range b.N {
		started := time.Now()
		var posting sync.WaitGroup
		for i := range count {
			posting.Go(func() { createAccount(b, f, fmt.Sprintf("bench-account-%d", i)) })
		}
		posting.Wait()
		stored := time.Since(started)
		w.wait(b, "all Secrets are on the hub", func() bool { return len(w.complete) == count })
		all := time.Since(started)
		b.ReportMetric(all.Seconds(), "all-reported-s")
		fmt.Printf("%d ManagedServiceAccounts created at once on one agent: all stored after %.2f s, all Secrets on the hub after %.2f s\n", count, stored.Seconds(), all.Seconds())
		removeAccounts(b, f, w)
	}
}

// BenchmarkAccountsIdle counts the writes for many accounts without changes, and measures
// the memory of the apiserver and the agent.
func BenchmarkAccountsIdle(b *testing.B) {
	f, count := running(b), number(b, "BENCH_ACCOUNTS", 5000)
	w := watchAccounts(b, f)
	for range b.N {
		names := make(chan string)
		var posting sync.WaitGroup
		for range creators {
			posting.Go(func() {
				for name := range names {
					createAccount(b, f, name)
				}
			})
		}
		started := time.Now()
		for i := range count {
			names <- fmt.Sprintf("bench-account-%d", i)
		}
		close(names)
		posting.Wait()
		w.wait(b, "all Secrets are on the hub", func() bool { return len(w.complete) == count })
		fmt.Printf("%d ManagedServiceAccounts created and reported in %.1f s\n", count, time.Since(started).Seconds())

		// The status of the last account and the Role that names all accounts may not be written yet.
		before := w.quiet()
		<-time.After(idleTime)
		written := w.writes.Load() - before
		server, agent := resident(b, f.Server.PID()), resident(b, f.Members[0].Agent.PID())
		b.ReportMetric(float64(written), "writes")
		b.ReportMetric(server, "apiserver-MB")
		b.ReportMetric(agent, "agent-MB")
		fmt.Printf("%d idle ManagedServiceAccounts: %d writes in %s; apiserver %.0f MB, agent %.0f MB resident\n", count, written, idleTime, server, agent)
		removeAccounts(b, f, w)
	}
}

// quiet waits until five seconds pass without a write, and returns the number of writes so far.
func (w *watched) quiet() int64 {
	const silence = 5 * time.Second
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for last := w.writes.Load(); ; {
		<-tick.C
		now := w.writes.Load()
		if now == last {
			return now
		}
		last = now
	}
}

// BenchmarkRotation measures the time after which a token with the shortest lifetime that
// API servers grant, ten minutes, is replaced. Meanwhile a consumer continuously uses the
// token in the Secret.
func BenchmarkRotation(b *testing.B) {
	f := running(b)
	ctx := context.Background()
	accounts := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1)
	for range b.N {
		const name = "bench-rotation"
		account := &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name}}
		account.Spec.Rotation.Validity = authenticationv1beta1.MinimumValidity.String()
		if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		consumer := consume(b, f, name)
		var first *authenticationv1beta1.ManagedServiceAccount
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for deadline := time.Now().Add(authenticationv1beta1.MinimumValidity); ; <-tick.C {
			now, err := accounts.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				b.Fatal(err)
			}
			if first == nil && now.Status.TokenSecretRef != nil {
				first = now
			}
			if first != nil && now.Status.TokenSecretRef != nil && now.Status.TokenSecretRef.LastRefreshTimestamp.After(first.Status.TokenSecretRef.LastRefreshTimestamp.Time) {
				lifetime := first.Status.ExpirationTimestamp.Sub(first.Status.TokenSecretRef.LastRefreshTimestamp.Time)
				after := now.Status.TokenSecretRef.LastRefreshTimestamp.Sub(first.Status.TokenSecretRef.LastRefreshTimestamp.Time)
				b.ReportMetric(100*after.Seconds()/lifetime.Seconds(), "%-of-lifetime")
				fmt.Printf("a token of %s was replaced after %s, %.0f %% of its lifetime\n", lifetime, after, 100*after.Seconds()/lifetime.Seconds())
				break
			}
			if time.Now().After(deadline) {
				b.Fatalf("token is not replaced after %s, want a new token before it expires", authenticationv1beta1.MinimumValidity)
			}
		}
		// After this wait, API servers reject the first token.
		<-time.After(time.Until(first.Status.ExpirationTimestamp.Time) + expiryMargin)
		used, failed := consumer()
		fmt.Printf("the consumer's %d requests until after the first token had expired: %d failed\n", used, failed)
		if err := accounts.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// consume continuously sends requests with the token of an account, as a program on the hub
// does. The returned function stops the requests, and returns the number of requests and of
// failed requests.
func consume(b *testing.B, f *fleet, name string) func() (used, failed int) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	hub, err := clusterclient.NewHub(f.Hub.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	source, err := hub.Source(cluster1, name, clusterclient.Options{Host: f.Members[0].AdminConfig().Host})
	if err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { source.Run(ctx) })
	var used, failed int
	running.Go(func() {
		config, err := source.Config(ctx)
		if err != nil {
			b.Error(err)
			return
		}
		config.QPS, config.Burst = 100, 100
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			b.Error(err)
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			// Every authenticated user may create a SelfSubjectReview.
			_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if ctx.Err() != nil {
				return
			}
			used++
			if err != nil {
				failed++
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() (int, int) {
		cancel()
		running.Wait()
		return used, failed
	}
}
